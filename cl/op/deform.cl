/* D-FINE's deformable attention: bilinear samples of a feature pyramid around each reference box.
 *
 *     out[q][h] = sum_p softmax_p(weights[q][h]) sample(level of p, head h's channels, centre + offset_p * reach_p * size)
 *
 * with reach = 0.5 / points of the level. Pixel position = location * extent - 0.5 (align_corners = false); neighbours
 * outside the level count as zero. Coordinates and softmax are fp32. Of each point, `points` [P][4] gives width, height,
 * first token and reach. WIDE (CPU): a work-item alone in its group takes `rows` queries, all heads, sixteen channels at
 * a time; else a work-item takes four channels of one head of one query. */
#ifndef P_MAX
#define P_MAX 16
#endif
#ifdef WIDE
#define GROUP 1
#else
#define GROUP 64
#endif

/* Where one head of one query looks: four tokens and weights (bilinear times softmax) per point. */
typedef struct samples {
    int token[P_MAX * 4];
    float weight[P_MAX * 4];
} samples;

/* Clamped so far outside that no neighbour is inside, before it becomes an int. */
static inline float near_map(float x, float extent) {
    return fmin(fmax(x, -2.0f), extent + 1.0f);
}

static inline void find_samples(samples *s, __global const T *offsets, int o, __global const T *weights, int w,
                                float4 box, __global const float *points, int count) {
    float top = LOAD(weights, w), sum = 0.0f, e[P_MAX];
    for (int p = 1; p < count; p++) top = fmax(top, LOAD(weights, w + p));
    for (int p = 0; p < count; p++) {
        e[p] = ist_exp_float(LOAD(weights, w + p) - top);
        sum += e[p];
    }
    const float inv = 1.0f / sum;
    for (int p = 0; p < count; p++) {
        const float4 level = vload4(p, points);
        const float lx = fma(LOAD(offsets, o + 2 * p) * level.w, box.z, box.x);
        const float ly = fma(LOAD(offsets, o + 2 * p + 1) * level.w, box.w, box.y);
        const float x = near_map(fma(lx, level.x, -0.5f), level.x), y = near_map(fma(ly, level.y, -0.5f), level.y);
        const float fx = floor(x), fy = floor(y), bx = x - fx, by = y - fy, a = e[p] * inv;
        const float4 part = (float4)((1.0f - bx) * (1.0f - by), bx * (1.0f - by), (1.0f - bx) * by, bx * by);
        const int x0 = (int)fx, y0 = (int)fy, width = (int)level.x, height = (int)level.y, first = (int)level.z;
        const int4 xs = (int4)(x0, x0 + 1, x0, x0 + 1), ys = (int4)(y0, y0, y0 + 1, y0 + 1);
        const int4 in = xs >= 0 && xs < width && ys >= 0 && ys < height;
        const int4 token = first + clamp(ys, 0, height - 1) * width + clamp(xs, 0, width - 1);
        vstore4(token, p, s->token);
        vstore4(select((float4)(0.0f), part * a, in), p, s->weight);
    }
}

/* lds, firsts {out, memory, offsets, weights}; ref_at {ld, c0}; sizes {queries, tokens of memory, heads, head
 * dimension}; more {points, rows, memory has one item for all}. Group (i, n). */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
deform(__global T *out, __global const T *memory, __global const T *offsets, __global const T *weights,
       __global const float *ref, __global const float *points, __global const int *limit, int4 lds, int4 firsts,
       int4 ref_at, int4 sizes, int4 more) {
    const int n = get_global_id(1), heads = sizes.z, d = sizes.w, count = more.x;
    if (n >= *limit) return;
    const int base = (more.z ? 0 : n * sizes.y) * lds.y + firsts.y;
    samples s;
#ifdef WIDE
    for (int q = get_global_id(0) * more.y; q < min(sizes.x, (int)(get_global_id(0) + 1) * more.y); q++) {
        const int row = n * sizes.x + q;
        const float4 box = vload4(0, ref + row * ref_at.x + ref_at.y);
        for (int h = 0; h < heads; h++) {
            find_samples(&s, offsets, row * lds.z + firsts.z + h * count * 2, weights,
                         row * lds.w + firsts.w + h * count, box, points, count);
            int c = 0;
            for (; c + 16 <= d; c += 16) {
                const int from = base + h * d + c;
                float16 a0 = (float16)(0.0f), a1 = a0, a2 = a0, a3 = a0;
                for (int p = 0; p < count * 4; p += 4) {
                    a0 = fma((float16)(s.weight[p]), LOAD16(memory, from + s.token[p] * lds.y), a0);
                    a1 = fma((float16)(s.weight[p + 1]), LOAD16(memory, from + s.token[p + 1] * lds.y), a1);
                    a2 = fma((float16)(s.weight[p + 2]), LOAD16(memory, from + s.token[p + 2] * lds.y), a2);
                    a3 = fma((float16)(s.weight[p + 3]), LOAD16(memory, from + s.token[p + 3] * lds.y), a3);
                }
                STORE16((a0 + a1) + (a2 + a3), out, row * lds.x + firsts.x + h * d + c);
            }
            for (; c < d; c++) {
                float a = 0.0f;
                for (int p = 0; p < count * 4; p++)
                    a = fma(s.weight[p], LOAD(memory, base + h * d + c + s.token[p] * lds.y), a);
                STORE(a, out, row * lds.x + firsts.x + h * d + c);
            }
        }
    }
#else
    const int quads = d / 4, unit = get_global_id(0), q = unit / (heads * quads);
    if (q >= sizes.x) return;
    const int h = unit / quads % heads, c = h * d + unit % quads * 4, row = n * sizes.x + q;
    find_samples(&s, offsets, row * lds.z + firsts.z + h * count * 2, weights, row * lds.w + firsts.w + h * count,
                 vload4(0, ref + row * ref_at.x + ref_at.y), points, count);
    float4 a = (float4)(0.0f);
    for (int p = 0; p < count * 4; p++)
        a = fma((float4)(s.weight[p]), LOAD4(memory, base + c + s.token[p] * lds.y), a);
    STORE4(a, out, row * lds.x + firsts.x + c);
#endif
}
