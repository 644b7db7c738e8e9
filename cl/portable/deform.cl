/* D-FINE's deformable attention: bilinear samples of a feature pyramid around each reference box.
 *
 *     out[q][h] = sum_p softmax_p(weights[q][h]) sample(level of p, channels of h, centre + offset_p * reach_p * size)
 *
 * with reach = 0.5 / points of the level. Pixel position = location * extent - 0.5 (align_corners = false); neighbours
 * outside the level count as zero. Coordinates and softmax are fp32. Of each point, `points` [4][PAD] gives width,
 * height, first token and reach. WIDE (CPU): a work-item alone in its group takes `rows` queries, all heads, sixteen
 * points and then sixteen channels at a time; else a work-item takes four channels of one head of one query, eight
 * where these lie at multiples of eight elements (ALIGNED).
 *
 * -D POINTS: points of a head. -D WHERE_F32: offsets and weights are float although T is half. */
#ifndef POINTS
#define POINTS 12
#endif
#ifdef WHERE_F32
typedef float WHERE_T;
#define WHERE(p, i) ((p)[i])
#else
typedef T WHERE_T;
#define WHERE(p, i) LOAD(p, i)
#endif
#ifdef WIDE
#define GROUP        1
#define PAD          ((POINTS + 15) / 16 * 16)
#define V            float16
#define VI           int16
#define STEP         16
#define GET(p, i)    vload16(0, (p) + (i))
#define PUT(v, p, i) vstore16((v), 0, (p) + (i))
#define TO_INT       convert_int16
#define UNROLLED
#define EXP          ist_exp_float16
#else
#define GROUP        64
#define PAD          POINTS
#define V            float
#define VI           int
#define STEP         1
#define GET(p, i)    ((p)[i])
#define PUT(v, p, i) ((p)[i] = (v))
#define TO_INT       convert_int
#define UNROLLED     _Pragma("unroll") /* so that arrays are registers */
#define EXP          ist_exp_float
#endif

/* Where one head of one query looks: token and weight (bilinear times softmax) of neighbour k of point p at
 * [k * PAD + p]. */
typedef struct samples {
    int token[PAD * 4];
    float weight[PAD * 4];
} samples;

#ifdef ALIGNED
#define CHANNELS          8
#define VALUES            float8
#define LOAD_VALUES(p, i) LOAD8_ALIGNED(p, i)
#define STORE_VALUES      STORE8_ALIGNED
#else
#define CHANNELS          4
#define VALUES            float4
#define LOAD_VALUES(p, i) LOAD4(p, i)
#define STORE_VALUES      STORE4
#endif

/* Clamped so far outside that no neighbour is inside, before it becomes an int. */
static inline V near_map(V x, V extent) {
    return fmin(fmax(x, (V)(-2.0f)), extent + (V)(1.0f));
}

static inline void put_neighbour(samples *s, int at, VI x, VI y, VI width, VI height, VI first, V weight) {
    const VI in = x >= (VI)(0) && x < width && y >= (VI)(0) && y < height;
    const VI token = first + clamp(y, (VI)(0), height - 1) * width + clamp(x, (VI)(0), width - 1);
    PUT(token, s->token, at);
#ifdef WIDE
    PUT(select((V)(0.0f), weight, in), s->weight, at);
#else
    PUT(in ? weight : 0.0f, s->weight, at);
#endif
}

static inline void find_samples(samples *s, __global const WHERE_T *offsets, int o, __global const WHERE_T *weights,
                                int w, float4 box, __global const float *points) {
    float e[PAD], ox[PAD], oy[PAD], top = WHERE(weights, w), sum = 0.0f;
    UNROLLED
    for (int p = 0; p < PAD; p++) { /* the lanes beyond the last point repeat it */
        const int from = min(p, POINTS - 1);
        e[p] = WHERE(weights, w + from);
        ox[p] = WHERE(offsets, o + 2 * from);
        oy[p] = WHERE(offsets, o + 2 * from + 1);
    }
    UNROLLED
    for (int p = 1; p < POINTS; p++) top = fmax(top, e[p]);
    UNROLLED
    for (int p = 0; p < PAD; p += STEP) PUT(EXP(GET(e, p) - top), e, p);
    UNROLLED
    for (int p = 0; p < POINTS; p++) sum += e[p];
    UNROLLED
    for (int p = 0; p < PAD; p += STEP) {
        const V width = GET(points, p), height = GET(points, PAD + p), reach = GET(points, 3 * PAD + p);
        const V lx = fma(GET(ox, p) * reach, (V)(box.z), (V)(box.x));
        const V ly = fma(GET(oy, p) * reach, (V)(box.w), (V)(box.y));
        const V x = near_map(fma(lx, width, (V)(-0.5f)), width), y = near_map(fma(ly, height, (V)(-0.5f)), height);
        const V fx = floor(x), fy = floor(y), bx = x - fx, by = y - fy, a = GET(e, p) * (V)(1.0f / sum);
        const VI x0 = TO_INT(fx), y0 = TO_INT(fy), iw = TO_INT(width), ih = TO_INT(height);
        const VI first = TO_INT(GET(points, 2 * PAD + p));
        put_neighbour(s, p, x0, y0, iw, ih, first, (1.0f - bx) * (1.0f - by) * a);
        put_neighbour(s, PAD + p, x0 + 1, y0, iw, ih, first, bx * (1.0f - by) * a);
        put_neighbour(s, 2 * PAD + p, x0, y0 + 1, iw, ih, first, (1.0f - bx) * by * a);
        put_neighbour(s, 3 * PAD + p, x0 + 1, y0 + 1, iw, ih, first, bx * by * a);
    }
}

