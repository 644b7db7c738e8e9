/* Recipes: the extents they promise from shapes alone are those of the filter they load, and its numbers are those of
 * the checkpoint. */
#include "support/host_memory.h"
#include "synth.h"
#include "weights/recipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_weights *w;
static ist_error err;

static void add(const char *name, int rank, const int64_t *dims) {
    float values[1024];
    synth_weight(name, rank, dims, 9, values);
    cr_assert_eq(ist_weights_add(w, name, IST_WEIGHT_F32, rank, dims, values, &err), IST_OK, "%s", err.text);
}

static void add_conv_norm(const char *at, const char *norm, int out, int in, int k) {
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    char name[64];
    snprintf(name, sizeof name, "%s.conv.weight", at);
    add(name, 4, (int64_t[]){out, in, k, k});
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.%s.%s", at, norm, parts[i]);
        add(name, 1, (int64_t[]){out});
    }
}

static void fill(void) {
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    add_conv_norm("u", "bn", 6, 4, 3);
    add("u.lab.scale", 1, (int64_t[]){1});
    add("u.lab.bias", 1, (int64_t[]){1});
    add_conv_norm("b.conv1", "norm", 5, 5, 3);
    add_conv_norm("b.conv2", "norm", 5, 5, 1);
    add("q.weight", 2, (int64_t[]){6, 8});
    add("q.bias", 1, (int64_t[]){6});
    add("k.weight", 2, (int64_t[]){3, 8});
    add("narrow.weight", 2, (int64_t[]){3, 7});
    add("ln.weight", 1, (int64_t[]){8});
    add("ln.bias", 1, (int64_t[]){8});
    add("table", 3, (int64_t[]){2, 3, 4});
}
static void empty(void) {
    ist_weights_close(&w);
}
TestSuite(weights_recipe, .init = fill, .fini = empty);

static ist_recipe linear(const char *weight, const char *bias) {
    return (ist_recipe){.kind = IST_RECIPE_LINEAR, .weights = w, .names = {weight, bias}};
}

/* Loads what was described. */
static ist_conv_weights load(const ist_recipe *r, int out, int in, int k, bool lab) {
    ist_recipe_shape s;
    ist_conv_weights c;
    cr_assert_eq(ist_recipe_describe(r, &s, &err), IST_OK, "%s", err.text);
    cr_assert(s.out == out && s.in == in && s.kh == k && s.kw == k && s.lab == lab, "[%d,%d,%d,%d]", s.out, s.in, s.kh,
              s.kw);
    cr_assert_eq(ist_recipe_load(r, &c, &err), IST_OK, "%s", err.text);
    cr_assert(c.out == out && c.in == in && c.kh == k && c.kw == k && !c.has_lab == !lab);
    return c;
}

static void same(const ist_conv_weights *got, const ist_conv_weights *want) {
    size_t count = (size_t)want->out * (size_t)want->in * (size_t)(want->kh * want->kw);
    cr_assert(!memcmp(got->w, want->w, count * sizeof(float)));
    cr_assert(!memcmp(got->b, want->b, (size_t)want->out * sizeof(float)));
    cr_assert(got->lab_scale == want->lab_scale && got->lab_bias == want->lab_bias);
}

static void same_and_free(ist_conv_weights got, ist_conv_weights want) {
    same(&got, &want);
    ist_conv_weights_free(&got);
    ist_conv_weights_free(&want);
}

Test(weights_recipe, convolution) {
    ist_recipe r = {.kind = IST_RECIPE_CONV, .weights = w, .names = {"u.conv.weight", "u.bn", "u.lab"}};
    ist_conv_weights want;
    cr_assert_eq(ist_fold_conv(w, "u.conv.weight", "u.bn", "u.lab", &want, &err), IST_OK);
    same_and_free(load(&r, 6, 4, 3, true), want);
    r.names[1] = r.names[2] = NULL;
    cr_assert_eq(ist_fold_conv(w, "u.conv.weight", NULL, NULL, &want, &err), IST_OK);
    same_and_free(load(&r, 6, 4, 3, false), want);
}

