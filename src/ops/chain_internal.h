/* What chain.c and the files that write launches share. */
#ifndef IST_OPS_CHAIN_INTERNAL_H
#define IST_OPS_CHAIN_INTERNAL_H

#include "ops/chain.h"

enum { IST_CHAIN_SLOTS = 2900, IST_CHAIN_OUTSIDE = 22, IST_CHAIN_BUFFERS = 64 };

struct ist_chain {
    bool cpu;    /* lowered by chain_cpu.c */
    bool parts;  /* on a CPU with AMX: large linear layers in three parts of bfloat16 */
    bool matrix; /* on matrix instructions */
    int n, rows;
    int width;  /* of the map whose pixels the rows are; 0 otherwise */
    int inside; /* buffers above this number were made since the beginning */
    ist_chain_step *steps;
    size_t count, capacity;
    float *weights; /* stored as T */
    size_t weight_count, weight_capacity;
    float *table;
    size_t table_count, table_capacity;
    const ist_tensor *results; /* at the end */
    int result_count;
};

/* Records the launch of steps [first, end). On matrix instructions it packs the weights itself. */
void ist_chain_launch(ist_plan *p, struct ist_chain *chain, size_t first, size_t end, ist_tensor weights,
                      ist_tensor table, const char *label);

/* The same for CPUs (cl/op/chain_cpu.cl); weights and data lie as ist_chain_take packs them there. */
void ist_chain_launch_cpu(ist_plan *p, const struct ist_chain *chain, size_t first, size_t end, ist_tensor weights,
                          ist_tensor table, const char *label);
/* Whether anybody but the steps [first, end) reads or writes the buffer. */
bool ist_chain_shares(const ist_plan *p, const struct ist_chain *chain, size_t first, size_t end, int buffer);
/* Position of the tensor's buffer among the `count` arguments, to which it is added; past `most` the plan fails. */
int ist_chain_argument(ist_plan *p, const char *label, ist_arg *arguments, int *count, int most, ist_tensor t,
                       ist_arg_kind use);

#endif
