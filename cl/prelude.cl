/* Joined in front of every program: storage and compute types, loads and stores, activations.
 *
 * T is the storage type of activations and weights (float, or half where IST_HALF is defined); arithmetic is float.
 * LOAD(p, i) / STORE(v, p, i) move one element, LOAD16 / STORE16 sixteen consecutive ones from element i (any
 * alignment). Kernels that hold coordinates, statistics or counts use float and int directly. */
/* Asks for the cache line of an address that will be read, or written, soon. */
#if defined(__x86_64__) || defined(__aarch64__)
#define PREFETCH(p)       __builtin_prefetch((const void *)(size_t)(p))
#define PREFETCH_L2(p)    __builtin_prefetch((const void *)(size_t)(p), 0, 2)
#define PREFETCH_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1, 3)
#else
#define PREFETCH(p)
#define PREFETCH_L2(p)
#define PREFETCH_WRITE(p)
#endif

/* vloadN and vstoreN as one access with the alignment of an element. The built-in ones of PoCL 3.1 are accesses of two
 * elements each, which LLVM puts together again: half the time that a large kernel took to compile. */
#if defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__))
#define IST_DEFINE_VLOAD(SPACE, E, N)                                                                                  \
    static inline E##N __attribute__((overloadable)) ist_vload##N(size_t i, const SPACE E *p) {                        \
        return *(const SPACE ist_##E##N *)(p + i * N);                                                                 \
    }
#define IST_DEFINE_VSTORE(SPACE, E, N)                                                                                 \
    static inline void __attribute__((overloadable)) ist_vstore##N(E##N v, size_t i, SPACE E *p) {                     \
        *(SPACE ist_##E##N *)(p + i * N) = v;                                                                          \
    }
#define IST_DEFINE_ACCESS(E, N)                                                                                        \
    typedef E##N ist_##E##N __attribute__((aligned(sizeof(E))));                                                       \
    IST_DEFINE_VLOAD(__global, E, N)                                                                                   \
    IST_DEFINE_VLOAD(__local, E, N)                                                                                    \
    IST_DEFINE_VLOAD(__constant, E, N)                                                                                 \
    IST_DEFINE_VLOAD(__private, E, N)                                                                                  \
    IST_DEFINE_VSTORE(__global, E, N)                                                                                  \
    IST_DEFINE_VSTORE(__local, E, N)                                                                                   \
    IST_DEFINE_VSTORE(__private, E, N)
#define IST_DEFINE_ACCESSES(E) IST_DEFINE_ACCESS(E, 4) IST_DEFINE_ACCESS(E, 8) IST_DEFINE_ACCESS(E, 16)
IST_DEFINE_ACCESSES(uchar)
IST_DEFINE_ACCESSES(ushort)
IST_DEFINE_ACCESSES(int)
IST_DEFINE_ACCESSES(uint)
IST_DEFINE_ACCESSES(long)
IST_DEFINE_ACCESSES(float)
#undef vload4 /* macros, in PoCL */
#undef vload8
#undef vload16
#undef vstore4
#undef vstore8
#undef vstore16
#define vload4(i, p)      ist_vload4(i, p)
#define vload8(i, p)      ist_vload8(i, p)
#define vload16(i, p)     ist_vload16(i, p)
#define vstore4(v, i, p)  ist_vstore4(v, i, p)
#define vstore8(v, i, p)  ist_vstore8(v, i, p)
#define vstore16(v, i, p) ist_vstore16(v, i, p)
#endif

