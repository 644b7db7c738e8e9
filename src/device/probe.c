/* The probes and how one is run: see probe.h. */
#include "device/probe.h"
#include "device/ptx.h"

#include "device/host_cpu.h"

#include <stdio.h>
#include <string.h>

#define WORDS 256

static float as_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t as_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Input word i as the kernels' `float x(i)`: a small integer, so that sums and products are exact. */
static float small(const uint32_t *in, int i) {
    return (float)(in[i % WORDS] % 1024u);
}

/* ---- what each probe must return ---- */

/* out[i] = x(i + 1) * 3 + x(i + 3), from vectors at odd addresses. */
static void expect_vec16(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 128; i++) out[i] = as_bits(small(in, i + 1) * 3.0f + small(in, i + 3));
}

/* Two groups of 64: reversed within the group, and the group's sum, through 8 KiB of local memory. */
static void expect_local(const uint32_t *in, uint32_t *out) {
    for (int g = 0; g < 2; g++) {
        uint32_t sum = 0;
        for (int i = 0; i < 64; i++) sum += in[g * 64 + i];
        for (int i = 0; i < 64; i++) out[g * 64 + i] = in[g * 64 + 63 - i] + sum;
    }
}

/* One group of 256: reversed, and the sum of all, through 16 KiB of local memory. */
static void expect_group256(const uint32_t *in, uint32_t *out) {
    uint32_t sum = 0;
    for (int i = 0; i < WORDS; i++) sum += in[i];
    for (int i = 0; i < WORDS; i++) out[i] = in[WORDS - 1 - i] + sum;
}

/* Half bit patterns of values that need rounding to even, overflow, and a denormal; then the way back. */
static void expect_half_storage(const uint32_t *in, uint32_t *out) {
    (void)in;
    static const uint32_t bits[8] = {0x3c00, 0x3c00, 0x3c02, 0xc500, 0x7bff, 0x7c00, 0x0001, 0x3555};
    static const float back[8] = {1.0f,           1.0f, 1.001953125f, -5.0f, 65504.0f, 0.0f, 5.9604644775390625e-08f,
                                  0.333251953125f};
    for (int i = 0; i < 8; i++) {
        out[i] = bits[i];
        out[8 + i] = i == 5 ? 0x7f800000u : as_bits(back[i]);
    }
}

static void expect_atomics(const uint32_t *in, uint32_t *out) {
    uint32_t sum = 0, least = UINT32_MAX, most = 0, any = 0;
    for (int i = 0; i < WORDS; i++) {
        uint32_t v = in[i];
        sum += v;
        least = v < least ? v : least;
        most = v > most ? v : most;
        any |= v & 0x0f0f0f0fu;
    }
    out[0] = sum;
    out[1] = least;
    out[2] = most;
    out[3] = any;
}

static void expect_int64(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 64; i++) {
        int64_t a = (int64_t)(((uint64_t)in[i] << 29) ^ in[i + 64]), b = -(int64_t)((uint64_t)in[i + 128] << 17);
        int64_t r = (a < b ? a : b) + (a >> 7) * 5 - b / 3;
        out[2 * i] = (uint32_t)(uint64_t)r;
        out[2 * i + 1] = (uint32_t)((uint64_t)r >> 32);
    }
}

static void expect_fp64(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 64; i++) {
        double d = (double)(in[i] & 0xfffffu) * (double)(in[i + 64] & 0xfffffu) + (double)as_float(0x3e800000u) / 3.0;
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        out[2 * i] = (uint32_t)bits;
        out[2 * i + 1] = (uint32_t)(bits >> 32);
    }
}

static void expect_long_loops(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 2; i++) {
        uint32_t state = in[i];
        for (int k = 0; k < 300; k++)
            for (uint32_t j = 0; j < 500; j++) state = state * 1664525u + (state >> 16) + j;
        out[i] = state;
    }
}

enum { LOOP_WORDS = 34 }; /* as the second word of the input says */
static void expect_loop_bodies(const uint32_t *in, uint32_t *out) {
    memset(out, 0, LOOP_WORDS * sizeof *out);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t count[256];
        for (int d = 0; d < 256; d++) count[d] = in[d] & k;
        for (int i = 0; i < LOOP_WORDS; i++) out[i] += count[in[i] >> k & 255u]++;
    }
}

