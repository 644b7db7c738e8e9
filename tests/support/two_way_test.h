/* What the tests of attention between tokens and an image share. */
#ifndef IST_TESTS_TWO_WAY_TEST_H
#define IST_TESTS_TWO_WAY_TEST_H

#include "variants/token.h"
#include "support/optest.h"

/* Items of x by map or, without, their own, plus shift [channels] or NULL: what the reference sees of n prompts. */
ref_map picked_items(optest *t, ref_map x, const int *map, const float *shift, int n);

/* A layer on tokens that passes `hidden` channels on and normalises them with zeros behind; what it makes of x. */
ist_token_layer passing_layer(optest *t, int hidden);
ref_map passed_layer(optest *t, ref_map x, const ist_token_layer *l);

#endif
