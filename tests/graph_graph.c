/* Recording a graph: values and their uses, regions, names, places, constants, failures that stick, what is printed,
 * and host memory that runs out at every allocation. */
#include "graph/graph.h"
#include "support/host_memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static ist_graph *g;
static ist_error err;

static void open_graph(void) {
    cr_assert_eq(ist_graph_open(&g, &err), IST_OK, "%s", err.text);
}
static void close_graph(void) {
    ist_graph_close(&g);
    cr_assert_null(g);
}
TestSuite(graph, .init = open_graph, .fini = close_graph);

static ist_tensor conv(ist_tensor x, int out, int k, const char *label) {
    ist_conv node = {.label = label, .x = x, .filter = {.out = out, .in = x.c, .kh = k, .kw = k}};
    node.o.top = node.o.left = node.o.bottom = node.o.right = k / 2;
    ist_graph_add(g, IST_NODE_CONV, &node);
    return node.y;
}

static ist_tensor add(ist_tensor a, ist_tensor b, const char *label) {
    ist_add node = {.label = label, .a = a, .b = b};
    ist_graph_add(g, IST_NODE_ADD, &node);
    return node.y;
}

static ist_tensor image(void) {
    return ist_graph_input(g, 2, 8, 6, 3, IST_ELEM_T);
}

static bool same(ist_tensor a, ist_tensor b) {
    return a.buffer == b.buffer && a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c && a.ld == b.ld &&
           a.c0 == b.c0 && a.elem == b.elem;
}

/* ---- values ---- */

Test(graph, opens_empty_and_closes_twice) {
    cr_assert(g->node_count == 0 && g->value_count == 0 && g->inputs == 0 && !ist_graph_failed(g));
    ist_graph_close(&g);
    ist_graph_close(&g);
    ist_graph_close(NULL);
}

Test(graph, values_are_numbered_dense_and_know_their_maker) {
    ist_tensor x = image(), y = conv(x, 5, 3, "a"), z = conv(y, 4, 1, "b");
    cr_assert(x.buffer == 1 && y.buffer == 2 && z.buffer == 3);
    cr_assert(z.n == 2 && z.h == 8 && z.w == 6 && z.c == 4 && z.ld == 4 && z.c0 == 0 && z.elem == IST_ELEM_T);
    cr_assert_eq(ist_graph_value(g, x)->home, IST_VALUE_INPUT);
    cr_assert_eq(ist_graph_value(g, x)->maker, -1);
    cr_assert_eq(ist_graph_value(g, z)->home, IST_VALUE_MADE);
    cr_assert(ist_graph_value(g, y)->maker == 0 && ist_graph_value(g, z)->maker == 1);
    cr_assert(same(ist_graph_value(g, z)->whole, z));
    const ist_conv *kept = g->nodes[1].of;
    cr_assert(g->nodes[1].kind == IST_NODE_CONV && same(kept->x, y) && same(kept->y, z));
}

Test(graph, uses_are_counted_by_operand) {
    ist_tensor x = image(), y = conv(x, 4, 1, "a"), twice = add(y, y, "twice");
    ist_tensor part = ist_slice(y, 1, 2), sum = add(part, ist_slice(twice, 0, 2), "of slices");
    cr_assert(ist_graph_value(g, x)->uses == 1 && ist_graph_value(g, x)->last_use == 0);
    cr_assert(ist_graph_value(g, y)->uses == 3 && ist_graph_value(g, y)->last_use == 2);
    cr_assert(ist_graph_value(g, twice)->uses == 1 && ist_graph_value(g, twice)->last_use == 2);
    cr_assert(ist_graph_value(g, sum)->uses == 0 && ist_graph_value(g, sum)->last_use == -1);
    cr_assert_eq(ist_graph_reader(g, x.buffer), 0);
    cr_assert_eq(ist_graph_reader(g, y.buffer), -1, "three operands read it");
    cr_assert_eq(ist_graph_reader(g, twice.buffer), 2);
    cr_assert_eq(ist_graph_reader(g, sum.buffer), -1, "nobody reads it");
}

