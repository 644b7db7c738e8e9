/* Loads that keep their place, for portable/sequence: NVIDIA's compiler would move each to its use and wait for every
 * one. Behind nvidia/ptx; elsewhere it is empty. */
#if defined(IST_PTX) && defined(IST_HALF)
static inline uint2 fetch_here(__global const T *p) {
    uint a, b;
    __asm__ volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(p));
    return (uint2)(a, b);
}
#define FETCH fetch_here
#elif defined(IST_PTX)
static inline float4 fetch_here(__global const T *p) {
    float a, b, c, d;
    __asm__ volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(p));
    return (float4)(a, b, c, d);
}
#define FETCH fetch_here
#endif
