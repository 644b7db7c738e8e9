/* Recording: tensors, constants, taps and launches are appended; the first failure sticks. */
#include "core/plan_internal.h"

#include "base/half.h"
#include "base/mem.h"
#include "device/ptx.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 64 << 20 };

ist_status ist_plan_begin_in(ist_device *device, const ist_plan_options *options, ist_plan_shared *shared,
                             ist_plan **plan, ist_error *err) {
    *plan = NULL;
    ist_plan *p = calloc(1, sizeof *p);
    if (!p) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory");
    p->device = device;
    if (options) p->options = *options;
    p->values = !p->options.late;
    p->shared = shared;
    p->shadow = shared != NULL;
    p->stage = "";
    p->fork = p->side = p->join = p->rest = -1;
    p->share = 1;
    int never = INT_MAX;
    p->no_limit = ist_plan_const(p, &never, 1, 1, 1, 1, IST_ELEM_I32, "no limit");
    if (p->error.code) {
        if (err) *err = p->error;
        ist_status st = p->error.code;
        ist_plan_close(&p);
        return st;
    }
    *plan = p;
    return IST_OK;
}

ist_status ist_plan_begin(ist_device *device, const ist_plan_options *options, ist_plan **plan, ist_error *err) {
    return ist_plan_begin_in(device, options, NULL, plan, err);
}

void ist_plan_free_launch(ist_launch *l) {
    free((char *)l->label);
    free((char *)l->op);
    free((char *)l->isa);
    free((char *)l->defines);
    free((char *)l->kernel);
    free(l->owned);
}

void ist_plan_close(ist_plan **plan) {
    if (!plan || !*plan) return;
    ist_plan *p = *plan;
    for (size_t i = 0; i < p->node_count; i++) {
        ist_kernel_release(&p->nodes[i].kernel);
        ist_plan_free_launch(&p->nodes[i].launch);
    }
    for (size_t i = 0; i < p->buffer_count; i++)
        if (!p->block && (p->buffers[i].home == IST_HOME_CONST || p->buffers[i].home == IST_HOME_PERSISTENT))
            ist_buffer_release(p->device, &p->buffers[i].mem);
    ist_buffer_forget(p->device, p->arena);
    for (int i = 0; i < p->region_count; i++) ist_buffer_release(p->device, &p->regions[i]);
    free(p->regions);
    ist_buffer_release(p->device, &p->arena);
    ist_buffer_release(p->device, &p->state);
    ist_buffer_forget(p->device, p->block);
    ist_buffer_release(p->device, &p->block);
    for (size_t i = 0; i < p->page_count; i++) {
        ist_buffer_release(p->device, &p->pages[i].mem);
        if (!p->shadow) ist_pages_close(&p->pages[i].host);
    }
    for (size_t i = 0; i < p->tap_count; i++) free(p->taps[i].name);
    for (size_t i = 0; i < p->series_count; i++) free(p->series[i]);
    free(p->series);
    free(p->nodes);
    free(p->buffers);
    free(p->pages);
    free(p->taps);
    free(p->slots);
    ist_tuning_free(&p->notes);
    free(p);
    *plan = NULL;
}

ist_status ist_plan_fail(ist_plan *plan, ist_status code, const char *fmt, ...) {
    if (plan->error.code) return plan->error.code;
    va_list ap;
    va_start(ap, fmt);
    plan->error.code = code;
    ist_print_ends_v(plan->error.text, sizeof plan->error.text, fmt, ap);
    va_end(ap);
    return code;
}

ist_status ist_plan_status(const ist_plan *plan) {
    return plan->error.code;
}

ist_error *ist_plan_error(ist_plan *plan) {
    return &plan->error;
}

unsigned ist_plan_caps(const ist_plan *plan) {
    return ist_device_caps(plan->device) ^ plan->options.flip;
}

ist_device *ist_plan_device(const ist_plan *plan) {
    return plan->device;
}

