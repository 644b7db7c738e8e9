/* Synthetic checkpoints and images: pure integer functions of (seed, name, index).
 *
 * Every value is an integer followed by at most two correctly rounded IEEE-754 operations, so that every platform makes
 * the same bits and golden results need no stored weights. Only tests and the demo's checkpoint maker use this. */
#ifndef IST_TESTS_SYNTH_H
#define IST_TESTS_SYNTH_H

#include "models/checkpoint.h"

uint64_t synth_fnv1a64(const void *bytes, size_t size);

/* State for a name, and draw i of it: an integer in [0, 2^24) (splitmix64). */
uint64_t synth_base(const char *name, uint64_t seed);
uint32_t synth_draw(uint64_t base, uint64_t i);

/* "n", "s", "m", "l", "x", "sam", "sam_vit_b" (also "dfine-n", "mobilesam", ..) -> kind; UNKNOWN when it is none of them. */
ist_model_kind synth_kind(const char *model);

/* The seed golden data were made with: seed + 1000 * salt of the model. */
uint64_t synth_golden_seed(ist_model_kind kind, uint64_t seed);

/* Value of one state_dict entry by its official key, as float32 into dst (product of dims). Not for the constants an
 * architecture fixes itself (num_batches_tracked, anchors, valid_mask, num_points_scale, up, reg_scale). */
void synth_weight(const char *key, int rank, const int64_t *dims, uint64_t seed, float *dst);

/* The whole state dict in memory (the caller closes it) or as a safetensors file. `classes` is ignored for MobileSAM.
 */
ist_status synth_weights(ist_model_kind kind, int classes, uint64_t seed, ist_weights **out, ist_error *err);
/* Of a network of other sizes. */
ist_status synth_weights_of(const ist_arch_form *form, uint64_t seed, ist_weights **out, ist_error *err);
ist_status synth_checkpoint(ist_model_kind kind, int classes, uint64_t seed, const char *path, ist_error *err);

/* The same of any form of a model, and with a line of metadata unless `key` is NULL. */
ist_status synth_form_checkpoint(const ist_arch_form *form, uint64_t seed, const char *key, const char *value,
                                 const char *path, ist_error *err);

/* RGB test image, height x width x 3 bytes: lattice noise, ellipses, speckle. */
void synth_phantom(int height, int width, uint64_t seed, uint8_t *rgb);

#endif
