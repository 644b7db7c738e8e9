/* What kernels of convolutions on register tiles end in. Behind portable/vector with VL = 4.
 *
 * Stores four channels from c on of pixel p, bias included. `act` instead of the epilogue's own, so that it can be known
 * when compiling and the functions of the others left out. */
static inline void store_quad(float4 v, int p, int c, __global TY *y, __global const T *before, __global const T *after,
                              const conv_shape shape, epilogue_args epi, int act) {
    const int line = p / shape.y_w, n = line / shape.y_h, oy = line - n * shape.y_h, ox = p - line * shape.y_w;
    const size_t b = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
    const size_t a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
    epi.act = act;
    finish(v, shape.y_c - c, y + (size_t)p * shape.y_ld + shape.y_c0 + c,
           before + b * epi.before_ld + epi.before_c0 + c, after + a * epi.after_ld + epi.after_c0 + c, epi);
}