/* C = A B with a 16 x 16 A, whose last column the copy zeroes, and a 16 x 8 B. */
static void expect_ptx_mma(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 128; i++) {
        float sum = 0;
        for (int k = 0; k < 15; k++) sum += (float)(in[i / 8 * 16 + k] % 16u) * (float)(in[k * 8 + i % 8] / 16u % 16u);
        out[i] = as_bits(sum);
    }
}

/* Two groups of 64: each other's words. */
static void expect_ptx_meet(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 128; i++) out[i] = in[i ^ 64];
}

/* in[i] + 3 in[i + BLOCK_WORD], of pointers to word 0 and BLOCK_WORD of the block. */
enum { BLOCK_WORD = 32 };
static void expect_ptx_block(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 128; i++) out[i] = in[i] + 3 * in[i + BLOCK_WORD];
}

/* C = A B with a `rows` x `depth` A and a `depth` x `cols` B. */
static void expect_product(const uint32_t *in, uint32_t *out, int rows, int depth, int cols) {
    for (int i = 0; i < rows * cols; i++) {
        float sum = 0;
        for (int k = 0; k < depth; k++)
            sum += (float)(in[(i / cols * depth + k) % WORDS] % 16u) *
                   (float)(in[(k * cols + i % cols) % WORDS] / 16u % 16u);
        out[i] = as_bits(sum);
    }
}
/* C = A B with a 64 x 64 A and a 64 x 8 B, of which the lower half counts three times. */
static void expect_ptx_wgmma(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < WORDS; i++) {
        float sum = 0;
        for (int half = 0; half < 2; half++)
            for (int k = 0; k < 64; k++)
                sum += (half ? 3.0f : 1.0f) * (float)(in[((half * 32 + i / 8) * 64 + k) % WORDS] % 16u) *
                       (float)(in[(k * 8 + i % 8) % WORDS] / 16u % 16u);
        out[i] = as_bits(sum);
    }
}
static void expect_amd_mfma(const uint32_t *in, uint32_t *out) {
    expect_product(in, out, 16, 32, 16);
}
static void expect_amd_wmma(const uint32_t *in, uint32_t *out) {
    expect_product(in, out, 16, 16, 16);
}
static void expect_intel_dpas(const uint32_t *in, uint32_t *out) {
    expect_product(in, out, 8, 16, 8);
}

/* Rounding to bfloat16 of 1 + x(i) / 1024 (ties included), then sums of products of pairs, exact in float. */
static void expect_x86_bf16(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 16; i++) {
        uint32_t bits = as_bits(1.0f + small(in, i) / 1024.0f);
        out[i] = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        float sum = (float)i;
        for (int k = 0; k < 2; k++) sum += (float)(in[2 * i + k] % 128u) * (float)(in[32 + 2 * i + k] % 128u);
        out[16 + i] = as_bits(sum);
    }
}

/* The product of 16 rows of 32 and 16 rows of 16 pairs, exact in float. */
static void expect_x86_amx(const uint32_t *in, uint32_t *out) {
    for (int i = 0; i < 256; i++) {
        float sum = 0;
        for (int k = 0; k < 32; k++)
            sum += (float)(in[(i / 16 * 32 + k) % 256] % 128u) *
                   (float)(in[(k / 2 * 32 + i % 16 * 2 + k % 2) % 256] / 128u % 128u);
        out[i] = as_bits(sum);
    }
}

