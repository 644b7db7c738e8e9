/* What the generator of masks of everything knows between its plans: one buffer on the device, of 32-bit words.
 *
 * Points are taken batch by batch; each of their masks that passes the filters becomes a candidate, in the order of
 * points and masks, so that those of a crop follow each other. When all points are taken, selection writes which
 * candidates are kept; these are then asked for again, and their masks are stored. Where small regions are removed from
 * these, selection follows once more, and they are asked for and cleaned a last time, in the order that they have then.
 * Kernels get the numbers of this file as
 * macros without IST_ (codes/found). */
#ifndef IST_GRAPH_FOUND_H
#define IST_GRAPH_FOUND_H

#include <stddef.h>
#include <stdint.h>

enum ist_found_word {
    IST_FD_TAKEN = 0,      /* points asked */
    IST_FD_CANDIDATES = 1, /* so far */
    IST_FD_SELECTED = 2,   /* nonzero: selection is over */
    IST_FD_KEPT = 3,       /* candidates kept */
    IST_FD_DROPPED = 4,    /* and those that were too many */
    IST_FD_STORED = 5,     /* of the kept: masks stored */
    IST_FD_SURVIVORS = 6,  /* candidates that are no duplicates within their crop */
    IST_FD_CLEANED = 7,    /* nonzero: small regions were removed once, and duplicates after that */
    IST_FD_OF_CROP = 8,    /* candidates of each crop, at most IST_CROPS_MAX */
    IST_FD_HEADER = 96
};

/* Most crops: an image and those of three layers. */
enum { IST_CROPS_MAX = 1 + 4 + 16 + 64 };

/* A candidate, in pixels of the whole image. */
enum ist_candidate_word {
    IST_CD_IOU = 0,  /* predicted, float */
    IST_CD_AREA = 1, /* then least and most x, least and most y, all inclusive; of an empty mask the crop's corner */
    IST_CD_X0 = 2,
    IST_CD_X1 = 3,
    IST_CD_Y0 = 4,
    IST_CD_Y1 = 5,
    IST_CD_HIGH = 6, /* pixels of logits above and below the stability's offset */
    IST_CD_LOW = 7,
    IST_CD_POINT = 8,
    IST_CD_MASK = 9, /* which of the point's */
    IST_CD_CROP = 10,
    IST_CD_CHANGED = 11, /* nonzero: small regions were removed */
    IST_CD_WORDS = 12
};

/* Behind the header: candidates, then for as many of them lists of a word each and boxes in the order of the first. */
enum ist_found_list {
    IST_FL_ORDER = 0,     /* candidates by crop and falling quality, survivors by their crops' score, or the kept by
                           * whether they were changed */
    IST_FL_ALIVE = 1,     /* whether the one at that place is no duplicate */
    IST_FL_SURVIVORS = 2, /* the candidates that are left, in order */
    IST_FL_KEPT = 3,
    IST_FL_BOXES = 4, /* 4 floats each */
    IST_FL_WORDS = 8
};

static inline size_t ist_found_words(size_t candidates) {
    return IST_FD_HEADER + candidates * (IST_CD_WORDS + IST_FL_WORDS);
}

#endif
