/* What each network is made of: the size tables of D-FINE and the list of tensors of every model.
 *
 * The walk is the one place that knows official names and shapes; recognition, the strict check, `info` and the
 * synthetic checkpoints of the tests all use it. D-FINE: Peterande/D-FINE, configs and src/zoo/dfine; MobileSAM:
 * ChaoningZhang/MobileSAM, builder vit_t. */
#ifndef IST_WEIGHTS_ARCH_H
#define IST_WEIGHTS_ARCH_H

#include "weights/weights.h"

/* Enumerator suffix and name. */
#define IST_MODEL_LIST(X)                                                                                              \
    X(UNKNOWN, "unknown")                                                                                              \
    X(DFINE_N, "dfine-n")                                                                                              \
    X(DFINE_S, "dfine-s")                                                                                              \
    X(DFINE_M, "dfine-m")                                                                                              \
    X(DFINE_L, "dfine-l")                                                                                              \
    X(DFINE_X, "dfine-x")                                                                                              \
    X(MOBILE_SAM, "mobilesam")

typedef enum ist_model_kind {
#define X(id, name) IST_MODEL_##id,
    IST_MODEL_LIST(X)
#undef X
        IST_MODEL_KINDS
} ist_model_kind;

/* "dfine-n" .. "mobilesam". */
const char *ist_model_name(ist_model_kind kind);

static inline bool ist_model_is_dfine(ist_model_kind kind) {
    return kind >= IST_MODEL_DFINE_N && kind <= IST_MODEL_DFINE_X;
}

/* One HGNetv2 stage. */
typedef struct ist_hgnet_stage {
    int in, mid, out; /* channels */
    int blocks, layers;
    bool light; /* layers are 1x1 + depthwise 5x5 instead of 3x3 */
} ist_hgnet_stage;

/* One D-FINE size. */
typedef struct ist_dfine_arch {
    int stem_mid, stem_out;
    bool lab;       /* learnable affine after every activated backbone unit */
    bool frozen_bn; /* backbone batch norms have no num_batches_tracked */
    ist_hgnet_stage stages[4];
    int levels;             /* maps handed to the encoder: the last 2 or 3 stages */
    int hidden, encoder_ff; /* encoder width C and feed-forward width */
    int elan, bottlenecks;  /* c4 and bottlenecks per CSP block */
    int dim, layers, decoder_ff;
    int points[3];     /* sampling points per level, finest first; their sum is 12 */
    bool decoder_proj; /* 1x1 hidden -> dim before the decoder */
    int reg_scale;     /* value in the official configuration; the checkpoint's own value is what counts */
} ist_dfine_arch;

/* Constants of every D-FINE size. */
enum { IST_DFINE_QUERIES = 300, IST_DFINE_REG_MAX = 32, IST_DFINE_HEADS = 8, IST_DFINE_POINTS = 12 };

/* The table row, NULL unless kind is a D-FINE size. */
const ist_dfine_arch *ist_dfine_arch_of(ist_model_kind kind);

/* One entry of a state dict. */
typedef struct ist_arch_entry {
    const char *name;     /* valid during the visit only */
    ist_weight_type type; /* as an official checkpoint stores it */
    int rank;
    int64_t dims[4];
    bool needed; /* read at inference */
} ist_arch_entry;

/* Which state dict of a model. */
typedef struct ist_arch_form {
    ist_model_kind kind;
    int classes;   /* D-FINE only */
    int size;      /* D-FINE only: side of the square evaluation image that the stored anchors are for */
    bool deployed; /* D-FINE only: after the official deploy() */
} ist_arch_form;

/* Calls `visit` once per state_dict entry, in the official order, and stops with the first failure it returns. */
typedef ist_status (*ist_arch_visit)(void *user, const ist_arch_entry *entry);
ist_status ist_arch_walk(const ist_arch_form *form, ist_arch_visit visit, void *user);

#endif
