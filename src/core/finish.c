/* Finishing: lifetimes become offsets, constants are uploaded, kernels are created and their arguments set. */
#include "core/plan_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_PATTERN = 0xff }; /* NaN as a float, -1 as an int: stray reads show as well as stray writes */

static size_t guard_of(const ist_plan *p) {
    if (p->options.guard_bytes <= 0) return 0;
    return ist_align_up((size_t)p->options.guard_bytes, ist_device_alignment(p->device));
}

/* Collects the arena's spans; index[i] is the buffer of span i. */
static int collect_spans(const ist_plan *p, ist_span *spans, size_t *index) {
    int end = p->node_count ? (int)p->node_count - 1 : 0, count = 0;
    size_t guard = guard_of(p);
    for (size_t i = 0; i < p->buffer_count; i++) {
        const ist_plan_buffer *b = &p->buffers[i];
        if (b->home != IST_HOME_ARENA || b->first < 0) continue;
        spans[count] = (ist_span){.bytes = b->bytes + 2 * guard, .first = b->first, .last = b->keep ? end : b->last};
        if (guard) spans[count].first = 0, spans[count].last = end;
        if (ist_plan_branches(p)) spans[count].sides = b->sides;
        index[count++] = i;
    }
    return count;
}

/* With guards every tensor has a region of its own and the sub-buffer leaves out the pattern on both sides. */
static ist_status create_regions(ist_plan *p, const ist_region *regions, int count, ist_error *err) {
    size_t guard = guard_of(p);
    p->regions = calloc((size_t)count, sizeof *p->regions);
    if (!p->regions) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for %d regions", count);
    p->region_count = count;
    for (int i = 0; i < count; i++)
        IST_TRY(ist_buffer_sub(p->device, p->arena, regions[i].offset + guard, regions[i].bytes - 2 * guard, "arena",
                               &p->regions[i], err));
    return IST_OK;
}

/* Of the arena, which begins at byte `at` of `mem`. */
static ist_status fill_pattern(ist_plan *p, cl_mem mem, size_t at, ist_error *err) {
    void *pattern = malloc(p->arena_size.peak);
    if (!pattern) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for guards");
    memset(pattern, GUARD_PATTERN, p->arena_size.peak);
    ist_status st =
        ist_write(p->device, (ist_frame_scope){0}, mem, at, p->arena_size.peak, pattern, true, "guard pattern", err);
    free(pattern);
    return st;
}

/* spans[i] is the life of buffer index[i]. */
static ist_status create_arena(ist_plan *p, ist_span *spans, const size_t *index, int count, ist_region *regions,
                               ist_error *err) {
    int region_count = 0;
    IST_TRY(
        ist_arena_place(spans, count, ist_device_alignment(p->device), regions, &region_count, &p->arena_size, err));
    for (int i = 0; i < count; i++) {
        ist_plan_buffer *b = &p->buffers[index[i]];
        b->offset = regions[spans[i].region].offset + guard_of(p);
    }
    if (!count || ist_plan_in_block(p)) return IST_OK;
    IST_TRY(p->options.late ? ist_buffer_zeroed(p->device, p->arena_size.peak, "arena", &p->arena, err)
                            : ist_buffer_create(p->device, p->arena_size.peak, "arena", &p->arena, err));
    IST_TRY(create_regions(p, regions, region_count, err));
    for (int i = 0; i < count; i++) p->buffers[index[i]].mem = p->regions[spans[i].region];
    return guard_of(p) ? fill_pattern(p, p->arena, 0, err) : IST_OK;
}

static ist_status place(ist_plan *p, ist_error *err) {
    size_t n = p->buffer_count ? p->buffer_count : 1;
    ist_span *spans = calloc(n, sizeof *spans);
    ist_region *regions = calloc(n, sizeof *regions);
    size_t *index = calloc(n, sizeof *index);
    ist_status st = IST_OK;
    if (!spans || !regions || !index)
        st = ist_fail(err, IST_E_MEMORY, "plan: out of host memory to place %zu tensors", p->buffer_count);
    else
        st = create_arena(p, spans, index, collect_spans(p, spans, index), regions, err);
    free(spans);
    free(regions);
    free(index);
    return st;
}

static ist_status upload_pages(ist_plan *p, ist_error *err) {
    for (size_t i = 0; i < p->page_count; i++) {
        ist_plan_page *page = &p->pages[i];
        IST_TRY(ist_buffer_filled(p->device, page->used, "weights", &page->host, &page->mem, err));
    }
    for (size_t i = 0; i < p->buffer_count; i++) {
        ist_plan_buffer *b = &p->buffers[i];
        if (b->home == IST_HOME_CONST && b->first >= 0)
            IST_TRY(ist_buffer_sub(p->device, p->pages[b->page].mem, b->offset, b->bytes, "weights", &b->mem, err));
    }
    return IST_OK;
}