#ifdef IST_HALF
typedef half T;
#define LOAD(p, i)       vload_half((i), (p))
#define STORE(v, p, i)   vstore_half((v), (i), (p))
#define LOAD4(p, i)      vload_half4(0, (p) + (i))
#define STORE4(v, p, i)  vstore_half4((v), 0, (p) + (i))
#define LOAD8(p, i)      vload_half8(0, (p) + (i))
#define STORE8(v, p, i)  vstore_half8((v), 0, (p) + (i))
#define LOAD16(p, i)     vload_half16(0, (p) + (i))
#define STORE16(v, p, i) vstore_half16((v), 0, (p) + (i))
/* At multiples of their own size: one access, where vload_half4 may become four. */
static inline float4 ist_load4_aligned(__global const half *p) {
    uint2 u = *(__global const uint2 *)p;
    return vload_half4(0, (const __private half *)&u);
}
static inline float8 ist_load8_aligned(__global const half *p) {
    uint4 u = *(__global const uint4 *)p;
    return vload_half8(0, (const __private half *)&u);
}
static inline void ist_store4_aligned(float4 v, __global half *p) {
    uint2 u;
    vstore_half4(v, 0, (__private half *)&u);
    *(__global uint2 *)p = u;
}
static inline void ist_store8_aligned(float8 v, __global half *p) {
    uint4 u;
    vstore_half8(v, 0, (__private half *)&u);
    *(__global uint4 *)p = u;
}
#define LOAD4_ALIGNED(p, i)      ist_load4_aligned((p) + (i))
#define LOAD8_ALIGNED(p, i)      ist_load8_aligned((p) + (i))
#define STORE4_ALIGNED(v, p, i)  ist_store4_aligned((v), (p) + (i))
#define STORE8_ALIGNED(v, p, i)  ist_store8_aligned((v), (p) + (i))
#else
typedef float T;
#define LOAD4_ALIGNED(p, i)      (*(__global const float4 *)((p) + (i)))
#define LOAD8_ALIGNED(p, i)      (*(__global const float8 *)((p) + (i)))
#define STORE4_ALIGNED(v, p, i)  (*(__global float4 *)((p) + (i)) = (v))
#define STORE8_ALIGNED(v, p, i)  (*(__global float8 *)((p) + (i)) = (v))
#define LOAD(p, i)       ((p)[i])
#define STORE(v, p, i)   ((p)[i] = (v))
#define LOAD4(p, i)      vload4(0, (p) + (i))
#define STORE4(v, p, i)  vstore4((v), 0, (p) + (i))
#define LOAD8(p, i)      vload8(0, (p) + (i))
#define STORE8(v, p, i)  vstore8((v), 0, (p) + (i))
#define LOAD16(p, i)     vload16(0, (p) + (i))
#define STORE16(v, p, i) vstore16((v), 0, (p) + (i))
#endif

/* A function of its own: what costs less to call than to run is compiled once and by itself, in half the time. */
#ifdef __clang__
#define NOINLINE __attribute__((noinline)) static
#else
#define NOINLINE static
#endif

/* PoCL compiles what stands in a kernel three times, and a function that the kernel calls once. So kernels whose groups are
 * one work-item hand this on to a NOINLINE function that does it all: {id along x, y, z, groups along x}. A function that
 * asked for them by itself would be inlined again. */
#define THIS_GROUP                                                                                                     \
    ((int4)((int)get_group_id(0), (int)get_group_id(1), (int)get_group_id(2), (int)get_num_groups(0)))

/* Activation codes: the same numbers as enum ist_act in core/plan.h. */
#define ACT_NONE    0
#define ACT_RELU    1
#define ACT_SILU    2
#define ACT_GELU    3
#define ACT_SIGMOID 4

/* exp(x) to 1.1 ulp for -87.3 <= x <= 88.3, held at 1.2e-38 below and 2.4e38 above: range reduction by ln 2 and a
 * degree-6 polynomial (Cephes expf). Same bits on every device that rounds fma correctly; vectorises where the built-in
 * does not. t = n + 1.5 * 2^23 has the integer n = rint(x / ln 2) in its low bits. */
