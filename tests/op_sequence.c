/* Fused sequences: the same operators once as launches of their own (each tested against its definition) and once gathered
 * into a sequence must agree, leave items beyond the count alone, and give the same bits twice. In the form of every
 * variant of the table that the device runs. */
#include "variants/ops.h"
#include "variants/portable/sequence.h"
#include "variants/sequence.h"
#include "support/claimed_amx.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/lowered.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <string.h>

/* The first variant of a kind of span with a form of its own that the plan's device runs, NULL where there is none. */
static const ist_variant *first_form(const ist_plan *p, ist_node_kind kind) {
    int count;
    const ist_variant *v = ist_variants_of(kind, &count);
    for (int i = 0; i < count; i++)
        if (v[i].config && ist_variant_runs(p, &v[i])) return &v[i];
    return NULL;
}

/* Begins a sequence in that form; false where the device has none. */
static bool begin(ist_plan *p, int n, int rows) {
    const ist_variant *v = first_form(p, IST_SPAN_SEQUENCE);
    if (v) ist_sequence_begin(p, v->config, n, rows, 0);
    return v != NULL;
}

/* The same of the last layers of n maps [h,w]. */
static bool begin_map(ist_plan *p, int n, int h, int w) {
    const ist_variant *v = first_form(p, IST_SPAN_TRANSITION);
    if (v) ist_sequence_begin(p, v->config, n, h * w, w);
    return v != NULL;
}

/* Devices with small groups or little local memory (llvmpipe: 32 KiB) begin no sequence: there is nothing to test on
 * them. */
static bool device_sequences(void) {
    optest t;
    optest_begin(&t, "capabilities", 0);
    bool has = first_form(t.plan, IST_SPAN_SEQUENCE) != NULL;
    cr_assert(has || !(ist_plan_caps(t.plan) & IST_CAP_GROUP256), "256 work-items are enough");
    bool fits = ist_device_local_bytes(t.device) >= IST_TAPE_LOCAL_BYTES;
    optest_drop(&t);
    return has && fits;
}

typedef struct shape {
    int n, rows, tokens, heads, d, inner, classes, count;
    bool slices;
} shape;

enum { POINTS = 5, RESULTS = 4 };

static ist_tensor linear(optest *t, ist_tensor x, int out, ist_conv_opts o, const char *label) {
    float reach = 1.7f / (float)x.c, *w = optest_values(t, (size_t)(out * x.c), -reach, reach);
    float *b = out % 2 ? NULL : optest_values(t, (size_t)out, -0.5f, 0.5f);
    return ist_op_linear(t->plan, x, (ist_filter){out, x.c, 1, 1, w, b}, &o, label);
}

static ist_tensor normal(optest *t, ist_tensor x, ist_norm_opts o) {
    float *gamma = optest_values(t, (size_t)x.c, 0.5f, 1.5f), *beta = optest_values(t, (size_t)x.c, -0.5f, 0.5f);
    return ist_op_layernorm(t->plan, x, gamma, beta, 1e-5f, &o, "norm");
}

/* A small decoder in which every step that a sequence knows occurs: what is gathered, two attentions (the second one's
 * keys are made in the sequence), sampling, gate, boxes and their distribution. */
