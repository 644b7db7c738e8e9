/* Kernel variants: the ways to compute a node or a span of neighbours, and the one table that lists them all (table.inc).
 *
 * A variant covers one kind of node or span; it says what it needs of a device, which nodes it takes, what it would
 * cost, and records the launches. Choosing is ist_variant_choose's alone, and it alone asks for capabilities: of the variants that the
 * plan's device can run and that take the node, the one that a tuning record names, else the cheapest, earlier ones
 * first. The last variant of every kind takes every node and needs nothing. */
#ifndef IST_VARIANTS_VARIANT_H
#define IST_VARIANTS_VARIANT_H

#include "core/plan.h"
#include "graph/kinds.h"

/* A folder of src/variants and of cl. PORTABLE runs on whatever OpenCL C 1.2 runs on. */
#define IST_MACHINE_LIST(X)                                                                                            \
    X(PORTABLE, "portable")                                                                                            \
    X(CPU, "cpu")                                                                                                      \
    X(NVIDIA, "nvidia")                                                                                                \
    X(MATRIX, "matrix")
typedef enum ist_machine {
#define X(id, name) IST_MACHINE_##id,
    IST_MACHINE_LIST(X)
#undef X
        IST_MACHINES
} ist_machine;
const char *ist_machine_name(ist_machine machine);

/* What a plan's activations and products must be: half or float storage; BF16: products that may round to bfloat16
 * where the plan allows that, EXACT: float storage where it does not. */
typedef enum ist_storage {
    IST_STORAGE_ANY,
    IST_STORAGE_HALF,
    IST_STORAGE_FLOAT,
    IST_STORAGE_EXACT,
    IST_STORAGE_BF16
} ist_storage;

typedef struct ist_variant ist_variant;

/* Of an operand whose rows repeat (ist_padding_reuse) a variant may know nothing: then they are all there, and nothing is
 * known of its result. POINTS: the same, but where the node treats each pixel alone: of rows that are not there it makes
 * rows that nobody reads. It may make all rows of its result and say which are alike (MADE), or leave them out. */
typedef enum ist_repeats {
    IST_REPEATS_UNKNOWN,
    IST_REPEATS_POINTS,
    IST_REPEATS_MADE,
    IST_REPEATS_LEFT_OUT
} ist_repeats;

/* The functions of variants that differ in their configuration only. `node` is the struct of its kind, of a span an
 * ist_spanned (span.h). */
typedef struct ist_family {
    /* Whether it can do the node, and is meant to; NULL: any. */
    bool (*takes)(const ist_plan *p, const ist_variant *v, const void *node);
    /* How many ways it has, numbered from 1 (splits of a sum); NULL: one. */
    int (*ways)(const ist_plan *p, const ist_variant *v, const void *node);
    /* Estimated time, in a unit that the kind's variants for one device share; NULL: 0. */
    double (*cost)(const ist_plan *p, const ist_variant *v, const void *node, int way);
    void (*emit)(ist_plan *p, const ist_variant *v, void *node, int way);
    int chunk;     /* channels that it reads at a time, where maps had better have whole ones; 0: any */
    ist_repeats rows; /* what it does with rows that repeat others */
    bool by_nodes; /* of a span: its nodes are recorded one by one, each with its places */
} ist_family;

struct ist_variant {
    ist_node_kind kind;
    const char *name;
    ist_machine machine;
    unsigned needs;   /* ist_cap bits */
    unsigned without; /* of devices that have any of these others are meant to do it */
    ist_storage storage;
    const ist_family *family;
    const void *config;  /* of the family's own type */
    const char *sources; /* of cl, that its launches are of, separated by blanks; NULL: none of its own */
};

/* The table. Variants of a kind follow each other, best first. */
int ist_variant_count(void);
const ist_variant *ist_variant_at(int index);
/* Those of a kind: the first one, and how many. */
const ist_variant *ist_variants_of(ist_node_kind kind, int *count);
/* What its launches say of it. */
ist_origin ist_variant_origin(const ist_variant *v);
/* NULL when there is none of that name. */
const ist_variant *ist_variant_named(ist_node_kind kind, const char *name);

/* Whether the plan's device and storage can run it; whether it takes the node, too. */
bool ist_variant_runs(const ist_plan *p, const ist_variant *v);
bool ist_variant_takes(const ist_plan *p, const ist_variant *v, const void *node);
int ist_variant_ways(const ist_plan *p, const ist_variant *v, const void *node);
double ist_variant_cost(const ist_plan *p, const ist_variant *v, const void *node, int way);

/* Channels, at least `channels`, for maps between nodes of a kind: where the device's kernels read whole groups of
 * channels, a number that fills them. */
int ist_variant_channels(const ist_plan *p, ist_node_kind kind, int channels);

typedef struct ist_variant_choice {
    const ist_variant *variant; /* NULL: nothing on this device computes the node */
    int way;
} ist_variant_choice;
/* The cheapest; what a tuning record says, if it says something that can be done, else the cheapest. Extents of the
 * results must be set (infer). */
ist_variant_choice ist_variant_cheapest(const ist_plan *p, ist_node_kind kind, const void *node);
ist_variant_choice ist_variant_choose(ist_plan *p, ist_node_kind kind, const void *node);

/* Records the node of a kind's struct *node: checks it, finds places for results that have none, chooses and emits.
 * Results are empty when the plan has failed. */
void ist_emit(ist_plan *p, ist_node_kind kind, void *node);
/* The same by a variant of the caller's choosing; way 0: the cheapest of its ways. Fails where it does not take the
 * node. */
void ist_emit_by(ist_plan *p, const ist_variant *v, int way, void *node);

/* NORM_MLP's depthwise convolution by itself, then the rest of the node. */
void ist_emit_spread_first(ist_plan *p, ist_norm_mlp *l);
/* NORM_MLP of one layer as a CONV with a norm in front. */
void ist_emit_norm_linear(ist_plan *p, ist_norm_mlp *l);

#endif
