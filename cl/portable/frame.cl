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
