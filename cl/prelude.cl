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

/* vload_halfN and vstore_halfN by way of an aligned copy: PoCL 3.1 to 6 read and write N halves as if they lay at a
 * multiple of their size, and the process ends where they do not. */
#define IST_DEFINE_HALF_LOAD(SPACE, N)                                                                                 \
    static inline float##N __attribute__((overloadable)) ist_vload_half##N(size_t i, const SPACE half *p) {            \
        const ushort##N u = vload##N(i, (const SPACE ushort *)p);                                                      \
        return vload_half##N(0, (const __private half *)&u);                                                           \
    }
#define IST_DEFINE_HALF_STORE(SPACE, N)                                                                                \
    static inline void __attribute__((overloadable)) ist_vstore_half##N(float##N v, size_t i, SPACE half *p) {         \
        ushort##N u;                                                                                                   \
        vstore_half##N(v, 0, (__private half *)&u);                                                                    \
        vstore##N(u, i, (SPACE ushort *)p);                                                                            \
    }
#define IST_DEFINE_HALVES(N)                                                                                           \
    IST_DEFINE_HALF_LOAD(__global, N)                                                                                  \
    IST_DEFINE_HALF_LOAD(__local, N)                                                                                   \
    IST_DEFINE_HALF_LOAD(__constant, N)                                                                                \
    IST_DEFINE_HALF_LOAD(__private, N)                                                                                 \
    IST_DEFINE_HALF_STORE(__global, N)                                                                                 \
    IST_DEFINE_HALF_STORE(__local, N)                                                                                  \
    IST_DEFINE_HALF_STORE(__private, N)
IST_DEFINE_HALVES(4)
IST_DEFINE_HALVES(8)
IST_DEFINE_HALVES(16)
#undef vload_half4
#undef vload_half8
#undef vload_half16
#undef vstore_half4
#undef vstore_half8
#undef vstore_half16
#define vload_half4(i, p)      ist_vload_half4(i, p)
#define vload_half8(i, p)      ist_vload_half8(i, p)
#define vload_half16(i, p)     ist_vload_half16(i, p)
#define vstore_half4(v, i, p)  ist_vstore_half4(v, i, p)
#define vstore_half8(v, i, p)  ist_vstore_half8(v, i, p)
#define vstore_half16(v, i, p) ist_vstore_half16(v, i, p)
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
static inline float4 quick_exp2_float4(float4 x) {
    return (float4)(quick_exp2(x.s0), quick_exp2(x.s1), quick_exp2(x.s2), quick_exp2(x.s3));
}
static inline float8 quick_exp2_float8(float8 x) {
    return (float8)(quick_exp2_float4(x.lo), quick_exp2_float4(x.hi));
}
static inline float16 quick_exp2_float16(float16 x) {
    return (float16)(quick_exp2_float8(x.lo), quick_exp2_float8(x.hi));
}
#define quick_exp2_float quick_exp2

#if defined(__x86_64__) || defined(__aarch64__)
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
#else
/* GELU where 2^x is an instruction: max(v, 0) - |v| q, where q, the normal distribution's integral from |v| on, is two to a
 * power that a polynomial describes (own fit on 0 to 5.5, falling beyond): to 3.2 units of |v| / 2^24, 0.4 in the mean,
 * in half of the instructions. */
#define IST_DEFINE_GELU(V)                                                                                             \
    static inline V ist_gelu_##V(V v) {                                                                                \
        const V a = fabs(v);                                                                                           \
        V p = fma(a, (V)(-2.83504596e-06f), (V)(3.93790651e-05f));                                                     \
        p = fma(p, a, (V)(-0.000186185775f));                                                                          \
        p = fma(p, a, (V)(-0.000136925271f));                                                                          \
        p = fma(p, a, (V)(0.00706340838f));                                                                            \
        p = fma(p, a, (V)(-0.0524961725f));                                                                            \
        p = fma(p, a, (V)(-0.45920819f));                                                                              \
        p = fma(p, a, (V)(-1.15110517f));                                                                              \
        p = fma(p, a, (V)(-1.0f));                                                                                     \
        return fma(-a, quick_exp2_##V(p), fmax(v, (V)(0.0f)));                                                         \
    }
