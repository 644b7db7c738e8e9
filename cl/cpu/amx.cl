/* Products of floats on the matrix unit of x86 CPUs (AMX: tiles of 16 rows of 64 bytes, bfloat16 pairs, float sums).
 *
 * A float is the sum of PARTS bfloat16, each the rounded rest of those before: three hold its 24 bits. Of the nine
 * products of two such sums six are made; the other three are below 2^-24 of the largest. So results are as exact as
 * sums of float products (tests/device_amx.c) for finite operands; an infinite one gives NaN, and what is below 2^-126
 * is lost. With PARTS = 1 a product is one of bfloat16.
 *
 * A group of one work-item brackets what it does by amx_begin and amx_end. A CPU has one address space: functions take
 * addresses as size_t. -D PARTS: 3 or 1. -D ASM: 1: the instructions; 0: the same in plain OpenCL, for tests, which
 * keeps subnormal numbers. */
#define AMX_BLOCK 32 /* rows and columns of a block of sums: 2 x 2 tiles */
#define AMX_DEPTH 32 /* terms of a step */
#define AMX_PANEL (AMX_DEPTH * AMX_BLOCK) /* weights of a step and part, in bfloat16 */

/* Upper halves of floats, rounded: to nearest, ties to even where there is but one part; of more, the next one has what
 * a tie leaves. */
static inline uint16 amx_rounded(float16 v) {
    const uint16 u = as_uint16(v);
    return u + (PARTS == 1 ? (u >> (uint16)(16) & (uint16)(1)) + (uint16)(0x7fff) : (uint16)(0x8000));
}

/* Splits 32 floats, the first 16 in v. Part p goes to `to`, an address, and p * plane bfloat16 on, one cache line: pairs
 * {v[i], w[i]}. Integer operations are cheaper than conversions, and what lies in two vectors becomes one without a
 * shuffle. The third part is exactly what the others leave. */
static inline void amx_split(float16 v, float16 w, size_t to, size_t plane) {
    const uint16 upper = (uint16)(0xffff0000u);
#pragma unroll
    for (int p = 0; p < PARTS; p++, to += plane * sizeof(ushort)) {
        const uint16 a = p < 2 ? amx_rounded(v) & upper : as_uint16(v);
        const uint16 b = (p < 2 ? amx_rounded(w) : as_uint16(w)) & upper;
        uint16 low = a;
#if ASM && defined(__AVX512F__) /* two instructions, where LLVM finds a permutation of three */
        __asm__("vpsrld $16,%0,%0" : "+v"(low));
#else
        low >>= (uint16)(16);
#endif
        vstore16(low | b, 0, (__global uint *)to);
        v -= as_float16(a);
        w -= as_float16(b);
    }
}

#if ASM
/* Eight tiles of 16 rows of 64 bytes: palette 1 (Intel's Software Developer's Manual, volume 1, chapter 18). */
static inline void amx_begin(void) {
    uint config[16] __attribute__((aligned(64))) = {1, 0, 0, 0};
    for (int i = 4; i < 8; i++) config[i] = 64u << 16 | 64u;
    config[12] = config[13] = 0x10101010u;
    __asm__ volatile("ldtilecfg (%0)" : : "r"(config) : "memory");
}
static inline void amx_end(void) {
    __asm__ volatile("tilerelease" : : : "memory");
}
#define AMX_LOAD(tile, from, pitch)                                                                                    \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((size_t)(pitch)) : "memory")
#define AMX_STORE(tile, to, pitch)                                                                                     \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((size_t)(pitch)) : "memory")
#define AMX_ZERO(tile)         __asm__ volatile("tilezero %%tmm" #tile : : : "memory")
#define AMX_DOT(sums, a, b)    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums : : : "memory")
/* Sums are tiles 0 to 3, rows 4 and 5, columns 6 and 7. */
#define AMX_ROWS(a, lda, plane, part)                                                                                  \
    AMX_LOAD(4, (a) + (part) * (plane) * 2, (lda) * 2);                                                                \
    AMX_LOAD(5, (a) + (part) * (plane) * 2 + 32 * (lda), (lda) * 2);
#define AMX_COLUMNS(b, part)                                                                                           \
    AMX_LOAD(6, (b) + (part) * AMX_PANEL * 2, 64);                                                                     \
    AMX_LOAD(7, (b) + (part) * AMX_PANEL * 2 + 1024, 64);
#define AMX_DOTS                                                                                                       \
    AMX_DOT(0, 4, 6);                                                                                                  \
    AMX_DOT(1, 4, 7);                                                                                                  \
    AMX_DOT(2, 5, 6);                                                                                                  \
    AMX_DOT(3, 5, 7);
#else
static inline void amx_begin(void) {}
static inline void amx_end(void) {}
#endif

/* The block of sums that AMX_STEP adds to, until amx_finish puts it into sums[32][ldc], the same address for all of
 * them: where instructions are emulated, it is there all the time. Addresses of floats; ldc and pitch count floats. */

/* Starts with zeros. */
static inline void amx_zero(size_t sums, size_t ldc) {
#if ASM
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
#else
    for (int r = 0; r < AMX_BLOCK; r++)
        for (int h = 0; h < AMX_BLOCK; h += 16) vstore16((float16)(0.0f), 0, (__global float *)sums + r * ldc + h);
#endif
}

