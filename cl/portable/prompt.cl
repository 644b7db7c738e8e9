/* Prompt tokens of the segmenter (graph/nodes.h). */

/* One work-item per (Fourier feature, token, prompt): rows of `own` are copied, then code = [sin z, cos z], z = 2 pi (2
 * (x, y) - 1) G with (x, y) = (point + 0.5) / side, plus the embedding of the token's label. shape: rows of `own`,
 * points, points' ld, c0, 1 when labels are given, labels' ld, c0, first label. */
__kernel void point_tokens(__global T *y, __global const float *points, __global const int *labels,
                           __global const float *gauss, __global const float *table, __global const T *own,
                           __global const int *limit, const int8 shape, const float side) {
    const int i = (int)get_global_id(0), row = (int)get_global_id(1), prompt = (int)get_global_id(2);
    const int half_dim = (int)get_global_size(0), token = row - shape.s0, count = shape.s1;
    if (prompt >= *limit) return;
    __global T *out = y + ((size_t)prompt * get_global_size(1) + row) * 2 * half_dim;
    if (token < 0) {
        STORE(LOAD(own, row * 2 * half_dim + i), out, i);
        STORE(LOAD(own, row * 2 * half_dim + half_dim + i), out, half_dim + i);
        return;
    }
    int label = -1;
    float s = 0.0f, c = 0.0f;
    if (token < count) {
        const size_t at = (size_t)prompt * count + token;
        label = shape.s4 ? labels[at * shape.s5 + shape.s6] : shape.s7 + token;
        if (label != -1) {
            __global const float *point = points + at * shape.s2 + shape.s3;
            const float px = 2.0f * ((point[0] + 0.5f) / side) - 1.0f;
            const float py = 2.0f * ((point[1] + 0.5f) / side) - 1.0f;
            const float z = 6.28318530717958648f * (px * gauss[i] + py * gauss[half_dim + i]);
            s = sin(z);
            c = cos(z);
        }
    }
    if (label >= -1 && label <= (shape.s4 ? 1 : 3)) { /* points know -1, 0, 1; corners of boxes have 2 and 3 */
        __global const float *known = table + (size_t)(label + 1) * 2 * half_dim;
        s += known[i];
        c += known[half_dim + i];
    }
    STORE(s, out, i);
    STORE(c, out, half_dim + i);
}

/* y[item] = tokens of a, then of b. shape: channels, a's tokens, b's tokens, a's items, a's ld, c0, b's ld, c0. */
__kernel void join_tokens(__global T *y, __global const T *a, __global const T *b, __global const int *limit,
                          const int8 shape) {
    const int ch = (int)get_global_id(0), token = (int)get_global_id(1), item = (int)get_global_id(2);
    const int channels = shape.s0, na = shape.s1, nb = shape.s2;
    if (ch >= channels || item >= *limit) return;
    const size_t from_a = (size_t)(shape.s3 == 1 ? 0 : item) * na + token;
    const size_t from_b = (size_t)item * nb + (token - na);
    const float v = token < na ? LOAD(a, from_a * shape.s4 + shape.s5 + ch) : LOAD(b, from_b * shape.s6 + shape.s7 + ch);
    STORE(v, y, ((size_t)item * (na + nb) + token) * channels + ch);
}
