/* Matrix instructions of several makers behind one interface: the LANES work-items of a subgroup, neighbours in a
 * one-dimensional group, add a product of ROWS x DEPTH and DEPTH x COLS halves to floats. One of
 *   -D MATRIX_MFMA: AMD's CDNA, waves of 64: v_mfma_f32_16x16x16f16, twice
 *   -D MATRIX_WMMA: AMD's RDNA3, waves of 32: v_wmma_f32_16x16x16_f16
 *   -D MATRIX_DPAS: Intel's Xe-HPG, subgroups of 8: cl_intel_subgroup_matrix_multiply_accumulate
 *
 * What a lane holds (AMD: the ISA manuals' matrix layouts; Intel: the extension's text):
 *   MFMA  a: row lane % 16, eight inputs from lane / 16 * 8 on, the first four for one instruction, the others for the
 *         second (any order of the inputs will do that a and b share); b: column lane % 16, likewise;
 *         c[e]: row lane / 16 * 4 + e, column lane % 16
 *   WMMA  a: row lane % 16, all sixteen inputs; b: column lane % 16, likewise; both halves of the wave hold the same;
 *         c[e]: row 2 e + lane / 16, column lane % 16
 *   DPAS  a: of every row the inputs 2 lane + {0, 1}; b: column lane, all sixteen inputs; c[e]: row e, column lane
 *
 * matrix_a loads a from rows of halves in local memory, `pitch` words apart; matrix_b loads fragment `number` of packed
 * weights, whose half i is input PACKED_K(i) of column PACKED_COL(i) (variants/matrix/conv_matrix.c packs them): lane by lane, for
 * DPAS two inputs of every lane after two others.
 *
 * For compilers that lack the instruction MATRIX_MULTIPLY stands below in plain OpenCL: no device is served by it (the
 * probe fails there), but tests that claim the capability check kernels' index arithmetic anywhere. A kernel has the
 * attribute MATRIX_KERNEL and THREADS work-items and begins with MATRIX_SCRATCH; all work-items of a group must reach
 * MATRIX_MULTIPLY. What it calls between two of them or after is a MATRIX_FUNCTION. */
#ifdef MATRIX_MFMA
#define LANES 64
#define ROWS  16
#define COLS  16
#define DEPTH 32
#define SUMS  4 /* floats of c that a lane holds */
typedef uint4 matrix_t;
typedef float4 matrix_sums_t;
#define SUM_ROW(lane, e) ((lane) / 16 * 4 + (e))
#define SUM_COL(lane)    ((lane) % 16)
#define PACKED_K(i)      ((i) / 128 * 8 + (i) % 8)
#define PACKED_COL(i)    ((i) / 8 % 16)
static inline matrix_t matrix_a(__local const uint *rows, int pitch, int lane) {
    return *(__local const uint4 *)(rows + lane % 16 * pitch + lane / 16 * 4);
}
static inline matrix_t matrix_b(__global const uint4 *w, int number, int lane) {
    return w[number * LANES + lane];
}
#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
#define IST_MATRIX
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define MATRIX_MULTIPLY(c, a, b)                                                                                       \
    do {                                                                                                               \
        c = __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4((a).lo), as_half4((b).lo), c, 0, 0, 0);                     \
        c = __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4((a).hi), as_half4((b).hi), c, 0, 0, 0);                     \
    } while (0)
#endif

#elif defined(MATRIX_WMMA)
#define LANES 32
#define ROWS  16
#define COLS  16
#define DEPTH 16
#define SUMS  8
typedef uint8 matrix_t;
typedef float8 matrix_sums_t;
#define SUM_ROW(lane, e) (2 * (e) + (lane) / 16)
#define SUM_COL(lane)    ((lane) % 16)
#define PACKED_K(i)      ((i) % 16)
#define PACKED_COL(i)    ((i) / 16)
static inline matrix_t matrix_a(__local const uint *rows, int pitch, int lane) {
    __local const uint4 *p = (__local const uint4 *)(rows + lane % 16 * pitch);
    return (uint8)(p[0], p[1]);
}
static inline matrix_t matrix_b(__global const uint4 *w, int number, int lane) {
    __global const uint4 *p = w + (number * 16 + lane % 16) * 2;
    return (uint8)(p[0], p[1]);
}
#ifdef __GFX11__
#define IST_MATRIX
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define MATRIX_MULTIPLY(c, a, b) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), c)
#endif

