/* `isthmus info --graph`: the network of a synthetic D-FINE-N against numbers worked out by hand, the variants that
 * PoCL takes of those that are built, what is refused. */
#include "program.h"

#include "variants/variant.h"

#include <jansson.h>

#define RUN(b, ...) spawn_run(&(b)->s, NULL, (const char *const[]){IST_CLI, "info", __VA_ARGS__, NULL})

/* backbone.stages.0.blocks.0.layers.0: 3x3 from 16 to 16 channels on a quarter of 640 x 640. */
#define LAYER "backbone.stages.0.blocks.0.layers.0"
enum { LAYER_SIDE = 640 / 4, LAYER_CHANNELS = 16, LAYER_WORK = LAYER_SIDE * LAYER_SIDE * 9 * 16 * 16, NODES = 142 };

typedef struct bench {
    scratch s;
    char model[160];
} bench;

static bench make_bench(void) {
    bench b = {.s = scratch_make()};
    snprintf(b.model, sizeof b.model, "%s/n.safetensors", b.s.path);
    spawned r = spawn_run(
        &b.s, NULL, (const char *const[]){IST_BUILD_DIR "/tests/make_checkpoint", "n", "g:1", "80", b.model, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    return b;
}

static json_t *graph_of(const bench *b, const char *device) {
    spawned r = device ? RUN(b, "--graph", "--json", "--device", device, "--precision", "fp32", b->model)
                       : RUN(b, "--graph", "--json", b->model);
    cr_assert_eq(r.code, 0, "%s", r.err);
    json_t *all = json_loads(r.out, 0, NULL);
    cr_assert_not_null(all, "no JSON: %s", r.out);
    spawn_free(&r);
    return all;
}

static const json_t *labelled(const json_t *all, const char *list, const char *label) {
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(all, list), i,
                       o) if (!strcmp(json_string_value(json_object_get(o, "label")), label)) return o;
    cr_assert_fail("%s lack '%s'", list, label);
    return NULL;
}

static json_int_t number(const json_t *o, const char *key) {
    cr_assert(json_is_integer(json_object_get(o, key)), "%s", key);
    return json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key) {
    cr_assert(json_is_string(json_object_get(o, key)), "%s", key);
    return json_string_value(json_object_get(o, key));
}

static void expect(spawned r, int code, const char *sentence) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.err, sentence), "stderr lacks '%s': %s", sentence, r.err);
    cr_expect_eq(*r.out, 0, "%s", r.out);
    const char *end = strchr(r.err, '\n');
    cr_expect(end && !end[1], "not one sentence: %s", r.err);
    spawn_free(&r);
}

Test(cli_info_graph, network) {
    bench b = make_bench();
    json_t *all = graph_of(&b, NULL), *o;
    const json_t *nodes = json_object_get(all, "nodes"), *layer = labelled(all, "nodes", LAYER);
    const json_t *shape = json_object_get(layer, "shape");
    const int want[4] = {1, LAYER_SIDE, LAYER_SIDE, LAYER_CHANNELS};
    json_int_t sum = 0;
    size_t i;
    cr_expect_str_eq(text(all, "model"), "dfine-n");
    cr_expect_eq(json_array_size(nodes), NODES);
    cr_expect_str_eq(text(layer, "kind"), "conv");
    cr_expect_eq(number(layer, "multiply_adds"), LAYER_WORK);
    cr_assert_eq(json_array_size(shape), 4);
    for (i = 0; i < 4; i++) cr_expect_eq(json_integer_value(json_array_get(shape, i)), want[i]);
    json_array_foreach(nodes, i, o) sum += number(o, "multiply_adds");
    cr_expect_eq(sum, number(all, "multiply_adds"));
    cr_expect_null(json_object_get(all, "launches"), "no device was named");
    cr_expect_null(json_object_get(layer, "variants"));
    json_decref(all);
    scratch_remove(&b.s);
}

Test(cli_info_graph, lines) {
    bench b = make_bench();
    spawned r = RUN(&b, "--graph", b.model);
    char line[200];
    cr_assert_eq(r.code, 0, "%s", r.err);
    snprintf(line, sizeof line, "\nbackbone.stages.0  stage\n  " LAYER "  conv  [1,%d,%d,%d]  %d multiply-adds\n",
             LAYER_SIDE, LAYER_SIDE, LAYER_CHANNELS, LAYER_WORK);
    cr_expect_not_null(strstr(r.out, line), "%s", r.out);
    snprintf(line, sizeof line, "\ntotal  dfine-n, %d nodes, ", NODES);
    cr_expect_not_null(strstr(r.out, line), "%s", r.out);
    spawn_free(&r);
    scratch_remove(&b.s);
}

