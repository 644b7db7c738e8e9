/* The tensors of every network: one walk that recognition, the strict check, `info` and the synthetic checkpoints of
 * the tests all use. Each model file has its own part of it (models.h). */
#ifndef IST_MODELS_ARCH_H
#define IST_MODELS_ARCH_H

#include "weights/weights.h"

typedef enum ist_model_kind {
    IST_MODEL_UNKNOWN,
#define DETECTOR(id, descriptor)  IST_MODEL_##id,
#define SEGMENTER(id, descriptor) IST_MODEL_##id,
#include "models/models.inc"
#undef DETECTOR
#undef SEGMENTER
    IST_MODEL_KINDS
} ist_model_kind;

/* "dfine-n" .. "mobilesam"; "unknown". */
const char *ist_model_name(ist_model_kind kind);

/* What an engine opens a file for. */
typedef enum ist_checkpoint_slot { IST_SLOT_DETECTOR, IST_SLOT_SEGMENTER } ist_checkpoint_slot;

/* One of the two, or no model at all. */
bool ist_model_is(ist_model_kind kind, ist_checkpoint_slot slot);

/* "D-FINE": the families that fill a slot, joined by `between` ("A or B"); returns text. */
char *ist_model_families(ist_checkpoint_slot slot, const char *between, char *text, size_t size);

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
    int classes;   /* detectors only */
    int size;      /* D-FINE only: side of the square evaluation image that the stored anchors are for */
    bool deployed; /* D-FINE only: after the official deploy() */
    int channels;  /* of the images it reads: 1, 3 or 4; 0 stands for 3 */
    bool silu;     /* D-FINE only: the decoder's MLPs have SiLU where the published one has ReLU, as DEIM trains them */
    int side;      /* segmenters only: side of the square input where the file tells, else 0 */
    int blocks, width;  /* ViT only; with 0 blocks, side 0 and width 0 those of ViT-B are meant */
    unsigned whole_map; /* ViT only: bit b: block b sees the whole map, not windows */
} ist_arch_form;

/* Calls `visit` once per state_dict entry, in the official order, and stops with the first failure it returns. */
typedef ist_status (*ist_arch_visit)(void *user, const ist_arch_entry *entry);
ist_status ist_arch_walk(const ist_arch_form *form, ist_arch_visit visit, void *user);

/* What a file holds if it holds a model of this kind. */
ist_arch_form ist_arch_form_of(const ist_weights *weights, ist_model_kind kind);

#endif
