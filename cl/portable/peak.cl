/* What the device can do at most: multiply-adds on registers, and a copy.
 *
 * -D CHAINS and portable/vector's VL: independent sums of VL floats each, enough to cover the latency of a multiply-add and
 * few enough to stay in registers. */
#define SUMS8(F)  F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define SUMS12(F) SUMS8(F) F(8) F(9) F(10) F(11)
#define SUMS24(F) SUMS12(F) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23)
#define EACH(F)   CAT(SUMS, CHAINS)(F)

#define START(i) V c##i = (V)(shift * i);
#define STEP(i)  c##i = fma(c##i, a, b);
#define ADD(i)   sum += c##i;

/* With scale < 1 the sums stay between 0 and shift / (1 - scale) or CHAINS * shift. y: VL floats per work-item. */
__kernel void multiply_add(__global float *y, int steps, float scale, float shift) {
    V a = (V)(scale), b = (V)(shift), sum = (V)(0.0f);
    EACH(START)
    for (int k = 0; k < steps; k++) { EACH(STEP) }
    EACH(ADD)
    VSTORE(sum, y + get_global_id(0) * VL);
}

/* Each group copies `steps` times its size in vectors, neighbours side by side. */
__kernel void copy(__global const float *from, __global float *to, int steps) {
    size_t size = get_local_size(0), at = get_group_id(0) * steps * size + get_local_id(0);
    for (int k = 0; k < steps; k++, at += size) STORE_FV(VLOAD(from + at * VL), to, at * VL);
}
