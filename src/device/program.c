/* Programs: {defines, prelude, isa, op} joined, built once per combination and shared by kernels; and the launch.
 *
 * Build options keep IEEE behaviour: no relaxed-math option, so that every device agrees with the scalar reference. */
#include "device/state.h"

#include "base/mem.h"
#include "device/join.h"
#include "device/ptx.h"
#include "device/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCES 11 /* of a program: codes of activations, structs of arguments, prelude, up to seven of isa, op */

static const ist_source *find_source(const char *name) {
    for (const ist_source *s = ist_sources; s->name; s++)
        if (!strcmp(s->name, name)) return s;
    return NULL;
}

/* The line of a build log that says most: the first with "error", else the first that is not blank. A heading that ends
 * in a colon takes the line below with it. */
static void first_line(const char *log, char *out, size_t size) {
    const char *best = NULL;
    for (const char *line = log; *line;) {
        size_t n = strcspn(line, "\n");
        bool blank = strspn(line, " \t\r") >= n;
        const char *error = strstr(line, "error");
        if (!blank && !best) best = line;
        if (error && error < line + n) {
            best = line;
            break;
        }
        line += n + (line[n] == '\n');
    }
    if (!best) best = "the build log is empty";
    int n = (int)strcspn(best, "\r\n");
    const char *below = best + n + strspn(best + n, "\r\n\t ");
    while (n > 0 && best[n - 1] == ' ') n--;
    if (n > 0 && best[n - 1] == ':')
        snprintf(out, size, "%.*s %.*s", n, best, (int)strcspn(below, "\r\n"), below);
    else
        snprintf(out, size, "%.*s", n, best);
}

static ist_status fail_build(const ist_device *d, cl_program program, cl_int rc, const char *op, const char *options,
                             ist_error *err) {
    char line[240] = "", folder[1024], why[320];
    const bool kept = ist_driver_cache_folder(folder, sizeof folder) && !strcmp(d->facts.platform_name, IST_POCL);
    size_t n = 0;
    if (ist_limits_explain(kept ? folder : NULL, why, sizeof why))
        return ist_fail(err, IST_E_BUILD, "%s does not build on %.60s: %s", op, d->facts.name, why);
    char *log = NULL;
    if (clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) == CL_SUCCESS && n > 0)
        log = calloc(n + 1, 1);
    if (log && clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, n, log, NULL) == CL_SUCCESS)
        first_line(log, line, sizeof line);
    free(log);
    return ist_fail(err, IST_E_BUILD, "%s does not build on %.60s: %s (%d): %s [%.80s]", op, d->facts.name,
                    ist_cl_name(rc), (int)rc, line, options);
}

static ist_status build_text(ist_device *d, const char *text, const char *op, const char *options, cl_program *out,
                             ist_error *err) {
    cl_int rc;
    *out = NULL;
    cl_program program = clCreateProgramWithSource(d->context, 1, &text, NULL, &rc);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clCreateProgramWithSource", "%s", op);
    rc = clBuildProgram(program, 1, &d->id, options, NULL, NULL);
    if (rc == CL_SUCCESS) {
        *out = program;
        return IST_OK;
    }
    ist_status status = fail_build(d, program, rc, op, options, err);
    clReleaseProgram(program);
    return status;
}

/* Compiles the text; *out is NULL on failure. */
static ist_status compile(ist_device *d, const char *text, const char *op, const char *options, cl_program *out,
                          ist_error *err) {
    *out = NULL;
    bool in_block = strstr(options, IST_PTX_BUFFERS);
    char *stopped = in_block ? ist_ptx_stopped(text) : NULL;
    if (stopped) build_text(d, stopped, op, options, out, NULL);
    free(stopped);
    if (!*out) IST_TRY(build_text(d, text, op, options, out, err)); /* it builds by itself, or says why not */
    bool may_change = in_block || d->facts.type == IST_DEVICE_GPU;
    ist_status status = may_change ? ist_ptx_change(d, options, op, out, err) : IST_OK;
    if (status) {
        clReleaseProgram(*out);
        *out = NULL;
        return status;
    }
    d->builds.built++;
    return IST_OK;
}

