/* Pairs of isa/amx that a kernel makes of vectors, and work beside its products: needs isa/amx.
 *
 * Terms of a product may come in any order that both sides have. Where a pair is of two vectors, here of terms k and
 * k + 16 of a step's 32, lane by lane, words are made without moving lanes: a row's 16 words are a step of it, and a
 * panel's 16 words that of 16 columns. */

/* Words {v, w} of part p go to `to`, an address, and p * plane bfloat16 on. Rounding to nearest, halves away from zero;
 * of two such parts of a float the rest has eight bits. */
static inline void amx_join(float16 v, float16 w, size_t to, size_t plane) {
    const uint16 half_of_last = (uint16)(0x8000u), upper = (uint16)(0xffff0000u);
    __global uint *dst = (__global uint *)to;
#pragma unroll
    for (int p = 0; p < PARTS; p++, dst += plane / 2) {
        const bool rest = p == 2;
        const uint16 g = rest ? as_uint16(v) : (as_uint16(v) + half_of_last) & upper;
        const uint16 h = (rest ? as_uint16(w) : as_uint16(w) + half_of_last) & upper;
        vstore16(g >> (uint16)(16) | h, 0, dst);
        v -= as_float16(g);
        w -= as_float16(h);
    }
}

/* Work beside the products of a function: statements `work`, `total` times, evenly over `pauses` of isa/amx. What
 * counts stays in registers. */
#define BESIDE_BEGIN(total, pauses)                                                                                    \
    int beside_left = (total), beside_wait = 0, beside_rate = beside_left * 256 / (pauses) + 1;
#define BESIDE_PAUSE(work)                                                                                             \
    for (beside_wait += beside_rate; beside_wait >= 256 && beside_left > 0; beside_wait -= 256, beside_left--) { work }
#define BESIDE_FINISH(work)                                                                                            \
    for (; beside_left > 0; beside_left--) { work }
