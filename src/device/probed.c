/* What a device can do: which capabilities hold, by its probes, by what was kept of them, and by ISTHMUS_CAPS. */
#include "device/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- properties that need no probe ---- */

/* Of a CPU. One whose compiler splits vectors into scalars (native width 1) spends minutes on the register-tile kernels
 * and gains nothing from them. */
static ist_status take_properties(ist_device *device, ist_error *err) {
    cl_uint width = 0; /* floats of a native vector */
    if (device->facts.type != IST_DEVICE_CPU) return IST_OK;
    cl_int rc = clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof width, &width, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetDeviceInfo", "vectors of %s", device->facts.name);
    if (width >= 4) device->caps |= IST_CAP_CPU;
    if (width >= 16) device->caps |= IST_CAP_SIMD16;
    return IST_OK;
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

/* The capabilities whose probes have that result. */
static unsigned caps_of(const ist_probe_result *results, ist_probe_result result) {
    static const char *const probe_of[] = {
#define X(name, probe, text) probe,
        IST_CAP_LIST(X)
#undef X
    };
    unsigned caps = 0;
    for (int bit = 0; bit < IST_CAP_COUNT; bit++)
        if (probe_of[bit] && results[ist_probe_find(probe_of[bit])] == result) caps |= 1u << bit;
    return caps;
}

/* ---- what they found, on disk ---- */

#define PROBED ".probed" /* a file with the results of all probes on a device where one at least has held */

/* Where it is kept and under what: device, driver and its compiler, options, every source of ours, and which probes may
 * be run. False where there is no folder. */
static bool record_of(const ist_device *d, const char *cache_dir, char *folder, size_t size, ist_cache_key *key) {
    char version[256] = "", numbers[64];
    unsigned may = 0;
    if (!ist_cache_folder(cache_dir, folder, size)) return false;
    if (clGetPlatformInfo(d->platform, CL_PLATFORM_VERSION, sizeof version, version, NULL) != CL_SUCCESS) return false;
    for (int i = 0; i < ist_probe_count(); i++) may |= ist_probe_may_run(d, i) ? 1u << i : 0;
    ist_cache_key sources = ist_hash_sources();
    snprintf(numbers, sizeof numbers, "%016llx%016llx %08x %08x", (unsigned long long)sources.hash[0],
             (unsigned long long)sources.hash[1], d->caps, may);
    const char *options = getenv("ISTHMUS_CPU_BUILD_OPTIONS"), *texts[] = {numbers, version};
    *key = ist_cache_make_key(d, options ? options : "", texts, 2);
    return true;
}

/* One byte for each probe. */
static bool read_record(const char *folder, ist_cache_key key, ist_probe_result *results) {
    size_t bytes = 0;
    bool found;
    unsigned char *kept = ist_cache_read(folder, key, PROBED, &bytes, &found);
    bool whole = kept && bytes == (size_t)ist_probe_count();
    for (size_t i = 0; whole && i < bytes; i++) whole = kept[i] != IST_PROBE_UNKNOWN && kept[i] <= IST_PROBE_DIES;
    for (size_t i = 0; whole && i < bytes; i++) results[i] = (ist_probe_result)kept[i];
    free(kept);
    return whole;
}

static void write_record(const char *folder, ist_cache_key key, const ist_probe_result *results) {
    unsigned char bytes[IST_PROBE_MOST];
    for (int i = 0; i < ist_probe_count(); i++) bytes[i] = (unsigned char)results[i];
    ist_cache_write(folder, key, PROBED, bytes, (size_t)ist_probe_count());
}

/* ---- all of them ---- */

/* A device on which none holds is one that nothing runs on, whatever the reason: a compiler that finds no room for its
 * files, for example. It says so here and not as the lack of a kernel for some layer. */
static ist_status check_any(const ist_device *d, const ist_probe_result *results, const ist_error *why,
                            ist_error *err) {
    if (caps_of(results, IST_PROBE_HOLDS)) return IST_OK;
    if (why->code) return ist_fail(err, IST_E_NO_DEVICE, "not even small kernels can be built: %s", why->text);
    if (caps_of(results, IST_PROBE_DIES))
        return ist_fail(err, IST_E_NO_DEVICE, "%s: its driver (%s) ends every process that runs small kernels there",
                        d->facts.name, d->facts.driver);
    return ist_fail(err, IST_E_NO_DEVICE, "%s: not even small kernels run there", d->facts.name);
}

static bool any_unknown(const ist_probe_result *results) {
    for (int i = 0; i < ist_probe_count(); i++)
        if (results[i] == IST_PROBE_UNKNOWN) return true;
    return false;
}

/* Workers run them where there are any; what they have not done, and what ended one of them, is another process's.
 * Where none holds they run here again, but for those that a driver did not survive, to say why. *keep: whether the
 * results tell of the driver and of nothing else. */
static ist_status run_probes(ist_device *d, const char *cache_dir, ist_probing probing, ist_probe_result *results,
                             bool *keep, ist_error *err) {
    ist_error why = {0};
    ist_probe_course here = {.backwards = probing == IST_PROBING_HERE};
    ist_probes_by_workers(d, results);
    *keep = probing != IST_PROBING_APART || !any_unknown(results) || ist_probes_apart(d, cache_dir, results);
    bool none = !caps_of(results, IST_PROBE_HOLDS);
    for (int i = 0; i < ist_probe_count(); i++)
        if (none && results[i] == IST_PROBE_FAILS) results[i] = IST_PROBE_UNKNOWN;
    if (any_unknown(results)) IST_TRY(ist_probes_run(d, &here, results, &why, err));
    return check_any(d, results, &why, err);
}

ist_status ist_device_probe(ist_device *device, const char *cache_dir, ist_probing probing, ist_error *err) {
    char folder[1024];
    ist_cache_key key;
    ist_probe_result results[IST_PROBE_MOST] = {IST_PROBE_UNKNOWN};
    IST_TRY(take_properties(device, err));
    if (probing == IST_PROBING_NONE) return IST_OK;
    const bool kept = record_of(device, cache_dir, folder, sizeof folder, &key);
    if (!kept || !read_record(folder, key, results)) {
        bool keep;
        IST_TRY(run_probes(device, cache_dir, probing, results, &keep, err));
        if (kept && keep) write_record(folder, key, results);
    }
    for (int i = 0; i < ist_probe_count();
         i++) /* leave for AMX's tiles is each process's own, and given when asked for */
        if (results[i] == IST_PROBE_HOLDS && !ist_probe_may_run(device, i)) results[i] = IST_PROBE_FAILS;
    device->caps |= caps_of(results, IST_PROBE_HOLDS);
    device->probed = device->caps;
    device->deadly = caps_of(results, IST_PROBE_DIES);
    return overrule(&device->caps, getenv("ISTHMUS_CAPS"), err);
}

ist_status ist_device_rely_on(const ist_device *d, ist_error *err) {
    static const struct {
        unsigned cap;
        const char *does; /* what lacks it */
    } wrong[] = {{IST_CAP_LONG_LOOPS, "leaves long loops early"},
                 {IST_CAP_LOOP_BODIES, "runs parts of loops a second time"}};
    const char *any = getenv("ISTHMUS_ANY_DEVICE");
    if (any && !strcmp(any, "1")) return IST_OK;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!(d->caps & wrong[i].cap))
            return ist_fail(err, IST_E_NO_DEVICE,
                            "%s (%s, driver %s) computes wrong results: it %s; use another device or another version "
                            "of its driver",
                            d->facts.name, d->facts.platform_name, d->facts.driver, wrong[i].does);
    return IST_OK;
}