/* Loads the program from the cache or compiles and caches it. `what` lives as long as the device. */
static ist_status load_or_compile(ist_site site, ist_device *d, const char *text, const char *what, const char *defines,
                                  cl_program *out, ist_error *err) {
    IST_TRY(ist_device_ready(d, err));
    const char *standard = "-cl-std=CL1.2 -w "; /* some compilers say on stderr how many warnings there are */
    const char *more = d->facts.type == IST_DEVICE_CPU ? getenv("ISTHMUS_CPU_BUILD_OPTIONS") : NULL;
    const char *simd = d->caps & IST_CAP_SIMD16 ? "-DSIMD16 " : "";
    if (!more) more = "";
    size_t size = strlen(standard) + strlen(simd) + strlen(more) + strlen(defines) + 2;
    char *options = malloc(size);
    if (!options) return ist_fail(err, IST_E_MEMORY, "%s: no memory for build options", what);
    snprintf(options, size, "%s%s%s%s%s", standard, simd, more, *more ? " " : "", defines);

    ist_ledger_entry build = ist_ledger_begin(site, IST_CROSS_BUILD, strlen(text), what);
    ist_cache_key key = ist_cache_make_key(d, options, &text, 1);
    ist_status status = IST_OK;
    *out = ist_cache_load(d, key, options);
    if (!*out) {
        status = compile(d, text, what, options, out, err);
        if (status == IST_OK) ist_cache_store(d, key, *out);
    }
    if (status == IST_OK) ist_ledger_moved(d, (ist_frame_scope){0}, &build);
    free(options);
    return status;
}

/* The sources of a part, in order; -1 and *missing when there is none of a name. */
static int sources_of(const ist_program_part *part, const ist_source **sources, char *missing, size_t size) {
    int count = 0;
    sources[count++] = find_source("codes/act");
    sources[count++] = find_source("codes/args");
    sources[count++] = find_source("prelude");
    for (const char *isa = part->isa ? part->isa : ""; *isa; isa += strcspn(isa, "+"), isa += *isa == '+') {
        snprintf(missing, size, "%.*s", (int)strcspn(isa, "+"), isa);
        if (count == MAX_SOURCES - 1 || !(sources[count++] = find_source(missing))) return -1;
    }
    snprintf(missing, size, "%s", part->op);
    return (sources[count++] = find_source(missing)) ? count : -1;
}

size_t ist_program_cost(const ist_program_part *part) {
    const ist_source *sources[MAX_SOURCES];
    char missing[64];
    size_t size = 0;
    int count = sources_of(part, sources, missing, sizeof missing);
    for (int i = 0; i < count; i++) size += strlen(sources[i]->text) / (i < count - 1 ? 10 : 1);
    return size;
}

ist_status ist_program_text(const ist_program_part *part, char **text, ist_error *err) {
    const ist_source *sources[MAX_SOURCES];
    char missing[64];
    size_t size = 1, at = 0;
    int count = sources_of(part, sources, missing, sizeof missing);
    if (count < 0) return ist_fail(err, IST_E_BUILD, "there is no kernel source named %s", missing);
    for (int i = 0; i < count; i++)
        size += strlen(sources[i]->text) + strlen(sources[i]->name) + sizeof "\n#line 1 \".cl\"\n";
    *text = malloc(size);
    if (!*text) return ist_fail(err, IST_E_MEMORY, "%s: no memory for its source", part->op);
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(*text + at, size - at, "\n#line 1 \"%s.cl\"\n%s", sources[i]->name, sources[i]->text);
    return IST_OK;
}

/* A program of its own: prelude, isa, op. */
static ist_status build_alone(ist_site site, ist_device *d, const ist_program_part *part, cl_program *out,
                              ist_error *err) {
    char *text = NULL;
    IST_TRY(ist_program_text(part, &text, err));
    const char *what = find_source(part->op)->name; /* lives on, the caller's may not */
    ist_status status = load_or_compile(site, d, text, what, part->defines, out, err);
    free(text);
    return status;
}

