/* Joined in front of every program: storage and compute types, loads and stores, activations.
 *
 * T is the storage type of activations and weights (float, or half where IST_HALF is defined); arithmetic is float.
 * LOAD(p, i) / STORE(v, p, i) move one element, LOAD16 / STORE16 sixteen consecutive ones from element i (any
 * alignment). Kernels that hold coordinates, statistics or counts use float and int directly. */
#ifdef IST_HALF
typedef half T;
#define LOAD(p, i)       vload_half((i), (p))
#define STORE(v, p, i)   vstore_half((v), (i), (p))
#define LOAD4(p, i)      vload_half4(0, (p) + (i))
#define STORE4(v, p, i)  vstore_half4((v), 0, (p) + (i))
#define LOAD16(p, i)     vload_half16(0, (p) + (i))
#define STORE16(v, p, i) vstore_half16((v), 0, (p) + (i))
#else
typedef float T;
#define LOAD(p, i)       ((p)[i])
#define STORE(v, p, i)   ((p)[i] = (v))
#define LOAD4(p, i)      vload4(0, (p) + (i))
#define STORE4(v, p, i)  vstore4((v), 0, (p) + (i))
#define LOAD16(p, i)     vload16(0, (p) + (i))
#define STORE16(v, p, i) vstore16((v), 0, (p) + (i))
#endif

/* Activation codes: the same numbers as enum ist_act in core/plan.h. */
#define ACT_NONE    0
#define ACT_RELU    1
#define ACT_SILU    2
#define ACT_GELU    3
#define ACT_SIGMOID 4

/* exp(x) to about 2 ulp over the whole range, 0 below -87.3: range reduction by ln 2 and a degree-6 polynomial
 * (Cephes expf). Same bits on every device that rounds fma correctly; vectorises where the built-in does not. */
#define IST_DEFINE_EXP(V, VI, CONVERT, AS)                                                                             \
    static inline V ist_exp_##V(V x) {                                                                                 \
        x = fmin(fmax(x, (V)(-87.33654f)), (V)(88.37626f));                                                            \
        V n = rint(x * (V)(1.44269504f));                                                                              \
        V r = fma(n, (V)(-0.693359375f), x);                                                                           \
        r = fma(n, (V)(2.12194440e-4f), r);                                                                            \
        V p = (V)(1.9875691500e-4f);                                                                                   \
        p = fma(p, r, (V)(1.3981999507e-3f));                                                                          \
        p = fma(p, r, (V)(8.3334519073e-3f));                                                                          \
        p = fma(p, r, (V)(4.1665795894e-2f));                                                                          \
        p = fma(p, r, (V)(1.6666665459e-1f));                                                                          \
        p = fma(p, r, (V)(5.0000001201e-1f));                                                                          \
        p = fma(p, r * r, r) + (V)(1.0f);                                                                              \
        return p * AS((CONVERT(n) + (VI)(127)) << (VI)(23));                                                           \
    }
IST_DEFINE_EXP(float, int, convert_int, as_float)
IST_DEFINE_EXP(float4, int4, convert_int4, as_float4)
IST_DEFINE_EXP(float16, int16, convert_int16, as_float16)