static void network(optest *t, const shape *s, bool gathered, ist_tensor results[RESULTS]) {
    ist_plan *p = t->plan;
    int n = s->n, rows = s->rows, c = s->heads * s->d;
    ist_level level = {.h = 3, .w = 4, .start = 1, .points = POINTS};
    ist_tensor memory = optest_in(t, optest_random(t, n, 1, s->tokens, c), IST_ELEM_T, false);
    ist_tensor anchors = optest_in(t, optest_random(t, 1, 1, s->tokens, 4), IST_ELEM_F32, s->slices);
    ist_tensor extra = optest_in(t, optest_random(t, 1, 1, rows, c), IST_ELEM_T, s->slices);
    ist_tensor outer = optest_out(t, n, 1, rows, c, IST_ELEM_T, s->slices);
    int *picks = optest_alloc(t, (size_t)(n * rows) * sizeof *picks);
    for (int i = 0; i < n * rows; i++) picks[i] = optest_int(t, 0, s->tokens - 1);
    ist_tensor index = ist_view(optest_ints(t, picks, n * rows), n, 1, rows);
    if (s->count < n) ist_plan_limit(p, optest_ints(t, &s->count, 1));
    ist_attention_opts heads = {.heads = s->heads, .scale = 0.4f};

    if (gathered) cr_assert(begin(p, n, rows), "the device has what sequences need");
    ist_tensor x = ist_op_gather(p, memory, index, "gather"), logit = ist_op_gather(p, anchors, index, "anchor");
    ist_tensor delta = linear(t, x, 4, (ist_conv_opts){.into = ist_plan_tensor(p, n, 1, rows, 4, IST_ELEM_F32)}, "d");
    ist_tensor ref = ist_op_box_init(p, delta, logit, "init");
    float *project = optest_values(t, BINS, -2, 2);
    ist_tensor corners = {0}, more = {0}, increment = linear(t, x, 4 * BINS, (ist_conv_opts){0}, "first corners");
    ist_op_fdr(p, increment, corners, ref, project, 4.0f, &corners, "first fdr");
    ist_tensor q = ist_op_add(p, x, extra, (ist_tensor){0}, "extra");
    ist_tensor qk = linear(t, q, 2 * c, (ist_conv_opts){0}, "qk"), v = linear(t, x, c, (ist_conv_opts){0}, "v");
    ist_tensor a = ist_op_attention(p, ist_slice(qk, 0, c), ist_slice(qk, c, c), v, &heads, "self");
    ist_tensor both = ist_plan_tensor(p, n, 1, rows, 2 * c, IST_ELEM_T);
    x = normal(t, a, (ist_norm_opts){.add = x, .clamp = 1.5f, .act = IST_ACT_SILU, .into = ist_slice(both, 0, c)});
    a = ist_op_attention(p, x, memory, memory, &heads, "cross");
    int points = s->heads * POINTS;
    ist_tensor offsets = linear(t, a, 3 * points, (ist_conv_opts){0}, "offsets");
    ist_tensor y = ist_op_deform_attention(p, ist_slice(offsets, 0, 2 * points), ist_slice(offsets, 2 * points, points),
                                           ref, memory, &level, 1, s->heads, ist_slice(both, c, c), "deform");
    ist_tensor g = linear(t, both, 2 * c, (ist_conv_opts){0}, "gate");
    float *gamma = optest_values(t, (size_t)c, 0.5f, 1.5f), *beta = optest_values(t, (size_t)c, -0.5f, 0.5f);
    x = ist_op_gate(p, g, x, y, gamma, beta, "gate");
    x = ist_op_add(p, x, extra, (ist_tensor){0}, "behind the gate");
    ist_tensor f = linear(t, x, s->inner, (ist_conv_opts){.epi.act = IST_ACT_GELU}, "f");
    f = linear(t, f, c,
               (ist_conv_opts){.epi = {.act = IST_ACT_RELU, .add_before = x, .add_after = extra}, .into = outer},
               "outer");
    f = ist_op_clamp(p, f, -1.25f, 0.75f, "clamp");
    ist_tensor sum = ist_op_add(p, f, x, (ist_tensor){0}, "behind the clamp");
    ist_tensor first = ist_op_box_refine(p, linear(t, sum, 4, (ist_conv_opts){0}, "refine"), ref, "refine");
    increment = linear(t, linear(t, x, c, (ist_conv_opts){.epi.act = IST_ACT_RELU}, "hidden"), 4 * BINS,
                       (ist_conv_opts){0}, "corners");
    ref = ist_op_fdr(p, increment, corners, first, project, 4.0f, &more, "fdr");
    ist_tensor quality = linear(t, ist_op_lqe(p, more, "lqe"), 1, (ist_conv_opts){0}, "quality");
    ist_tensor logits = ist_op_add_quality(p, linear(t, f, s->classes, (ist_conv_opts){0}, "score"), quality, "logits");
    memcpy(results, (ist_tensor[RESULTS]){logits, ref, more, outer}, RESULTS * sizeof *results);
    if (gathered) ist_sequence_end(p, results, RESULTS, "sequence");
}

/* `hidden`: capabilities that only the launches do without. The sequence is cut at its two attentions, which are
 * launches of their own. */
