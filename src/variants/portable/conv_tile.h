/* Products on register tiles (cl/portable/conv_tile), for more than the convolution that they were made for. */
#ifndef IST_VARIANTS_PORTABLE_CONV_TILE_H
#define IST_VARIANTS_PORTABLE_CONV_TILE_H

#include "variants/conv.h"
#include "variants/defines.h"

/* Bytes of local memory of a group. */
size_t ist_conv_tile_local_bytes(const ist_conv_tile *r);
/* Nanoseconds of a launch of `tiles` tiles on a GPU, each the sum of `steps` steps of r->bk inputs. */
double ist_conv_tile_time(const ist_plan *p, const ist_conv_tile *r, double tiles, int steps);
/* Of a launch, beside its work; of one behind it. */
#define IST_CONV_TILE_START 6300.0
#define IST_CONV_TILE_NEXT 5050.0
/* And of an output's activation, on a compute unit. */
double ist_conv_tile_activation(ist_act act);
/* -D options of the storage of a convolution's operands; whether all of them begin at multiples of four elements. */
ist_defines ist_conv_tile_storage(const ist_plan *p, const ist_conv_problem *q);
bool ist_conv_tile_whole(ist_tensor x);

/* Products of `matrices` matrices x [matrices * n,h,w,in], floats in multiples of four channels, each with the filter
 * of its number of `weights` [column tile][matrix][in][column]: [matrices,1,n*h*w,width], width >= out. Those of the n
 * items beyond the plan's limit are left out. */
ist_tensor ist_conv_tile_products(ist_plan *p, const ist_conv_tile *r, const char *label, int matrices, ist_tensor x,
                                  ist_tensor weights, int out);

#endif
