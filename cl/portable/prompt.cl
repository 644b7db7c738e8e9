/* Prompt tokens of the segmenter (graph/nodes.h). */

/* One work-item per (Fourier feature, token, prompt): rows of `own` are copied, then code = [sin z, cos z], z = 2 pi (2
 * (x, y) - 1) G with (x, y) = (point + 0.5) / side, plus the embedding of the token's label. */
__kernel void point_tokens(__global T *y, __global const float *points, __global const int *labels,
                           __global const float *gauss, __global const float *table, __global const T *own,
                           __global const int *limit, point_tokens_args arg) {
    const int i = (int)get_global_id(0), row = (int)get_global_id(1), prompt = (int)get_global_id(2);
    const int half_dim = (int)get_global_size(0), token = row - arg.own_rows, count = arg.points;
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
        label = arg.labelled ? labels[at * arg.labels_ld + arg.labels_c0] : arg.first_label + token;
        if (label != -1) {
            __global const float *point = points + at * arg.points_ld + arg.points_c0;
            const float px = 2.0f * ((point[0] + 0.5f) / arg.side) - 1.0f;
            const float py = 2.0f * ((point[1] + 0.5f) / arg.side) - 1.0f;
            const float z = 6.28318530717958648f * (px * gauss[i] + py * gauss[half_dim + i]);
            s = sin(z);
            c = cos(z);
        }
    }
    if (label >= -1 && label <= arg.most_label) { /* points know -1, 0, 1; corners of boxes have 2 and 3 */
        __global const float *known = table + (size_t)(label + 1) * 2 * half_dim;
        s += known[i];
        c += known[half_dim + i];
    }
    STORE(s, out, i);
    STORE(c, out, half_dim + i);
}

/* y[item] = tokens of a, then of b. */
__kernel void join_tokens(__global T *y, __global const T *a, __global const T *b, __global const int *limit,
                          join_tokens_args arg) {
    const int ch = (int)get_global_id(0), token = (int)get_global_id(1), item = (int)get_global_id(2);
    const int channels = arg.c, na = arg.a_tokens, nb = arg.b_tokens;
    if (ch >= channels || item >= *limit) return;
    const size_t from_a = (size_t)(arg.a_items == 1 ? 0 : item) * na + token;
    const size_t from_b = (size_t)item * nb + (token - na);
    const float v =
        token < na ? LOAD(a, from_a * arg.a_ld + arg.a_c0 + ch) : LOAD(b, from_b * arg.b_ld + arg.b_c0 + ch);
    STORE(v, y, ((size_t)item * (na + nb) + token) * channels + ch);
}

/* y[item] = x[item] where it is given, else `none` at every pixel. */
__kernel void dense_prompt(__global T *y, __global const T *x, __global const int *given, __global const float *none,
                           __global const int *limit, dense_prompt_args arg) {
    const int ch = (int)get_global_id(0), pixel = (int)get_global_id(1), item = (int)get_global_id(2);
    if (ch >= arg.c || item >= *limit) return;
    const size_t at = (size_t)item * arg.pixels + pixel;
    STORE(given[item] ? LOAD(x, at * arg.x_ld + arg.x_c0 + ch) : none[ch], y, at * arg.c + ch);
}

/* The last row of columns [rows][columns] of prompt n, which is added to scores: low for tokens it does not have. */
__kernel void hide_tokens(__global float *y, __global const int *counts, __global const int *limit,
                          hide_tokens_args arg) {
    const int column = (int)get_global_id(0), n = (int)get_global_id(1);
    if (n >= *limit || column < counts[n] * arg.heads) return;
    y[((size_t)n * arg.rows + arg.rows - 1) * arg.width + column] = -3.0e38f;
}
