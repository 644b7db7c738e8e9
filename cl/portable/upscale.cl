/* SAM's mask upscaling from image tokens to logits (graph/nodes.h), portable: a group takes PIXELS image tokens
 * through both transposed convolutions in local memory. Layouts as in upscale_cpu.cl.
 *
 * -D K: input channels. -D GROUP: 64 or 256 work-items, one for each of 64 channels, four pixels and PHASES. */
#define C1 64
#define C2 32
#if GROUP == 256
#define PHASES 2 /* of the first convolution at a time */
#define PIXELS 8
#else
#define PHASES 1
#define PIXELS 4
#endif

/* u[line] = gelu(LN(u[line])) for PHASES * PIXELS lines of C1 values; a work-item owns four values, 16 a line. */
static inline void normalise(__local float *u, __local float *work, __global const float *norm, float eps, int lane) {
    const int first = lane / 16 * 16, k = lane % 16 * 4;
    float4 v = vload4(lane, u), gamma = vload4(0, norm + C1 + k), beta = vload4(0, norm + 2 * C1 + k);
    float mean = 0.0f, square = 0.0f;
    work[lane] = (v.x + v.y) + (v.z + v.w);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 16; i++) mean += work[first + i];
    v -= (float4)(mean / C1);
    barrier(CLK_LOCAL_MEM_FENCE);
    work[lane] = dot(v, v);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 16; i++) square += work[first + i];
    v = fma(v * (float4)(1.0f / sqrt(square / C1 + eps)), gamma, beta);
    vstore4(activate_float4(v, ACT_GELU), lane, u);
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Group (i, n): pixels [i * PIXELS, ..) of item n. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
upscale(__global float *y, __global const T *x, __global const float *w1, __global const float *norm,
        __global const float *w2, __global const float *b2, __global const T *vectors, __global const int *limit,
        upscale_args arg) {
    __local float xs[PIXELS * K], u[PHASES * PIXELS * C1], work[GROUP * 4];
    const int n = get_group_id(1), pixels = arg.h * arg.w, first = get_group_id(0) * PIXELS;
    const int lane = get_local_id(0);
    if (n >= *limit) return;
    for (int e = lane; e < PIXELS * K; e += GROUP)
        xs[e] = LOAD(x, ((size_t)n * pixels + min(first + e / K, pixels - 1)) * arg.x_ld + arg.x_c0 + e % K);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int phase0 = 0; phase0 < 4; phase0 += PHASES) {
        const int k1 = lane % C1, p1 = lane / C1 % PHASES, quad = lane / (C1 * PHASES) * 4;
        __global const float *w = w1 + (phase0 + p1) * K * C1 + k1;
        float4 a = (float4)(norm[k1]);
        for (int k = 0; k < K; k++)
            a = fma((float4)(xs[quad * K + k], xs[(quad + 1) * K + k], xs[(quad + 2) * K + k], xs[(quad + 3) * K + k]),
                    (float4)(w[k * C1]), a);
        __local float *line = u + (p1 * PIXELS + quad) * C1 + k1;
        line[0] = a.x;
        line[C1] = a.y;
        line[2 * C1] = a.z;
        line[3 * C1] = a.w;
        barrier(CLK_LOCAL_MEM_FENCE);
        normalise(u, work, norm, arg.eps, lane);
        for (int o = lane; o < PHASES * 4 * C2; o += GROUP) { /* all work-items go round equally often */
            const int ch = o % C2, sub = o / C2 % 4, p2 = o / (4 * C2);
            __global const float *v = w2 + (sub >> 1) * C1 * 2 * C2 + (sub & 1) * C2 + ch;
            float s[PIXELS];
            for (int i = 0; i < PIXELS; i++) s[i] = b2[ch];
            for (int k = 0; k < C1; k++)
                for (int i = 0; i < PIXELS; i++) s[i] = fma(u[(p2 * PIXELS + i) * C1 + k], v[k * 2 * C2], s[i]);
            for (int i = 0; i < PIXELS; i++) s[i] = activate_float(s[i], ACT_GELU);
            for (int m = 0; m < arg.vectors; m++) {
                const float f = LOAD(vectors, ((size_t)n * arg.vectors + m) * arg.vectors_ld + arg.vectors_c0 + ch);
                for (int q = 0; q < PIXELS; q += 4) {
                    barrier(CLK_LOCAL_MEM_FENCE);
                    for (int i = 0; i < 4; i++) work[lane * 4 + i] = s[q + i] * f;
                    barrier(CLK_LOCAL_MEM_FENCE);
                    if (lane < GROUP / C2 * 4) {
                        const int r = o - lane + lane / 4 * C2, p = first + q + lane % 4, fine = r / C2 % 4;
                        const int phase = phase0 + r / (4 * C2);
                        const int row = p / arg.w * 4 + (phase >> 1) * 2 + (fine >> 1);
                        const int column = p % arg.w * 4 + (phase & 1) * 2 + (fine & 1);
                        float sum = 0.0f;
                        for (int i = 0; i < C2; i++) sum += work[(lane / 4 * C2 + i) * 4 + lane % 4];
                        if (p < pixels)
                            y[(((size_t)n * arg.vectors + m) * arg.h * 4 + row) * arg.w * 4 + column] = sum;
                    }
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
