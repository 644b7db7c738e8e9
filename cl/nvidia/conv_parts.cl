/* What nvidia/conv_mma and nvidia/conv_wgmma have in common: which taps of a window lie in the map, and what becomes of sums:
 * activations, addends, results. Behind nvidia/ptx; -D ACT, Y32 where results are floats, LAB where a learnable affine
 * block follows the activation (`affine`). */
#ifdef Y32
typedef float TY;
#else
typedef T TY;
#endif

/* Bits of the positions 0 <= i < count for which 0 <= at + i < size. */
static inline uint valid_bits(int at, int count, int size) {
    int low = clamp(-at, 0, count), high = clamp(size - at, 0, count);
    return high > low ? (1u << high) - (1u << low) : 0u;
}

/* Taps inside the map, a bit each, of the window that starts at line iy and column ix. */
static inline int inside_bits(int iy, int ix, const conv_shape shape) {
    uint columns = valid_bits(ix, shape.kw, shape.x_w), lines = valid_bits(iy, shape.kh, shape.x_h), bits = 0;
    for (int ky = 0; ky < shape.kh; ky++) bits |= (lines >> ky & 1 ? columns : 0u) << ky * shape.kw;
    return (int)bits;
}

/* The activation of two values to the precision of half. */
static inline float2 activated(float2 v) {
#if ACT == ACT_RELU
    return max(v, 0.0f);
#elif ACT == ACT_SILU || ACT == ACT_SIGMOID
    return ACT == ACT_SILU ? v * quick_sigmoids(v) : quick_sigmoids(v);
#elif ACT == ACT_GELU
    return (float2)(quick_gelu(v.x), quick_gelu(v.y));
#else
    return v;
#endif
}

/* What follows the activation. */
static inline float2 affine(float2 v, const epilogue_args epi) {
#ifdef LAB
    v = fma(v, (float2)(epi.lab_scale), (float2)(epi.lab_bias));
#endif
    return v;
}

/* Pixel of an addend with these flags (EPI_BEFORE_UP2; EPI_BEFORE_ONE) for pixel p of the result. */
static inline int place(int p, const conv_shape shape, int flags, const divider by_w, const divider by_h) {
    int line = divided(p, by_w), n = divided(line, by_h);
    int h = shape.y_h, w = shape.y_w, y = line - n * h, x = p - line * w;
    if (flags & EPI_BEFORE_ONE) n = 0;
    return flags & EPI_BEFORE_UP2 ? (n * (h >> 1) + (y >> 1)) * (w >> 1) + (x >> 1) : (n * h + y) * w + x;
}

/* `count` halves from any address, and zeros up to eight. */
static inline uint4 gathered(__global const T *from, int count) {
    uint v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = i < count ? ((__global const ushort *)from)[i] : 0u;
    return (uint4)(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
}

static inline void store_halves(uint4 v, __global T *p, int left, bool aligned) {
    if (aligned && left >= 8) {
        *(__global uint4 *)p = v;
    } else {
        uint w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < left) ((__global ushort *)p)[i] = (ushort)(w[i / 2] >> i % 2 * 16);
    }
}

/* v[0..8) += the addend's channels, of which `left` exist. */
static inline void add_part(float *v, __global const T *p, int left, bool aligned) {
    if (aligned && left >= 8) {
        uint4 u = *(__global const uint4 *)p;
        float2 a = floats_of(u.x), b = floats_of(u.y), c = floats_of(u.z), d = floats_of(u.w);
        v[0] += a.x, v[1] += a.y, v[2] += b.x, v[3] += b.y, v[4] += c.x, v[5] += c.y, v[6] += d.x, v[7] += d.y;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < left) v[i] += LOAD(p, i);
    }
}

static inline void store_part(const float *v, __global TY *p, int left, bool aligned) {
    if (aligned && left >= 8) {
#ifdef Y32
        ((__global float4 *)p)[0] = (float4)(v[0], v[1], v[2], v[3]);
        ((__global float4 *)p)[1] = (float4)(v[4], v[5], v[6], v[7]);
#else
        *(__global uint4 *)p =
            (uint4)(halves_of(v[0], v[1]), halves_of(v[2], v[3]), halves_of(v[4], v[5]), halves_of(v[6], v[7]));
#endif
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#ifdef Y32
            if (i < left) p[i] = v[i];
#else
            if (i < left) STORE(v[i], p, i);
#endif
        }
    }
}

/* Where part q (eight channels, 16 bytes) of a row of BN halves of results lies in local memory, in bytes: exchanged within
 * the row so that a fragment's rows lie in different banks. */
#define RESULT_PART(row, q) ((row) * (BN * 2) + (((q) ^ ROW_EXCHANGE(row)) << 4))
#if BN % 64 == 0
#define ROW_EXCHANGE(row) ((row)&7)
#define ROW_ITEMS         8
#elif BN % 32 == 0
#define ROW_EXCHANGE(row) ((row) >> 1 & 3)
#define ROW_ITEMS         4
#else
#define ROW_EXCHANGE(row) ((row) >> 2 & 1)
#define ROW_ITEMS         2
#endif

/* Row r of the `rows` of results goes to pixel PIXEL(r) of y, or nowhere where that is negative: work-item number `me` of
 * `count` loads some parts before it stores them. ROW_ITEMS work-items share a row; `rows` is a multiple of
 * count / ROW_ITEMS. */
#define ROW_TURNS (BN / 8 / ROW_ITEMS)
#define STORE_ROWS(me, count, rows, results, PIXEL)                                                                    \
    do {                                                                                                               \
        enum { EVERY = (count) / ROW_ITEMS, TURNS = (rows) / EVERY, FIT = ROW_TURNS < 8 ? 8 / ROW_TURNS : 1 };         \
        enum { SOME = TURNS <= FIT ? TURNS : TURNS % FIT ? 1 : FIT }; /* turns whose loads are together */             \
        const int row0 = (me) / ROW_ITEMS, q0 = (me) % ROW_ITEMS, channel0 = block0 * 16 + q0 * 8;                     \
        _Pragma("unroll") for (int i = 0; i < TURNS; i += SOME) {                                                      \
            uint4 v[SOME][ROW_TURNS];                                                                                  \
            _Pragma("unroll") for (int k = 0; k < SOME * ROW_TURNS; k++)                                               \
                v[k / ROW_TURNS][k % ROW_TURNS] =                                                                      \
                    (results)[RESULT_PART(row0 + (i + k / ROW_TURNS) * EVERY, q0 + k % ROW_TURNS * ROW_ITEMS) / 16];   \
            _Pragma("unroll") for (int k = 0; k < SOME; k++) {                                                         \
                const int pixel = PIXEL(row0 + (i + k) * EVERY);                                                       \
                __global T *const to = y + ((size_t)max(pixel, 0) * shape.y_ld + shape.y_c0 + channel0);               \
                const int left = pixel < 0 ? 0 : shape.y_c - channel0;                                                 \
                _Pragma("unroll") for (int j = 0; j < ROW_TURNS; j++) if (j * ROW_ITEMS * 8 < left)                    \
                    *(__global uint4 *)(to + j * ROW_ITEMS * 8) = v[k][j];                                             \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
