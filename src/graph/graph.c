/* Recording a graph: see graph.h. */
#include "graph/graph.h"

#include "base/mem.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Memory comes in blocks that are freed together. */
struct ist_graph_block {
    struct ist_graph_block *next;
    size_t used, capacity;
    _Alignas(max_align_t) unsigned char bytes[];
};
enum { BLOCK_BYTES = 64 << 10 };

ist_status ist_graph_open(ist_graph **graph, ist_error *err) {
    *graph = calloc(1, sizeof **graph);
    if (!*graph) return ist_fail(err, IST_E_MEMORY, "graph: out of host memory");
    (*graph)->now.stage = "";
    return IST_OK;
}

void ist_graph_close(ist_graph **graph) {
    if (!graph || !*graph) return;
    ist_graph *g = *graph;
    for (struct ist_graph_block *b = g->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(g->nodes);
    free(g->values);
    free(g->regions);
    free(g->taps);
    free(g);
    *graph = NULL;
}

ist_status ist_graph_fail(ist_graph *g, ist_status code, const char *fmt, ...) {
    if (g->error.code) return g->error.code;
    va_list ap;
    va_start(ap, fmt);
    g->error.code = code;
    ist_print_ends_v(g->error.text, sizeof g->error.text, fmt, ap);
    va_end(ap);
    return code;
}

/* ---- memory ---- */

void *ist_graph_room(ist_graph *g, size_t bytes) {
    struct ist_graph_block *b = g->blocks;
    if (ist_graph_failed(g)) return NULL;
    bytes = ist_align_up(bytes ? bytes : 1, sizeof(max_align_t));
    if (!b || b->capacity - b->used < bytes) {
        size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = calloc(1, sizeof *b + capacity);
        if (!b) {
            ist_graph_fail(g, IST_E_MEMORY, "graph: out of host memory for %zu bytes", bytes);
            return NULL;
        }
        b->next = g->blocks;
        b->capacity = capacity;
        g->blocks = b;
    }
    void *room = b->bytes + b->used;
    b->used += bytes;
    return room;
}

static const char *keep_text(ist_graph *g, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = ist_graph_room(g, size);
    return copy ? memcpy(copy, text, size) : "";
}

#define FORMAT(text, fmt)                                                                                              \
    char text[256];                                                                                                    \
    do {                                                                                                               \
        va_list ap_;                                                                                                   \
        va_start(ap_, fmt);                                                                                            \
        vsnprintf(text, sizeof text, fmt, ap_);                                                                        \
        va_end(ap_);                                                                                                   \
    } while (0)

const char *ist_graph_text(ist_graph *g, const char *fmt, ...) {
    FORMAT(text, fmt);
    return keep_text(g, text);
}

/* Room for one more item of an array of the graph's; false, and the graph failed, without memory. */
static bool grow(ist_graph *g, void *items, size_t *capacity, size_t count, size_t item) {
    if (ist_graph_failed(g)) return false;
    if (count < INT_MAX - 1 && ist_grow((void **)items, capacity, count + 1, item)) return true;
    ist_graph_fail(g, IST_E_MEMORY, "graph: out of host memory for %zu items", count + 1);
    return false;
}

/* ---- values ---- */

/* Whether a tensor has pixels and channels that can be counted. */
static bool countable(ist_tensor t) {
    size_t pixels = 1;
    const int extents[] = {t.n, t.h, t.w, t.c};
    for (int i = 0; i < 4; i++)
        if (extents[i] < 1) return false;
    return ist_mul_size((size_t)t.n, (size_t)t.h, &pixels) && ist_mul_size(pixels, (size_t)t.w, &pixels) &&
           pixels <= INT_MAX;
}

/* Elements of a dense tensor; 0 when the extents are not positive or too large for one that lies in memory. */
static size_t elements(ist_tensor t) {
    size_t count;
    if (!countable(t) || !ist_mul_size((size_t)ist_pixels(t), (size_t)t.c, &count) || count > INT_MAX) return 0;
    return count;
}

/* What a node makes may be larger than any tensor of a plan: a variant of a span may do without it. */
static ist_tensor new_value(ist_graph *g, ist_value value) {
    ist_tensor none = {0};
    ist_tensor *t = &value.whole;
    if (!ist_graph_failed(g) && !(value.home == IST_VALUE_MADE ? countable(*t) : elements(*t) > 0)) {
        double count = (double)t->n * t->h * t->w * t->c;
        if (t->n > 0 && t->h > 0 && t->w > 0 && t->c > 0)
            ist_graph_fail(g, IST_E_LIMIT, "%.0f values in one tensor, at most %d are possible", count, INT_MAX);
        else
            ist_graph_fail(g, IST_E_LIMIT, "[%d,%d,%d,%d] is no tensor", t->n, t->h, t->w, t->c);
    }
    if (!grow(g, &g->values, &g->value_capacity, g->value_count, sizeof *g->values)) return none;
    t->buffer = (int)g->value_count + 1;
    t->ld = t->c;
    t->c0 = 0;
    value.last_use = -1;
    g->values[g->value_count++] = value;
    return *t;
}

ist_tensor ist_graph_input(ist_graph *g, int n, int h, int w, int c, ist_elem elem) {
    ist_value v = {.home = IST_VALUE_INPUT, .whole = {.n = n, .h = h, .w = w, .c = c, .elem = elem}, .maker = -1};
    v.number = g->inputs++;
    return new_value(g, v);
}

ist_tensor ist_graph_external(ist_graph *g, int number, ist_elem elem) {
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].home == IST_VALUE_EXTERNAL && g->values[i].number == number) return g->values[i].whole;
    return new_value(g, (ist_value){.home = IST_VALUE_EXTERNAL,
                                    .whole = {.n = 1, .h = 1, .w = 1, .c = 1, .elem = elem},
                                    .maker = -1,
                                    .number = number});
}

