/* Loads that keep their place, and elements of T as they are stored.
 *
 * Compilers of GPUs move a load to its use, and uses between loads, so that a work-item waits for one load after the
 * other. fetch_NAME reads global memory where it stands, and nothing that follows ALL_FETCHED, which every work-item of
 * a group must reach, is done before it; elsewhere the first is an ordinary load and the second nothing. (Loads by way
 * of the read-only path, ld.global.nc, are not held by the barrier.) What lies outside is made zero by a mask: a
 * condition would become a branch around every value.
 *
 * RAW2 and RAW4: two and four elements of T, at multiples of their size. */
#if defined(__NV_CL_C_VERSION) || defined(cl_nv_pragma_unroll) || defined(__NVPTX__)
static inline uint fetch_uint(__global const void *p) {
    uint a;
    __asm__ volatile("ld.global.b32 %0, [%1];" : "=r"(a) : "l"(p));
    return a;
}
static inline uint2 fetch_uint2(__global const void *p) {
    uint a, b;
    __asm__ volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(p));
    return (uint2)(a, b);
}
/* Zeros, and no access, unless `real`. */
static inline uint2 fetch_uint2_if(bool real, __global const void *p) {
    uint a, b;
    __asm__ volatile("{ .reg .pred r; setp.ne.s32 r, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
                     "@r ld.global.v2.b32 {%0, %1}, [%2]; }"
                     : "=&r"(a), "=&r"(b)
                     : "l"(p), "r"((int)real));
    return (uint2)(a, b);
}
static inline uint4 fetch_uint4(__global const void *p) {
    uint a, b, c, d;
    __asm__ volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p));
    return (uint4)(a, b, c, d);
}
#define ALL_FETCHED() __asm__ volatile("bar.sync 0;" ::: "memory")
/* The value of the work-item of the warp whose number differs in the bits of `mask`. */
#define HAVE_LANE_XOR
static inline float lane_xor(float v, int mask) {
    float r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(v), "r"(mask));
    return r;
}
#else
#define ALL_FETCHED()
static inline uint fetch_uint(__global const void *p) {
    return *(__global const uint *)p;
}
static inline uint2 fetch_uint2(__global const void *p) {
    return *(__global const uint2 *)p;
}
static inline uint2 fetch_uint2_if(bool real, __global const void *p) {
    return real ? *(__global const uint2 *)p : (uint2)(0);
}
static inline uint4 fetch_uint4(__global const void *p) {
    return *(__global const uint4 *)p;
}
#endif

static inline int fetch_int(__global const int *p) {
    return (int)fetch_uint(p);
}
static inline float2 fetch_float2(__global const float *p) {
    return as_float2(fetch_uint2(p));
}
static inline float4 fetch_float4(__global const float *p) {
    return as_float4(fetch_uint4(p));
}

#ifdef IST_HALF
#define RAW2       uint
#define RAW4       uint2
#define FETCH2(p)  fetch_uint(p)
#define FETCH4(p)  fetch_uint2(p)
#define VALUES2(r) raw2_values(r)
#define VALUES4(r) raw4_values(r)
static inline float2 raw2_values(uint r) {
    return vload_half2(0, (const __private half *)&r);
}
static inline float4 raw4_values(uint2 r) {
    return vload_half4(0, (const __private half *)&r);
}
static inline void store2(float2 v, __global half *p) {
    uint r;
    vstore_half2(v, 0, (__private half *)&r);
    *(__global uint *)p = r;
}
#define STORE_RAW2(v, p) store2(v, p)
#define STORE_RAW4(v, p) STORE4_ALIGNED(v, p, 0)
#else
#define RAW2             uint2
#define RAW4             uint4
#define FETCH2(p)        fetch_uint2(p)
#define FETCH4(p)        fetch_uint4(p)
#define VALUES2(r)       as_float2(r)
#define VALUES4(r)       as_float4(r)
#define STORE_RAW2(v, p) (*(__global float2 *)(p) = (v))
#define STORE_RAW4(v, p) (*(__global float4 *)(p) = (v))
#endif