Test(weights_recipe, repvgg_block) {
    const ist_recipe r = {.kind = IST_RECIPE_REPVGG, .weights = w, .names = {"b"}};
    ist_conv_weights want;
    cr_assert_eq(ist_fold_repvgg(w, "b", &want, &err), IST_OK, "%s", err.text);
    same_and_free(load(&r, 5, 5, 3, false), want);
}

Test(weights_recipe, linear_layer_with_and_without_a_bias) {
    ist_recipe q = linear("q.weight", "q.bias"), k = linear("k.weight", NULL);
    ist_conv_weights want;
    cr_assert_eq(ist_load_linear(w, "q.weight", "q.bias", &want, &err), IST_OK);
    same_and_free(load(&q, 6, 8, 1, false), want);
    ist_conv_weights c = load(&k, 3, 8, 1, false);
    for (int i = 0; i < 3; i++) cr_assert_eq(c.b[i], 0);
    ist_conv_weights_free(&c);
}

Test(weights_recipe, scale_is_of_weights_only) {
    ist_recipe plain = linear("q.weight", "q.bias"), scaled = plain;
    scaled.scale = 0.25f;
    ist_conv_weights a = load(&plain, 6, 8, 1, false), b = load(&scaled, 6, 8, 1, false);
    for (int i = 0; i < 48; i++) cr_assert_eq(b.w[i], 0.25f * a.w[i]);
    for (int i = 0; i < 6; i++) cr_assert_eq(b.b[i], a.b[i]);
    ist_conv_weights_free(&a);
    ist_conv_weights_free(&b);
}

/* Parts of a stack of a scaled layer and another: what is nested is loaded within. */
Test(weights_recipe, stacks_and_parts) {
    ist_recipe q = linear("q.weight", "q.bias"), k = linear("k.weight", NULL);
    q.scale = 2;
    const ist_recipe stack = {.kind = IST_RECIPE_STACK, .weights = w, .parts = {&q, &k}};
    ist_recipe part = {.kind = IST_RECIPE_PART, .weights = w, .parts = {&stack}, .part = {4, 4, 1, 6, true}};
    ist_conv_weights first = load(&q, 6, 8, 1, false), second = load(&k, 3, 8, 1, false);
    ist_conv_weights all = load(&stack, 9, 8, 1, false), some = load(&part, 4, 6, 1, false);
    cr_assert(!memcmp(all.w, first.w, 48 * sizeof(float)) && !memcmp(all.w + 48, second.w, 24 * sizeof(float)));
    cr_assert(!memcmp(all.b, first.b, 6 * sizeof(float)) && !memcmp(all.b + 6, second.b, 3 * sizeof(float)));
    for (int o = 0; o < 4; o++) {
        cr_assert_eq(some.b[o], all.b[4 + o]);
        for (int i = 0; i < 6; i++) cr_assert_eq(some.w[o * 6 + i], all.w[(4 + o) * 8 + 1 + i]);
    }
    part.part.bias = false;
    ist_conv_weights bare = load(&part, 4, 6, 1, false);
    for (int o = 0; o < 4; o++) cr_assert_eq(bare.b[o], 0);
    ist_conv_weights *loaded[] = {&first, &second, &all, &some, &bare};
    for (int i = 0; i < 5; i++) ist_conv_weights_free(loaded[i]);
}