Test(graph, values_leave_a_range_or_do_not) {
    ist_tensor x = image(), a = conv(x, 4, 1, "a"), b = conv(a, 4, 1, "b"), c = add(a, b, "c");
    cr_assert(!ist_graph_leaves(g, a.buffer, 0, 3));
    cr_assert(ist_graph_leaves(g, a.buffer, 0, 2), "node 2 reads it");
    cr_assert(ist_graph_leaves(g, x.buffer, 1, 3), "node 0 reads it");
    cr_assert(!ist_graph_leaves(g, b.buffer, 1, 3));
    cr_assert(!ist_graph_leaves(g, c.buffer, 0, 3));
    ist_graph_output(g, c);
    cr_assert(ist_graph_value(g, c)->output && ist_graph_leaves(g, c.buffer, 0, 3));
    ist_graph_output(g, b);
    cr_assert_eq(ist_graph_reader(g, b.buffer), -1, "an output has one more reader");
}

Test(graph, given_values) {
    ist_tensor x = image(), second = ist_graph_input(g, 1, 1, 1, 7, IST_ELEM_I32);
    cr_assert(ist_graph_value(g, x)->number == 0 && ist_graph_value(g, second)->number == 1 && g->inputs == 2);
    ist_tensor a = ist_graph_external(g, 5, IST_ELEM_I32), b = ist_graph_external(g, 2, IST_ELEM_U8);
    ist_tensor again = ist_graph_external(g, 5, IST_ELEM_I32);
    cr_assert(same(a, again) && a.buffer != b.buffer);
    cr_assert(ist_graph_value(g, a)->home == IST_VALUE_EXTERNAL && ist_graph_value(g, a)->number == 5);
    cr_assert(ist_pixels(a) == 1 && a.c == 1 && b.elem == IST_ELEM_U8);
}

Test(graph, constants_and_texts_are_copied) {
    float floats[6] = {1, 2, 3, 4, 5, 6};
    int ints[2] = {7, 8};
    unsigned char bytes[3] = {9, 10, 11};
    char what[] = "table", label[] = "layer";
    ist_tensor f = ist_graph_const(g, floats, 1, 2, 1, 3, IST_ELEM_T, what);
    ist_tensor i = ist_graph_const(g, ints, 1, 1, 2, 1, IST_ELEM_I32, "ints");
    ist_tensor u = ist_graph_const(g, bytes, 1, 1, 1, 3, IST_ELEM_U8, "bytes");
    conv(image(), 1, 1, label);
    memset(floats, 0, sizeof floats);
    memset(ints, 0, sizeof ints);
    memset(bytes, 0, sizeof bytes);
    memset(what, 'x', 5);
    memset(label, 'x', 5);
    const ist_value *v = ist_graph_value(g, f);
    for (int k = 0; k < 6; k++) cr_assert_eq(((const float *)v->data)[k], (float)(k + 1));
    cr_assert(v->home == IST_VALUE_CONST && v->whole.h == 2 && v->whole.c == 3);
    cr_assert_str_eq(v->what, "table");
    cr_assert(((const int *)ist_graph_value(g, i)->data)[1] == 8);
    cr_assert(((const unsigned char *)ist_graph_value(g, u)->data)[2] == 11);
    cr_assert_str_eq(((const ist_conv *)g->nodes[0].of)->label, "layer");
}

/* Blocks of memory are of a size; what is larger has one of its own, and nothing moves. */
Test(graph, memory_stays_where_it_is) {
    unsigned char *small[64], *large = ist_graph_room(g, 1 << 20);
    for (int i = 0; i < 64; i++) {
        small[i] = ist_graph_room(g, 4000);
        cr_assert(small[i] && (size_t)small[i] % _Alignof(max_align_t) == 0);
        for (int k = 0; k < 4000; k++) cr_assert_eq(small[i][k], 0);
        memset(small[i], i + 1, 4000);
    }
    memset(large, 0xee, 1 << 20);
    for (int i = 0; i < 64; i++) cr_assert(small[i][0] == i + 1 && small[i][3999] == i + 1);
    cr_assert_not_null(ist_graph_room(g, 0));
    cr_assert_str_eq(ist_graph_text(g, "layers.%d.%s", 3, "norm"), "layers.3.norm");
}