int ist_plan_units(const ist_plan *plan) {
    int units = (int)(plan->share * ist_device_facts(plan->device)->compute_units);
    return units > 0 ? units : 1;
}

void ist_plan_share(ist_plan *plan, double part) {
    plan->share = part;
}

bool ist_plan_overlaps(const ist_plan *plan) {
    return plan->options.overlap;
}

bool ist_plan_half(const ist_plan *plan) {
    return plan->options.half;
}

bool ist_plan_has_values(const ist_plan *plan) {
    return plan->values;
}

void ist_plan_reduced(ist_plan *plan, bool narrow) {
    plan->narrow = narrow;
}

bool ist_plan_bf16(const ist_plan *plan) {
    return plan->options.bf16 && plan->narrow;
}

size_t ist_plan_elem_bytes(const ist_plan *plan, ist_elem elem) {
    switch (elem) {
    case IST_ELEM_T:
        return plan->options.half ? 2 : 4;
    case IST_ELEM_U8:
        return 1;
    default:
        return 4;
    }
}

/* ---- tensors ---- */

/* Appends a buffer; returns its number, 0 on failure. */
static int new_buffer(ist_plan *p, ist_home home, size_t bytes) {
    if (p->error.code) return 0;
    if (p->finished) {
        ist_plan_fail(p, IST_E_STATE, "plan: recording after finish");
        return 0;
    }
    if (p->buffer_count >= INT_MAX - 1 ||
        !ist_grow((void **)&p->buffers, &p->buffer_capacity, p->buffer_count + 1, sizeof *p->buffers)) {
        ist_plan_fail(p, IST_E_MEMORY, "plan: out of host memory for %zu buffers", p->buffer_count + 1);
        return 0;
    }
    p->buffers[p->buffer_count] =
        (ist_plan_buffer){.home = home, .bytes = bytes, .first = -1, .last = -1, .written = -1};
    return (int)++p->buffer_count;
}

/* Bytes of a dense tensor; false when the extents are not positive or overflow. */
static bool dense_bytes(const ist_plan *p, int n, int h, int w, int c, ist_elem elem, size_t *bytes) {
    if (n < 1 || h < 1 || w < 1 || c < 1) return false;
    size_t size = (size_t)n;
    return ist_mul_size(size, (size_t)h, &size) && ist_mul_size(size, (size_t)w, &size) && size <= INT_MAX &&
           ist_mul_size(size, (size_t)c, &size) && size <= INT_MAX &&
           ist_mul_size(size, ist_plan_elem_bytes(p, elem), bytes);
}

static ist_tensor tensor_of(ist_plan *p, ist_home home, int n, int h, int w, int c, ist_elem elem, const char *what) {
    ist_tensor none = {0};
    size_t bytes = 0;
    if (p->error.code) return none;
    if (!dense_bytes(p, n, h, w, c, elem, &bytes)) {
        double values = (double)n * h * w * c;
        if (n > 0 && h > 0 && w > 0 && c > 0)
            ist_plan_fail(p, IST_E_LIMIT, "%s: %.0f values, at most %d are possible", what, values, INT_MAX);
        else
            ist_plan_fail(p, IST_E_LIMIT, "%s: [%d,%d,%d,%d] is no tensor", what, n, h, w, c);
        return none;
    }
    int buffer = new_buffer(p, home, bytes);
    if (!buffer) return none;
    return (ist_tensor){.buffer = buffer, .n = n, .h = h, .w = w, .c = c, .ld = c, .elem = elem};
}

ist_tensor ist_plan_tensor(ist_plan *p, int n, int h, int w, int c, ist_elem elem) {
    return tensor_of(p, IST_HOME_ARENA, n, h, w, c, elem, "tensor");
}