ist_tensor ist_graph_const(ist_graph *g, const void *data, int n, int h, int w, int c, ist_elem elem,
                           const char *what) {
    ist_value v = {.home = IST_VALUE_CONST, .whole = {.n = n, .h = h, .w = w, .c = c, .elem = elem}, .maker = -1};
    size_t bytes = elements(v.whole) * (elem == IST_ELEM_U8 ? 1 : 4);
    void *copy = ist_graph_room(g, bytes);
    if (!copy) return (ist_tensor){0};
    v.data = memcpy(copy, data, bytes);
    v.what = keep_text(g, what);
    return new_value(g, v);
}

/* ---- nodes ---- */

/* A view must lie within its value. */
static bool check_operand(ist_graph *g, const ist_tensor *t, const char *label) {
    if (!ist_has(*t)) return true;
    if (t->buffer < 0 || (size_t)t->buffer > g->value_count) {
        ist_graph_fail(g, IST_E_STATE, "%s: reads a value that nothing makes", label);
        return false;
    }
    return true;
}

static void keep_texts(ist_graph *g, const ist_kind *k, void *node) {
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && f->kind == IST_FIELD_TEXT; i++) {
            const char **text = ist_field_at(node, f, i);
            if (*text) *text = keep_text(g, *text);
        }
}

static void note_uses(ist_graph *g, const ist_kind *k, const void *node) {
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && f->kind == IST_FIELD_IN; i++) {
            const ist_tensor *t = ist_field_of(node, f, i);
            if (!ist_has(*t)) continue;
            g->values[t->buffer - 1].uses++;
            g->values[t->buffer - 1].last_use = (int)g->node_count;
        }
}

static void make_results(ist_graph *g, const ist_kind *k, void *node) {
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && (f->kind == IST_FIELD_OUT || f->kind == IST_FIELD_MADE); i++) {
            ist_tensor *t = ist_field_at(node, f, i);
            if (t->n) *t = new_value(g, (ist_value){.whole = *t, .maker = (int)g->node_count});
        }
}

/* Results of a failed node are empty. */
static void clear_results(const ist_kind *k, void *node) {
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && (f->kind == IST_FIELD_OUT || f->kind == IST_FIELD_MADE); i++)
            *(ist_tensor *)ist_field_at(node, f, i) = (ist_tensor){0};
}

