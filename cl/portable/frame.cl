/* What the kernels that read an upload or write a packet share; behind codes/frame, which has the words of both (graph/frame.h). */
/* Block of image i. */
#define IMAGE_AT(upload, i) ((upload) + UP_HEADER + (i) * IM_WORDS)

/* Groups of each of `count` objects, when there are `all` for them together and at most `most` for one. */
static inline int parts_of(int count, int all, int most) {
    return clamp(all / max(count, 1), 1, most);
}

/* x * ratio rounded once, ratio = high + low. */
static inline float scaled(float x, uint high, uint low) {
    float p = x * as_float(high);
    return p + (fma(x, as_float(high), -p) + x * as_float(low));
}

/* Sample v of 16 bits in 8, through an image's window (base/sample_window.h). The quotient is below 256: in floats it is
 * at most one off. */
static inline uint through_window(uint v, int low, int high) {
    int width = high - low, above = clamp((int)v - low, 0, width), n = 510 * above + width, d = 2 * width;
    int q = (int)((float)n * (1.0f / (float)d)), rest = n - q * d;
    return (uint)(q + (rest >= d) - (rest < 0));
}