ist_tensor ist_plan_input(ist_plan *p, int n, int h, int w, int c, ist_elem elem) {
    ist_tensor t = tensor_of(p, IST_HOME_ARENA, n, h, w, c, elem, "input tensor");
    if (ist_has(t)) {
        ist_plan_buffer *b = ist_plan_buffer_of(p, t);
        b->first = b->last = 0;
        b->keep = true;
    }
    return t;
}

ist_tensor ist_plan_persistent(ist_plan *p, int n, int h, int w, int c, ist_elem elem) {
    return tensor_of(p, IST_HOME_PERSISTENT, n, h, w, c, elem, "persistent tensor");
}

/* Recording the branch that is for the side lane. */
static bool on_side(const ist_plan *p) {
    return p->options.overlap && p->side >= 0 && p->join < 0;
}

/* As ist_span.sides: of the branch that is being recorded. */
static unsigned side_now(const ist_plan *p) {
    if (!p->options.overlap || p->fork < 0 || p->rest >= 0) return 0;
    return on_side(p) ? 2 : 1;
}

ist_tensor ist_plan_work_queue(ist_plan *p) {
    ist_tensor *queue = &p->work_queue[on_side(p)];
    if (!ist_has(*queue)) *queue = ist_plan_persistent(p, 1, 1, ist_plan_units(p) + 1, 1, IST_ELEM_I32);
    return *queue;
}

bool ist_plan_work_turn(ist_plan *p) {
    bool turn = p->work_turn;
    p->work_turn = !turn;
    return turn;
}

ist_tensor ist_plan_into(ist_plan *p, ist_tensor into, int n, int h, int w, int c, ist_elem elem, const char *label) {
    if (!ist_has(into)) return tensor_of(p, IST_HOME_ARENA, n, h, w, c, elem, label);
    if (into.n != n || into.h != h || into.w != w || into.c != c || into.elem != elem)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: makes [%d,%d,%d,%d], the place for it is [%d,%d,%d,%d]", label, n, h, w,
                      c, into.n, into.h, into.w, into.c);
    return into;
}

ist_tensor ist_plan_external(ist_plan *p, int ext, ist_elem elem) {
    ist_tensor none = {0};
    if (p->error.code) return none;
    if (ext < 0 || ext >= IST_MAX_EXTERNALS) {
        ist_plan_fail(p, IST_E_ARGUMENT, "external buffer %d: the plan has 0..%d", ext, IST_MAX_EXTERNALS - 1);
        return none;
    }
    if (!p->external[ext]) {
        int buffer = new_buffer(p, IST_HOME_EXTERNAL, 0);
        if (!buffer) return none;
        p->buffers[buffer - 1].ext = ext;
        p->external[ext] = buffer;
    }
    return (ist_tensor){.buffer = p->external[ext], .n = 1, .h = 1, .w = 1, .c = 1, .ld = 1, .elem = elem};
}

/* Room for `bytes` in the last page, or in a new one. */
static unsigned char *page_room(ist_plan *p, size_t bytes, int *page, size_t *offset) {
    size_t align = ist_device_alignment(p->device);
    if (p->page_count) {
        ist_plan_page *last = &p->pages[p->page_count - 1];
        size_t at = ist_align_up(last->used, align);
        if (at <= last->capacity && last->capacity - at >= bytes) {
            last->used = at + bytes;
            *page = (int)p->page_count - 1;
            *offset = at;
            return (unsigned char *)last->host->data + at;
        }
    }
    if (!ist_grow((void **)&p->pages, &p->page_capacity, p->page_count + 1, sizeof *p->pages)) return NULL;
    size_t capacity = bytes > PAGE_BYTES ? bytes : PAGE_BYTES;
    ist_pages *host = ist_plan_new_page(p, capacity);
    if (!host) return NULL;
    p->pages[p->page_count] = (ist_plan_page){.host = host, .used = bytes, .capacity = capacity};
    *page = (int)p->page_count++;
    *offset = 0;
    return host->data;
}