#define IST_DEFINE_EXP(V, VI, AS, AS_INT)                                                                              \
    static inline V ist_exp_##V(V x) {                                                                                 \
        x = min(max(x, (V)(-87.33654f)), (V)(88.37626f));                                                              \
        V t = fma(x, (V)(1.44269504f), (V)(12582912.0f)), n = t - (V)(12582912.0f);                                    \
        V r = fma(n, (V)(-0.693359375f), x);                                                                           \
        r = fma(n, (V)(2.12194440e-4f), r);                                                                            \
        V p = (V)(1.9875691500e-4f);                                                                                   \
        p = fma(p, r, (V)(1.3981999507e-3f));                                                                          \
        p = fma(p, r, (V)(8.3334519073e-3f));                                                                          \
        p = fma(p, r, (V)(4.1665795894e-2f));                                                                          \
        p = fma(p, r, (V)(1.6666665459e-1f));                                                                          \
        p = fma(p, r, (V)(5.0000001201e-1f));                                                                          \
        p = fma(p, r * r, r) + (V)(1.0f);                                                                              \
        return p * AS((AS_INT(t) << (VI)(23)) + (VI)(0x3f800000));                                                     \
    }
IST_DEFINE_EXP(float, int, as_float, as_int)
IST_DEFINE_EXP(float4, int4, as_float4, as_int4)
IST_DEFINE_EXP(float8, int8, as_float8, as_int8)
IST_DEFINE_EXP(float16, int16, as_float16, as_int16)

/* GELU: v/2 + |v| q(|v|), q(t) = erf(t / sqrt 2) / 2 as t times a rational function of t^2 (own fit, 0.1 units before
 * rounding; all coefficients positive), exactly 1/2 from 5.46 on: to 3.2 units of |v| / 2^24, 0.4 in the mean. */
#define IST_DEFINE_GELU(V)                                                                                             \
    static inline V ist_gelu_##V(V v) {                                                                                \
        const V a = fabs(v), t = min(a, (V)(5.46167946f)), z = t * t;                                                  \
        V p = fma((V)(0.019224504f), z, (V)(5.22718573f));                                                             \
        p = fma(p, z, (V)(135.024918f));                                                                               \
        p = fma(p, z, (V)(3822.69482f));                                                                               \
        p = fma(p, z, (V)(27427.707f));                                                                                \
        p = fma(p, z, (V)(327929.406f));                                                                               \
        V q = z + (V)(59.4955177f);                                                                                    \
        q = fma(q, z, (V)(1527.81274f));                                                                               \
        q = fma(q, z, (V)(23324.7207f));                                                                               \
        q = fma(q, z, (V)(205750.141f));                                                                               \
        q = fma(q, z, (V)(821997.25f));                                                                                \
        return fma(a, t * p / q, (V)(0.5f) * v);                                                                       \
    }
IST_DEFINE_GELU(float)
IST_DEFINE_GELU(float4)
IST_DEFINE_GELU(float8)
#ifdef __AVX512F__
/* v/2 + |v| q(|v|), q(t) = erf(t / sqrt 2) / 2 as 16 polynomials in the distance u from the nearest multiple of a step,
 * to 2.2 units of |v| / 2^24 (own fit, 8.7e-8 before rounding; exactly 1/2 from 5.25 on). One permutation looks a
 * coefficient up for 16 values: 8 cycles a vector, where the rational function's division makes it 13. */
