/* D-FINE's box arithmetic (Peterande/D-FINE, src/zoo/dfine/dfine_decoder.py and dfine_utils.py), all in float.
 *
 * A, B and Y say which of the operands are float tensors when activations are half: -DA_F32 and so on. */
#ifndef LANES
#define LANES 1
#endif
#ifdef A_F32
#define AT           float
#define LOAD_A(p, i) ((p)[i])
#else
#define AT           T
#define LOAD_A(p, i) LOAD(p, i)
#endif
#ifdef B_F32
#define BT           float
#define LOAD_B(p, i) ((p)[i])
#else
#define BT           T
#define LOAD_B(p, i) LOAD(p, i)
#endif
#define BATCH 11 /* loads at a time; divides BINS */

/* y = sigmoid(a + b). One work-item per query. */
__kernel void box_init(__global float *y, __global const AT *a, __global const BT *b, __global const int *limit,
                       box_args arg) {
    int n = get_global_id(1), i = get_global_id(0);
    if (n >= *limit || i >= arg.queries) return;
    size_t pa = ((size_t)n * arg.queries + i) * arg.a_ld + arg.a_c0;
    size_t pb = ((size_t)(arg.one_b ? 0 : n) * arg.queries + i) * arg.b_ld + arg.b_c0;
    size_t to = ((size_t)n * arg.queries + i) * arg.c;
    for (int c = 0; c < arg.c; c++) y[to + c] = sigmoid(LOAD_A(a, pa + c) + LOAD_B(b, pb + c));
}

/* y = sigmoid(a + logit(b)), logit of b clipped to [0, 1] with floors of 1e-5; arguments as above. */
__kernel void box_refine(__global float *y, __global const AT *a, __global const BT *b, __global const int *limit,
                         box_args arg) {
    int n = get_global_id(1), i = get_global_id(0);
    if (n >= *limit || i >= arg.queries) return;
    size_t pa = ((size_t)n * arg.queries + i) * arg.a_ld + arg.a_c0;
    size_t pb = ((size_t)(arg.one_b ? 0 : n) * arg.queries + i) * arg.b_ld + arg.b_c0;
    size_t to = ((size_t)n * arg.queries + i) * arg.c;
    for (int c = 0; c < arg.c; c++) y[to + c] = sigmoid(LOAD_A(a, pa + c) + logit(LOAD_B(b, pb + c)));
}

/* y[n, q, c] = a[n, q, c] + b[n, q, 0]; arguments as above. */
__kernel void add_quality(__global float *y, __global const AT *a, __global const BT *b, __global const int *limit,
                          box_args arg) {
    int n = get_global_id(1), i = get_global_id(0);
    if (n >= *limit || i >= arg.queries) return;
    size_t pa = ((size_t)n * arg.queries + i) * arg.a_ld + arg.a_c0, to = ((size_t)n * arg.queries + i) * arg.c;
    float q = LOAD_B(b, ((size_t)n * arg.queries + i) * arg.b_ld + arg.b_c0);
    for (int c = 0; c < arg.c; c++) y[to + c] = LOAD_A(a, pa + c) + q;
}

#if LANES == 1
#define SPACE __global
#else
#define SPACE __local /* rows come there in whole groups, side by side */
#endif

/* Vectors on CPUs; a loop elsewhere, which keeps the code small. */
static bins bins_of(SPACE const float *c, SPACE const float *project) {
#if LANES == 1
    return bins_of_vectors(vload16(0, c), vload16(1, c), c[32], vload16(0, project), vload16(1, project), project[32]);
#else
    bins b;
#define BIN(i)     c[i]
#define PROJECT(i) project[i]
    BINS_ONE_BY_ONE(b, BIN, PROJECT)
    return b;
#undef PROJECT
#undef BIN
#endif
}