/* Where the constant's values go; NULL where nobody reads them or there is no memory: then the plan fails. */
static void *const_room(ist_plan *p, ist_tensor *t, size_t bytes, const char *what) {
    ist_plan_buffer *b = ist_plan_buffer_of(p, *t);
    unsigned char *host = page_room(p, bytes, &b->page, &b->offset);
    if (host) return p->values ? host : NULL;
    ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu bytes of constants", what, bytes);
    *t = (ist_tensor){0};
    return NULL;
}

bool ist_plan_representable(ist_plan *p, const float *values, size_t count, const char *what) {
    if (p->error.code) return false;
    for (size_t i = 0; p->options.half && p->values && i < count; i++)
        if (isfinite(values[i]) && fabsf(values[i]) >= 65520.0f) { /* halfway to the next half, if there were one */
            ist_plan_fail(p, IST_E_WEIGHTS, "%s: element %zu is %g, half precision ends at 65504; use fp32", what, i,
                          (double)values[i]);
            return false;
        }
    return true;
}

ist_tensor ist_plan_const(ist_plan *p, const void *data, int n, int h, int w, int c, ist_elem elem, const char *what) {
    ist_tensor t = tensor_of(p, IST_HOME_CONST, n, h, w, c, elem, what);
    if (!ist_has(t)) return t;
    size_t bytes = ist_plan_buffer_of(p, t)->bytes;
    const bool narrow = elem == IST_ELEM_T && p->options.half;
    if (narrow && !ist_plan_representable(p, data, bytes / 2, what)) return (ist_tensor){0};
    void *to = const_room(p, &t, bytes, what);
    if (to && !narrow) memcpy(to, data, bytes);
    for (size_t i = 0; to && narrow && i < bytes / 2; i++)
        ((uint16_t *)to)[i] = ist_float_to_half(((const float *)data)[i]);
    return t;
}

ist_tensor ist_plan_const_bytes(ist_plan *p, const void *data, size_t bytes, const char *what) {
    ist_tensor t = {0};
    if (p->error.code) return t;
    if (!bytes || bytes > INT_MAX) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: %zu bytes of constants", what, bytes);
        return t;
    }
    int buffer = new_buffer(p, IST_HOME_CONST, bytes);
    if (!buffer) return t;
    t = (ist_tensor){.buffer = buffer, .n = 1, .h = 1, .w = 1, .c = (int)bytes, .ld = (int)bytes, .elem = IST_ELEM_U8};
    void *to = const_room(p, &t, bytes, what);
    if (to) memcpy(to, data, bytes);
    return t;
}

/* The groups of a series (series.c) read the limit before they know that all is done, so that it has to stay. */
void ist_plan_limit(ist_plan *p, ist_tensor count) {
    p->limit = count;
    if (ist_has(count)) ist_plan_buffer_of(p, count)->keep = true;
}

ist_tensor ist_plan_current_limit(ist_plan *p) {
    return ist_has(p->limit) ? p->limit : p->no_limit;
}

void ist_plan_stage(ist_plan *p, const char *stage) {
    p->stage = stage;
}

void ist_plan_fork(ist_plan *p) {
    p->fork = (int)p->node_count;
}

void ist_plan_side(ist_plan *p) {
    if (p->fork >= 0) p->side = (int)p->node_count;
}

void ist_plan_join(ist_plan *p) {
    if (p->side >= 0) p->join = (int)p->node_count;
}

const ist_tuned *ist_plan_tuned(ist_plan *p, const char *family, const char *shape) {
    if (p->options.notes && !p->error.code) {
        const ist_tuned *old = ist_tuning_find(&p->notes, family, shape);
        ist_tuned note = {.param = old ? old->param + 1 : 1};
        snprintf(note.family, sizeof note.family, "%s", family);
        snprintf(note.shape, sizeof note.shape, "%s", shape);
        ist_error err;
        if (ist_tuning_set(&p->notes, &note, &err)) ist_plan_fail(p, err.code, "%s", err.text);
    }
    return ist_tuning_find(p->options.tuning, family, shape);
}