/* Launches of what lies in no region, and of regions in no other. */
static json_int_t outer_launches(const json_t *all) {
    const json_t *nodes = json_object_get(all, "nodes"), *regions = json_object_get(all, "regions");
    json_int_t sum = 0, covered = 0;
    size_t r = 0;
    for (json_int_t i = 0; i < (json_int_t)json_array_size(nodes); i++) {
        for (; r < json_array_size(regions) && number(json_array_get(regions, r), "first") <= i; r++) {
            if (number(json_array_get(regions, r), "end") <= covered) continue;
            sum += number(json_array_get(regions, r), "launches");
            covered = number(json_array_get(regions, r), "end");
        }
        if (i >= covered) sum += number(json_array_get(nodes, (size_t)i), "launches");
    }
    return sum;
}

/* Nodes [first, end) of a region that have no launch of their own, since its variant has them. */
static int taken_nodes(const json_t *all, const json_t *region) {
    int taken = 0;
    for (json_int_t i = number(region, "first"); i < number(region, "end"); i++)
        taken += number(json_array_get(json_object_get(all, "nodes"), (size_t)i), "launches") == 0;
    return taken;
}

/* A region that one variant of the table takes whole is one launch, else each of its nodes has some. */
static void check_region(const json_t *all, const json_t *region, ist_node_kind kind, int nodes) {
    cr_expect_str_eq(text(region, "kind"), ist_kind_of(kind)->name);
    cr_assert_eq(number(region, "end") - number(region, "first"), nodes);
    if (ist_variant_named(kind, text(region, "variants"))) {
        cr_expect_eq(number(region, "launches"), 1);
        cr_expect_eq(taken_nodes(all, region), nodes, "the span's one launch has them");
    } else {
        cr_expect_geq(number(region, "launches"), nodes);
        cr_expect_eq(taken_nodes(all, region), 0);
    }
}

/* Without vectors of 512 bits, so that all CPUs take the same; whether a transition is one launch depends on the number
 * of compute units. */
Test(cli_info_graph, variants) {
    bench b = make_bench();
    setenv("ISTHMUS_CAPS", "-SIMD16", 1);
    json_t *all = graph_of(&b, "Portable");
    const bool cpu = ist_variant_named(IST_SPAN_SEQUENCE, "rows_16"); /* is built */
    const json_t *stem = labelled(all, "nodes", "backbone.stem"), *layer = labelled(all, "nodes", LAYER);
    const json_t *rows = labelled(all, "regions", "encoder.encoder.0.layers.0.self_attn");
    cr_expect_str_eq(text(all, "precision"), "fp32");
    if (cpu) {
        cr_expect_str_eq(text(stem, "variants"), "cpu");
        cr_expect_eq(number(stem, "launches"), 1);
        cr_expect_str_eq(text(layer, "variants"), "winograd_16");
        cr_expect_str_eq(text(rows, "variants"), "rows_16 + cpu", "a sequence and its attention");
        cr_expect_eq(number(rows, "launches"), 3);
        cr_expect_eq(taken_nodes(all, rows), 7);
    } else {
        cr_expect_eq(number(stem, "launches"), 6, "five layers and the pooling");
        cr_expect_str_eq(text(layer, "variants"), "any_32x32");
        check_region(all, rows, IST_SPAN_SEQUENCE, 7);
    }
    cr_expect_str_eq(text(rows, "kind"), "sequence");
    cr_expect_eq(number(layer, "launches"), 1);
    check_region(all, labelled(all, "regions", "backbone.stages.1.downsample"), IST_SPAN_TRANSITION, 3);
    cr_expect_gt(number(all, "launches"), 0);
    cr_expect_eq(outer_launches(all), number(all, "launches"));
    json_decref(all);
    scratch_remove(&b.s);
}

Test(cli_info_graph, refusals) {
    bench b = make_bench();
    char path[200];
    snprintf(path, sizeof path, "%s/no.safetensors", b.s.path);
    expect(RUN(&b, "--graph", path), 4, "no.safetensors");
    expect(RUN(&b, "--graph", IST_CLI), 4, IST_CLI);
    expect(RUN(&b, "--graph", "--device", "no such device", b.model), 3, "no device matches \"no such device\"");
    expect(RUN(&b, "--json", b.model), 2, "--json needs --graph");
    expect(RUN(&b, "--device", "0", b.model), 2, "--device needs --graph");
    expect(RUN(&b, "--graph", "--precision", "fp32", b.model), 2, "--precision needs --device");
    expect(RUN(&b, "--graph", "--device", "0", "--precision", "fp8", b.model), 2, "'fp8' is none of");
    expect(RUN(&b, "--graph"), 2, "expected one file name, got 0");
    scratch_remove(&b.s);
}