static char *program_key(const ist_program_part *part) {
    const char *isa = part->isa ? part->isa : "";
    size_t size = strlen(part->op) + strlen(isa) + strlen(part->defines) + 3;
    char *key = malloc(size);
    if (key) snprintf(key, size, "%s\n%s\n%s", part->op, isa, part->defines);
    return key;
}

static const ist_program *find_program(const ist_device *d, const char *key) {
    for (size_t i = 0; i < d->program_count; i++)
        if (!strcmp(d->programs[i].key, key)) return &d->programs[i];
    return NULL;
}

/* Takes `key` in every case; `program` too unless it is a later part, since the first one owns a joined program. */
static ist_status keep_program(ist_device *d, char *key, cl_program program, int part, ist_error *err) {
    if (!key || !ist_grow((void **)&d->programs, &d->program_cap, d->program_count + 1, sizeof *d->programs)) {
        free(key);
        if (part <= 0) clReleaseProgram(program);
        return ist_fail(err, IST_E_MEMORY, "no memory for %zu programs", d->program_count + 1);
    }
    d->programs[d->program_count++] = (ist_program){.key = key, .program = program, .part = part};
    return IST_OK;
}

static ist_status shared_program(ist_site site, ist_device *d, const ist_program_part *part, const ist_program **out,
                                 ist_error *err) {
    char *key = program_key(part);
    if (!key) return ist_fail(err, IST_E_MEMORY, "%s: no memory for a program key", part->op);
    *out = find_program(d, key);
    if (*out) {
        free(key);
        return IST_OK;
    }
    cl_program program = NULL;
    ist_status status = build_alone(site, d, part, &program, err);
    if (status != IST_OK) {
        free(key);
        return status;
    }
    IST_TRY(keep_program(d, key, program, -1, err));
    *out = &d->programs[d->program_count - 1];
    return IST_OK;
}

ist_status ist_program_make(ist_device *d, const ist_program_part *part, ist_error *err) {
    const ist_program *program = NULL;
    return shared_program(IST_HERE, d, part, &program, err);
}

static int by_key(const void *a, const void *b) {
    const ist_program_part *x = a, *y = b;
    int c = strcmp(x->op, y->op);
    if (!c) c = strcmp(x->isa ? x->isa : "", y->isa ? y->isa : "");
    return c ? c : strcmp(x->defines, y->defines);
}

/* Leaves out what is built already and what comes twice; sorts, so that the text does not depend on the order. */
static int needed_parts(const ist_device *d, ist_program_part *parts, int count) {
    int n = 0;
    qsort(parts, (size_t)count, sizeof *parts, by_key);
    for (int i = 0; i < count; i++) {
        char *key = program_key(&parts[i]);
        if (key && !find_program(d, key) && (!n || by_key(&parts[n - 1], &parts[i]))) parts[n++] = parts[i];
        free(key);
    }
    return n;
}

ist_status ist_programs_join_now(ist_site site, ist_device *d, const ist_program_part *parts, int count,
                                 ist_error *err) {
    ist_program_part *sorted = malloc(sizeof *sorted * (size_t)(count > 0 ? count : 1));
    if (!sorted) return ist_fail(err, IST_E_MEMORY, "no memory to join %d programs", count);
    memcpy(sorted, parts, sizeof *sorted * (size_t)count);
    count = needed_parts(d, sorted, count);
    char *text = count > 1 ? ist_join_text(sorted, count) : NULL;
    cl_program program = NULL;
    ist_status status = IST_OK;
    /* one that does not build is no failure: the parts are built alone then, and theirs is the better message */
    if (text && load_or_compile(site, d, text, "joined programs", "", &program, NULL) == IST_OK) {
        for (int i = 0; i < count && !status; i++) status = keep_program(d, program_key(&sorted[i]), program, i, err);
    }
    free(text);
    free(sorted);
    return status;
}