size_t ist_plan_place_state(ist_plan *p) {
    size_t align = ist_device_alignment(p->device), bytes = 0;
    for (size_t i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].home == IST_HOME_PERSISTENT) {
            p->buffers[i].offset = bytes;
            bytes += ist_align_up(p->buffers[i].bytes, align);
        }
    return bytes;
}

/* All state that outlives a frame lies in one block of zeros. */
static ist_status zero_persistent(ist_plan *p, ist_error *err) {
    size_t bytes = ist_plan_place_state(p);
    if (!bytes) return IST_OK;
    IST_TRY(ist_buffer_zeroed(p->device, bytes, "persistent state", &p->state, err));
    for (size_t i = 0; i < p->buffer_count; i++) {
        ist_plan_buffer *b = &p->buffers[i];
        if (b->home == IST_HOME_PERSISTENT)
            IST_TRY(ist_buffer_sub(p->device, p->state, b->offset, b->bytes, "persistent state", &b->mem, err));
    }
    return IST_OK;
}

static ist_status create_buffers(ist_plan *p, ist_error *err) {
    IST_TRY(upload_pages(p, err));
    return zero_persistent(p, err);
}

static ist_status create_block(ist_plan *p, ist_error *err) {
    IST_TRY(ist_plan_create_block(p, err));
    return guard_of(p) && p->block ? fill_pattern(p, p->block, p->arena_at, err) : IST_OK;
}

/* ---- kernels ---- */

/* Which argument of its kernel is argument i of a launch. */
static cl_uint argument_of(const ist_plan *p, int i) {
    return (cl_uint)i + ist_plan_in_block(p);
}

/* Argument i of a node is the external buffer `ext`, set when it is bound. */
static ist_status add_slot(ist_plan *p, int ext, size_t node, int i, ist_error *err) {
    if (!ist_grow((void **)&p->slots, &p->slot_capacity, p->slot_count + 1, sizeof *p->slots))
        return ist_fail(err, IST_E_MEMORY, "plan: out of host memory");
    p->slots[p->slot_count++] = (ist_plan_slot){ext, (int)node, (int)argument_of(p, i)};
    return IST_OK;
}

static ist_status set_arg(ist_plan *p, size_t node, int i, ist_error *err) {
    const ist_launch *l = &p->nodes[node].launch;
    const ist_arg *a = &l->args[i];
    const void *value = a->v.i;
    static const cl_mem absent = NULL;
    cl_ulong place;
    size_t size = 0;
    switch (a->kind) {
    case IST_ARG_INT:
        size = sizeof(cl_int);
        break;
    case IST_ARG_FLOAT:
        size = sizeof(cl_float);
        break;
    case IST_ARG_INT4:
        size = 4 * sizeof(cl_int);
        break;
    case IST_ARG_INT8:
        size = 8 * sizeof(cl_int);
        break;
    case IST_ARG_FLOAT4:
        size = 4 * sizeof(cl_float);
        break;
    case IST_ARG_STRUCT:
        value = a->v.s.data;
        size = a->v.s.bytes;
        break;
    default: {
        /* absent: no pointer, since each buffer among the arguments costs a launch time on some drivers */
        const ist_plan_buffer *b = ist_has(a->tensor) ? ist_plan_buffer_of(p, a->tensor) : NULL;
        if (b && b->home == IST_HOME_EXTERNAL) return add_slot(p, b->ext, node, i, err);
        place = b ? b->at : 0;
        value = ist_plan_in_block(p) ? (const void *)&place : b ? &b->mem : &absent;
        size = ist_plan_in_block(p) ? sizeof place : sizeof(cl_mem);
    }
    }
    cl_int code = clSetKernelArg(p->nodes[node].kernel, argument_of(p, i), size, value);
    if (code != CL_SUCCESS)
        return ist_fail_cl(err, code, "clSetKernelArg", "%s (%s), argument %d", l->label, l->kernel, i);
    return IST_OK;
}

bool ist_plan_same_program(ist_program_part a, ist_program_part b) {
    return !strcmp(a.op, b.op) && !strcmp(a.defines, b.defines) && !a.isa == !b.isa &&
           (!a.isa || !strcmp(a.isa, b.isa));
}

/* The first node that uses node n's program. */
static size_t first_of_program(const ist_plan *p, size_t n) {
    ist_program_part own = ist_plan_program(&p->nodes[n].launch);
    for (size_t i = 0; i < n; i++)
        if (ist_plan_same_program(ist_plan_program(&p->nodes[i].launch), own)) return i;
    return n;
}

/* The unit whose joined program has node n's. */
static int home_unit(const ist_plan *p, size_t n) {
    return p->nodes[first_of_program(p, n)].unit;
}

