/* Shapes and checked reads of single tensors. */
#include "weights/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static ist_weights *one(const char *name, ist_weight_type type, int64_t n, const void *data) {
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    cr_assert_eq(ist_weights_add(w, name, type, 1, &n, data, &err), IST_OK, "%s", err.text);
    return w;
}

static void expect_f32(ist_weight_type type, int n, const void *data, const float *want) {
    ist_weights *w = one("t", type, n, data);
    ist_error err;
    float *v = NULL;
    cr_assert_eq(ist_weights_f32(w, "t", 1, (int64_t[]){n}, &v, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < n; i++) cr_expect_eq(v[i], want[i], "%s[%d] = %g", ist_weight_type_name(type), i, v[i]);
    free(v);
    ist_weights_close(&w);
}

Test(weights_values, every_type_as_float) {
    expect_f32(IST_WEIGHT_F64, 2, (double[]){0.1, -2}, (float[]){0.1f, -2});
    expect_f32(IST_WEIGHT_F32, 2, (float[]){0.1f, -2}, (float[]){0.1f, -2});
    expect_f32(IST_WEIGHT_F16, 2, (uint16_t[]){0x3800, 0xc000}, (float[]){0.5f, -2});
    expect_f32(IST_WEIGHT_BF16, 2, (uint16_t[]){0x3f00, 0xc000}, (float[]){0.5f, -2});
    expect_f32(IST_WEIGHT_I64, 2, (int64_t[]){3, -4}, (float[]){3, -4});
    expect_f32(IST_WEIGHT_I32, 2, (int32_t[]){3, -4}, (float[]){3, -4});
    expect_f32(IST_WEIGHT_I16, 2, (int16_t[]){300, -4}, (float[]){300, -4});
    expect_f32(IST_WEIGHT_I8, 2, (int8_t[]){3, -4}, (float[]){3, -4});
    expect_f32(IST_WEIGHT_U8, 2, (uint8_t[]){3, 252}, (float[]){3, 252});
    expect_f32(IST_WEIGHT_BOOL, 2, (uint8_t[]){0, 7}, (float[]){0, 1});
}

static void expect_refused(ist_weight_type type, int n, const void *data, const char *sentence) {
    ist_weights *w = one("layer.weight", type, n, data);
    ist_error err;
    float *v = NULL;
    cr_expect_eq(ist_weights_f32(w, "layer.weight", 1, (int64_t[]){-1}, &v, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, sentence);
    cr_expect_null(v);
    ist_weights_close(&w);
}

Test(weights_values, not_finite) {
    expect_refused(IST_WEIGHT_F32, 3, (float[]){1, 2, NAN}, "layer.weight: element 2 of 3 is not a number as float32");
    expect_refused(IST_WEIGHT_F32, 4, (float[]){1, -INFINITY, NAN, INFINITY},
                   "layer.weight: element 1 of 4 is infinite as float32, and 2 more are not finite");
    expect_refused(IST_WEIGHT_F32, 2, (float[]){NAN, NAN},
                   "layer.weight: element 0 of 2 is not a number as float32, and 1 more is not finite");
    expect_refused(IST_WEIGHT_F16, 2, (uint16_t[]){0, 0xfc00}, "layer.weight: element 1 of 2 is infinite as float32");
    expect_refused(IST_WEIGHT_F64, 1, (double[]){1e300}, "layer.weight: element 0 of 1 is infinite as float32");
}

Test(weights_values, shapes_and_names) {
    ist_weights *w = one("a", IST_WEIGHT_F32, 2, (float[]){1, 2});
    ist_error err;
    float *v = NULL, s;
    cr_expect_eq(ist_weights_f32(w, "b", 1, (int64_t[]){2}, &v, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, "b: missing from the checkpoint");
    cr_expect_eq(ist_weights_f32(w, "a", 1, (int64_t[]){3}, &v, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, "a: want [3], file has [2]");
    cr_expect_eq(ist_weights_f32(w, "a", 2, (int64_t[]){-1, 2}, &v, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, "a: want [*,2], file has [2]");
    cr_expect_eq(ist_weights_scalar(w, "a", &s, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, "a: want one element, file has 2");
    cr_expect_eq(ist_weights_add(w, "a", IST_WEIGHT_U8, 0, NULL, "x", &err), IST_E_ARGUMENT);
    cr_expect_eq(ist_weights_add(w, "c", IST_WEIGHT_U8, 9, (int64_t[9]){1, 1, 1, 1, 1, 1, 1, 1, 1}, "x", &err),
                 IST_E_ARGUMENT);
    ist_weights_close(&w);
    ist_weights_close(&w);
    ist_weights_close(NULL);
}

Test(weights_values, shape_text) {
    char t[32], tiny[6];
    cr_expect_str_eq(ist_weight_shape_text(0, NULL, t, sizeof t), "[]");
    cr_expect_str_eq(ist_weight_shape_text(3, (int64_t[]){16, -1, 3}, t, sizeof t), "[16,*,3]");
    ist_weight_shape_text(3, (int64_t[]){1600, 1600, 3}, tiny, sizeof tiny);
    cr_expect_lt(strlen(tiny), sizeof tiny);
}

Test(weights_values, added_tensors_are_found) {
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    const char *const names[] = {"m", "a", "z", "b", "mm"};
    for (int32_t i = 0; i < 5; i++)
        cr_assert_eq(ist_weights_add(w, names[i], IST_WEIGHT_I32, 0, NULL, &i, &err), IST_OK);
    for (int i = 0; i < 5; i++) {
        float v = -1;
        cr_expect_eq(ist_weights_scalar(w, names[i], &v, &err), IST_OK);
        cr_expect_eq(v, (float)i);
    }
    cr_expect_str_eq(ist_weights_at(w, 0)->name, "a");
    cr_expect_str_eq(ist_weights_at(w, 4)->name, "z");
    cr_expect_null(ist_weights_at(w, 5));
    cr_expect_null(ist_weights_find(w, "zz"));
    ist_weights_close(&w);
}