#endif
IST_DEFINE_GELU(float)
IST_DEFINE_GELU(float4)
IST_DEFINE_GELU(float8)
#ifdef __AVX512DQ__
/* v F(v), F the normal distribution's integral as 31 polynomials in 3 v's distance u from the nearest whole number,
 * to 2.3 units of |v| / 2^24, 0.3 in the mean (own fit; exactly 0 or v from 5.16015625 on).
 * One permutation of two registers looks a coefficient up for 16 values: 14 operations, 7 cycles a vector, where the
 * rational function's division makes it 13. */
__constant float ist_gelu_table[5][32] = {
    {0.5f, 0.63055867f, 0.747507453f, 0.841344774f, 0.9087888f, 0.952209651f, 0.977249861f, 0.990184665f, 0.996169627f,
     0.998650074f, 0.999570966f, 0.999877155f, 0.99996835f, 0.999992669f, 0.99999845f, 0.999999702f, 0.0f,
     2.86829163e-07f, 1.53062672e-06f, 7.34342393e-06f, 3.16712431e-05f, 0.00012286639f, 0.000429060339f,
     0.00134989806f, 0.0038303805f, 0.00981532875f, 0.0227501318f, 0.0477903523f, 0.0912112221f, 0.158655256f,
     0.252492547f, 0.36944133f},
    {0.132980034f, 0.125793844f, 0.10648258f, 0.0806571171f, 0.0546704419f, 0.0331594311f, 0.0179971401f, 0.00874063f,
     0.00379860611f, 0.00147728168f, 0.0005140914f, 0.000160088748f, 4.460934e-05f, 1.11226427e-05f, 2.48082119e-06f,
     3.69497002e-07f, 0.0f, 3.70123161e-07f, 2.48032416e-06f, 1.11183026e-05f, 4.45957412e-05f, 0.000160057622f,
     0.000514032086f, 0.00147719448f, 0.00379858026f, 0.00874063f, 0.0179971643f, 0.0331594348f, 0.054670509f,
     0.0806572288f, 0.10648258f, 0.125793874f},
    {-2.91055557e-07f, -0.00698862132f, -0.011831156f, -0.0134429708f, -0.0121490546f, -0.00921092927f, -0.00599898817f,
     -0.00339897769f, -0.00168838422f, -0.000738172675f, -0.000286105846f, -9.83075006e-05f, -3.03055185e-05f,
     -8.37546486e-06f, -1.52787868e-06f, -6.86223757e-07f, 0.0f, 8.67430003e-07f, 1.92972084e-06f, 8.03170133e-06f,
     2.97354218e-05f, 9.78245444e-05f, 0.000285596267f, 0.000738635019f, 0.00168830785f, 0.00339916535f, 0.00599907478f,
     0.0092109181f, 0.0121488785f, 0.0134426989f, 0.0118311197f, 0.00698849186f},
    {-0.00245014788f, -0.00206138752f, -0.00109381636f, -4.61609898e-06f, 0.000779903785f, 0.00108537683f,
     0.000997077674f, 0.000719379925f, 0.000431085209f, 0.000219801412f, 9.68841923e-05f, 3.71840542e-05f,
     1.25080323e-05f, 3.71792225e-06f, 9.80079221e-07f, 1.31396644e-06f, 0.0f, 1.31114689e-06f, 9.82634219e-07f,
     3.74877072e-06f, 1.26247269e-05f, 3.74217561e-05f, 9.72444395e-05f, 0.00022027627f, 0.0004312089f, 0.000719382078f,
     0.00099696219f, 0.00108535308f, 0.000779582944f, -5.15534748e-06f, -0.00109378702f, -0.0020614753f},
    {1.36318647e-06f, 0.000186181758f, 0.000278033025f, 0.000248387107f, 0.000137735376f, 1.96078454e-05f,
     -5.50053264e-05f, -7.72569838e-05f, -6.39417485e-05f, -4.25019389e-05f, -1.99372535e-05f, -7.96184668e-06f,
     -1.54687814e-06f, 1.23800191e-07f, -1.77336642e-06f, 2.49880804e-06f, 0.0f, -3.07393043e-06f, 3.43101874e-07f,
     1.19417234e-06f, 3.62665628e-06f, 9.54609004e-06f, 2.15603995e-05f, 4.10985122e-05f, 6.41321385e-05f,
     7.65267905e-05f, 5.47724267e-05f, -1.96434303e-05f, -0.000137432027f, -0.000247816788f, -0.000277857675f,
     -0.000185564815f},
};
static inline float16 ist_gelu_float16(float16 v) {
    const float16 t = __builtin_ia32_rangeps512_mask(v, (float16)(5.16015625f), 2, v, (ushort)0xffff, 4); /* nearer 0 */
    const float16 m = fma(t, (float16)(3.0f), (float16)(12582912.0f));
    const float16 u = fma(t, (float16)(3.0f), (float16)(12582912.0f) - m);
    const int16 step = as_int16(m); /* its low five bits count */
#define AT(p) __builtin_ia32_vpermi2varps512(vload16(0, ist_gelu_table[p]), step, vload16(1, ist_gelu_table[p]))
    return v * fma(fma(fma(fma(AT(4), u, AT(3)), u, AT(2)), u, AT(1)), u, AT(0));
#undef AT
}
#else
IST_DEFINE_GELU(float16)
#endif

