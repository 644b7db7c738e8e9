/* Vectors of VL channels of one pixel: how they are loaded, finished and stored. Used by the convolution family.
 *
 * -D VL: 4, 8 or 16. -D X32 / Y32: input / output are float although T is half. -D ALIGNED (VL 4 or 8, not with X32 or
 * Y32): every whole vector of T lies at a multiple of its size. */
#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)

#define V            CAT(float, VL)
#define VLOAD(p)     CAT(vload, VL)(0, (p))
#define VSTORE(v, p) CAT(vstore, VL)((v), 0, (p))

#ifdef ALIGNED
#define LOAD_TV(p, i)     CAT(CAT(LOAD, VL), _ALIGNED)(p, i)
#define STORE_TV(v, p, i) CAT(CAT(STORE, VL), _ALIGNED)(v, p, i)
#else
#define LOAD_TV(p, i)     CAT(LOAD, VL)(p, i)
#define STORE_TV(v, p, i) CAT(STORE, VL)(v, p, i)
#endif

#ifdef X32
typedef float TX;
#define LOAD_X(p, i)  ((p)[i])
#define LOAD_XV(p, i) VLOAD((p) + (i))
#else
typedef T TX;
#define LOAD_X(p, i)  LOAD(p, i)
#define LOAD_XV(p, i) LOAD_TV(p, i)
#endif
#ifdef Y32
typedef float TY;
#define STORE_Y(v, p, i)  ((p)[i] = (v))
#define STORE_YV(v, p, i) STORE_FV(v, p, i)
#else
typedef T TY;
#define STORE_Y(v, p, i)  STORE(v, p, i)
#define STORE_YV(v, p, i) STORE_TV(v, p, i)
#endif

/* VL floats to any address of a float in global memory. */
typedef V vector_at4 __attribute__((aligned(4)));
#define STORE_FV(v, p, i) (*(__global vector_at4 *)((p) + (i)) = (v))

/* The next VL channels of an input pixel or an addend, zeros beyond the last of `left`. On CPUs (VL 16) what is left of a
 * pixel is read and written by functions of their own. */
#if VL == 16
#define REST NOINLINE
#else
#define REST static inline
#endif
#define DEFINE_PART(NAME, TYPE, ONE, ALL)                                                                              \
    REST V CAT(NAME, _rest)(__global const TYPE *p, int left) {                                                        \
        float t[VL];                                                                                                   \
        for (int i = 0; i < VL; i++) t[i] = i < left ? ONE(p, i) : 0.0f;                                               \
        return VLOAD(t);                                                                                               \
    }                                                                                                                  \
    static inline V NAME(__global const TYPE *p, int left) {                                                           \
        if (left >= VL) return ALL(p, 0);                                                                              \
        return CAT(NAME, _rest)(p, left);                                                                              \
    }
DEFINE_PART(input_part, TX, LOAD_X, LOAD_XV)
DEFINE_PART(addend_part, T, LOAD, LOAD_TV)

REST void store_rest(V v, int left, __global TY *dst) {
    float t[VL];
    VSTORE(v, t);
    for (int i = 0; i < VL; i++)
        if (i < left) STORE_Y(t[i], dst, i);
}

/* Epilogue of VL channels, of which `left` exist; dst, before and after point at the first channel. */
static inline void finish(V v, int left, __global TY *dst, __global const T *before, __global const T *after,
                          const epilogue_args epi) {
    if (epi.flags & EPI_BEFORE) v += addend_part(before, left);
    v = CAT(activate_float, VL)(v, epi.act);
    if (epi.flags & EPI_LAB) v = fma(v, (V)(epi.lab_scale), (V)(epi.lab_bias));
    if (epi.flags & EPI_AFTER) v += addend_part(after, left);
    if (left >= VL) STORE_YV(v, dst, 0);
    else store_rest(v, left, dst);
}