static ist_status join_unit(ist_plan *p, int unit, ist_error *err) {
    ist_program_part *parts = calloc(p->node_count + 1, sizeof *parts);
    if (!parts) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for %zu programs", p->node_count);
    int count = 0;
    for (size_t n = 0; n < p->node_count; n++)
        if (!p->nodes[n].series && home_unit(p, n) == unit) parts[count++] = ist_plan_program(&p->nodes[n].launch);
    ist_status st = ist_programs_join(p->device, parts, count, err);
    free(parts);
    return st;
}

/* What the tensors of a series lie in; where there is none, or none yet: an address that nothing reads. */
static ist_status set_bases(ist_plan *p, size_t n, ist_error *err) {
    cl_mem bases[IST_SERIES_BASES] = {p->arena, p->state};
    for (size_t i = 0; i < IST_SERIES_PAGES && i < p->page_count; i++) bases[2 + i] = p->pages[i].mem;
    for (int i = 0; i < IST_SERIES_BASES; i++) {
        cl_int code = clSetKernelArg(p->nodes[n].kernel, (cl_uint)(1 + i), sizeof *bases, &bases[i]);
        if (code != CL_SUCCESS)
            return ist_fail_cl(err, code, "clSetKernelArg", "%s, argument %d", p->nodes[n].launch.label, 1 + i);
    }
    for (size_t i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].home == IST_HOME_EXTERNAL && p->buffers[i].ext < IST_SERIES_EXTERNALS)
            IST_TRY(add_slot(p, p->buffers[i].ext, n, 1 + IST_SERIES_FIRST_EXTERNAL + p->buffers[i].ext, err));
    return IST_OK;
}

static ist_status create_kernel(ist_plan *p, size_t n, ist_error *err) {
    ist_launch *l = &p->nodes[n].launch;
    const char *text = p->nodes[n].series;
    ist_status st = text ? ist_kernel_of_text(p->device, text, l->kernel, &p->nodes[n].kernel, err)
                         : ist_kernel_create(p->device, l->op, l->isa, l->defines, l->kernel, &p->nodes[n].kernel, err);
    if (st) {
        ist_fail_context(err, "%s", l->label);
        return st;
    }
    for (int i = 0; i < l->arg_count; i++) IST_TRY(set_arg(p, n, i, err));
    if (ist_plan_in_block(p)) IST_TRY(ist_plan_set_block(p, n, err));
    return text ? set_bases(p, n, err) : IST_OK;
}

/* What is left of a unit: its series, or all. */
static ist_status create_unit(ist_plan *p, int unit, bool all, ist_error *err) {
    if (all && unit > 0) IST_TRY(join_unit(p, unit, err));
    for (size_t n = 0; n < p->node_count; n++)
        if (p->nodes[n].unit == unit && !p->nodes[n].kernel && (all || p->nodes[n].series))
            IST_TRY(create_kernel(p, n, err));
    return IST_OK;
}

/* On a CPU the other process of a first start begins with the programs of later units (ist_plan_compile), all but their
 * series: so these come before them here, and those are found. */
static ist_status create_kernels(ist_plan *p, ist_error *err) {
    ist_programs_gather(p->device);
    for (int unit = 0; unit <= 1; unit++) IST_TRY(create_unit(p, unit, true, err));
    for (int unit = 2; unit <= p->unit; unit++) IST_TRY(create_unit(p, unit, false, err));
    for (int unit = p->unit; unit > 1; unit--) IST_TRY(create_unit(p, unit, true, err));
    return IST_OK;
}

ist_status ist_plan_finish(ist_plan *p, ist_error *err) {
    if (p->error.code) {
        if (err) *err = p->error;
        return p->error.code;
    }
    if (p->finished) return ist_fail(err, IST_E_STATE, "plan: finished twice");
    ist_error own = {0}; /* a failed finish leaves the plan failed, whether or not the caller listens */
    ist_status st = place(p, &own);
    if (!st) st = ist_plan_join_series(p, &own);
    if (!st) st = ist_plan_in_block(p) ? create_block(p, &own) : create_buffers(p, &own);
    if (!st && !p->options.late) st = create_kernels(p, &own);
    if (st) {
        p->error = own;
        if (err) *err = own;
        return st;
    }
    p->finished = true;
    return IST_OK;
}

/* ---- compiling without running ---- */

/* Whether a later node launches the same kernel in groups of the same size, which is what gets compiled. */
static bool launched_later(const ist_plan *p, size_t n) {
    const ist_launch *a = &p->nodes[n].launch;
    for (size_t i = n + 1; i < p->node_count; i++) {
        const ist_launch *b = &p->nodes[i].launch;
        if (ist_plan_same_program(ist_plan_program(a), ist_plan_program(b)) &&
            p->nodes[n].series == p->nodes[i].series && !strcmp(a->kernel, b->kernel) && a->dims == b->dims &&
            !memcmp(a->local, b->local, sizeof a->local))
            return true;
    }
    return false;
}