ist_status ist_programs_join_at(ist_site site, ist_device *d, const ist_program_part *parts, int count,
                                ist_error *err) {
    return d->caps & IST_CAP_CPU ? ist_programs_join_now(site, d, parts, count, err) : IST_OK;
}

ist_status ist_kernel_create_at(ist_site site, ist_device *device, const char *op, const char *isa, const char *defines,
                                const char *kernel, cl_kernel *out, ist_error *err) {
    *out = NULL;
    const ist_program *program = NULL;
    ist_program_part part = {.op = op, .isa = isa, .defines = defines ? defines : ""};
    IST_TRY(shared_program(site, device, &part, &program, err));
    char joined[IST_JOIN_NAME];
    if (program->part >= 0) ist_join_kernel(kernel, program->part, joined);
    cl_int rc;
    cl_kernel k = clCreateKernel(program->program, program->part >= 0 ? joined : kernel, &rc);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clCreateKernel", "kernel %s of %s", kernel, op);
    *out = k;
    return IST_OK;
}

/* A program that is known by its text. */
static ist_status text_program(ist_site site, ist_device *d, const char *text, const ist_program **out,
                               ist_error *err) {
    *out = find_program(d, text);
    if (*out) return IST_OK;
    cl_program program = NULL;
    char *key = ist_strdup(text);
    if (!key) return ist_fail(err, IST_E_MEMORY, "no memory for a program's text");
    ist_status status = load_or_compile(site, d, text, "series", "", &program, err);
    if (status)
        free(key);
    else
        status = keep_program(d, key, program, -1, err);
    if (!status) *out = &d->programs[d->program_count - 1];
    return status;
}

ist_status ist_kernel_of_text_at(ist_site site, ist_device *device, const char *text, const char *kernel,
                                 cl_kernel *out, ist_error *err) {
    const ist_program *program = NULL;
    *out = NULL;
    IST_TRY(text_program(site, device, text, &program, err));
    cl_int rc;
    *out = clCreateKernel(program->program, kernel, &rc);
    return rc == CL_SUCCESS ? IST_OK : ist_fail_cl(err, rc, "clCreateKernel", "kernel %s", kernel);
}

void ist_kernel_release(cl_kernel *kernel) {
    if (!kernel || !*kernel) return;
    clReleaseKernel(*kernel);
    *kernel = NULL;
}

void ist_programs_release(ist_device *device) {
    for (size_t i = 0; i < device->program_count; i++) {
        if (device->programs[i].part <= 0) clReleaseProgram(device->programs[i].program);
        free(device->programs[i].key);
    }
    free(device->programs);
    device->programs = NULL;
    device->program_count = device->program_cap = 0;
}

/* "64x8x1" into out. */
static void shape_text(char *out, size_t size, int dims, const size_t *shape) {
    if (!shape) {
        snprintf(out, size, "any");
        return;
    }
    size_t at = 0;
    for (int i = 0; i < dims && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%zu", i ? "x" : "", shape[i]);
}

ist_status ist_enqueue(ist_device *device, cl_kernel kernel, int dims, const size_t *global, const size_t *local,
                       const char *label, ist_error *err) {
    return ist_enqueue_on(device, IST_LANE_MAIN, kernel, dims, global, local, label, err);
}

ist_status ist_enqueue_on(ist_device *device, ist_lane lane, cl_kernel kernel, int dims, const size_t *global,
                          const size_t *local, const char *label, ist_error *err) {
    cl_command_queue queue = ist_lane_queue(device, lane);
    cl_int rc = clEnqueueNDRangeKernel(queue, kernel, (cl_uint)dims, NULL, global, local, 0, NULL, NULL);
    if (rc == CL_SUCCESS) return IST_OK;
    char name[64] = "?", g[64], l[64];
    if (clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL) != CL_SUCCESS)
        name[0] = '?', name[1] = 0;
    shape_text(g, sizeof g, dims, global);
    shape_text(l, sizeof l, dims, local);
    return ist_fail_cl(err, rc, "clEnqueueNDRangeKernel", "kernel %s, %s, global %s, local %s", name, label, g, l);
}
