/* Matrix instructions of NVIDIA GPUs from compute capability 8.0 on, as inline PTX: a warp of 32 work-items multiplies
 * 16 x 16 by 16 x 8 halves and adds to floats; copies from global to local memory go on while it computes.
 *
 * Local memory is addressed by the number that PTX uses, SHARED(pointer). Fragments, with g = lane / 4 and t = lane % 4
 * (PTX ISA, "mma.m16n8k16"):
 *   a[0..3]: rows g, g + 8, g, g + 8; columns 2t + {0, 1}, the last two 8 further; two halves in each word
 *   b[0..1]: column g; rows 2t + {0, 1}, then 8 further
 *   c[0..3]: row g, columns 2t + {0, 1}; then the same of row g + 8
 * Each asm is volatile with a memory clobber, so that no copy moves across a barrier.
 *
 * For compilers that do not take PTX the same operations stand below in plain OpenCL: no device is served by them (the
 * probe fails there), but tests that claim the capability check the kernels' index arithmetic anywhere. The kernel
 * calls its local array `memory` and begins with MATRIX_SCRATCH, which functions take as MATRIX_SCRATCH_PARAMETER
 * (WARP_SCRATCH when it multiplies nothing); all work-items of a group must reach MATRIX_LOAD, MATRIX_MULTIPLY, SUM_OF_8
 * and WARP_PREFIX. */
#if defined(__NV_CL_C_VERSION) || defined(cl_nv_pragma_unroll) || defined(__NVPTX__)
#define IST_PTX

#define MATRIX_SCRATCH
#define UNROLL    _Pragma("unroll") /* before a loop with matrix instructions */
#define WARP_SCRATCH
#define MATRIX_SCRATCH_PARAMETER
#define MATRIX_SCRATCH_ARGUMENT
#define SHARED(p) ((uint)(size_t)(p))

/* 16 bytes from global to local memory, of which only the first `bytes` are read; the rest become zeros. Through the
 * first-level cache (.ca): neighbouring groups and taps read the same lines, and on an H200 the path around it (.cg)
 * was 1.2 to 1.7 times slower. */
#define COPY16(to, from, bytes)                                                                                        \
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory")
/* Ends a group of copies; waits until at most the `n` (a literal) latest groups are under way, with 0 also for copies that
 * belong to no group yet. */
#define COPY_COMMIT()  __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT_(n)                                                                                                  \
    do {                                                                                                               \
        if ((n) == 0)                                                                                                  \
            __asm__ volatile("cp.async.wait_all;" ::: "memory");                                                       \
        else                                                                                                           \
            __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory");                                              \
    } while (0)
#define COPY_WAIT(n)   COPY_WAIT_(n)

/* Four 8 x 8 matrices of halves into r[0..3]; lane l gives the address of row l % 8 of matrix l / 8. */
#define MATRIX_LOAD(r, address)                                                                                        \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"                                \
                     : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3])                                          \
                     : "r"(address)                                                                                    \
                     : "memory")
/* The same with each of the four matrices turned: r[m] has rows 2t + {0, 1} of column g. */
#define MATRIX_LOAD_TURNED(r, address)                                                                                 \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"                          \
                     : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3])                                          \
                     : "r"(address)                                                                                    \
                     : "memory")
/* c += a b */
#define MATRIX_MULTIPLY(c, a, b0, b1)                                                                                  \
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "                                              \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                 \
                     : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                          \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))

/* Turns an 8 x 8 matrix of halves, of which lane l has row l / 4, columns l % 4 * 2 + {0, 1}. */
#define MATRIX_TURN(to, from)                                                                                          \
    __asm__ volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(from))

/* 8 bytes of global memory that nobody writes meanwhile; the load keeps its place, where the compiler would move it to
 * its use and wait for one after the other. */
#define LOAD_ORDERED(p) load_ordered(p)
static inline uint2 load_ordered(__global const uint2 *p) {
    uint a, b;
    __asm__ volatile("ld.global.nc.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(p));
    return (uint2)(a, b);
}

/* `count` multiplications, C(i) += A(i) {B0(i), B1(i)}, where these are macros, each with THEN(i) behind it. The kernel
 * begins with MATRIX_SCRATCH_OF(the greatest count). */
#define MATRIX_SCRATCH_OF(count)
#define MATRIX_MULTIPLY_ALL(count, C, A, B0, B1, THEN)                                                                 \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < (count); i++) {                                                          \
            MATRIX_MULTIPLY(C(i), A(i), B0(i), B1(i));                                                                 \
            THEN(i);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* v becomes the sum over the eight work-items of one id / 8. */
#define SUM_OF_8(v)                                                                                                    \
    do {                                                                                                               \
        float other;                                                                                                   \
        for (int m = 1; m < 8; m *= 2) {                                                                               \
            __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(v), "r"(m));       \
            (v) += other;                                                                                              \
        }                                                                                                              \
    } while (0)

