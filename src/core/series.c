/* Series: launches in a row whose groups share out their work become one launch. What lies between two launches on a
 * CPU is the time that a thread takes to wake up and that the others wait for the last one to fall asleep: tens of
 * microseconds, where a group that runs sees in less than one that the others have finished (work_end in
 * cl/prelude.cl).
 *
 * A series' kernel (ist_series_text) has the kernels of its launches as functions. Which of them to call with what
 * is data, a tape; tensors are given as what they lie in and where. Every step has counters of its own. */
#include "core/plan_internal.h"
#include "device/join.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread that the system has put on another's core stays there while both run: at a launch it is woken, and placed
 * anew. So series are not longer than they need be to make launches few, unless all of their steps are short: some ten
 * microseconds, as much as what lies between two launches. */
enum { STEPS_MAX = 8, SHORT_STEPS_MAX = 24, SHORT_FLOPS = 10000000, SHORT_BYTES = 4000000 };
enum { LINE = 32 /* ints, so that counters of two steps do not share a cache line */ };

/* Launches [first, end) of the plan, the tape's tensor and the counters'. */
typedef struct run {
    size_t first, end;
    bool kept; /* becomes a series */
    ist_tensor tape, counters;
    const char *text;
} run;

static char kind_of(ist_arg_kind k) {
    return k <= IST_ARG_INOUT    ? 'p'
           : k == IST_ARG_INT    ? 'i'
           : k == IST_ARG_FLOAT  ? 'f'
           : k == IST_ARG_INT4   ? '4'
           : k == IST_ARG_INT8   ? '8'
           : k == IST_ARG_STRUCT ? 's'
                                 : 'v';
}

/* Ints of a step's counters: shares, and finished items. */
static int counters_of(const ist_plan *p) {
    return (ist_plan_units(p) + LINE) / LINE * LINE;
}

static bool may_join(const ist_plan *p, size_t n) {
    const ist_launch *l = &p->nodes[n].launch;
    if (!l->shares) return false;
    for (int i = 0; i < l->arg_count; i++) {
        const ist_arg *a = &l->args[i];
        if (a->kind > IST_ARG_INOUT || !ist_has(a->tensor)) continue;
        const ist_plan_buffer *b = ist_plan_buffer_of(p, a->tensor);
        if (b->home == IST_HOME_EXTERNAL && b->ext >= IST_SERIES_EXTERNALS) return false;
        if (b->home == IST_HOME_CONST && b->page >= IST_SERIES_PAGES) return false;
    }
    return true;
}

/* Launches of a unit, section and stage: what is compiled together, left out together, what profiles tell apart. */
static bool together(const ist_plan *p, size_t a, size_t b) {
    return p->nodes[a].unit == p->nodes[b].unit && p->nodes[a].section == p->nodes[b].section &&
           !strcmp(p->nodes[a].launch.stage, p->nodes[b].launch.stage);
}

static bool is_short(const ist_launch *l) {
    return l->flops < SHORT_FLOPS && l->bytes < SHORT_BYTES;
}

/* Behind the last launch of the series that begins with n. */
static size_t end_of(const ist_plan *p, size_t n) {
    size_t end = n, most = SHORT_STEPS_MAX;
    for (; end < p->node_count && end - n < most && together(p, n, end) && may_join(p, end); end++) {
        if (is_short(&p->nodes[end].launch)) continue;
        if (end - n >= STEPS_MAX) break;
        most = STEPS_MAX;
    }
    return end;
}

static bool is_kernel(const ist_launch *l, ist_program_part program, const char *kernel) {
    return ist_plan_same_program(ist_plan_program(l), program) && !strcmp(l->kernel, kernel);
}

/* Whether a run of several has launch n's kernel, which is compiled with it. */
static bool has_kernel(const ist_plan *p, const run *runs, size_t count, size_t n) {
    const ist_launch *l = &p->nodes[n].launch;
    for (size_t r = 0; r < count; r++)
        for (size_t m = runs[r].first; m < runs[r].end && runs[r].end - runs[r].first > 1; m++)
            if (p->nodes[m].unit == p->nodes[n].unit && is_kernel(&p->nodes[m].launch, ist_plan_program(l), l->kernel))
                return true;
    return false;
}

/* All runs; *runs is the caller's to free. A launch alone is one where that spares compiling its kernel once more. */
static ist_status find_runs(const ist_plan *p, run **runs, size_t *count, ist_error *err) {
    size_t all = 0;
    *count = 0;
    *runs = calloc(p->node_count + 1, sizeof **runs);
    if (!*runs) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for series");
    for (size_t n = 0, end; n < p->node_count; n = end) {
        end = end_of(p, n);
        if (end > n) (*runs)[all++] = (run){.first = n, .end = end};
        if (end == n) end++;
    }
    for (size_t r = 0; r < all; r++) (*runs)[r].kept = has_kernel(p, *runs, all, (*runs)[r].first);
    for (size_t r = 0; r < all; r++)
        if ((*runs)[r].kept) (*runs)[(*count)++] = (*runs)[r];
    return IST_OK;
}

