/* Visibility of tracks as scalar code, pixel by pixel: what cl/portable/trust.cl must agree with. */
#ifndef IST_TESTS_REF_TRUST_H
#define IST_TESTS_REF_TRUST_H

#include "isthmus.h"

#include <stdbool.h>

enum { REF_TRUST_TRACKS = 32 };

typedef struct ref_track {
    int id, low, unseen;
    ist_visibility state;
    unsigned char *mask, *shown; /* of the last frame with an object, of the last in which it was visible; or NULL */
    double depth;                /* negative: none */
} ref_track;

/* What goes from frame to frame. Zero-initialised is the start. */
typedef struct ref_trust {
    int width, height;
    unsigned char *gray; /* the frame before */
    ref_track tracks[REF_TRUST_TRACKS];
} ref_trust;

/* Judges one frame; `tracks`: objects carry track ids in ist_object.match, which survive `age` frames unseen. `out` has
 * room for REF_TRUST_TRACKS, in the order of their places; how many there are. Masks are not filled in. */
int ref_trust_frame(ref_trust *state, const unsigned char *gray, int width, int height, const ist_object *objects,
                    int count, bool tracks, int age, const ist_trust_options *options, ist_trust *out);

/* The three weights of a mask, one byte per pixel. */
void ref_trust_weights(const unsigned char *mask, int width, int height, unsigned char *edge, unsigned char *in,
                       unsigned char *out);

/* Whether pixel (x, y) is set. */
bool ref_trust_bit(const ist_mask *mask, int x, int y);

void ref_trust_free(ref_trust *state);

#endif