/* a / b, b normal. */
#define IST_DEFINE_QUOTIENT(V)                                                                                         \
    static inline V ist_quotient_##V(V a, V b) {                                                                       \
        return a / b;                                                                                                  \
    }
IST_DEFINE_QUOTIENT(float)
IST_DEFINE_QUOTIENT(float4)
IST_DEFINE_QUOTIENT(float8)
#ifdef __AVX512F__
/* To 1.1 units of the last place, by Newton's step from 14 bits of 1 / b: a division takes 16 cycles. */
static inline float16 ist_quotient_float16(float16 a, float16 b) {
    const float16 r = __builtin_ia32_rcp14ps512_mask(b, b, (ushort)0xffff);
    return a * fma(fma(-b, r, (float16)(1.0f)), r, r);
}
#else
IST_DEFINE_QUOTIENT(float16)
#endif

/* The activation `act` (the same for all elements) of v. */
#define IST_DEFINE_ACTIVATE(V)                                                                                         \
    static inline V activate_##V(V v, int act) {                                                                       \
        switch (act) {                                                                                                 \
        case ACT_RELU: return max(v, (V)(0.0f));                                                                       \
        case ACT_SILU: return ist_quotient_##V(v, (V)(1.0f) + ist_exp_##V(-v));                                        \
        case ACT_GELU: return ist_gelu_##V(v);                                                                         \
        case ACT_SIGMOID: return ist_quotient_##V((V)(1.0f), (V)(1.0f) + ist_exp_##V(-v));                             \
        default: return v;                                                                                             \
        }                                                                                                              \
    }
IST_DEFINE_ACTIVATE(float)
IST_DEFINE_ACTIVATE(float4)
IST_DEFINE_ACTIVATE(float8)
IST_DEFINE_ACTIVATE(float16)

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

/* n / d for 0 <= n < 2^31 (variants/divider.h). */
static inline int divided(int n, const divider by) {
    return (int)((ulong)(uint)n * (uint)by.multiplier >> by.shift);
}

/* Numbers of the addends' pixels that belong to result pixel (n, y, x) of an h x w map; flags: of epilogue_args. */
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