/* ---- parts: the kernels of a unit's series ---- */

typedef struct part_list {
    ist_series_part *items;
    char (*kinds)[IST_MAX_ARGS + 1];
    int count, words; /* words: of the longest step */
} part_list;

static int part_of(const part_list *list, const ist_launch *l) {
    for (int i = 0; i < list->count; i++)
        if (is_kernel(l, list->items[i].part, list->items[i].kernel)) return i;
    return -1;
}

static void add_part(part_list *list, const ist_launch *l) {
    if (part_of(list, l) >= 0) return;
    char *kinds = list->kinds[list->count];
    ist_series_part part = {ist_plan_program(l), l->kernel, kinds, NULL, 0};
    for (int i = 0; i < l->arg_count; i++) {
        kinds[i] = kind_of(l->args[i].kind);
        if (kinds[i] != 's') continue;
        part.type = l->args[i].v.s.type;
        part.type_words = (int)(l->args[i].v.s.bytes / sizeof(int));
    }
    kinds[l->arg_count] = '\0'; /* another unit's may have been longer */
    int words = 1;
    for (int i = 0; i < l->arg_count; i++) words += ist_series_words(&part, kinds[i]);
    list->items[list->count++] = part;
    if (words > list->words) list->words = words;
}

static int by_name(const void *a, const void *b) {
    const ist_series_part *x = a, *y = b;
    int c = strcmp(x->part.op, y->part.op);
    return c ? c : strcmp(x->part.defines, y->part.defines);
}

/* Parts of the runs of a unit, in an order that does not depend on the runs'. */
static void collect_parts(const ist_plan *p, const run *runs, size_t count, int unit, part_list *list) {
    list->count = list->words = 0;
    for (size_t r = 0; r < count; r++)
        for (size_t n = runs[r].first; p->nodes[runs[r].first].unit == unit && n < runs[r].end; n++)
            add_part(list, &p->nodes[n].launch);
    qsort(list->items, (size_t)list->count, sizeof *list->items, by_name);
}

/* ---- tapes ---- */

/* Base and offset in floats of a tensor of a step. */
static void put_place(const ist_plan *p, ist_tensor t, const run *r, size_t step, int *to) {
    to[0] = IST_SERIES_BASES;
    to[1] = 0;
    if (!ist_has(t)) return;
    bool queue = t.buffer == p->work_queue[0].buffer;
    const ist_plan_buffer *b = ist_plan_buffer_of(p, queue ? r->counters : t);
    size_t at = b->offset / sizeof(float) + (queue ? step * (size_t)counters_of(p) : 0);
    to[0] = b->home == IST_HOME_ARENA        ? 0
            : b->home == IST_HOME_PERSISTENT ? 1
            : b->home == IST_HOME_EXTERNAL   ? IST_SERIES_FIRST_EXTERNAL + b->ext
                                             : 2 + b->page;
    to[1] = (int)(unsigned)at;
}

static void put_step(const ist_plan *p, const part_list *list, const run *r, size_t step, int *to) {
    const ist_launch *l = &p->nodes[r->first + step].launch;
    const int part = part_of(list, l);
    *to++ = part;
    for (int i = 0; i < l->arg_count; i++) {
        int words = ist_series_words(&list->items[part], kind_of(l->args[i].kind));
        if (l->args[i].kind <= IST_ARG_INOUT)
            put_place(p, l->args[i].tensor, r, step, to);
        else
            memcpy(to, l->args[i].kind == IST_ARG_STRUCT ? l->args[i].v.s.data : l->args[i].v.i,
                   (size_t)words * sizeof *to);
        to += words;
    }
}

static ist_status make_tape(ist_plan *p, const part_list *list, run *r, ist_error *err) {
    size_t steps = r->end - r->first, words = IST_SERIES_HEAD + steps * (size_t)list->words;
    int *tape = calloc(words, sizeof *tape);
    if (!tape) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for a series of %zu launches", steps);
    tape[0] = (int)steps;
    put_place(p, r->counters, r, 0, tape + 1);
    tape[3] = (int)steps * counters_of(p) + 1;
    for (size_t i = 0; i < steps; i++) put_step(p, list, r, i, tape + IST_SERIES_HEAD + i * (size_t)list->words);
    r->tape = ist_plan_const_bytes(p, tape, words * sizeof *tape, "series");
    free(tape);
    if (p->error.code && err) *err = p->error;
    return p->error.code;
}

/* The program and the tapes of a unit's runs. */
static ist_status make_unit(ist_plan *p, run *runs, size_t count, int unit, part_list *list, ist_error *err) {
    collect_parts(p, runs, count, unit, list);
    if (!list->count) return IST_OK;
    char *text = ist_series_text(list->items, list->count, list->words, IST_SERIES_BASES);
    if (!text) return IST_OK; /* parts that cannot be joined: their launches stay */
    if (!ist_grow((void **)&p->series, &p->series_capacity, p->series_count + 1, sizeof *p->series)) {
        free(text);
        return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for series");
    }
    p->series[p->series_count++] = text;
    for (size_t r = 0; r < count; r++) {
        if (p->nodes[runs[r].first].unit != unit) continue;
        IST_TRY(make_tape(p, list, &runs[r], err));
        runs[r].text = text;
    }
    return IST_OK;
}

