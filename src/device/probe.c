/* Capability probes: a capability is true when its kernel builds and returns the numbers computed here.
 *
 * Every kernel of cl/probe/ is `probe(out, in)` over the same 256 input words. A probe that does not build, launch or
 * compute is false and no error; only losing the device is. */
#include "device/host_cpu.h"
#include "device/state.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 256

const char *ist_cap_name(int bit) {
    static const char *const names[] = {
#define X(name, probe, text) #name,
        IST_CAP_LIST(X)
#undef X
    };
    return bit >= 0 && bit < IST_CAP_COUNT ? names[bit] : "?";
}

const char *ist_cap_meaning(int bit) {
    static const char *const meanings[] = {
#define X(name, probe, text) text,
        IST_CAP_LIST(X)
#undef X
    };
    return bit >= 0 && bit < IST_CAP_COUNT ? meanings[bit] : "?";
}

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
    {"ptx_mma", 32, 32, 128, false, expect_ptx_mma, "nvidia/ptx", NULL, NULL, NULL},
    {"ptx_meet", 128, 64, 128, false, expect_ptx_meet, "nvidia/ptx", NULL, NULL, NULL},
    {"ptx_wgmma", 128, 128, 256, false, expect_ptx_wgmma, "nvidia/ptx+nvidia/wgmma", NULL, NULL, NULL},
    {"amd_mfma", 64, 64, 256, false, expect_amd_mfma, "matrix/matrix", NULL, "matrix", "-DMATRIX_MFMA"},
    {"amd_wmma", 64, 64, 256, false, expect_amd_wmma, "matrix/matrix", NULL, "matrix", "-DMATRIX_WMMA"},
    {"intel_dpas", 64, 64, 64, false, expect_intel_dpas, "matrix/matrix", NULL, "matrix", "-DMATRIX_DPAS"},
    {"x86_bf16", 1, 1, 32, false, expect_x86_bf16, NULL, ist_host_bf16, NULL, NULL},
    {"x86_amx", 1, 1, 256, false, expect_x86_amx, NULL, ist_host_amx, NULL, NULL},
};

/* ---- running them ---- */

typedef struct bench {
    cl_mem in, out;
    uint32_t words[WORDS];
} bench;

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
    if (clSetKernelArg(kernel, 0, sizeof b->out, &b->out) || clSetKernelArg(kernel, 1, sizeof b->in, &b->in))
        return false;
    *status = ist_write(d, setup, b->out, 0, sizeof got, got, true, "probe", err);
    if (*status != IST_OK || ist_enqueue(d, kernel, 1, &p->global, &p->local, p->name, NULL) != IST_OK) return false;
    *status = ist_read(d, setup, b->out, 0, sizeof got, got, NULL, "probe", err);
    if (*status != IST_OK) return false;
    p->expect(b->words, want);
    return !memcmp(got, want, (size_t)p->words * sizeof *got);
}

/* Whether the probe may be run on the device. Native vectors of 16 floats say that the system keeps their registers. */
static bool may_run(const ist_device *d, const struct probe *p) {
    if (p->isa) return d->facts.type != IST_DEVICE_CPU;
    return !p->may || (d->caps & IST_CAP_SIMD16 && p->may());
}

/* `why` becomes the failure of its build, if it has none yet. */
static ist_status run_probe(ist_device *d, bench *b, const char *name, bool *holds, ist_error *why, ist_error *err) {
    ist_status status = IST_OK;
    *holds = false;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        if (strcmp(probes[i].name, name) || !may_run(d, &probes[i])) continue;
        const struct probe *p = &probes[i];
        char source[64];
        snprintf(source, sizeof source, "probe/%s", p->source ? p->source : name);
        cl_kernel kernel;
        ist_error *first = why->code ? NULL : why;
        if (ist_kernel_create(d, source, p->isa, p->options ? p->options : "", "probe", &kernel, first) != IST_OK)
            return IST_OK;
        *holds = computes(d, b, &probes[i], kernel, &status, err);
        ist_kernel_release(&kernel);
    }
    return status;
}

/* The probes as one program where that is cheaper; best effort, since a probe may be what does not build. */
static void join_probes(ist_device *d) {
    enum { COUNT = sizeof probes / sizeof *probes };
    char sources[COUNT][64];
    ist_program_part parts[COUNT];
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        if (probes[i].isa || !may_run(d, &probes[i])) continue; /* with isa: not for the machines that join */
        snprintf(sources[count], sizeof sources[count], "probe/%s", probes[i].name);
        parts[count] = (ist_program_part){sources[count], NULL, ""};
        count++;
    }
    ist_programs_join(d, parts, count, NULL);
}

/* Floats of a native vector of a CPU; 0 on other devices. A CPU whose compiler splits vectors into scalars (native
 * width 1) spends minutes on the register-tile kernels and gains nothing from them. */
static cl_uint vector_width(const ist_device *device) {
    cl_uint width = 0;
    if (device->facts.type != IST_DEVICE_CPU) return 0;
    cl_int rc = clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof width, &width, NULL);
    return rc == CL_SUCCESS ? width : 0;
}

