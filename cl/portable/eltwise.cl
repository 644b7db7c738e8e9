/* Element-wise work on rows: y = clamp(a[map] + b), each part optional.
 *
 * A work-item takes ROWS consecutive pixels of one item and SPAN channels of each, VW at a time. On CPUs it is alone in
 * its group and takes whole rows; elsewhere a work-item takes one pixel and VW channels, eight where all rows begin at
 * multiples of eight elements. */
#ifndef VW
#define VW 4
#endif
#if VW == 16
#define VEC   float16
#elif VW == 8
#define VEC   float8
#define GROUP 64
#else
#define VEC   float4
#define GROUP 64
#endif
#if defined(IST_HALF) && VW == 16
#define T_LOAD(p, i)     vload_half16(0, (p) + (i))
#define T_STORE(v, p, i) vstore_half16(v, 0, (p) + (i))
#elif defined(IST_HALF) && VW == 8
#define T_LOAD           LOAD8_ALIGNED
#define T_STORE          STORE8_ALIGNED
#elif defined(IST_HALF)
#define T_LOAD(p, i)     vload_half4(0, (p) + (i))
#define T_STORE(v, p, i) vstore_half4(v, 0, (p) + (i))
#endif
#if VW == 16
#define F_LOAD(p, i)     vload16(0, (p) + (i))
#define F_STORE(v, p, i) vstore16(v, 0, (p) + (i))
#elif VW == 8
#define F_LOAD(p, i)     (float8)(*(__global const float4 *)((p) + (i)), *(__global const float4 *)((p) + (i) + 4))
#define F_STORE(v, p, i)                                                                                               \
    (*(__global float4 *)((p) + (i)) = (v).lo, *(__global float4 *)((p) + (i) + 4) = (v).hi)
#else
#define F_LOAD(p, i)     vload4(0, (p) + (i))
#define F_STORE(v, p, i) vstore4(v, 0, (p) + (i))
#endif

/* Storage of a, b, y: float where A_F32, B_F32, Y_F32 (or 32-bit integers, moved as they are), else T. */
#if defined(A_F32) || !defined(IST_HALF)
#define A_TYPE      float
#define A_VEC(i)    F_LOAD(a, i)
#define A_ONE(i)    a[i]
#else
#define A_TYPE      T
#define A_VEC(i)    T_LOAD(a, i)
#define A_ONE(i)    LOAD(a, i)
#endif
#if defined(B_F32) || !defined(IST_HALF)
#define B_TYPE      float
#define B_VEC(i)    F_LOAD(b, i)
#define B_ONE(i)    b[i]
#else
#define B_TYPE      T
#define B_VEC(i)    T_LOAD(b, i)
#define B_ONE(i)    LOAD(b, i)
#endif
#if defined(Y_F32) || !defined(IST_HALF)
#define Y_TYPE      float
#define Y_VEC(v, i) F_STORE(v, y, i)
#define Y_ONE(v, i) y[i] = v
#else
#define Y_TYPE      T
#define Y_VEC(v, i) T_STORE(v, y, i)
#define Y_ONE(v, i) STORE(v, y, i)
#endif

/* Pixels [k0, ..) of item n, channels [first, last). */
static inline void eltwise_part(__global Y_TYPE *y, __global const A_TYPE *a, __global const B_TYPE *b,
                                __global const int *map, eltwise_args arg, int n, int k0, int first, int last) {
    const int a_item = (arg.mode & ELTWISE_A_MAPPED ? map[n] : arg.mode & ELTWISE_A_ONE_ITEM ? 0 : n) * arg.pixels;
    const int b_item = arg.mode & ELTWISE_B_ONE_ITEM ? 0 : n * (arg.mode & ELTWISE_B_ONE_PIXEL ? 1 : arg.pixels);
    const int with_b = arg.mode & ELTWISE_B_EACH;
    for (int k = k0; k < min(arg.pixels, k0 + arg.rows); k++) {
        const int at = (a_item + k) * arg.a_ld + arg.a_c0, to = (n * arg.y_stride + k) * arg.y_ld + arg.y_c0;
        const int bt = (b_item + (arg.mode & ELTWISE_B_ONE_PIXEL ? 0 : k)) * arg.b_ld + arg.b_c0;
        int c = first;
        for (; c + VW <= last; c += VW) {
            VEC v = A_VEC(at + c);
            if (with_b) v += B_VEC(bt + c);
            if (arg.mode & ELTWISE_CLAMPED) v = clamp(v, (VEC)(arg.lo), (VEC)(arg.hi));
            Y_VEC(v, to + c);
        }
#ifdef __clang__
#pragma clang loop vectorize(disable) unroll(disable)
#endif
        for (; c < last; c++) {
            float v = A_ONE(at + c);
            if (with_b) v += B_ONE(bt + c);
            if (arg.mode & ELTWISE_CLAMPED) v = clamp(v, arg.lo, arg.hi);
            Y_ONE(v, to + c);
        }
    }
}

#if VW == 16 /* compute units share out the work by `queue` (see prelude) */
NOINLINE void eltwise_group(__global Y_TYPE *y, __global const A_TYPE *a, __global const B_TYPE *b,
                            __global const int *map, __global const int *limit, eltwise_args arg,
                            __global int *queue, const int4 group) {
    const int pieces = (arg.pixels + arg.rows - 1) / arg.rows;
    work_t work = work_begin(group.w, min(arg.items, *limit) * pieces, false);
    for (int item; (item = work_next(&work, queue)) >= 0;)
        eltwise_part(y, a, b, map, arg, item / pieces, item % pieces * arg.rows, 0, arg.c);
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
eltwise(__global Y_TYPE *y, __global const A_TYPE *a, __global const B_TYPE *b, __global const int *map,
        __global const int *limit, eltwise_args arg, __global int *queue) {
    eltwise_group(y, a, b, map, limit, arg, queue, THIS_GROUP);
}
#else
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
eltwise(__global Y_TYPE *y, __global const A_TYPE *a, __global const B_TYPE *b, __global const int *map,
        __global const int *limit, eltwise_args arg) {
    const int n = get_global_id(1);
    if (n >= *limit) return;
    const int spans = (arg.c + arg.span - 1) / arg.span, unit = get_global_id(0), first = unit % spans * arg.span;
    eltwise_part(y, a, b, map, arg, n, unit / spans * arg.rows, first,
                 min(arg.c, first + arg.span));
}
#endif