/* Group (i, n): queries of item n. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
deform(__global T *out, __global const T *memory, __global const WHERE_T *offsets, __global const WHERE_T *weights,
       __global const float *ref, __global const float *points, __global const int *limit, deform_args arg) {
    const int n = get_global_id(1), heads = arg.heads, d = arg.dim;
    if (n >= *limit) return;
    const int base = (arg.one_memory ? 0 : n * arg.tokens) * arg.memory_ld + arg.memory_c0;
    samples s;
#ifdef WIDE
    for (int q = get_global_id(0) * arg.rows; q < min(arg.queries, (int)(get_global_id(0) + 1) * arg.rows); q++) {
        const int row = n * arg.queries + q;
        const float4 box = vload4(0, ref + row * arg.ref_ld + arg.ref_c0);
        for (int h = 0; h < heads; h++) {
            find_samples(&s, offsets, row * arg.offsets_ld + arg.offsets_c0 + h * POINTS * 2, weights,
                         row * arg.weights_ld + arg.weights_c0 + h * POINTS, box, points);
            int c = 0;
            for (; c + 16 <= d; c += 16) {
                const int from = base + h * d + c;
                float16 a0 = (float16)(0.0f), a1 = a0, a2 = a0, a3 = a0;
                for (int p = 0; p < POINTS; p++) {
                    const int p1 = p + PAD, p2 = p + 2 * PAD, p3 = p + 3 * PAD;
                    a0 = fma((float16)(s.weight[p]), LOAD16(memory, from + s.token[p] * arg.memory_ld), a0);
                    a1 = fma((float16)(s.weight[p1]), LOAD16(memory, from + s.token[p1] * arg.memory_ld), a1);
                    a2 = fma((float16)(s.weight[p2]), LOAD16(memory, from + s.token[p2] * arg.memory_ld), a2);
                    a3 = fma((float16)(s.weight[p3]), LOAD16(memory, from + s.token[p3] * arg.memory_ld), a3);
                }
                STORE16((a0 + a1) + (a2 + a3), out, row * arg.out_ld + arg.out_c0 + h * d + c);
            }
            for (; c < d; c++) {
                float a = 0.0f;
                for (int k = 0; k < 4; k++)
                    for (int p = k * PAD; p < k * PAD + POINTS; p++)
                        a = fma(s.weight[p], LOAD(memory, base + h * d + c + s.token[p] * arg.memory_ld), a);
                STORE(a, out, row * arg.out_ld + arg.out_c0 + h * d + c);
            }
        }
    }
#else
    const int parts = d / CHANNELS, unit = get_global_id(0), q = unit / (heads * parts);
    if (q >= arg.queries) return;
    const int h = unit / parts % heads, c = h * d + unit % parts * CHANNELS, row = n * arg.queries + q;
    find_samples(&s, offsets, row * arg.offsets_ld + arg.offsets_c0 + h * POINTS * 2, weights,
                 row * arg.weights_ld + arg.weights_c0 + h * POINTS, vload4(0, ref + row * arg.ref_ld + arg.ref_c0),
                 points);
    VALUES a = (VALUES)(0.0f);
#pragma unroll
    for (int p = 0; p < POINTS; p++) {
        VALUES v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = LOAD_VALUES(memory, base + c + s.token[k * PAD + p] * arg.memory_ld);
#pragma unroll
        for (int k = 0; k < 4; k++) a = fma((VALUES)(s.weight[k * PAD + p]), v[k], a);
    }
    STORE_VALUES(a, out, row * arg.out_ld + arg.out_c0 + c);
#endif
}