void ist_graph_add(ist_graph *g, ist_node_kind kind, void *node) {
    const ist_kind *k = ist_kind_of(kind);
    const char *label = *(const char *const *)node;
    ist_error err = {0};
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END && !ist_graph_failed(g); f++)
        for (int i = 0; i < f->count && f->kind == IST_FIELD_IN; i++)
            if (!check_operand(g, ist_field_of(node, f, i), label)) break;
    if (!ist_graph_failed(g) && k->infer(node, &err)) ist_graph_fail(g, err.code, "%s", err.text);
    void *copy = ist_graph_room(g, k->size);
    if (!copy || !grow(g, &g->nodes, &g->node_capacity, g->node_count, sizeof *g->nodes)) {
        clear_results(k, node);
        return;
    }
    keep_texts(g, k, node);
    note_uses(g, k, node);
    make_results(g, k, node);
    if (ist_graph_failed(g)) {
        clear_results(k, node);
        return;
    }
    memcpy(copy, node, k->size);
    g->nodes[g->node_count++] = (ist_node){.kind = kind, .of = copy, .place = g->now};
}

/* ---- places ---- */

void ist_graph_stage(ist_graph *g, const char *stage) {
    g->now.stage = stage;
}

void ist_graph_part(ist_graph *g) {
    g->now.part++;
}

void ist_graph_branch(ist_graph *g, int branch) {
    g->now.branch = branch;
}

void ist_graph_section(ist_graph *g, int section) {
    g->now.section = section;
}

void ist_graph_limit(ist_graph *g, ist_tensor count) {
    g->now.limit = count;
}

void ist_graph_reduced(ist_graph *g, bool reduced) {
    g->now.reduced = reduced;
}

void ist_graph_uniform(ist_graph *g, bool uniform) {
    g->now.uniform = uniform;
}

void ist_graph_begin(ist_graph *g, ist_node_kind kind, const char *fmt, ...) {
    FORMAT(label, fmt);
    if (!grow(g, &g->regions, &g->region_capacity, g->region_count, sizeof *g->regions)) return;
    g->regions[g->region_count++] =
        (ist_graph_region){.kind = kind, .label = keep_text(g, label), .first = (int)g->node_count, .end = -1};
    g->open++;
}

void ist_graph_end(ist_graph *g) {
    if (ist_graph_failed(g)) return;
    for (size_t i = g->region_count; i-- > 0;)
        if (g->regions[i].end < 0) {
            g->regions[i].end = (int)g->node_count;
            g->open--;
            return;
        }
    ist_graph_fail(g, IST_E_STATE, "graph: a region ends that has not begun");
}

void ist_graph_name(ist_graph *g, ist_tensor t, const char *fmt, ...) {
    FORMAT(name, fmt);
    if (!ist_has(t) || !grow(g, &g->taps, &g->tap_capacity, g->tap_count, sizeof *g->taps)) return;
    g->taps[g->tap_count++] = (ist_graph_tap){keep_text(g, name), t};
}

void ist_graph_output(ist_graph *g, ist_tensor t) {
    if (!ist_graph_failed(g) && ist_has(t)) g->values[t.buffer - 1].output = true;
}

/* ---- reading ---- */

/* How many operands of the node are the value. */
static int reads(const ist_node *n, int value) {
    int count = 0;
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && f->kind == IST_FIELD_IN; i++)
            count += ((const ist_tensor *)ist_field_of(n->of, f, i))->buffer == value;
    return count;
}

bool ist_graph_leaves(const ist_graph *g, int value, int first, int end) {
    const ist_value *v = &g->values[value - 1];
    int inside = 0;
    if (v->output || v->last_use >= end) return true;
    for (int i = first; i < end; i++) inside += reads(&g->nodes[i], value);
    return inside < v->uses;
}

int ist_graph_reader(const ist_graph *g, int value) {
    const ist_value *v = &g->values[value - 1];
    return v->uses == 1 && !v->output ? v->last_use : -1;
}