/* corners = a + previous, box = box of the four integrals around ref_init. One work-item per (row, side) in groups of
 * 16 rows x 4 sides, or, with LANES 1, per row. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
fdr(__global float *ref, __global float *corners, __global const AT *a, __global const float *previous,
    __global const float *ref_init, __global const float *project, __global const int *limit, fdr_args arg) {
    int n = get_global_id(1);
    if (n >= *limit) return;
#if LANES == 1
    float side[4];
    int q = get_global_id(0), mine = 0;
    size_t row = (size_t)n * arg.queries + min(q, arg.queries - 1);
    for (int s = 0; s < 4 && q < arg.queries; s++) {
        size_t from = row * arg.a_ld + arg.a_c0 + s * BINS, at = (row * 4 + s) * BINS;
        for (int i = 0; i < BINS; i++) corners[at + i] = LOAD_A(a, from + i) + (arg.has_previous ? previous[at + i] : 0.0f);
        bins b = bins_of(corners + at, project);
        side[s] = b.weighted / b.total;
    }
#else
    __local float side[LANES], values[LANES * BINS], weights[BINS];
    int me = get_local_id(0), q0 = get_group_id(0) * (LANES / 4), q = q0 + me / 4, mine = me & ~3;
    size_t row = (size_t)n * arg.queries + q, row0 = (size_t)n * arg.queries + q0;
    for (int i = me; i < BINS; i += LANES) weights[i] = project[i];
    /* A batch of loads, then its stores, which might be to what is loaded next for all the compiler knows. Rows beyond
     * the last are copies of it. */
    const int rows = min(LANES / 4, arg.queries - q0);
    for (int k0 = 0; k0 < BINS; k0 += BATCH) {
        float v[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int i = (k0 + k) * LANES + me, r = min(i / (4 * BINS), rows - 1);
            v[k] = LOAD_A(a, (row0 + r) * arg.a_ld + arg.a_c0 + i % (4 * BINS));
        }
        if (arg.has_previous) {
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                int i = (k0 + k) * LANES + me, r = min(i / (4 * BINS), rows - 1);
                v[k] += previous[(row0 + r) * (4 * BINS) + i % (4 * BINS)];
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int i = (k0 + k) * LANES + me;
            values[i] = v[k];
            if (i < rows * (4 * BINS)) corners[row0 * (4 * BINS) + i] = v[k];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (q < arg.queries) {
        bins b = bins_of(values + me * BINS, weights);
        side[me] = b.weighted / b.total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me & 3) q = arg.queries; /* one work-item a row goes on */
#endif
    if (q >= arg.queries) return;
    float4 r = vload4(row, ref_init), d = vload4(0, side + mine);
    float2 x = moved_sides(r.x, r.z, d.x, d.z, arg.scale), y = moved_sides(r.y, r.w, d.y, d.w, arg.scale);
    vstore4((float4)(x.x, y.x, x.y, y.y), row, ref);
}

/* y[n, q, 5 s ..]: the four largest probabilities of side s and their mean. One work-item per (row, side). */
__kernel void lqe(__global float *y, __global const float *corners, __global const int *limit, lqe_args arg) {
    int n = get_global_id(1), q = get_global_id(0) >> 2, s = get_global_id(0) & 3;
    if (n >= *limit) return;
#if LANES > 1
    __local float values[LANES * BINS];
    int me = get_local_id(0), q0 = get_group_id(0) * (LANES / 4);
#pragma unroll 11
    for (int k = 0; k < BINS; k++) {
        int i = k * LANES + me;
        if (q0 + i / (4 * BINS) < arg.queries) values[i] = corners[((size_t)n * arg.queries + q0) * (4 * BINS) + i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (q >= arg.queries) return;
    size_t row = (size_t)n * arg.queries + q, to = row * arg.y_ld + arg.y_c0 + 5 * s;
#if LANES == 1
    __global const float *c = corners + (row * 4 + s) * BINS;
#else
    __local const float *c = values + me * BINS;
#endif
    float4 top, p;
#define BIN(i) c[i]
    FOUR_LARGEST(top, BIN)
#undef BIN
    p = probabilities(top, bins_of(c, c).total); /* the weighted sum is not wanted here */
    vstore4(p, 0, y + to);
    y[to + 4] = mean_of(p);
}