static void agrees(shape s, unsigned salt, unsigned hidden) {
    static const char *const names[RESULTS] = {"logits", "boxes", "corners", "outer"};
    optest plain, fused;
    ist_tensor a[RESULTS], b[RESULTS];
    without |= hidden;
    optest_begin(&plain, "as launches", salt);
    network(&plain, &s, false, a);
    optest_run(&plain);
    without &= ~hidden;
    optest_begin(&fused, "as a sequence", salt);
    network(&fused, &s, true, b);
    optest_run(&fused);
    cr_expect_eq(ist_plan_describe(fused.plan).launches, 5, "%d launches", ist_plan_describe(fused.plan).launches);
    double tol = plain.half ? 3e-2 : 2e-4; /* plain storage rounds every intermediate result */
    for (int i = 0; i < RESULTS; i++) {
        ref_map want = optest_read(&plain, a[i]), got = optest_read(&fused, b[i]);
        want.n = got.n = s.count;
        optest_close(&fused, names[i], got, want, tol, tol);
    }
    optest_check(&fused, "beyond the count", b[3], optest_read(&plain, a[3]), tol, tol, s.count);
    ref_map once = optest_read(&fused, b[0]);
    cr_assert_eq(ist_plan_replay(fused.plan, &fused.err), IST_OK, "%s", fused.err.text);
    ref_map twice = optest_read(&fused, b[0]);
    cr_expect_eq(memcmp(once.v, twice.v, (size_t)s.count * (ref_size(once) / (size_t)once.n) * sizeof *once.v), 0);
    optest_end(&plain);
    optest_end(&fused);
}

Test(sequence, agrees_with_its_operators) {
    static const shape shapes[] = {{1, 5, 14, 2, 4, 24, 3, 1, false},  {2, 30, 40, 8, 16, 512, 80, 2, true},
                                   {3, 9, 33, 3, 12, 50, 7, 1, false}, {1, 300, 320, 8, 24, 768, 80, 1, false},
                                   {2, 1, 13, 1, 64, 100, 1, 0, true}, {1, 131, 150, 5, 20, 333, 91, 1, true},
                                   {1, 21, 40, 8, 32, 512, 80, 1, false}, {2, 17, 40, 8, 32, 512, 80, 2, true},
                                   {1, 601, 33, 3, 12, 50, 7, 1, false}};
    hide(IST_CAP_VEC16 | IST_CAP_CPU);
    for (unsigned i = 0; device_sequences() && i < (optest_small() ? 1 : sizeof shapes / sizeof *shapes); i++)
        agrees(shapes[i], i, 0);
}

/* The rows on matrix instructions: where there are none, in the plain OpenCL of nvidia/ptx. */
static void agrees_on_matrices(void) {
    static const shape shapes[] = {{3, 9, 33, 3, 12, 50, 7, 1, false}, {1, 8, 70, 8, 32, 1024, 80, 1, false},
                                   {2, 1, 13, 1, 64, 100, 1, 0, true}, {1, 11, 100, 12, 20, 333, 91, 1, true}};
    without = IST_CAP_VEC16 | IST_CAP_CPU;
    for (unsigned i = 0; device_sequences() && i < sizeof shapes / sizeof *shapes; i++)
        agrees(shapes[i], i, IST_CAP_PTX_MMA);
}

Test(sequence, agrees_on_matrix_instructions) {
    if (!optest_small() && claim_matrix_warps()) agrees_on_matrices(); /* oclgrind takes minutes for one */
}

/* With room for rows as halves, too, as devices have that know instructions of warpgroups. */
Test(sequence, agrees_with_rows_as_halves) {
    if (!optest_small() && claim_matrix_groups()) agrees_on_matrices();
}

/* On CPUs the rows are tiles of six, the last one not whole. */
static void agrees_on_cpu(void) {
    static const shape shapes[] = {{1, 5, 14, 1, 16, 32, 3, 1, false}, {2, 30, 40, 8, 16, 512, 80, 2, true},
                                   {3, 9, 33, 3, 16, 48, 7, 1, false}, {1, 300, 320, 8, 32, 1024, 80, 1, false},
                                   {2, 1, 13, 1, 64, 112, 1, 0, true}, {1, 131, 150, 5, 32, 336, 91, 1, true}};
    optest t;
    optest_begin(&t, "capabilities", 0);
    const ist_variant *form = first_form(t.plan, IST_SPAN_SEQUENCE);
    bool begun = form != NULL, cpu = begun && form->machine == IST_MACHINE_CPU;
    optest_drop(&t);
    for (unsigned i = 0; cpu && begun && i < (optest_small() ? 1 : sizeof shapes / sizeof *shapes); i++)
        agrees(shapes[i], i, 0);
}