/* ---- places ---- */

Test(graph, nodes_know_where_they_belong) {
    ist_tensor x = image(), count = ist_graph_input(g, 1, 1, 1, 1, IST_ELEM_I32);
    conv(x, 1, 1, "first");
    ist_graph_stage(g, "encoder");
    ist_graph_part(g);
    ist_graph_branch(g, 2);
    ist_graph_limit(g, count);
    ist_graph_reduced(g, true);
    ist_graph_uniform(g, true);
    conv(x, 1, 1, "second");
    ist_graph_limit(g, (ist_tensor){0});
    ist_graph_reduced(g, false);
    ist_graph_part(g);
    conv(x, 1, 1, "third");
    const ist_node_place *a = &g->nodes[0].place, *b = &g->nodes[1].place, *c = &g->nodes[2].place;
    cr_assert_str_empty(a->stage);
    cr_assert(a->part == 0 && a->branch == 0 && !ist_has(a->limit) && !a->reduced && !a->uniform);
    cr_assert_str_eq(b->stage, "encoder");
    cr_assert(b->part == 1 && b->branch == 2 && same(b->limit, count) && b->reduced && b->uniform);
    cr_assert(c->part == 2 && c->branch == 2 && !ist_has(c->limit) && !c->reduced && c->uniform);
}

Test(graph, regions_nest) {
    ist_tensor x = image();
    ist_graph_begin(g, IST_SPAN_STAGE, "layers.%d", 1);
    x = conv(x, 3, 1, "a");
    ist_graph_begin(g, IST_SPAN_SEQUENCE, "inner");
    x = conv(x, 3, 1, "b");
    x = conv(x, 3, 1, "c");
    ist_graph_end(g);
    ist_graph_begin(g, IST_SPAN_SEQUENCE, "next");
    cr_assert_eq(g->open, 2);
    x = conv(x, 3, 1, "d");
    ist_graph_end(g);
    ist_graph_end(g);
    conv(x, 3, 1, "e");
    static const ist_graph_region want[] = {
        {IST_SPAN_STAGE, "layers.1", 0, 4}, {IST_SPAN_SEQUENCE, "inner", 1, 3}, {IST_SPAN_SEQUENCE, "next", 3, 4}};
    cr_assert_eq(g->region_count, 3);
    cr_assert_eq(g->open, 0);
    for (int i = 0; i < 3; i++) {
        cr_assert(g->regions[i].kind == want[i].kind && g->regions[i].first == want[i].first &&
                  g->regions[i].end == want[i].end);
        cr_assert_str_eq(g->regions[i].label, want[i].label);
    }
}

Test(graph, a_region_that_was_not_begun_cannot_end) {
    ist_graph_begin(g, IST_SPAN_SEQUENCE, "one");
    ist_graph_end(g);
    cr_assert(!ist_graph_failed(g));
    ist_graph_end(g);
    cr_assert_eq(g->error.code, IST_E_STATE);
    cr_assert_str_eq(g->error.text, "graph: a region ends that has not begun");
}

Test(graph, names) {
    ist_tensor x = image(), y = conv(x, 4, 1, "a");
    ist_graph_name(g, y, "stage%d", 2);
    ist_graph_name(g, ist_slice(y, 1, 2), "part");
    ist_graph_name(g, (ist_tensor){0}, "nothing");
    cr_assert_eq(g->tap_count, 2);
    cr_assert_str_eq(g->taps[0].name, "stage2");
    cr_assert(same(g->taps[0].t, y));
    cr_assert_str_eq(g->taps[1].name, "part");
    cr_assert(g->taps[1].t.c0 == 1 && g->taps[1].t.c == 2 && g->taps[1].t.buffer == y.buffer);
}

