/* Words of what judges tracks (visibility, states): the records behind the packet's logits, the table that goes from
 * frame to frame, and the sums that scores are made of. Kernels get the numbers as macros without IST_ (codes/trust).
 * Up to IST_TRUST_TRACKS tracks are judged; each has a place, the same as long as it lives. */
#ifndef IST_GRAPH_TRUST_H
#define IST_GRAPH_TRUST_H

enum ist_trust_limit {
    IST_TRUST_TRACKS = 32,
    IST_TRUST_PARTS = 4, /* of a column, which work-items share */
    IST_TRUST_KEPT = 16  /* pixels that a work-item copies */
};

/* Record of a place in the packet. */
enum ist_trust_word {
    IST_TS_ID = 0,     /* track id; 0: the place is free */
    IST_TS_OBJECT = 1, /* number among the image's objects, -1: not seen */
    IST_TS_STATE = 2,  /* ist_visibility of isthmus.h */
    IST_TS_SCORES = 3, /* S1 to S4, C1 to C3: floats */
    IST_TS_S = 10,
    IST_TS_C = 11,
    IST_TS_WORDS = 12
};

/* The table: a header, then the places. Two of it, since a frame that fails must leave the last one. */
enum ist_trust_table_word {
    IST_TT_WIDTH = 0, /* of the frame before; 0: none */
    IST_TT_HEIGHT = 1,
    IST_TT_HEADER = 4,

    IST_TT_ID = 0,
    IST_TT_STATE = 1,
    IST_TT_LOW = 2,     /* frames in a row that were low */
    IST_TT_UNSEEN = 3,  /* frames since the track had an object */
    IST_TT_HALF = 4,    /* which of its two masks is the latest */
    IST_TT_MASKED = 5,  /* whether there is one */
    IST_TT_AREA = 6,    /* its set pixels */
    IST_TT_DEPTH = 7,   /* its mean row, float */
    IST_TT_DEEP = 8,    /* whether there is a depth */
    IST_TT_SHOWN = 9,   /* whether a frame in which it was visible is kept */
    IST_TT_OBJECT = 10, /* this frame's object, -1: none */
    IST_TT_KEEP = 11,   /* this frame is to be kept as such a one */
    IST_TT_WORDS = 12
};

/* Sums over the pixels of a region, 64 bit: E edge, I in, O out, M mask. X is this frame, Y the one before (of M: the
 * one in which the track was visible), L the Laplacian. */
enum ist_trust_sum {
    IST_SUM_E_N,
    IST_SUM_E_L,
    IST_SUM_E_LL,
    IST_SUM_E_X,
    IST_SUM_E_XX,
    IST_SUM_E_Y,
    IST_SUM_E_YY,
    IST_SUM_E_XY,
    IST_SUM_I_N,
    IST_SUM_I_X,
    IST_SUM_I_XX,
    IST_SUM_O_N,
    IST_SUM_O_X,
    IST_SUM_O_XX,
    IST_SUM_M_N,
    IST_SUM_M_ROW,
    IST_SUM_M_X,
    IST_SUM_M_XX,
    IST_SUM_M_Y,
    IST_SUM_M_YY,
    IST_SUM_M_XY,
    IST_SUM_M_BOTH, /* pixels of this mask and the one before */
    IST_SUMS
};

#endif