/* ISTHMUS_CAPS: "-NAME" hides, "+NAME" claims; items are separated by commas. */
static ist_status overrule(unsigned *caps, const char *list, ist_error *err) {
    while (list && *list) {
        size_t n = strcspn(list, ",");
        int bit = 0;
        while (bit < IST_CAP_COUNT &&
               !(strlen(ist_cap_name(bit)) + 1 == n && !strncmp(list + 1, ist_cap_name(bit), n - 1)))
            bit++;
        if (bit == IST_CAP_COUNT || (*list != '+' && *list != '-'))
            return ist_fail(err, IST_E_ARGUMENT, "ISTHMUS_CAPS: \"%.*s\" is not + or - and a capability", (int)n, list);
        *caps = *list == '+' ? *caps | 1u << bit : *caps & ~(1u << bit);
        list += n + (list[n] == ',');
    }
    return IST_OK;
}

static const char *const probe_of[] = {
#define X(name, probe, text) probe,
    IST_CAP_LIST(X)
#undef X
};

/* ---- what they found, on disk ---- */

#define PROBED ".probed" /* a file that says that all probes that may be run have held, and which these are: one that
                            fails is run again at each start */

/* The capabilities whose probes may be run. */
static unsigned probed_caps(const ist_device *d) {
    unsigned caps = 0;
    for (int bit = 0; bit < IST_CAP_COUNT; bit++)
        for (size_t i = 0; probe_of[bit] && i < sizeof probes / sizeof *probes; i++)
            if (!strcmp(probes[i].name, probe_of[bit]) && may_run(d, &probes[i])) caps |= 1u << bit;
    return caps;
}

/* Where it is kept and under what: device, driver and its compiler, options, and every source of ours. False where
 * there is no folder, and where the platform compiles again anyway: there the probes cost little beside the rest. */
static bool record_of(const ist_device *d, const char *cache_dir, char *folder, size_t size, ist_cache_key *key) {
    char version[256] = "", numbers[48];
    if (ist_device_sharing(&d->facts) != IST_SHARES_LAUNCHES || !ist_cache_folder(cache_dir, folder, size))
        return false;
    if (clGetPlatformInfo(d->platform, CL_PLATFORM_VERSION, sizeof version, version, NULL) != CL_SUCCESS) return false;
    ist_cache_key sources = ist_hash_sources();
    snprintf(numbers, sizeof numbers, "%016llx%016llx %08x", (unsigned long long)sources.hash[0],
             (unsigned long long)sources.hash[1], d->caps);
    const char *options = getenv("ISTHMUS_CPU_BUILD_OPTIONS"), *texts[] = {numbers, version};
    *key = ist_cache_make_key(d, options ? options : "", texts, 2);
    return true;
}

static bool held_before(const char *folder, ist_cache_key key, unsigned caps) {
    size_t bytes = 0;
    bool found;
    unsigned char *kept = ist_cache_read(folder, key, PROBED, &bytes, &found);
    bool same = kept && bytes == sizeof caps && !memcmp(kept, &caps, sizeof caps);
    free(kept);
    return same;
}

/* ---- all of them ---- */

/* A device on which none holds is one that nothing runs on, whatever the reason: a compiler that finds no room for its
 * files, for example. It says so here and not as the lack of a kernel for some layer. */
static ist_status run_probes(ist_device *device, bool backwards, ist_error *err) {
    bench b = {0};
    ist_error why = {0};
    bool any = false;
    for (uint32_t i = 0; i < WORDS; i++) b.words[i] = (i + 1) * 2654435761u; /* Knuth's multiplicative hash */
    ist_status status = ist_buffer_create(device, sizeof b.words, "probe input", &b.in, err);
    if (status == IST_OK) status = ist_buffer_create(device, sizeof b.words, "probe output", &b.out, err);
    if (status == IST_OK)
        status = ist_write(device, (ist_frame_scope){0}, b.in, 0, sizeof b.words, b.words, true, "probe", err);
    join_probes(device);
    for (int i = 0; i < IST_CAP_COUNT && status == IST_OK; i++) {
        int bit = backwards ? IST_CAP_COUNT - 1 - i : i;
        bool holds = false;
        if (probe_of[bit]) status = run_probe(device, &b, probe_of[bit], &holds, &why, err);
        if (holds) device->caps |= 1u << bit;
        any |= holds;
    }
    if (status == IST_OK && !any)
        status = why.code ? ist_fail(err, IST_E_NO_DEVICE, "not even small kernels can be built: %s", why.text)
                          : ist_fail(err, IST_E_NO_DEVICE, "%s: not even small kernels run there", device->facts.name);
    ist_programs_release(device);
    ist_buffer_release(device, &b.in);
    ist_buffer_release(device, &b.out);
    return status;
}

ist_status ist_device_probe(ist_device *device, const char *cache_dir, bool backwards, ist_error *err) {
    char folder[1024];
    ist_cache_key key;
    if (vector_width(device) >= 4) device->caps |= IST_CAP_CPU;
    if (vector_width(device) >= 16) device->caps |= IST_CAP_SIMD16;
    const unsigned may = probed_caps(device);
    const bool keep = record_of(device, cache_dir, folder, sizeof folder, &key);
    if (keep && held_before(folder, key, may)) {
        device->caps |= may;
    } else {
        IST_TRY(run_probes(device, backwards, err));
        if (keep && (device->caps & may) == may)
            ist_cache_write(folder, key, PROBED, (const unsigned char *)&may, sizeof may);
    }
    device->probed = device->caps;
    return overrule(&device->caps, getenv("ISTHMUS_CAPS"), err);
}