/* ---- failures ---- */

Test(graph, the_first_failure_stays) {
    ist_tensor x = image(), y = conv(x, 4, 1, "good");
    ist_conv wrong = {.label = "backbone.stem", .x = x, .filter = {.out = 4, .in = 5, .kh = 3, .kw = 3}};
    ist_graph_add(g, IST_NODE_CONV, &wrong);
    cr_assert(!ist_has(wrong.y) && wrong.y.n == 0);
    cr_assert_eq(g->error.code, IST_E_ARGUMENT);
    cr_assert_str_eq(g->error.text, "backbone.stem: filter [4,5,3,3] with stride 1 on [2,8,6,3]");
    size_t nodes = g->node_count, values = g->value_count;
    cr_assert(nodes == 1 && values == 2);
    cr_assert_eq(ist_graph_fail(g, IST_E_WEIGHTS, "later"), IST_E_ARGUMENT);
    cr_assert(!ist_has(conv(y, 2, 1, "after")) && !ist_has(image()));
    cr_assert(!ist_has(ist_graph_const(g, "", 1, 1, 1, 1, IST_ELEM_U8, "none")));
    cr_assert_null(ist_graph_room(g, 8));
    cr_assert_str_empty(ist_graph_text(g, "%d", 1));
    ist_graph_begin(g, IST_SPAN_SEQUENCE, "none");
    ist_graph_end(g);
    ist_graph_name(g, y, "none");
    ist_graph_output(g, y);
    cr_assert(g->node_count == nodes && g->value_count == values && g->region_count == 0 && g->tap_count == 0);
    cr_assert(!ist_graph_value(g, y)->output && ist_graph_value(g, y)->uses == 0);
    cr_assert_not_null(strstr(g->error.text, "backbone.stem"));
}

Test(graph, unmade_values_cannot_be_read) {
    ist_tensor x = image(), unmade = x;
    unmade.buffer = 9;
    cr_assert(!ist_has(add(x, unmade, "sum")));
    cr_assert_eq(g->error.code, IST_E_STATE);
    cr_assert_str_eq(g->error.text, "sum: reads a value that nothing makes");
}

static void no_tensor(int n, int h, int w, int c, const char *sentence) {
    ist_graph *other = NULL;
    cr_assert_eq(ist_graph_open(&other, &err), IST_OK);
    cr_assert(!ist_has(ist_graph_input(other, n, h, w, c, IST_ELEM_T)));
    cr_assert_eq(other->error.code, IST_E_LIMIT);
    cr_assert_str_eq(other->error.text, sentence);
    ist_graph_close(&other);
}

Test(graph, extents_have_limits) {
    no_tensor(1, 0, 4, 4, "[1,0,4,4] is no tensor");
    no_tensor(1, 1, -3, 4, "[1,1,-3,4] is no tensor");
    no_tensor(1, 65536, 65536, 1, "4294967296 values in one tensor, at most 2147483647 are possible");
    ist_tensor x = ist_graph_input(g, 1, 1, 1, 2147483647, IST_ELEM_T);
    cr_assert(ist_has(x) && !ist_graph_failed(g));
}

/* What a node makes may be larger than any tensor in memory, as a variant of a span may do without it; its pixels are
 * counted. */
Test(graph, made_values_may_be_larger_than_tensors) {
    static const int images[20000];
    ist_tensor map = ist_graph_const(g, images, 1, 1, 20000, 1, IST_ELEM_I32, "images");
    ist_expand each = {.label = "image of prompt", .x = ist_graph_input(g, 1, 1, 4096, 256, IST_ELEM_T), .map = map};
    ist_graph_add(g, IST_NODE_EXPAND, &each);
    cr_assert(each.y.n == 20000 && each.y.w == 4096 && each.y.c == 256, "%s", g->error.text);
    ist_expand many = {.label = "too many", .x = ist_view(each.y, 1, 4096, 20000), .map = map};
    ist_graph_add(g, IST_NODE_EXPAND, &many);
    cr_assert(!ist_has(many.y) && g->error.code == IST_E_LIMIT);
    cr_assert_str_eq(g->error.text, "419430400000000 values in one tensor, at most 2147483647 are possible");
}

