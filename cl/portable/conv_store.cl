/* What kernels of convolutions on register tiles end in. Behind portable/vector with VL = 4. */

/* Where the channels begin that are added to pixel p's in front of the activation, and behind it: as a rule at the same
 * pixel, so that nothing has to be divided. */
static inline size_t before_place(int p, const conv_shape shape, const epilogue_args epi) {
    if (epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE)) {
        const int line = p / shape.y_w, n = line / shape.y_h;
        p = before_pixel(n, line - n * shape.y_h, p - line * shape.y_w, shape.y_h, shape.y_w, epi.flags);
    }
    return (size_t)p * epi.before_ld + epi.before_c0;
}

static inline size_t after_place(int p, const conv_shape shape, const epilogue_args epi) {
    if (epi.flags & EPI_AFTER_ONE) p %= shape.y_h * shape.y_w;
    return (size_t)p * epi.after_ld + epi.after_c0;
}

/* Stores four channels of a pixel, from c on, that are finished. */
static inline void store_quad(float4 v, __global TY *y, int c, int channels) {
    if (channels - c >= 4) STORE_YV(v, y, c);
    else store_rest(v, channels - c, y + c);
}

/* Finishes and stores four channels of pixel p, from c on, bias included. `act` instead of the epilogue's own, so that
 * it can be known when compiling and the functions of the others left out. */
static inline void finish_quad(float4 v, int p, int c, __global TY *y, __global const T *before,
                               __global const T *after, const conv_shape shape, epilogue_args epi, int act) {
    epi.act = act;
    finish(v, shape.y_c - c, y + (size_t)p * shape.y_ld + shape.y_c0 + c, before + before_place(p, shape, epi) + c,
           after + after_place(p, shape, epi) + c, epi);
}