__constant float ist_gelu_table[5][16] = {
    {0.0f, 0.13260223f, 0.250957757f, 0.345247239f, 0.412293375f, 0.45484522f, 0.478949487f, 0.491136551f,
     0.496636122f, 0.49885115f, 0.499647379f, 0.499902844f, 0.499975979f, 0.499994695f, 0.499998957f, 0.499999881f},
    {0.135142177f, 0.127606586f, 0.107428461f, 0.0806360617f, 0.0539637692f, 0.0321986154f, 0.0171290282f,
     0.00812432542f, 0.00343557051f, 0.00129528495f, 0.000435395632f, 0.000130482469f, 3.48631329e-05f,
     8.30468525e-06f, 1.76367507e-06f, 3.33924447e-07f},
    {0.0f, -0.00732152257f, -0.012327604f, -0.0138797387f, -0.0123849781f, -0.00923726242f, -0.00589690683f,
     -0.00326310238f, -0.00157703646f, -0.00066891301f, -0.000249837147f, -8.2362887e-05f, -2.4007737e-05f,
     -6.19570301e-06f, -1.41708279e-06f, -2.874865e-07f},
    {-0.00257084635f, -0.00215036701f, -0.00110985443f, 4.47068232e-05f, 0.000854319776f, 0.00114426319f,
     0.00102298462f, 0.000718554715f, 0.000418383948f, 0.000207000456f, 8.82265522e-05f, 3.26683112e-05f,
     1.05679637e-05f, 2.99850558e-06f, 7.48375726e-07f, 1.64657919e-07f},
    {0.0f, 0.000200397073f, 0.000297479302f, 0.000259838882f, 0.000137846335f, 1.23873651e-05f, -6.29154165e-05f,
     -8.13541556e-05f, -6.53998795e-05f, -4.03576487e-05f, -2.03774034e-05f, -8.66540177e-06f, -3.15300372e-06f,
     -9.91286925e-07f, -2.71047384e-07f, -6.4753273e-08f},
};
static inline float16 ist_gelu_float16(float16 v) {
    float16 a = fabs(v), t = min(a, (float16)(5.25f));
    float16 m = fma(t, (float16)(2.952f), (float16)(12582912.0f));
    float16 u = fma(t, (float16)(2.952f), (float16)(12582912.0f) - m);
    int16 step = as_int16(m); /* its low four bits count */
#define AT(power) __builtin_ia32_permvarsf512(vload16(0, ist_gelu_table[power]), step)
    float16 q = fma(fma(fma(fma(AT(4), u, AT(3)), u, AT(2)), u, AT(1)), u, AT(0));
#undef AT
    return fma(a, q, (float16)(0.5f) * v);
}
#else
IST_DEFINE_GELU(float16)
#endif