/* ---- print ---- */

static void remark(void *user, int node, int region, FILE *out) {
    fprintf(out, "  <%s%d>", (const char *)user, region >= 0 ? 100 + region : node);
}

static void printed(ist_graph_remark more, void *user, const char *want) {
    char text[1024] = {0};
    FILE *f = tmpfile();
    cr_assert_not_null(f);
    ist_graph_print(g, f, more, user);
    rewind(f);
    size_t size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    cr_assert_eq(size, strlen(want), "printed:\n%s", text);
    cr_assert_str_eq(text, want);
}

Test(graph, prints_a_line_per_node) {
    ist_tensor x = image();
    printed(NULL, NULL, "");
    x = conv(x, 4, 3, "stem");
    ist_graph_begin(g, IST_SPAN_STAGE, "stage%d", 0);
    ist_graph_begin(g, IST_SPAN_SEQUENCE, "rows");
    x = conv(x, 2, 1, "project");
    ist_graph_end(g);
    ist_tensor y = add(x, x, "sum");
    ist_graph_end(g);
    ist_copy_rows rows = {.label = "rows", .x = x, .into = ist_view(y, 2, 1, 48)};
    ist_graph_add(g, IST_NODE_COPY_ROWS, &rows);
    cr_assert(!ist_graph_failed(g), "%s", g->error.text);
    printed(NULL, NULL, /* 2 * 8 * 6 pixels of 4 * 3 * 3 * 3 and of 2 * 4 */
            "stem  conv  [2,8,6,4]  10368 multiply-adds\n"
            "stage0  stage\n"
            "  rows  sequence\n"
            "    project  conv  [2,8,6,2]  768 multiply-adds\n"
            "  sum  add  [2,8,6,2]\n"
            "rows  copy_rows\n");
    printed(remark, "n",
            "stem  conv  [2,8,6,4]  10368 multiply-adds  <n0>\n"
            "stage0  stage  <n100>\n"
            "  rows  sequence  <n101>\n"
            "    project  conv  [2,8,6,2]  768 multiply-adds  <n1>\n"
            "  sum  add  [2,8,6,2]  <n2>\n"
            "rows  copy_rows  <n3>\n");
}

/* ---- memory ---- */

/* A small graph with everything that allocates; returns the calls it took. */
static long record(long at, ist_status *status) {
    static const float table[6000] = {1};
    calls = 0;
    fail_at = at;
    *status = ist_graph_open(&g, &err);
    if (!*status) {
        ist_tensor x = image(), result = {0};
        for (int i = 0; i < 40; i++) {
            ist_graph_begin(g, IST_SPAN_SEQUENCE, "block %d", i);
            ist_tensor c = ist_graph_const(g, table, 1, 1, 6000, 1, IST_ELEM_F32, "table");
            ist_graph_name(g, c, "table%d", i);
            x = result = conv(x, 3, 3, "layer");
            ist_graph_end(g);
        }
        *status = g->error.code;
        cr_assert_eq(ist_has(result), *status == IST_OK);
        if (*status) cr_assert_not_null(strstr(g->error.text, "out of host memory"), "%s", g->error.text);
    }
    fail_at = 0;
    long taken = calls;
    ist_graph_close(&g);
    return taken;
}

Test(graph_memory, runs_out_at_every_allocation) {
    ist_status status;
    long held = blocks, all = record(0, &status);
    cr_assert_eq(status, IST_OK);
    cr_assert_gt(all, 20, "%ld allocations", all);
    cr_assert_eq(blocks, held);
    for (long at = 1; at <= all; at++) {
        record(at, &status);
        cr_assert_eq(status, IST_E_MEMORY, "allocation %ld of %ld: status %d", at, all, status);
        cr_assert_eq(blocks, held, "allocation %ld of %ld: %ld blocks are left", at, all, blocks - held);
    }
}