Test(weights_recipe, norms_and_arrays) {
    const ist_recipe norm = {.kind = IST_RECIPE_NORM, .weights = w, .names = {"ln"}};
    const ist_recipe array = {.kind = IST_RECIPE_ARRAY, .weights = w, .names = {"table"}};
    ist_norm_weights n;
    float *values = NULL, want[24];
    cr_assert_eq(ist_recipe_load_norm(&norm, &n, &err), IST_OK, "%s", err.text);
    cr_assert_eq(n.n, 8);
    cr_assert_eq(ist_weight_read_f32(ist_weights_find(w, "ln.weight"), want, &err), IST_OK);
    cr_assert(!memcmp(n.w, want, 8 * sizeof(float)));
    cr_assert_eq(ist_weight_read_f32(ist_weights_find(w, "ln.bias"), want, &err), IST_OK);
    cr_assert(!memcmp(n.b, want, 8 * sizeof(float)));
    ist_norm_weights_free(&n);
    cr_assert_eq(ist_recipe_load_array(&array, 24, &values, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_weight_read_f32(ist_weights_find(w, "table"), want, &err), IST_OK);
    cr_assert(!memcmp(values, want, sizeof want));
    free(values);
}

/* ---- refusals ---- */

/* Both say the same, and nothing is left. */
static void refused(const ist_recipe *r, ist_status code, const char *sentence) {
    ist_recipe_shape s;
    ist_conv_weights c;
    long held = blocks;
    cr_assert_eq(ist_recipe_describe(r, &s, &err), code);
    cr_assert_str_eq(err.text, sentence);
    err.text[0] = 0;
    cr_assert_eq(ist_recipe_load(r, &c, &err), code);
    cr_assert_str_eq(err.text, sentence);
    cr_assert(!c.w && !c.b);
    cr_assert_eq(blocks, held);
}

Test(weights_recipe, refusals) {
    ist_recipe gone = linear("v.weight", NULL), q = linear("q.weight", NULL), narrow = linear("narrow.weight", NULL);
    ist_recipe shape = linear("table", NULL), norm = {.kind = IST_RECIPE_NORM, .weights = w, .names = {"ln"}};
    ist_recipe stack = {.kind = IST_RECIPE_STACK, .weights = w, .parts = {&q, &narrow}};
    ist_recipe part = {.kind = IST_RECIPE_PART, .weights = w, .parts = {&q}, .part = {4, 3, 0, 8, true}};
    const ist_weight *missing;
    cr_assert_neq(ist_weights_need(w, "v.weight", 2, (int64_t[]){-1, -1}, &missing, &err), IST_OK);
    char text[sizeof err.text];
    memcpy(text, err.text, sizeof text);
    refused(&gone, err.code, text);
    refused(&shape, IST_E_WEIGHTS, "table: want [*,*], file has [2,3,4]");
    refused(&norm, IST_E_STATE, "ln: not a filter");
    refused(&stack, IST_E_WEIGHTS, "layers with 8 and 7 inputs share one input");
    refused(&part, IST_E_WEIGHTS, "a 6 x 8 matrix has no part [4,7) x [0,8)");
    stack.parts[1] = &gone;
    refused(&stack, IST_E_WEIGHTS, text);
}

Test(weights_recipe, arrays_of_another_size) {
    ist_recipe array = {.kind = IST_RECIPE_ARRAY, .weights = w, .names = {"table"}};
    float *values = &(float){1};
    cr_assert_eq(ist_recipe_load_array(&array, 23, &values, &err), IST_E_WEIGHTS);
    cr_assert_str_eq(err.text, "table: want 23 elements, file has 24");
    cr_assert_null(values);
    array.names[0] = "none";
    cr_assert_eq(ist_recipe_load_array(&array, 23, &values, &err), IST_E_WEIGHTS);
    cr_assert_not_null(strstr(err.text, "none"), "%s", err.text);
    cr_assert_null(values);
}

Test(weights_recipe, memory_runs_out_while_a_stack_is_loaded) {
    ist_recipe q = linear("q.weight", "q.bias"), k = linear("k.weight", NULL);
    const ist_recipe stack = {.kind = IST_RECIPE_STACK, .weights = w, .parts = {&q, &k}};
    const ist_recipe part = {.kind = IST_RECIPE_PART, .weights = w, .parts = {&stack}, .part = {4, 4, 1, 6, true}};
    ist_conv_weights c;
    calls = 0;
    ist_conv_weights whole = load(&part, 4, 6, 1, false);
    long all = calls, held;
    ist_conv_weights_free(&whole);
    cr_assert_geq(all, 8, "%ld allocations", all);
    held = blocks;
    for (long at = 1; at <= all; at++) {
        calls = 0;
        fail_at = at;
        ist_status status = ist_recipe_load(&part, &c, &err);
        fail_at = 0;
        cr_assert_eq(status, IST_E_MEMORY, "allocation %ld of %ld: status %d", at, all, status);
        cr_assert(!c.w && !c.b);
        cr_assert_eq(blocks, held, "allocation %ld of %ld: %ld blocks are left", at, all, blocks - held);
    }
}
