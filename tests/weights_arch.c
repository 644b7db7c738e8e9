/* The tensor lists against the state dicts of the published networks. */
#include "models/dfine.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct listing {
    FILE *file;
    int lines, needed;
} listing;

static const char *dtype_name(ist_weight_type type) {
    return type == IST_WEIGHT_I64 ? "int64" : type == IST_WEIGHT_BOOL ? "bool" : "float32";
}

/* Next line of the file must be "name dtype dim,dim" ("-" for a scalar). */
static ist_status compare_line(void *user, const ist_arch_entry *e) {
    listing *l = user;
    char want[256] = "", have[256];
    int n = snprintf(have, sizeof have, "%s %s %s", e->name, dtype_name(e->type), e->rank ? "" : "-");
    for (int i = 0; i < e->rank; i++)
        n += snprintf(have + n, sizeof have - (size_t)n, "%s%lld", i ? "," : "", (long long)e->dims[i]);
    l->lines++;
    l->needed += e->needed;
    if (!fgets(want, sizeof want, l->file)) return IST_E_INPUT;
    want[strcspn(want, "\n")] = '\0';
    cr_expect_str_eq(have, want, "line %d", l->lines);
    return IST_OK;
}

static void compare(const char *name, ist_model_kind kind, int lines) {
    char path[512];
    snprintf(path, sizeof path, IST_GOLDEN_DIR "/models/%s.keys", name);
    listing l = {.file = fopen(path, "r")};
    cr_assert_not_null(l.file, "%s", path);
    ist_arch_form form = {.kind = kind, .classes = 80, .size = 640};
    cr_expect_eq(ist_arch_walk(&form, compare_line, &l), IST_OK);
    cr_expect_eq(l.lines, lines);
    cr_expect_eq(fgetc(l.file), EOF);
    fclose(l.file);
}

Test(weights_arch, dfine_n) {
    compare("dfine_n", IST_MODEL_DFINE_N, 674);
}
Test(weights_arch, dfine_s) {
    compare("dfine_s", IST_MODEL_DFINE_S, 794);
}
Test(weights_arch, dfine_m) {
    compare("dfine_m", IST_MODEL_DFINE_M, 1053);
}
Test(weights_arch, dfine_l) {
    compare("dfine_l", IST_MODEL_DFINE_L, 1173);
}
Test(weights_arch, dfine_x) {
    compare("dfine_x", IST_MODEL_DFINE_X, 1441);
}
Test(weights_arch, mobile_sam) {
    compare("mobilesam", IST_MODEL_MOBILE_SAM, 439);
}

Test(weights_arch, sam_vit_b) {
    compare("sam_vit_b", IST_MODEL_SAM_VIT, 314);
}

static ist_status count_entry(void *user, const ist_arch_entry *e) {
    int *counts = user;
    counts[0]++;
    counts[1] += e->needed;
    if (strstr(e->name, "conv_bn_fused")) counts[2]++;
    return IST_OK;
}

/* Entries of state dicts that the official deploy() left: 506, 550 and 1019 for N, S, X. */
Test(weights_arch, deployed) {
    const struct {
        ist_model_kind kind;
        int entries;
    } cases[] = {{IST_MODEL_DFINE_N, 506}, {IST_MODEL_DFINE_S, 550}, {IST_MODEL_DFINE_X, 1019}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_arch_form form = {.kind = cases[i].kind, .classes = 80, .size = 640, .deployed = true};
        int counts[3] = {0};
        cr_expect_eq(ist_arch_walk(&form, count_entry, counts), IST_OK);
        cr_expect_eq(counts[0], cases[i].entries, "%s: %d", ist_model_name(form.kind), counts[0]);
        cr_expect_gt(counts[2], 0);
    }
}

static ist_status stop(void *user, const ist_arch_entry *e) {
    (void)e;
    return ++*(int *)user == 5 ? IST_E_LIMIT : IST_OK;
}

Test(weights_arch, stops_with_the_first_failure) {
    int visits = 0;
    ist_arch_form form = {.kind = IST_MODEL_DFINE_S, .classes = 1, .size = 640};
    cr_expect_eq(ist_arch_walk(&form, stop, &visits), IST_E_LIMIT);
    cr_expect_eq(visits, 5);
}

Test(weights_arch, tables) {
    cr_expect_null(ist_dfine_arch_of(IST_MODEL_MOBILE_SAM));
    cr_expect_null(ist_dfine_arch_of(IST_MODEL_UNKNOWN));
    const ist_dfine_arch *x = ist_dfine_arch_of(IST_MODEL_DFINE_X);
    cr_expect(x->decoder_proj && !x->lab && x->reg_scale == 8 && x->hidden == 384 && x->dim == 256);
    cr_expect_str_eq(ist_model_name(IST_MODEL_DFINE_M), "dfine-m");
}
