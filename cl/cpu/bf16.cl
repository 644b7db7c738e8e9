/* Rounding to bfloat16, the upper half of a float. -D ASM: 1: AVX512_BF16's instruction, which takes subnormal numbers
 * for zeros; 0: plain OpenCL, for tests. */
#if ASM
static inline ushort16 bf16_round(float16 v) {
    short16 h;
    __asm__("vcvtneps2bf16 %1,%0" : "=v"(h) : "v"(v));
    return as_ushort16(h);
}
#else
/* To nearest, ties to even. */
static inline ushort16 bf16_round(float16 v) {
    uint16 u = as_uint16(v), up = u + (uint16)(0x7fffu) + (u >> (uint16)(16) & (uint16)(1u));
    return convert_ushort16(select(up, u | (uint16)(0x400000u), v != v) >> (uint16)(16));
}
#endif