Test(sequence, agrees_on_cpus) {
    without = IST_CAP_X86_AMX;
    agrees_on_cpu();
}

/* Most linear layers in three parts of bfloat16. */
Test(sequence, agrees_on_amx) {
    claim_amx();
    agrees_on_cpu();
}

/* Two linear layers with everything their epilogue may have, and the depthwise convolution behind them. */
static void map_network(optest *t, int h, bool wide, bool gathered, bool keeps, ist_tensor results[2]) {
    enum { N = 2, W = 22 };
    const int IN = wide ? 180 : 20, MID = wide ? 96 : 36, C = wide ? 144 : 48;
    ist_plan *p = t->plan;
    int count = 1;
    ist_tensor x = optest_in(t, optest_random(t, N, h, W, IN), IST_ELEM_T, true);
    ist_tensor extra = optest_in(t, optest_random(t, N, h, W, C), IST_ELEM_T, true);
    ist_tensor out = optest_out(t, N, h / 2, W / 2, C, IST_ELEM_T, true);
    float *w = optest_values(t, 9 * C, -0.4f, 0.4f), *b = optest_values(t, C, -0.5f, 0.5f);
    ist_plan_limit(p, optest_ints(t, &count, 1));
    if (gathered) begin_map(p, N, h, W);
    ist_epilogue lab = {.act = IST_ACT_RELU, .has_lab = true, .lab_scale = 1.25f, .lab_bias = -0.125f};
    ist_tensor y = linear(t, x, MID, (ist_conv_opts){.epi = lab}, "squeeze");
    lab.add_after = extra;
    y = linear(t, y, C, (ist_conv_opts){.epi = lab}, "excite");
    ist_conv_opts down = {.stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1, .into = out};
    ist_op_dwconv(p, y, (ist_filter){C, 1, 3, 3, w, b}, &down, "down");
    memcpy(results, (ist_tensor[]){out, y}, 2 * sizeof *results);
    if (gathered) ist_sequence_end(p, results, keeps ? 2 : 1, "map");
}

static void map_agrees(bool wide) {
    optest plain, fused;
    ist_tensor a[2], b[2];
    without = 0;
    for (int keeps = 0; keeps < 2 && !optest_small(); keeps++) {
        optest_begin(&plain, "as launches", 70);
        int units = ist_device_facts(plain.device)->compute_units, h = 32 * units + 2;
        bool begun = first_form(plain.plan, IST_SPAN_TRANSITION) != NULL;
        map_network(&plain, h, wide, false, true, a);
        optest_run(&plain);
        optest_begin(&fused, "as a sequence", 70);
        map_network(&fused, h, wide, begun, keeps, b);
        optest_run(&fused);
        cr_expect_eq(ist_plan_describe(fused.plan).launches, begun ? 1 : 3);
        double tol = plain.half ? 3e-2 : 2e-5;
        optest_check(&fused, "the result", b[0], optest_read(&plain, a[0]), tol, tol, 1);
        if (keeps) optest_check(&fused, "the map", b[1], optest_read(&plain, a[1]), tol, tol, 1);
        optest_end(&plain);
        optest_end(&fused);
    }
}

Test(sequence, map_agrees_with_its_operators) {
    map_agrees(false);
}

/* Of layers wide enough for AMX, where the processor has none in plain OpenCL. */
Test(sequence, map_agrees_on_amx) {
    claim_amx();
    map_agrees(true);
}