/* Starts with from[32][pitch]; pitch 0: the same row for all. */
static inline void amx_start(size_t sums, size_t ldc, size_t from, size_t pitch) {
#if ASM
    pitch *= sizeof(float);
    AMX_LOAD(0, from, pitch);
    AMX_LOAD(1, from + 64, pitch);
    AMX_LOAD(2, from + 16 * pitch, pitch);
    AMX_LOAD(3, from + 16 * pitch + 64, pitch);
#else
    for (int r = 0; r < AMX_BLOCK; r++)
        for (int h = 0; h < AMX_BLOCK; h += 16)
            vstore16(vload16(0, (__global const float *)from + r * pitch + h), 0,
                     (__global float *)sums + r * ldc + h);
#endif
}

static inline void amx_finish(size_t sums, size_t ldc) {
#if ASM
    ldc *= sizeof(float);
    AMX_STORE(0, sums, ldc);
    AMX_STORE(1, sums + 64, ldc);
    AMX_STORE(2, sums + 16 * ldc, ldc);
    AMX_STORE(3, sums + 16 * ldc + 64, ldc);
#endif
}

/* Adds one step's product: a [part][32][lda], b [part][column / 16][pair][column % 16] of pairs, addresses of
 * bfloat16; lda and the distance `plane` between parts of a count them, and are of type size_t. Four products of tiles
 * take 64 cycles, in which the core's vector units are free: `between`, statements that leave tiles alone, stands
 * AMX_PAUSES times among them, behind the loads for the products that follow, which would wait for it. A step whose
 * operands AMX_FIRST has loaded is AMX_STEP_THEN; `next`: AMX_FIRST of the step that follows it, or nothing. */
#define AMX_PAUSES (PARTS == 3 ? 6 : 1)
#if !ASM
NOINLINE void amx_step(size_t sums, size_t ldc, size_t a, size_t lda, size_t plane, size_t b) {
    __global const ushort *rows = (__global const ushort *)a, *columns = (__global const ushort *)b;
    for (int i = 0; i < AMX_BLOCK * 2; i++) {
        const int r = i / 2, first = i % 2 * 16;
        __global float *at = (__global float *)sums + r * ldc + first;
        float16 sum = vload16(0, at);
        for (int p = PARTS - 1; p >= 0; p--)
            for (int q = PARTS - 1 - p; q >= 0; q--)
                for (int k = 0; k < AMX_DEPTH; k++) {
                    const uint x = rows[p * plane + r * lda + k];
                    const uint16 y = vload16(first + k / 2, (__global const uint *)(columns + q * AMX_PANEL));
                    const uint16 w = k % 2 ? y & (uint16)(0xffff0000u) : y << (uint16)(16);
                    sum = fma((float16)(as_float(x << 16)), as_float16(w), sum);
                }
        vstore16(sum, 0, at);
    }
}
#define AMX_FIRST(a, lda, plane, b)
#define AMX_STEP_THEN(sums, ldc, a, lda, plane, b, next, between)                                                      \
    amx_step(sums, ldc, a, lda, plane, b);                                                                             \
    for (int pause = 0; pause < AMX_PAUSES; pause++) { between }
#elif PARTS == 3 /* small products first; from each to the next one operand changes */
#define AMX_FIRST(a, lda, plane, b) AMX_COLUMNS(b, 0) AMX_ROWS(a, lda, plane, 2)
#define AMX_STEP_THEN(sums, ldc, a, lda, plane, b, next, between)                                                      \
    AMX_DOTS AMX_ROWS(a, lda, plane, 1) between                                                                        \
    AMX_DOTS AMX_COLUMNS(b, 1) between                                                                                 \
    AMX_DOTS AMX_ROWS(a, lda, plane, 0) between                                                                        \
    AMX_DOTS AMX_COLUMNS(b, 2) between                                                                                 \
    AMX_DOTS AMX_COLUMNS(b, 0) between                                                                                 \
    AMX_DOTS next between
#else
#define AMX_FIRST(a, lda, plane, b)                               AMX_ROWS(a, lda, plane, 0) AMX_COLUMNS(b, 0)
#define AMX_STEP_THEN(sums, ldc, a, lda, plane, b, next, between) AMX_DOTS next between
#endif
#define AMX_STEP(sums, ldc, a, lda, plane, b, between)                                                                 \
    AMX_FIRST(a, lda, plane, b) AMX_STEP_THEN(sums, ldc, a, lda, plane, b, , between)

/* Work beside the products of a function: statements `work`, `total` times, evenly over `pauses` of AMX_STEP. What
 * counts stays in registers. */
#define BESIDE_BEGIN(total, pauses)                                                                                    \
    int beside_left = (total), beside_wait = 0, beside_rate = beside_left * 256 / (pauses) + 1;
#define BESIDE_PAUSE(work)                                                                                             \
    for (beside_wait += beside_rate; beside_wait >= 256 && beside_left > 0; beside_wait -= 256, beside_left--) { work }
#define BESIDE_FINISH(work)                                                                                            \
    for (; beside_left > 0; beside_left--) { work }