static ist_status set_externals(ist_plan *p, ist_error *err) {
    for (size_t i = 0; i < p->slot_count; i++) {
        const ist_plan_slot *s = &p->slots[i];
        cl_int code = clSetKernelArg(p->nodes[s->node].kernel, (cl_uint)s->arg, sizeof(cl_mem), &p->bound[s->ext]);
        if (code != CL_SUCCESS) return ist_fail_cl(err, code, "clSetKernelArg", "external buffer %d", s->ext);
    }
    p->slot_count = 0;
    return IST_OK;
}

static ist_status compile_node(ist_plan *p, size_t n, ist_error *err) {
    const ist_launch *l = &p->nodes[n].launch;
    IST_TRY(create_kernel(p, n, err));
    IST_TRY(set_externals(p, err));
    IST_TRY(ist_enqueue(p->device, p->nodes[n].kernel, l->dims, l->local, l->local, l->label, err));
    return ist_finish(p->device, (ist_frame_scope){0}, "compile", err);
}

/* Whether kernel n is compiled with this unit, among its series or among the others. */
static bool compiles(const ist_plan *p, size_t n, int unit, bool series) {
    int home = p->nodes[n].series ? p->nodes[n].unit : home_unit(p, n);
    return home == unit && !p->nodes[n].series == !series && !p->nodes[n].kernel && !launched_later(p, n);
}

/* At most `most` kernels of a unit, from the last launch to the first. */
static ist_status compile_kernels(ist_plan *p, int unit, bool series, size_t most, ist_error *err) {
    for (size_t n = p->node_count; n-- > 0 && most > 0;) {
        if (!compiles(p, n, unit, series)) continue;
        IST_TRY(compile_node(p, n, err));
        most--;
    }
    return IST_OK;
}

/* The process that runs the frame begins with the first unit and builds all series (create_kernels); then it wants
 * kernels in their order. The two meet somewhere in the middle, at a kernel that both compile, which should be short:
 * so the series, the longest of all, come when half of a unit is done, by which time they have been built. */
ist_status ist_plan_compile(ist_plan *p, ist_error *err) {
    if (!p->finished || !p->options.late) return ist_fail(err, IST_E_STATE, "plan: not one that is compiled late");
    for (int unit = 2; unit <= p->unit; unit++) IST_TRY(join_unit(p, unit, err));
    for (int unit = p->unit; unit >= 0; unit--) {
        size_t count = 0;
        if (unit == 1) IST_TRY(join_unit(p, unit, err));
        for (size_t n = 0; n < p->node_count; n++) count += compiles(p, n, unit, false);
        IST_TRY(compile_kernels(p, unit, false, count / 2, err));
        IST_TRY(compile_kernels(p, unit, true, p->node_count, err));
        IST_TRY(compile_kernels(p, unit, false, p->node_count, err));
    }
    return IST_OK;
}

ist_plan_facts ist_plan_describe(const ist_plan *p) {
    ist_plan_facts f = {.launches = (int)p->node_count,
                        .arena_bytes = p->arena_size.peak,
                        .arena_lower_bound = p->arena_size.lower_bound};
    for (size_t i = 0; i < p->page_count; i++) f.const_bytes += p->pages[i].used;
    return f;
}

ist_status ist_plan_check_guards(ist_plan *p, ist_error *err) {
    size_t guard = guard_of(p);
    cl_mem mem = p->block ? p->block : p->arena;
    if (!guard || !mem || !p->arena_size.peak) return IST_OK;
    unsigned char *bytes = malloc(p->arena_size.peak);
    if (!bytes) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for guards");
    ist_status st =
        ist_read(p->device, (ist_frame_scope){0}, mem, p->arena_at, p->arena_size.peak, bytes, NULL, "guards", err);
    for (size_t i = 0; !st && i < p->buffer_count; i++) {
        const ist_plan_buffer *b = &p->buffers[i];
        if (b->home != IST_HOME_ARENA || b->first < 0) continue;
        for (size_t k = 0; !st && k < guard; k++)
            if (bytes[b->offset - 1 - k] != GUARD_PATTERN || bytes[b->offset + b->bytes + k] != GUARD_PATTERN)
                st = ist_fail(err, IST_E_STATE,
                              "tensor %zu (%zu bytes, first written by %s): %zu bytes outside it changed", i + 1,
                              b->bytes, p->nodes[b->first].launch.label, k + 1);
    }
    free(bytes);
    return st;
}