/* ---- the new list of launches ---- */

static char *label_of(const ist_plan *p, const run *r) {
    char text[160];
    snprintf(text, sizeof text, "%s to %s", p->nodes[r->first].launch.label, p->nodes[r->end - 1].launch.label);
    return ist_strdup(text);
}

/* Makes node `to` of the launches of a run. */
static ist_status replace(ist_plan *p, const run *r, size_t to, ist_error *err) {
    ist_plan_node node = {
        .unit = p->nodes[r->first].unit, .section = p->nodes[r->first].section, .series = r->text};
    node.launch = (ist_launch){.label = label_of(p, r),
                               .op = ist_strdup("cpu/series"),
                               .defines = ist_strdup(""),
                               .kernel = ist_strdup("series"),
                               .dims = 1,
                               .global = {(size_t)ist_plan_units(p)},
                               .local = {1},
                               .args = {IST_IN(r->tape)},
                               .arg_count = 1,
                               .stage = p->nodes[r->first].launch.stage};
    for (size_t n = r->first; n < r->end; n++) {
        node.launch.flops += p->nodes[n].launch.flops;
        node.launch.bytes += p->nodes[n].launch.bytes;
        ist_plan_free_launch(&p->nodes[n].launch);
    }
    p->nodes[to] = node;
    ist_plan_buffer *tape = ist_plan_buffer_of(p, r->tape);
    tape->first = tape->last = (int)to;
    const ist_launch *l = &node.launch;
    return l->label && l->op && l->defines && l->kernel
               ? IST_OK
               : ist_fail(err, IST_E_MEMORY, "plan: out of host memory for a series");
}

/* Buffers know launches by their numbers, which change. */
static void renumber(ist_plan *p, const int *now) {
    for (size_t i = 0; i < p->buffer_count; i++) {
        ist_plan_buffer *b = &p->buffers[i];
        if (b->first >= 0) b->first = now[b->first], b->last = now[b->last];
        if (b->written >= 0) b->written = now[b->written];
    }
}

static ist_status replace_all(ist_plan *p, const run *runs, size_t count, ist_error *err) {
    int *now = calloc(p->node_count + 1, sizeof *now);
    if (!now) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for series");
    for (size_t n = 0, to = 0, r = 0; n < p->node_count; n++) {
        while (r < count && n >= runs[r].end) r++;
        bool inside = r < count && runs[r].text && n >= runs[r].first;
        now[n] = (int)to;
        if (!inside || n + 1 == runs[r].end) to++;
    }
    renumber(p, now);
    ist_status st = IST_OK;
    size_t to = 0;
    for (size_t n = 0, r = 0; n < p->node_count; to++) {
        while (r < count && n >= runs[r].end) r++;
        if (r < count && runs[r].text && n == runs[r].first) {
            ist_status own = replace(p, &runs[r], to, err);
            if (own) st = own;
            n = runs[r].end;
        } else {
            p->nodes[to] = p->nodes[n++];
        }
    }
    p->node_count = to;
    free(now);
    return st;
}

static ist_status join_runs(ist_plan *p, run *runs, size_t count, ist_error *err) {
    part_list list = {.items = calloc(p->node_count, sizeof *list.items),
                      .kinds = calloc(p->node_count, sizeof *list.kinds)};
    ist_status st = IST_OK;
    for (size_t r = 0; r < count; r++) {
        int ints = (int)(runs[r].end - runs[r].first) * counters_of(p) + 1;
        runs[r].counters = ist_plan_persistent(p, 1, 1, 1, ints, IST_ELEM_I32);
    }
    ist_plan_place_state(p);
    if (p->error.code) {
        if (err) *err = p->error;
        st = p->error.code;
    } else if (!list.items || !list.kinds) {
        st = ist_fail(err, IST_E_MEMORY, "plan: out of host memory for series");
    }
    for (size_t r = 0; r < count && !st; r++) {
        int unit = p->nodes[runs[r].first].unit;
        if (!r || p->nodes[runs[r - 1].first].unit != unit) st = make_unit(p, runs, count, unit, &list, err);
    }
    free(list.items);
    free(list.kinds);
    return st ? st : replace_all(p, runs, count, err);
}

ist_status ist_plan_join_series(ist_plan *p, ist_error *err) {
    run *runs = NULL;
    size_t count = 0;
    const unsigned need = IST_CAP_CPU | IST_CAP_ATOMICS;
    if (p->options.apart || ist_plan_branches(p) || (ist_plan_caps(p) & need) != need) return IST_OK;
    ist_status st = find_runs(p, &runs, &count, err);
    if (!st && count) st = join_runs(p, runs, count, err);
    free(runs);
    return st;
}