static const struct probe {
    const char *name; /* of cl/probe/, unless `source` is */
    size_t global, local;
    int words;   /* how many outputs count */
    bool zeroed; /* outputs start at 0 and UINT32_MAX, for atomics */
    void (*expect)(const uint32_t *in, uint32_t *out);
    const char *isa;              /* NULL: none; no CPU has one */
    bool (*may)(void);            /* of a CPU's instructions, which stop a processor that lacks them; NULL: any */
    const char *source, *options; /* NULL: `name` and none */
} probes[] = {
    {"vec16", 1, 1, 128, false, expect_vec16, NULL, NULL, NULL, NULL},
    {"local", 128, 64, 128, false, expect_local, NULL, NULL, NULL, NULL},
    {"group256", 256, 256, 256, false, expect_group256, NULL, NULL, NULL, NULL},
    {"half_storage", 1, 1, 16, false, expect_half_storage, NULL, NULL, NULL, NULL},
    {"atomics", 256, 64, 4, true, expect_atomics, NULL, NULL, NULL, NULL},
    {"int64", 64, 64, 128, false, expect_int64, NULL, NULL, NULL, NULL},
    {"fp64", 64, 64, 128, false, expect_fp64, NULL, NULL, NULL, NULL},
    {"long_loops", 2, 1, 2, false, expect_long_loops, NULL, NULL, NULL, NULL},
    {"loop_bodies", 1, 1, LOOP_WORDS, false, expect_loop_bodies, NULL, NULL, NULL, NULL},
    {"ptx_mma", 32, 32, 128, false, expect_ptx_mma, "nvidia/ptx", NULL, NULL, NULL},
    {"ptx_meet", 128, 64, 128, false, expect_ptx_meet, "nvidia/ptx", NULL, NULL, NULL},
    {"ptx_block", 128, 64, 128, false, expect_ptx_block, "nvidia/ptx", NULL, NULL, "-DBUFFERS=1"},
    {"ptx_wgmma", 128, 128, 256, false, expect_ptx_wgmma, "nvidia/ptx+nvidia/wgmma", NULL, NULL, NULL},
    {"amd_mfma", 64, 64, 256, false, expect_amd_mfma, "matrix/matrix", NULL, "matrix", "-DMATRIX_MFMA"},
    {"amd_wmma", 64, 64, 256, false, expect_amd_wmma, "matrix/matrix", NULL, "matrix", "-DMATRIX_WMMA"},
    {"intel_dpas", 64, 64, 64, false, expect_intel_dpas, "matrix/matrix", NULL, "matrix", "-DMATRIX_DPAS"},
    {"x86_bf16", 1, 1, 32, false, expect_x86_bf16, NULL, ist_host_bf16, NULL, NULL},
    {"x86_amx", 1, 1, 256, false, expect_x86_amx, NULL, ist_host_amx, NULL, NULL},
};

enum { COUNT = sizeof probes / sizeof *probes };
_Static_assert(COUNT <= (int)IST_PROBE_MOST, "room for the results of all probes");

int ist_probe_count(void) {
    return COUNT;
}

const char *ist_probe_name(int probe) {
    return probes[probe].name;
}

int ist_probe_find(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(probes[i].name, name)) return i;
    return -1;
}

static ist_program_part part_of(const struct probe *p, char source[64]) {
    snprintf(source, 64, "probe/%s", p->source ? p->source : p->name);
    return (ist_program_part){source, p->isa, p->options ? p->options : ""};
}

size_t ist_probe_cost(int probe) {
    char source[64];
    ist_program_part part = part_of(&probes[probe], source);
    return ist_program_cost(&part);
}

/* Native vectors of 16 floats say that the system keeps their registers. */
bool ist_probe_may_run(const ist_device *d, int probe) {
    const struct probe *p = &probes[probe];
    if (p->isa) return d->facts.type != IST_DEVICE_CPU;
    return !p->may || (d->caps & IST_CAP_SIMD16 && p->may());
}

/* ---- running them ---- */

typedef struct bench {
    cl_mem in, out;
    uint32_t words[WORDS];
} bench;

static bool set_arguments(const bench *b, const struct probe *p, cl_kernel kernel) {
    const cl_ulong places[] = {0, BLOCK_WORD * sizeof(uint32_t)};
    const cl_ulong ahead = ist_ptx_ahead(0, sizeof b->words, sizeof b->words, p->global / p->local);
    if (p->expect != expect_ptx_block)
        return !clSetKernelArg(kernel, 0, sizeof b->out, &b->out) && !clSetKernelArg(kernel, 1, sizeof b->in, &b->in);
    return !clSetKernelArg(kernel, 0, sizeof b->in, &b->in) && !clSetKernelArg(kernel, 1, sizeof b->out, &b->out) &&
           !clSetKernelArg(kernel, 2, sizeof *places, &places[0]) &&
           !clSetKernelArg(kernel, 3, sizeof *places, &places[1]) && !clSetKernelArg(kernel, 4, sizeof ahead, &ahead);
}