/* v, which is the same for all of a warp, so that the compiler knows it. */
#define WARP_UNIFORM(v) warp_uniform(v)
static inline int warp_uniform(int v) {
    __asm__ volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(v));
    return v;
}

/* What is reckoned from the integer v behind this is not reckoned in front of it, where it would hold registers. */
#define RECKON_FROM_HERE(v) __asm__ volatile("" : "+r"(v)::"memory")

/* 16 bytes of local memory. */
#define SHARED_LOAD(v, address)                                                                                        \
    __asm__ volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"                                                        \
                     : "=r"((v)[0]), "=r"((v)[1]), "=r"((v)[2]), "=r"((v)[3])                                          \
                     : "r"(address)                                                                                    \
                     : "memory")

/* 16 bytes, or 8, of global memory. These loads stay before the next barrier: several in front of one are under way
 * together, where the compiler would move each to its use. */
#define FETCH16(v, pointer)                                                                                            \
    __asm__ volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"                                                        \
                     : "=r"((v)[0]), "=r"((v)[1]), "=r"((v)[2]), "=r"((v)[3])                                          \
                     : "l"(pointer)                                                                                    \
                     : "memory")
#define FETCH8(v, pointer)                                                                                             \
    __asm__ volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"((v)[0]), "=r"((v)[1]) : "l"(pointer) : "memory")

/* 4, 8 or 16 bytes of global memory that nobody writes meanwhile, to one word each; zeros, and no access, unless `real`. */
#define FETCH4_IF(a, pointer, real)                                                                                    \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; mov.b32 %0, 0; @p ld.global.nc.b32 %0, [%1]; }"            \
                     : "=&r"(a)                                                                                        \
                     : "l"(pointer), "r"((int)(real)))
#define FETCH8_IF(a, b, pointer, real)                                                                                 \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "                            \
                     "@p ld.global.nc.v2.b32 {%0, %1}, [%2]; }"                                                        \
                     : "=&r"(a), "=&r"(b)                                                                              \
                     : "l"(pointer), "r"((int)(real)))
#define FETCH16_IF(a, b, c, d, pointer, real)                                                                          \
    __asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; "             \
                     "mov.b32 %3, 0; @p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }"                                 \
                     : "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d)                                                          \
                     : "l"(pointer), "r"((int)(real)))

/* Asks for 128 bytes of global memory, to the second-level cache. */
#define ASK_FOR(p) __asm__ volatile("prefetch.global.L2 [%0];" ::"l"(p))

/* r = v, a float, of the work-item whose number in the warp differs in the bits of `mask`. */
#define LANE_XOR(r, v, mask)                                                                                           \
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(v), "r"(mask))

/* `to`: the sum of v over the work-items of the warp up to this one. */
#define WARP_PREFIX(to, v) (to) = warp_prefix(v)
static inline int warp_prefix(int v) {
    for (int step = 1; step < 32; step *= 2)
        __asm__ volatile("{ .reg .pred p; .reg .s32 other; shfl.sync.up.b32 other|p, %0, %1, 0, 0xffffffff; "
                         "@p add.s32 %0, %0, other; }"
                         : "+r"(v)
                         : "r"(step));
    return v;
}

/* Orders this work-item's accesses to global memory before its later ones, for the whole device. */
#define DEVICE_FENCE() __asm__ volatile("fence.acq_rel.gpu;" ::: "memory")

/* Four floats that another work-group wrote: past the first-level cache. */
static inline float4 load_shared_result(__global const float4 *p) {
    float a, b, c, d;
    __asm__ volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                     : "l"(p)
                     : "memory");
    return (float4)(a, b, c, d);
}