const ist_tuning *ist_plan_notes(const ist_plan *p) {
    return &p->notes;
}

void ist_plan_unit(ist_plan *p) {
    p->unit++;
}

void ist_plan_section(ist_plan *p, int section) {
    if (section < 0 || section > 31) ist_plan_fail(p, IST_E_ARGUMENT, "section %d: not one of 0 to 31", section);
    p->section = section;
}

void ist_plan_tap(ist_plan *p, const char *name, ist_tensor t) {
    if (!p->options.taps || p->error.code || !ist_has(t)) return;
    char *copy = ist_strdup(name);
    if (!copy || !ist_grow((void **)&p->taps, &p->tap_capacity, p->tap_count + 1, sizeof *p->taps)) {
        free(copy);
        ist_plan_fail(p, IST_E_MEMORY, "tap %s: out of host memory", name);
        return;
    }
    ist_plan_buffer_of(p, t)->keep = true;
    p->taps[p->tap_count++] = (ist_plan_tap_entry){copy, t};
}

ist_tensor ist_plan_tapped(const ist_plan *p, const char *name) {
    for (size_t i = 0; i < p->tap_count; i++)
        if (!strcmp(p->taps[i].name, name)) return p->taps[i].tensor;
    return (ist_tensor){0};
}

/* ---- launches ---- */

static bool is_tensor_arg(const ist_arg *a) {
    return a->kind <= IST_ARG_INOUT;
}

/* A launch at position `step` touches the argument's buffer: its life reaches from the first to the last such step. */
static ist_status touch(ist_plan *p, ist_arg *a, int step, const char *label) {
    if (!ist_has(a->tensor)) return IST_OK;
    ist_plan_buffer *b = ist_plan_buffer_of(p, a->tensor);
    if (b->home == IST_HOME_ARENA && b->first < 0 && a->kind == IST_ARG_IN)
        return ist_plan_fail(p, IST_E_STATE, "%s: reads a tensor that nothing has written", label);
    if (b->home == IST_HOME_CONST && a->kind != IST_ARG_IN)
        return ist_plan_fail(p, IST_E_STATE, "%s: writes a constant", label);
    int since = b->home == IST_HOME_CONST ? -1
                : a->kind == IST_ARG_IN   ? b->written
                                          : b->last; /* which it comes after */
    if (on_side(p) && since >= p->fork && since < p->side)
        return ist_plan_fail(p, IST_E_STATE, "%s: shares a tensor with the branch beside it", label);
    if (p->join >= 0 && p->rest < 0 && since >= p->side && since < p->join) p->rest = step;
    if (b->first < 0) b->first = step;
    if (a->kind != IST_ARG_IN) b->written = step;
    b->last = step;
    return IST_OK;
}

static ist_status check_grid(ist_plan *p, const ist_launch *l) {
    if (l->dims < 1 || l->dims > 3 || l->arg_count < 0 || l->arg_count > IST_MAX_ARGS)
        return ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d dimensions, %d arguments", l->label, l->dims, l->arg_count);
    for (int i = 0; i < l->dims; i++)
        if (!l->global[i] || !l->local[i] || l->global[i] % l->local[i])
            return ist_plan_fail(p, IST_E_ARGUMENT, "%s: grid %zu in groups of %zu", l->label, l->global[i],
                                 l->local[i]);
    int structs = 0;
    for (int i = 0; i < l->arg_count; i++)
        if (l->args[i].kind == IST_ARG_STRUCT && (l->args[i].v.s.bytes % sizeof(int) || structs++))
            return ist_plan_fail(p, IST_E_ARGUMENT, "%s: a second struct, or one of %zu bytes", l->label,
                                 l->args[i].v.s.bytes);
    return IST_OK;
}

