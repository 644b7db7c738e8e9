/* What every test of an operator needs: a device, a plan with guard bands, random tensors from a printed seed, slices
 * whose surroundings are watched, and comparison with a message that says where and by how much.
 *
 * A case is: optest_begin, optest_in / optest_out / model calls on t.plan, optest_run, optest_check.., optest_end.
 *
 * Environment: ISTHMUS_DEVICE selects the device, ISTHMUS_SEED replaces the fixed seed, ISTHMUS_SMALL=1 asks for tiny
 * shapes (interpreters such as oclgrind), ISTHMUS_HALF=1 stores activations as half, ISTHMUS_BF16=1 lets plans round to
 * bfloat16 where ist_plan_reduced says so, ISTHMUS_VERBOSE=1 announces every case. A failing check ends the test. */
#ifndef IST_TESTS_OPTEST_H
#define IST_TESTS_OPTEST_H

#include "core/plan.h"
#include "ref.h"

#include <stdint.h>

#define OPTEST_MAX_TENSORS 24

/* A tensor of the case and the dense host values it starts with (the whole buffer, all ld channels). */
typedef struct optest_tensor {
    ist_tensor whole, view;
    float *start;
} optest_tensor;

typedef struct optest {
    const char *name;
    ist_device *device;
    ist_plan *plan;
    ist_error err;
    uint64_t seed, state;
    bool half;
    optest_tensor tensors[OPTEST_MAX_TENSORS];
    int tensor_count;
    void *owned[4 * OPTEST_MAX_TENSORS];
    int owned_count;
} optest;

/* Opens the device (once per process) and starts a plan with guard bands. `name` is printed with the seed; `salt` gives
 * each case of a loop its own random numbers. */
void optest_begin(optest *t, const char *name, unsigned salt);
/* Ends the case: checks the guards, closes the plan, frees every map. */
void optest_end(optest *t);
/* Ends a case whose plan was meant to fail. */
void optest_drop(optest *t);

bool optest_small(void);
/* Compute units of the device. */
int optest_units(void);
/* Whether what differs from something tested in numbers only may be left out (ISTHMUS_QUICK=1: tests/run.sh quick). */
bool optest_quick(void);
/* Whether activations are stored as half. */
bool optest_half(void);
/* Whether the device has so little local memory that it does without some variants (tiles of 33 to 48 KiB). */
bool optest_little_local(void);

/* ---- random numbers ---- */
uint32_t optest_u32(optest *t);
/* Uniform in [lo, hi], both ends included. */
int optest_int(optest *t, int lo, int hi);
float optest_uniform(optest *t, float lo, float hi);

/* ---- host memory, freed by optest_end ---- */
void *optest_alloc(optest *t, size_t bytes);
/* A map of zeros; of values in [-1, 1], rounded to the storage type so that device and reference start equal. */
ref_map optest_zeros(optest *t, int n, int h, int w, int c);
ref_map optest_random(optest *t, int n, int h, int w, int c);
/* `count` values in [lo, hi] (weights; not rounded to the storage type). */
float *optest_values(optest *t, size_t count, float lo, float hi);

/* ---- device tensors ---- */

/* Tensor with the values of m. With `slice` it is channels [c0, c0 + c) of a wider buffer with odd c0 and ld and random
 * values around it. */
ist_tensor optest_in(optest *t, ref_map m, ist_elem elem, bool slice);
/* Tensor for a result, a slice of a wider one when asked for; the buffer starts with random values. */
ist_tensor optest_out(optest *t, int n, int h, int w, int c, ist_elem elem, bool slice);
/* I32 tensor [1, 1, count, 1]. */
ist_tensor optest_ints(optest *t, const int *values, int count);

/* Finishes the plan, writes all tensors, replays once. */
void optest_run(optest *t);

/* Fails unless a launch of the plan is of kernel `op`, such as "nvidia/window": that the row meant is the one that
 * ran. NULL: any may have. */
void optest_takes(const optest *t, const char *op);

/* Reads dense values of a view. */
ref_map optest_read(optest *t, ist_tensor view);
/* |got - want| <= atol + rtol * |want| for every element (both infinite with one sign also counts). */
void optest_close(optest *t, const char *what, ref_map got, ref_map want, double rtol, double atol);
/* Reads `view`, compares with `want` by the tolerance of the storage type, and, for a tensor made by optest_in or
 * optest_out, checks that everything around the view still has its starting value. Items n >= items (when items >= 0)
 * must still have their starting values as well. */
void optest_check(optest *t, const char *what, ist_tensor view, ref_map want, double rtol, double atol, int items);
/* For optest_check: tolerance of sums of `terms` products of numbers around 1 in fp32, or of half storage. */
double optest_tolerance(const optest *t, int terms);

#endif