/* Two floats to halves (round to nearest even) and back; the first is in the low bits. */
static inline uint halves_of(float low, float high) {
    uint r;
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
static inline float2 floats_of(uint halves) {
    float low, high;
    __asm__("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(low), "=f"(high)
            : "r"(halves));
    return (float2)(low, high);
}

/* Sums of two halves each, rounded once. */
static inline uint halves_sum(uint a, uint b) {
    uint r;
    __asm__("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* The greater of two halves each. */
static inline uint halves_max(uint a, uint b) {
    uint r;
    __asm__("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* 1/x to 2 ulp. */
static inline float quick_reciprocal(float x) {
    float r;
    __asm__("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

#else

#define UNROLL         _Pragma("unroll 1") /* each barrier costs compilers time */
#define MATRIX_SCRATCH __local uint scratch[THREADS][6];
#define WARP_SCRATCH   __local uint scratch[THREADS][1];
#define MATRIX_SCRATCH_OF(count) __local uint scratch[THREADS][6 * (count)];
#define MATRIX_SCRATCH_PARAMETER , __local uint(*scratch)[6]
#define MATRIX_SCRATCH_ARGUMENT  , scratch
#define SHARED(p)                0u

static inline void copy_bytes(__local uint4 *to, __global const void *from, int bytes) {
    __local uchar *d = (__local uchar *)to;
    __global const uchar *s = (__global const uchar *)from;
    for (int i = 0; i < 16; i++) d[i] = i < bytes ? s[i] : 0;
}
#define COPY16(to, from, bytes) copy_bytes(memory + (to) / 16, (from), (bytes))
#define COPY_COMMIT()
#define COPY_WAIT(n)
#define ASK_FOR(p)

#define MATRIX_LOAD(r, address)                                                                                        \
    do {                                                                                                               \
        int me = get_local_id(0), one = me & 31;                                                                       \
        scratch[me][0] = (address);                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = 0; m < 4; m++)                                                                                    \
            (r)[m] = ((__local uint *)memory)[scratch[me - one + m * 8 + one / 4][0] / 4 + one % 4];                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)

static inline float half_at(uint word, int high) {
    ushort bits = (ushort)(high ? word >> 16 : word);
    return vload_half(0, (const half *)&bits);
}
#define MATRIX_LOAD_TURNED(r, address)                                                                                 \
    do {                                                                                                               \
        int me = get_local_id(0), one = me & 31;                                                                       \
        scratch[me][0] = (address);                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = 0; m < 4; m++) {                                                                                  \
            (r)[m] = 0;                                                                                                \
            for (int k = 0; k < 2; k++) {                                                                              \
                uint row = scratch[me - one + m * 8 + one % 4 * 2 + k][0] / 4;                                         \
                uint word = ((__local uint *)memory)[row + one / 8];                                                   \
                (r)[m] |= (one / 4 % 2 ? word >> 16 : word & 0xffff) << 16 * k;                                        \
            }                                                                                                          \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)

/* Element (row, column) of c, whose warp's fragments are at s, `stride` words from lane to lane. */
NOINLINE float product(__local const uint *s, int stride, int row, int column) {
    float sum = 0.0f;
    for (int k = 0; k < 16; k++)
        sum += half_at(s[(row % 8 * 4 + k % 8 / 2) * stride + row / 8 + k / 8 * 2], k % 2) *
               half_at(s[(column * 4 + k % 8 / 2) * stride + 4 + k / 8], k % 2);
    return sum;
}
#define MATRIX_MULTIPLY_ALL(count, C, A, B0, B1, THEN)                                                                 \
    do {                                                                                                               \
        const int me = get_local_id(0), one = me & 31, stride = sizeof scratch[0] / sizeof(uint);                      \
        for (int i = 0; i < (count); i++) {                                                                            \
            for (int m = 0; m < 4; m++) scratch[me][6 * i + m] = A(i)[m];                                              \
            scratch[me][6 * i + 4] = B0(i);                                                                            \
            scratch[me][6 * i + 5] = B1(i);                                                                            \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int i = 0; i < (count); i++) {                                                                            \
            for (int m = 0; m < 4; m++)                                                                                \
                C(i)[m] += product(&scratch[me - one][6 * i], stride, one / 4 + m / 2 * 8, one % 4 * 2 + m % 2);       \
            THEN(i);                                                                                                   \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define MATRIX_MULTIPLY(c, a, b0, b1)                                                                                  \
    do {                                                                                                               \
        const int me = get_local_id(0), one = me & 31, stride = sizeof scratch[0] / sizeof(uint);                      \
        for (int m = 0; m < 4; m++) scratch[me][m] = (a)[m];                                                           \
        scratch[me][4] = (b0);                                                                                         \
        scratch[me][5] = (b1);                                                                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = 0; m < 4; m++)                                                                                    \
            (c)[m] += product(scratch[me - one], stride, one / 4 + m / 2 * 8, one % 4 * 2 + m % 2);                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)

#define MATRIX_TURN(to, from)                                                                                          \
    do {                                                                                                               \
        int me = get_local_id(0), one = me & 31;                                                                       \
        scratch[me][0] = (from);                                                                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        __local uint(*row)[6] = scratch + (me - one + one % 4 * 8 + one / 8);                                          \
        uint low = row[0][0], high = row[4][0];                                                                        \
        (to) = one / 4 % 2 ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define LOAD_ORDERED(p)   (*(p))
#define SUM_OF_8(v)                                                                                                    \
    do {                                                                                                               \
        int me = get_local_id(0);                                                                                      \
        scratch[me][0] = as_uint(v);                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        (v) = 0.0f;                                                                                                    \
        for (int m = 0; m < 8; m++) (v) += as_float(scratch[me / 8 * 8 + m][0]);                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)

#define WARP_UNIFORM(v) (v)
#define RECKON_FROM_HERE(v)

#define SHARED_LOAD(v, address)                                                                                        \
    do {                                                                                                               \
        for (int m = 0; m < 4; m++) (v)[m] = ((__local const uint *)memory)[(address) / 4 + m];                        \
    } while (0)
#define FETCH16(v, pointer)                                                                                            \
    do {                                                                                                               \
        for (int m = 0; m < 4; m++) (v)[m] = ((__global const uint *)(pointer))[m];                                    \
    } while (0)
#define FETCH8(v, pointer)                                                                                             \
    do {                                                                                                               \
        for (int m = 0; m < 2; m++) (v)[m] = ((__global const uint *)(pointer))[m];                                    \
    } while (0)
static inline uint word_if(__global const void *p, int word, int real) {
    return real ? ((__global const uint *)p)[word] : 0;
}
#define FETCH4_IF(a, pointer, real) ((a) = word_if(pointer, 0, real))
#define FETCH8_IF(a, b, pointer, real)                                                                                 \
    do {                                                                                                               \
        FETCH4_IF(a, pointer, real);                                                                                   \
        (b) = word_if(pointer, 1, real);                                                                               \
    } while (0)
#define FETCH16_IF(a, b, c, d, pointer, real)                                                                          \
    do {                                                                                                               \
        FETCH8_IF(a, b, pointer, real);                                                                                \
        (c) = word_if(pointer, 2, real);                                                                               \
        (d) = word_if(pointer, 3, real);                                                                               \
    } while (0)
#define LANE_XOR(r, v, mask)                                                                                           \
    do {                                                                                                               \
        int me = get_local_id(0);                                                                                      \
        scratch[me][0] = as_uint(v);                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        (r) = as_float(scratch[me ^ (mask)][0]);                                                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define WARP_PREFIX(to, v)                                                                                             \
    do {                                                                                                               \
        int me = get_local_id(0), sum = 0;                                                                             \
        scratch[me][0] = (uint)(v);                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = me & ~31; m <= me; m++) sum += (int)scratch[m][0];                                                \
        (to) = sum;                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define DEVICE_FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)

static inline float4 load_shared_result(__global const float4 *p) {
    return *p;
}
static inline uint halves_of(float low, float high) {
    ushort bits[2];
    vstore_half(low, 0, (half *)bits);
    vstore_half(high, 1, (half *)bits);
    return bits[0] | (uint)bits[1] << 16;
}
static inline float2 floats_of(uint halves) {
    return (float2)(half_at(halves, 0), half_at(halves, 1));
}
static inline uint halves_sum(uint a, uint b) {
    const float2 v = floats_of(a) + floats_of(b);
    return halves_of(v.x, v.y);
}
static inline uint halves_max(uint a, uint b) {
    const float2 v = fmax(floats_of(a), floats_of(b));
    return halves_of(v.x, v.y);
}
static inline float quick_reciprocal(float x) {
    return 1.0f / x;
}
#endif

/* v, a float, becomes the sum or the largest over the four work-items that share a fragment's row. */
#define QUAD_SUM(v)                                                                                                    \
    do {                                                                                                               \
        float beside_;                                                                                                 \
        LANE_XOR(beside_, v, 1);                                                                                       \
        (v) += beside_;                                                                                                \
        LANE_XOR(beside_, v, 2);                                                                                       \
        (v) += beside_;                                                                                                \
    } while (0)
#define QUAD_MOST(v)                                                                                                   \
    do {                                                                                                               \
        float beside_;                                                                                                 \
        LANE_XOR(beside_, v, 1);                                                                                       \
        (v) = fmax(v, beside_);                                                                                        \
        LANE_XOR(beside_, v, 2);                                                                                       \
        (v) = fmax(v, beside_);                                                                                        \
    } while (0)

/* v, a float, becomes the sum over the warp. */
#define WARP_SUM(v)                                                                                                    \
    UNROLL for (int mask_ = 1; mask_ < 32; mask_ *= 2) {                                                               \
        float beside_;                                                                                                 \
        LANE_XOR(beside_, v, mask_);                                                                                   \
        (v) += beside_;                                                                                                \
    }

/* Of two values to the precision of half. Special functions are dear: the two share a reciprocal, for which 1 + 2^60
 * stands for all that is greater (the result is 0 in half either way). */
static inline float2 quick_sigmoids(float2 v) {
    float2 e = min(-1.44269504f * v, 60.0f);
    float a = 1.0f + quick_exp2(e.x), b = 1.0f + quick_exp2(e.y), r = quick_reciprocal(a * b);
    return (float2)(b * r, a * r);
}