ist_origin ist_plan_origin(ist_plan *p, ist_origin variant) {
    ist_origin before = p->from;
    p->from = variant;
    return before;
}

void ist_plan_set_sequence(ist_plan *p, struct ist_sequence *sequence) {
    p->sequence = sequence;
}

struct ist_sequence *ist_plan_sequence(const ist_plan *p) {
    return p->sequence;
}

int ist_plan_buffers(const ist_plan *p) {
    return (int)p->buffer_count;
}

bool ist_plan_keeps(const ist_plan *p, int buffer) {
    return p->buffers[buffer - 1].keep;
}

/* The launch gets its own copy of the struct among its arguments. */
static bool own_struct(ist_launch *l) {
    for (int i = 0; i < l->arg_count; i++) {
        ist_arg *a = &l->args[i];
        if (a->kind != IST_ARG_STRUCT) continue;
        l->owned = malloc(a->v.s.bytes);
        if (!l->owned) return false;
        a->v.s.data = memcpy(l->owned, a->v.s.data, a->v.s.bytes);
        return true;
    }
    return true;
}

/* A copy of the defines; where there is a block, with what says which arguments are buffers all the same. */
static char *own_defines(const ist_plan *p, const ist_launch *l) {
    const char *defines = l->defines ? l->defines : "";
    if (!ist_plan_in_block(p)) return ist_strdup(defines);
    unsigned buffers = 0;
    for (int i = 0; i < l->arg_count; i++) {
        const ist_arg *a = &l->args[i];
        if (is_tensor_arg(a) && ist_has(a->tensor) && ist_plan_buffer_of(p, a->tensor)->home == IST_HOME_EXTERNAL)
            buffers |= 1u << i;
    }
    size_t size = strlen(defines) + sizeof " " IST_PTX_BUFFERS + 3 * sizeof buffers;
    char *own = malloc(size);
    if (own) snprintf(own, size, "%s %s%u", defines, IST_PTX_BUFFERS, buffers);
    return own;
}

void ist_plan_launch(ist_plan *p, const ist_launch *launch) {
    if (p->error.code || check_grid(p, launch)) return;
    if (p->sequence) {
        ist_plan_fail(p, IST_E_STATE, "%s: not an operator that a sequence takes", launch->label);
        return;
    }
    if (p->finished) {
        ist_plan_fail(p, IST_E_STATE, "%s: recording after finish", launch->label);
        return;
    }
    if (!ist_grow((void **)&p->nodes, &p->node_capacity, p->node_count + 1, sizeof *p->nodes)) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", launch->label);
        return;
    }
    ist_plan_node *node = &p->nodes[p->node_count];
    *node = (ist_plan_node){.launch = *launch, .unit = p->unit, .section = p->section};
    ist_launch *l = &node->launch;
    l->label = ist_strdup(launch->label);
    l->op = ist_strdup(launch->op);
    l->isa = ist_strdup(launch->isa);
    l->defines = own_defines(p, launch);
    l->kernel = ist_strdup(launch->kernel);
    l->stage = p->stage;
    l->from = p->from;
    l->owned = NULL;
    p->node_count++;
    if (!l->label || !l->op || !l->defines || !l->kernel || (launch->isa && !l->isa) || !own_struct(l)) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", launch->label);
        return;
    }
    for (int i = 0; i < l->arg_count; i++)
        if (is_tensor_arg(&l->args[i]) && touch(p, &l->args[i], (int)p->node_count - 1, l->label)) return;
    ist_program_part program = ist_plan_program(l);
    if (!p->options.late) ist_program_announce(p->device, &program);
    for (int i = 0; i < l->arg_count; i++)
        if (is_tensor_arg(&l->args[i]) && ist_has(l->args[i].tensor))
            ist_plan_buffer_of(p, l->args[i].tensor)->sides |= side_now(p);
}
