/* D-FINE's box arithmetic, one body for every kernel that has a part of it (Peterande/D-FINE, src/zoo/dfine/dfine_decoder.py
 * and dfine_utils.py): reference boxes, distributions over 33 bins for the distance of each side (FDR), their quality (LQE).
 * All in float. */
#define BINS   33
#define LOWEST (-3.0e38f)

/* NaN stays. */
static inline float sigmoid(float v) {
    return v != v ? v : 1.0f / (1.0f + ist_exp_float(-v));
}

/* inverse_sigmoid: of b clamped to [0, 1], with floors of 1e-5. */
static inline float logit(float b) {
    b = clamp(b, 0.0f, 1.0f);
    return log(fmax(b, 1e-5f) / fmax(1.0f - b, 1e-5f));
}

/* distance2bbox along one axis: new centre and size of a box whose sides lie (scale / 2 + before) and (scale / 2 + behind)
 * times size / scale from its centre. */
static inline float2 moved_sides(float centre, float size, float before, float behind, float scale) {
    const float half_scale = 0.5f * scale, unit = size / scale;
    const float lo = centre - (half_scale + before) * unit, hi = centre + (half_scale + behind) * unit;
    return (float2)((lo + hi) * 0.5f, hi - lo);
}

/* Softmax over bins: the greatest logit, the sum of the exponentials, and that of the exponentials by `project`. */
typedef struct bins {
    float most, total, weighted;
} bins;

/* One bin after the other: BIN(i) is the logit, PROJECT(i) the bin's offset. */
#define BINS_ONE_BY_ONE(b, BIN, PROJECT)                                                                               \
    {                                                                                                                  \
        (b).most = LOWEST;                                                                                             \
        (b).total = (b).weighted = 0.0f;                                                                               \
        for (int i_ = 0; i_ < BINS; i_++) (b).most = fmax((b).most, BIN(i_));                                          \
        for (int i_ = 0; i_ < BINS; i_++) {                                                                            \
            const float e_ = ist_exp_float(BIN(i_) - (b).most);                                                        \
            (b).total += e_;                                                                                           \
            (b).weighted = fma(e_, PROJECT(i_), (b).weighted);                                                         \
        }                                                                                                              \
    }

/* v into the falling list t. NaN is passed over. */
static inline float4 with_larger(float4 t, float v) {
    float w;
    v = v != v ? -INFINITY : v;
    w = fmin(t.x, v), t.x = fmax(t.x, v), v = w;
    w = fmin(t.y, v), t.y = fmax(t.y, v), v = w;
    w = fmin(t.z, v), t.z = fmax(t.z, v), v = w;
    t.w = fmax(t.w, v);
    return t;
}
#define FOUR_LARGEST(t, BIN)                                                                                           \
    {                                                                                                                  \
        (t) = (float4)(-INFINITY);                                                                                     \
        for (int i_ = 0; i_ < BINS; i_++) (t) = with_larger((t), BIN(i_));                                             \
    }

/* The quality of a side: its four largest probabilities, of logits `top` with sum of exponentials `total`, and, behind
 * those, their mean. */
static inline float4 probabilities(float4 top, float total) {
    return ist_exp_float4(top - top.x) / total;
}
static inline float mean_of(float4 p) {
    return (p.x + p.y + p.z + p.w) * 0.25f;
}

/* ---- in vectors of 16, for CPUs; the comparisons pass NaN on as they like: logits that have one give NaN anyway ---- */

static inline float sum_of_16(float16 v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
}

static inline float largest_of_16(float16 v) {
    const float8 a = v.lo > v.hi ? v.lo : v.hi;
    const float4 b = a.lo > a.hi ? a.lo : a.hi;
    const float2 c = b.lo > b.hi ? b.lo : b.hi;
    return c.x > c.y ? c.x : c.y;
}

/* Bins 0 to 15, 16 to 31 and the last. */
static inline bins bins_of_vectors(float16 c0, float16 c1, float c2, float16 w0, float16 w1, float w2) {
    bins b;
    b.most = largest_of_16(c0 > c1 ? c0 : c1);
    b.most = b.most > c2 ? b.most : c2;
    const float16 e0 = ist_exp_float16(c0 - b.most), e1 = ist_exp_float16(c1 - b.most);
    const float e2 = ist_exp_float(c2 - b.most);
    b.total = sum_of_16(e0 + e1) + e2;
    b.weighted = sum_of_16(e0 * w0 + e1 * w1) + e2 * w2;
    return b;
}