Test(sequence, nothing_follows_the_end_of_a_map) {
    optest t;
    without = 0;
    optest_begin(&t, "behind", 0);
    int h = 32 * ist_device_facts(t.device)->compute_units;
    ist_tensor x = optest_in(&t, optest_random(&t, 1, h, 4, 16), IST_ELEM_T, false);
    float *w = optest_values(&t, 9 * 16, -1, 1);
    ist_conv_opts down = {.stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1};
    bool begun = begin_map(t.plan, 1, h, 4);
    ist_tensor y = ist_op_add(t.plan, x, x, (ist_tensor){0}, "sum");
    ist_tensor z = ist_op_dwconv(t.plan, y, (ist_filter){16, 1, 3, 3, w, NULL}, &down, "down");
    if (begun) {
        ist_op_add(t.plan, x, x, (ist_tensor){0}, "layer.more");
        cr_assert_eq(ist_plan_status(t.plan), IST_E_STATE);
        cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.more: behind the depthwise convolution"));
    }
    ist_sequence_end(t.plan, &z, 1, "map");
    optest_drop(&t);
}

Test(sequence, nothing_else_launches_inside) {
    optest t;
    without = IST_CAP_VEC16 | IST_CAP_CPU;
    if (!device_sequences()) return;
    optest_begin(&t, "inside", 0);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 8, 8), IST_ELEM_T, false);
    begin(t.plan, 1, 8);
    ist_tensor y = ist_op_add(t.plan, x, x, (ist_tensor){0}, "sum");
    ist_op_row_max(t.plan, y, "layer.best");
    cr_assert_eq(ist_plan_status(t.plan), IST_E_STATE);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.best: not an operator that a sequence takes"));
    ist_sequence_end(t.plan, &y, 1, "sequence");
    cr_assert_null(ist_plan_sequence(t.plan));
    optest_drop(&t);
}

Test(sequence, rows_must_agree) {
    optest t;
    without = IST_CAP_VEC16 | IST_CAP_CPU;
    if (!device_sequences()) return;
    optest_begin(&t, "rows", 0);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 7, 8), IST_ELEM_T, false);
    begin(t.plan, 1, 8);
    ist_tensor y = ist_op_add(t.plan, x, x, (ist_tensor){0}, "layer.sum");
    cr_assert_eq(ist_plan_status(t.plan), IST_E_STATE);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "layer.sum: not on the 8 rows of 1 items of the sequence"));
    ist_sequence_end(t.plan, &y, 1, "sequence");
    optest_drop(&t);
}

/* A span of a linear layer and a norm over rows of c channels; whether it became one launch. */
static bool fuses(int n, int rows, int c) {
    optest t;
    lowered g;
    optest_begin(&t, "span", (unsigned)(rows + c));
    lowered_begin(&g);
    ist_tensor x = lowered_input(&g, optest_in(&t, optest_random(&t, n, 1, rows, c), IST_ELEM_T, false));
    ist_graph_begin(g.graph, IST_SPAN_SEQUENCE, "span");
    const float *w = optest_values(&t, (size_t)(c * c), -1, 1);
    ist_conv first = {.label = "first", .x = x, .filter = {c, c, 1, 1, w, NULL, NULL}};
    const float *norm = optest_values(&t, (size_t)(2 * c), -1, 1);
    ist_layer_norm second = {.label = "second", .add = x, .norm = {norm, norm + c, c, NULL}, .eps = 1e-5f};
    lowered_add(&g, IST_NODE_CONV, &first);
    second.x = first.y;
    lowered_add(&g, IST_NODE_LAYER_NORM, &second);
    ist_graph_end(g.graph);
    ist_graph_output(g.graph, second.y);
    lowered_run(&g, &t);
    int launches = ist_plan_describe(t.plan).launches;
    cr_assert(launches == 1 || launches == 2, "%d launches", launches);
    lowered_end(&g);
    optest_drop(&t);
    return launches == 1;
}

Test(sequence, not_for_odd_channels_on_cpus_nor_for_many_rows) {
    optest t;
    without = 0;
    optest_begin(&t, "capabilities", 0);
    const ist_variant *form = first_form(t.plan, IST_SPAN_SEQUENCE);
    bool cpu = form && form->machine == IST_MACHINE_CPU;
    optest_drop(&t);
    if (cpu) {
        cr_expect(fuses(1, 8, 16));
        cr_expect_not(fuses(1, 8, 8));
    }
    hide(IST_CAP_VEC16 | IST_CAP_CPU);
    cr_expect_eq(fuses(1, 300, 8), device_sequences());
    cr_expect_not(fuses(32, 300, 8));
}