/* The activation `act` (the same for all elements) of v. */
#define IST_DEFINE_ACTIVATE(V)                                                                                         \
    static inline V activate_##V(V v, int act) {                                                                       \
        switch (act) {                                                                                                 \
        case ACT_RELU: return max(v, (V)(0.0f));                                                                       \
        case ACT_SILU: return v / ((V)(1.0f) + ist_exp_##V(-v));                                                       \
        case ACT_GELU: return ist_gelu_##V(v);                                                                         \
        case ACT_SIGMOID: return (V)(1.0f) / ((V)(1.0f) + ist_exp_##V(-v));                                            \
        default: return v;                                                                                             \
        }                                                                                                              \
    }
IST_DEFINE_ACTIVATE(float)
IST_DEFINE_ACTIVATE(float4)
IST_DEFINE_ACTIVATE(float8)
IST_DEFINE_ACTIVATE(float16)

/* 2^x to 2 ulp; what is below the least normal number becomes zero, or stays. */
static inline float quick_exp2(float x) {
#if defined(__NV_CL_C_VERSION) || defined(cl_nv_pragma_unroll) || defined(__NVPTX__)
    float r;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return exp2(x);
#endif
}

/* GELU to the precision of half: max(v, 0) - |v| q, where q, the normal distribution's integral from |v| on, is two to
 * a power that a polynomial describes (own fit on 0 to 5.6, where |v| q ceases to be a half; falling beyond): at most a
 * fifth of a half's last place. */
static inline float quick_gelu(float v) {
    const float a = fabs(v);
    float p = fma(a, -0.00032022639f, 0.00582431490f);
    p = fma(p, a, -0.0482262336f);
    p = fma(p, a, -0.46413821f);
    p = fma(p, a, -1.14916527f);
    p = fma(p, a, -1.00012243f);
    return fma(-a, quick_exp2(p), fmax(v, 0.0f));
}

/* What an epilogue does besides bias and activation (struct ist_epilogue in ops/ops.h); ONE: the addend has one item
 * for all, UP2: it has half the height and width. */
#define EPI_BEFORE     1
#define EPI_BEFORE_UP2 2
#define EPI_BEFORE_ONE 4
#define EPI_LAB        8
#define EPI_AFTER      16
#define EPI_AFTER_ONE  32

/* Numbers of the addends' pixels that belong to result pixel (n, y, x) of an h x w map. */
static inline int before_pixel(int n, int y, int x, int h, int w, int flags) {
    if (flags & EPI_BEFORE_ONE) n = 0;
    return flags & EPI_BEFORE_UP2 ? (n * (h >> 1) + (y >> 1)) * (w >> 1) + (x >> 1) : (n * h + y) * w + x;
}
static inline int after_pixel(int n, int y, int x, int h, int w, int flags) {
    return ((flags & EPI_AFTER_ONE ? 0 : n) * h + y) * w + x;
}

/* ---- sharing out work on CPUs ---- */

/* What a group stored before is seen by whoever sees what it counts after. */
#ifdef __clang__
#define WORK_FENCE __atomic_thread_fence(__ATOMIC_SEQ_CST);
#else
#define WORK_FENCE mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
/* What a group that waits does: some tens of microseconds of pauses, then, where other programs may hold the core of the
 * one that it waits for, the system's call to let them run (sched_yield). */
#define WORK_PAUSES 1000
#if defined(__clang__) && defined(__x86_64__) && defined(__linux__)
static inline void work_wait(int turn) {
    long call = 24;
    if (turn < WORK_PAUSES) __builtin_ia32_pause();
    else __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
}
#else
static inline void work_wait(int turn) {}
#endif

/* One group per compute unit takes items until none is left, so that neither a late nor a slowed unit holds up the
 * others. A unit begins with its own share of the items, the same share in every launch: what it wrote in one launch it
 * finds in its cache in the next. It knows itself by where its stack lies; a wrong guess costs time only. `queue` has a
 * counter of taken items for each share and one of finished groups, all zero between launches (ist_plan_work_queue).
 * Launches take their shares forwards and backwards by turns: what was written last is still in the cache. */
typedef struct {
    int units, items, share, tried;
    bool backwards, busy;
} work_t;

static inline work_t work_begin(int units, int items, bool backwards) {
    work_t w = {units, items, 0, 0, backwards, false};
    w.share = (int)(((size_t)&w >> 23) % (size_t)w.units);
    return w;
}

/* An item, -1 when there is none: of the own share, then of the others'. */
static inline int work_take(work_t *w, volatile __global int *queue) {
    for (; w->tried < w->units; w->tried++, w->share = w->share + 1 == w->units ? 0 : w->share + 1) {
        int first = (int)((long)w->items * w->share / w->units);
        int count = (int)((long)w->items * (w->share + 1) / w->units) - first;
        int taken = queue[w->share] < count ? atomic_inc(queue + w->share) : count;
        if (taken < count) return first + (w->backwards ? count - 1 - taken : taken);
    }
    return -1;
}
/* One that was taken is done. */
static inline void work_finish(const work_t *w, volatile __global int *queue) {
#ifdef IST_SERIES
    WORK_FENCE
    atomic_inc(queue + w->units);
#endif
}
/* For groups with one item at a time: the one before is done, the next one. */
static inline int work_next(work_t *w, volatile __global int *queue) {
    if (w->busy) work_finish(w, queue);
    w->busy = true;
    return work_take(w, queue);
}

/* Every group calls this once, after its last item.
 *
 * In a series, several launches' work in one kernel (core/series.c), each has counters of its own, and the last of them
 * counts finished items: a group goes on when all are finished. Those that it waits for are in the hands of groups that
 * run, and these wait for earlier work at most; a group that comes late finds nothing left and waits for none that has
 * not begun. So a series ends whatever the number of groups that run at a time. And so a kernel writes nothing before it
 * has an item: to a group that comes late, its memory may be a later layer's by then. */
static inline void work_end(const work_t *w, volatile __global int *queue) {
#ifdef IST_SERIES
    for (int turn = 0; queue[w->units] < w->items; turn += turn < WORK_PAUSES) work_wait(turn);
    WORK_FENCE
#else
    if (atomic_inc(queue + w->units) + 1 < w->units) return;
    for (int i = 0; i <= w->units; i++) queue[i] = 0;
#endif
}
