/* Steps of a sequence, and what a machine says of how it runs them. */
#ifndef IST_VARIANTS_SEQUENCE_STEPS_H
#define IST_VARIANTS_SEQUENCE_STEPS_H

#include "variants/sequence.h"

/* Kernels know these numbers as LINEAR and so on (codes/step). */
typedef enum ist_step_op {
    IST_STEP_LINEAR,     /* filter, ints {act}; rows {x, before, after}; floats {scale, shift} of the result */
    IST_STEP_SUM,        /* rows {a, b or none}; ints {clamped}; floats {low, high} */
    IST_STEP_GATE,       /* rows {x, y, g}; data {gamma, beta}; floats {eps} */
    IST_STEP_NORM,       /* rows {x, add or none}; data {gamma, beta}; floats {eps, clamp or 0}; ints {act} */
    IST_STEP_ATTENTION,  /* rows {q}; whole {k, v}; ints {heads}; floats {scale} */
    IST_STEP_DEFORM,     /* rows {offsets, weights, boxes}; whole {memory}; ints {heads, points}; data {table} */
    IST_STEP_GATHER,     /* whole {x, index} */
    IST_STEP_BOX_INIT,   /* rows {a, b} */
    IST_STEP_BOX_REFINE, /* rows {a, b} */
    IST_STEP_FDR,        /* rows {increment, previous or none, first boxes}; out {boxes, corners}; data {offsets} */
    IST_STEP_LQE,        /* rows {corners} */
    IST_STEP_DEPTHWISE   /* rows {x}; data {weights [9][c], bias}; ints {act}: the last, of a map */
} ist_step_op;

typedef struct ist_step {
    ist_step_op op;
    ist_tensor out[2];
    ist_tensor rows[3];  /* read at the row that is made */
    ist_tensor whole[2]; /* read at any row */
    ist_filter filter;   /* 1x1; packed now */
    int ints[2];
    float floats[2];
    const float *data[2]; /* copied now */
    int sizes[2];
    double flops;
    size_t data_at[2], weights_at; /* set by ist_sequence_append: where the copies are */
    bool has_bias, parts;          /* parts: a linear layer in three parts of bfloat16 */
} ist_step;

struct ist_sequence {
    const struct ist_sequence_form *form;
    bool values; /* as ist_plan_has_values */
    int n, rows;
    int width;  /* of the map whose pixels the rows are; 0 otherwise */
    int inside; /* buffers above this number were made since the beginning */
    ist_step *steps;
    size_t count, capacity;
    float *weights;
    size_t weight_count, weight_capacity;
    float *table;
    size_t table_count, table_capacity;
    const ist_tensor *results; /* at the end */
    int result_count;
};

typedef struct ist_sequence_form {
    int vector;         /* floats of data are filled up to a multiple of it */
    int outputs;        /* most that a linear layer may have, 0: any, with a scale and shift of the result */
    bool streams;       /* `launch` packs weights and table of its piece itself */
    const void *config; /* of the machine's own type */
    /* Whether it can run the steps; NULL: always. Where it cannot, `otherwise` does. */
    bool (*fits)(const struct ist_sequence *s);
    const struct ist_sequence_form *otherwise;
    /* Appends the weights of a linear step to s->weights, to be found at step->weights_at; false without memory. */
    bool (*pack)(struct ist_sequence *s, ist_step *step);
    /* Records the launch of steps [first, end). */
    void (*launch)(ist_plan *p, struct ist_sequence *s, size_t first, size_t end, ist_tensor weights, ist_tensor table,
                   const char *label);
} ist_sequence_form;

enum { IST_SEQUENCE_BUFFERS = 64 /* of a piece */ };

/* Appends a step, whose tensors have their places. */
void ist_sequence_append(ist_plan *p, const ist_step *step, const char *label);
/* Room for `count` more weights, NULL without memory; *at is where they begin. */
float *ist_sequence_weights(struct ist_sequence *s, size_t count, size_t *at);
/* Whether anybody but the steps [first, end) reads or writes the buffer. */
bool ist_sequence_shares(const ist_plan *p, const struct ist_sequence *s, size_t first, size_t end, int buffer);
/* Position of the tensor's buffer among the `count` arguments, to which it is added; past `most` the plan fails. */
int ist_sequence_argument(ist_plan *p, const char *label, ist_arg *arguments, int *count, int most, ist_tensor t,
                          ist_arg_kind use);

#endif
