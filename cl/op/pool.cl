/* Max over 2x2 windows, stride 1; pixels beyond the right and lower edge count as zero. A work-item takes `run`
 * neighbouring pixels: a whole row on a CPU, one pixel elsewhere. in = {h, w, ld, c0}, out = {ld, c0, c, run}.
 * Grid: x = n * h * w / run. */
__kernel void maxpool2x2(__global const T *restrict x, __global T *restrict y, __global const int *restrict limit, int4 in,
                         int4 out) {
    int p = get_global_id(0) * out.w, line = p / in.y, ox = p - line * in.y, n = line / in.x;
    if (n >= *limit) return;
    int down = line + 1 < (n + 1) * in.x ? in.y * in.z : -1;
    for (int end = ox + out.w; ox < end; ox++, p++) {
        __global const T *a = x + (long)p * in.z + in.w;
        __global T *d = y + (long)p * out.x + out.y;
        int right = ox + 1 < in.y ? in.z : -1, c = 0;
        for (; c + 8 <= out.z; c += 8) {
            float8 zero = 0.0f, v = LOAD8(a, c);
            v = fmax(v, right < 0 ? zero : LOAD8(a, right + c));
            v = fmax(v, down < 0 ? zero : LOAD8(a, down + c));
            STORE8(fmax(v, right < 0 || down < 0 ? zero : LOAD8(a, right + down + c)), d, c);
        }
        for (; c < out.z; c++) {
            float v = fmax(LOAD(a, c), right < 0 ? 0.0f : LOAD(a, right + c));
            v = fmax(v, down < 0 ? 0.0f : LOAD(a, down + c));
            STORE(fmax(v, right < 0 || down < 0 ? 0.0f : LOAD(a, right + down + c)), d, c);
        }
    }
}