/* Whether the kernel launches and returns what it must; *status is set when a crossing fails, the device's own fault.
 */
static bool computes(ist_device *d, bench *b, const struct probe *p, cl_kernel kernel, ist_status *status,
                     ist_error *err) {
    static const ist_frame_scope setup = {0};
    uint32_t got[WORDS], want[WORDS];
    memset(got, 0xa5, sizeof got);
    if (p->zeroed) {
        memset(got, 0, sizeof got);
        got[1] = UINT32_MAX;
    }
    if (!set_arguments(b, p, kernel)) return false;
    *status = ist_write(d, setup, b->out, 0, sizeof got, got, true, "probe", err);
    if (*status != IST_OK || ist_enqueue(d, kernel, 1, &p->global, &p->local, p->name, NULL) != IST_OK) return false;
    *status = ist_read(d, setup, b->out, 0, sizeof got, got, NULL, "probe", err);
    if (*status != IST_OK) return false;
    p->expect(b->words, want);
    return !memcmp(got, want, (size_t)p->words * sizeof *got);
}

/* `why` becomes the failure of its build, if it has none yet. */
static ist_status run_probe(ist_device *d, bench *b, const struct probe *p, bool *holds, ist_error *why,
                            ist_error *err) {
    ist_status status = IST_OK;
    char source[64];
    cl_kernel kernel;
    ist_error *first = why->code ? NULL : why;
    *holds = false;
    ist_program_part part = part_of(p, source);
    if (ist_kernel_create(d, part.op, part.isa, part.defines, "probe", &kernel, first) != IST_OK) return IST_OK;
    *holds = computes(d, b, p, kernel, &status, err);
    ist_kernel_release(&kernel);
    return status;
}

/* The probes as one program where that is cheaper; best effort, since a probe may be what does not build. */
static void join_probes(ist_device *d, const ist_probe_result *results) {
    char sources[COUNT][64];
    ist_program_part parts[COUNT];
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        if (results[i] || probes[i].isa || !ist_probe_may_run(d, i)) continue; /* isa: not where programs are joined */
        snprintf(sources[count], sizeof sources[count], "probe/%s", probes[i].name);
        parts[count] = (ist_program_part){sources[count], NULL, ""};
        count++;
    }
    ist_programs_join(d, parts, count, NULL);
}

static ist_status run_all(ist_device *d, bench *b, const ist_probe_course *course, ist_probe_result *results,
                          ist_error *why, ist_error *err) {
    for (int i = 0; i < COUNT; i++) {
        int probe = course->backwards ? COUNT - 1 - i : i;
        bool holds = false;
        if (results[probe]) continue;
        if (ist_probe_may_run(d, probe)) {
            if (course->begins) course->begins(course->user, probes[probe].name);
            IST_TRY(run_probe(d, b, &probes[probe], &holds, why, err));
        }
        results[probe] = holds ? IST_PROBE_HOLDS : IST_PROBE_FAILS;
        if (course->ended) course->ended(course->user, probes[probe].name, holds);
    }
    return IST_OK;
}

ist_status ist_probes_run(ist_device *d, const ist_probe_course *course, ist_probe_result *results, ist_error *why,
                          ist_error *err) {
    bench b = {0};
    for (uint32_t i = 0; i < WORDS; i++) b.words[i] = (i + 1) * 2654435761u; /* Knuth's multiplicative hash */
    ist_status status = ist_buffer_create(d, sizeof b.words, "probe input", &b.in, err);
    if (status == IST_OK) status = ist_buffer_create(d, sizeof b.words, "probe output", &b.out, err);
    if (status == IST_OK)
        status = ist_write(d, (ist_frame_scope){0}, b.in, 0, sizeof b.words, b.words, true, "probe", err);
    if (!course->alone) {
        if (course->begins) course->begins(course->user, IST_PROBES_JOINED);
        join_probes(d, results);
    }
    if (status == IST_OK) status = run_all(d, &b, course, results, why, err);
    ist_programs_release(d);
    ist_buffer_release(d, &b.in);
    ist_buffer_release(d, &b.out);
    return status;
}
