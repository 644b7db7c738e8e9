/* Tensor values as float32, whatever the file stores. */
#include "base/half.h"
#include "weights/weights.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONVERT(ctype, expr)                                                                                           \
    for (size_t i = 0; i < count; i++) {                                                                               \
        ctype v;                                                                                                       \
        memcpy(&v, src + i * sizeof v, sizeof v);                                                                      \
        dst[i] = (float)(expr);                                                                                        \
    }                                                                                                                  \
    break

static void convert(ist_weight_type type, const unsigned char *src, size_t count, float *dst) {
    switch (type) {
    case IST_WEIGHT_F64:
        CONVERT(double, v);
    case IST_WEIGHT_F32:
        memcpy(dst, src, count * sizeof *dst);
        break;
    case IST_WEIGHT_F16:
        CONVERT(uint16_t, ist_half_to_float(v));
    case IST_WEIGHT_BF16:
        CONVERT(uint16_t, ist_bf16_to_float(v));
    case IST_WEIGHT_I64:
        CONVERT(int64_t, v);
    case IST_WEIGHT_I32:
        CONVERT(int32_t, v);
    case IST_WEIGHT_I16:
        CONVERT(int16_t, v);
    case IST_WEIGHT_I8:
        CONVERT(int8_t, v);
    case IST_WEIGHT_U8:
        CONVERT(uint8_t, v);
    case IST_WEIGHT_BOOL:
        CONVERT(uint8_t, v != 0);
    case IST_WEIGHT_TYPES:
        break;
    }
}

/* Of `more` values behind the first that was found. */
static ist_status not_finite(const ist_weight *w, size_t first, float value, size_t more, ist_error *err) {
    char also[64] = "";
    if (more) snprintf(also, sizeof also, ", and %zu more %s not finite", more, more == 1 ? "is" : "are");
    return ist_fail(err, IST_E_WEIGHTS, "%s: element %zu of %zu is %s as float32%s", w->name, first, w->count,
                    isnan(value) ? "not a number" : "infinite", also);
}

static size_t count_not_finite(const float *values, size_t count) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += !isfinite(values[i]);
    return n;
}

void ist_weight_to_f32(const ist_weight *weight, float *dst) {
    if (weight->count) convert(weight->type, weight->data, weight->count, dst);
}

ist_status ist_weight_read_f32(const ist_weight *weight, float *dst, ist_error *err) {
    if (!weight->count) return IST_OK;
    convert(weight->type, weight->data, weight->count, dst);
    for (size_t i = 0; i < weight->count; i++)
        if (!isfinite(dst[i]))
            return not_finite(weight, i, dst[i], count_not_finite(dst + i + 1, weight->count - i - 1), err);
    return IST_OK;
}

ist_status ist_weight_check_finite(const ist_weight *weight, ist_error *err) {
    enum { PART = 1024 };
    float part[PART], value = 0;
    size_t bad = 0, first = 0;
    for (size_t at = 0; at < weight->count; at += PART) {
        size_t n = weight->count - at < PART ? weight->count - at : PART;
        convert(weight->type, (const unsigned char *)weight->data + at * ist_weight_type_bytes(weight->type), n, part);
        size_t found = count_not_finite(part, n);
        for (size_t i = 0; found && !bad && i < n; i++)
            if (!isfinite(part[i])) {
                first = at + i;
                value = part[i];
                break;
            }
        bad += found;
    }
    return bad ? not_finite(weight, first, value, bad - 1, err) : IST_OK;
}

static ist_status find(const ist_weights *weights, const char *name, const ist_weight **out, ist_error *err) {
    *out = ist_weights_find(weights, name);
    return *out ? IST_OK : ist_fail(err, IST_E_WEIGHTS, "%s: missing from the checkpoint", name);
}

ist_status ist_weights_need(const ist_weights *weights, const char *name, int rank, const int64_t *dims,
                            const ist_weight **out, ist_error *err) {
    ist_status status = find(weights, name, out, err);
    if (!status) status = ist_weight_check_shape(*out, rank, dims, err);
    if (status) *out = NULL;
    return status;
}

ist_status ist_weights_f32(const ist_weights *weights, const char *name, int rank, const int64_t *dims, float **out,
                           ist_error *err) {
    const ist_weight *w;
    IST_TRY(find(weights, name, &w, err));
    IST_TRY(ist_weight_check_shape(w, rank, dims, err));
    size_t bytes;
    float *values = ist_mul_size(w->count ? w->count : 1, sizeof *values, &bytes) ? malloc(bytes) : NULL;
    if (!values) return ist_fail(err, IST_E_MEMORY, "%s: out of host memory (%zu floats)", name, w->count);
    ist_status status = ist_weight_read_f32(w, values, err);
    if (status)
        free(values);
    else
        *out = values;
    return status;
}

ist_status ist_weights_scalar(const ist_weights *weights, const char *name, float *out, ist_error *err) {
    const ist_weight *w;
    IST_TRY(find(weights, name, &w, err));
    if (w->count != 1) return ist_fail(err, IST_E_WEIGHTS, "%s: want one element, file has %zu", name, w->count);
    return ist_weight_read_f32(w, out, err);
}