#elif defined(MATRIX_DPAS)
#define LANES 8
#define ROWS  8
#define COLS  8
#define DEPTH 16
#define SUMS  8
typedef uint8 matrix_t;
typedef float8 matrix_sums_t;
#define SUM_ROW(lane, e) (e)
#define SUM_COL(lane)    (lane)
#define PACKED_K(i)      ((i) / 16 * 2 + (i) % 2)
#define PACKED_COL(i)    ((i) / 2 % 8)
static inline matrix_t matrix_a(__local const uint *rows, int pitch, int lane) {
    rows += lane;
    return (uint8)(rows[0], rows[pitch], rows[2 * pitch], rows[3 * pitch], rows[4 * pitch], rows[5 * pitch],
                   rows[6 * pitch], rows[7 * pitch]);
}
#ifdef cl_intel_subgroup_matrix_multiply_accumulate /* compilers translate the call for devices that lack it, too */
#define IST_MATRIX
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 c);
#define MATRIX_MULTIPLY(c, a, b) c = intel_sub_group_f16_f16_matrix_mad_k16(as_int8(a), as_int8(b), c)
#define MATRIX_KERNEL            __attribute__((intel_reqd_sub_group_size(LANES), reqd_work_group_size(THREADS, 1, 1)))
static inline matrix_t matrix_b(__global const uint4 *w, int number, int lane) {
    return intel_sub_group_block_read8((__global const uint *)w + number * (LANES * 8));
}
#else
static inline matrix_t matrix_b(__global const uint4 *w, int number, int lane) {
    __global const uint *p = (__global const uint *)w + number * (LANES * 8) + lane;
    return (uint8)(p[0], p[8], p[16], p[24], p[32], p[40], p[48], p[56]);
}
#endif
#endif

#ifndef MATRIX_KERNEL
#define MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1)))
#endif

#ifdef IST_MATRIX
#define MATRIX_SCRATCH
#define MATRIX_FUNCTION static inline

#else
#define MATRIX_FUNCTION NOINLINE /* PoCL 3.1 takes no loops in branches between barriers */
#define WORDS           ((int)sizeof(matrix_t) / 4)
#define MATRIX_SCRATCH  __local uint scratch[THREADS][2 * WORDS];

/* Which lane holds element (row, k) of a or (k, column) of b, and the number of the half that it is there. Both halves
 * of a WMMA wave are read, so that neither may be wrong. */
#ifdef MATRIX_MFMA
#define A_LANE(row, k) ((k) / 8 * 16 + (row))
#define A_HALF(row, k) ((k) % 8)
#define B_LANE(k, col) A_LANE(col, k)
#define B_HALF(k)      ((k) % 8)
#elif defined(MATRIX_WMMA)
#define A_LANE(row, k) ((row) + (k) % 2 * 16)
#define A_HALF(row, k) (k)
#define B_LANE(k, col) ((col) + (k) / 2 % 2 * 16)
#define B_HALF(k)      (k)
#else
#define A_LANE(row, k) ((k) / 2)
#define A_HALF(row, k) ((row) * 2 + (k) % 2)
#define B_LANE(k, col) (col)
#define B_HALF(k)      (k)
#endif

static inline float half_at(__local const uint *words, int number) {
    ushort bits = (ushort)(words[number / 2] >> number % 2 * 16);
    return vload_half(0, (const half *)&bits);
}
static inline float product(__local uint (*s)[2 * WORDS], int row, int col) {
    float sum = 0.0f;
    for (int k = 0; k < DEPTH; k++)
        sum += half_at(s[A_LANE(row, k)], A_HALF(row, k)) * half_at(s[B_LANE(k, col)] + WORDS, B_HALF(k));
    return sum;
}
#define MATRIX_MULTIPLY(c, a, b)                                                                                       \
    do {                                                                                                               \
        int me = get_local_id(0), lane_ = me % LANES;                                                                  \
        matrix_t both[2] = {a, b};                                                                                     \
        for (int m = 0; m < 2 * WORDS; m++) scratch[me][m] = ((const uint *)both)[m];                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = 0; m < SUMS; m++)                                                                                 \
            ((float *)&(c))[m] += product(scratch + (me - lane_), SUM_ROW(lane_, m), SUM_COL(lane_));                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#endif
