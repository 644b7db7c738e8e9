/* See recipe.h. */
#include "weights/recipe.h"

#include <limits.h>
#include <stdlib.h>

/* ---- shapes ---- */

/* Extents of a weight of this rank. */
static ist_status describe_weight(const ist_weights *weights, const char *name, int rank, ist_recipe_shape *s,
                                  ist_error *err) {
    static const int64_t any[] = {-1, -1, -1, -1};
    const ist_weight *w = NULL;
    IST_TRY(ist_weights_need(weights, name, rank, any, &w, err));
    for (int i = 0; i < rank; i++)
        if (w->dims[i] < 1 || w->dims[i] > INT_MAX)
            return ist_fail(err, IST_E_WEIGHTS, "%s: dimension %d is %lld", name, i, (long long)w->dims[i]);
    *s = (ist_recipe_shape){(int)w->dims[0], (int)w->dims[1], rank == 4 ? (int)w->dims[2] : 1,
                            rank == 4 ? (int)w->dims[3] : 1, false};
    return IST_OK;
}

static ist_status describe_stack(const ist_recipe *s, ist_recipe_shape *shape, ist_error *err) {
    ist_recipe_shape second;
    IST_TRY(ist_recipe_describe(s->parts[0], shape, err));
    IST_TRY(ist_recipe_describe(s->parts[1], &second, err));
    if (shape->in != second.in)
        return ist_fail(err, IST_E_WEIGHTS, "layers with %d and %d inputs share one input", shape->in, second.in);
    shape->out += second.out;
    return IST_OK;
}

static ist_status describe_part(const ist_recipe *s, ist_recipe_shape *shape, ist_error *err) {
    IST_TRY(ist_recipe_describe(s->parts[0], shape, err));
    if (s->part.out0 + s->part.outs > shape->out || s->part.in0 + s->part.ins > shape->in)
        return ist_fail(err, IST_E_WEIGHTS, "a %d x %d matrix has no part [%d,%d) x [%d,%d)", shape->out, shape->in,
                        s->part.out0, s->part.out0 + s->part.outs, s->part.in0, s->part.in0 + s->part.ins);
    shape->out = s->part.outs;
    shape->in = s->part.ins;
    return IST_OK;
}

ist_status ist_recipe_describe(const ist_recipe *s, ist_recipe_shape *shape, ist_error *err) {
    char name[320];
    switch (s->kind) {
    case IST_RECIPE_CONV:
        ist_fold_conv_name(s->weights, s->names[0], name, sizeof name);
        IST_TRY(describe_weight(s->weights, name, 4, shape, err));
        shape->lab = s->names[2] != NULL;
        return IST_OK;
    case IST_RECIPE_LINEAR:
        return describe_weight(s->weights, s->names[0], 2, shape, err);
    case IST_RECIPE_REPVGG:
        ist_fold_repvgg_name(s->weights, s->names[0], name, sizeof name);
        return describe_weight(s->weights, name, 4, shape, err);
    case IST_RECIPE_STACK:
        return describe_stack(s, shape, err);
    case IST_RECIPE_PART:
        return describe_part(s, shape, err);
    default:
        return ist_fail(err, IST_E_STATE, "%s: not a filter", s->names[0]);
    }
}

/* ---- numbers ---- */

static ist_status load_parts(const ist_recipe *s, ist_conv_weights *out, ist_error *err) {
    ist_conv_weights first, second = {0};
    IST_TRY(ist_recipe_load(s->parts[0], &first, err));
    if (s->kind == IST_RECIPE_PART) {
        ist_status status =
            ist_part(&first, s->part.out0, s->part.outs, s->part.in0, s->part.ins, s->part.bias, out, err);
        ist_conv_weights_free(&first);
        return status;
    }
    ist_status status = ist_recipe_load(s->parts[1], &second, err);
    if (!status) return ist_stack(first, second, out, err);
    ist_conv_weights_free(&first);
    return status;
}

static ist_status load(const ist_recipe *s, ist_conv_weights *out, ist_error *err) {
    switch (s->kind) {
    case IST_RECIPE_CONV:
        return ist_fold_conv(s->weights, s->names[0], s->names[1], s->names[2], out, err);
    case IST_RECIPE_LINEAR:
        return ist_load_linear(s->weights, s->names[0], s->names[1], out, err);
    case IST_RECIPE_REPVGG:
        return ist_fold_repvgg(s->weights, s->names[0], out, err);
    case IST_RECIPE_STACK:
    case IST_RECIPE_PART:
        return load_parts(s, out, err);
    default:
        return ist_fail(err, IST_E_STATE, "%s: not a filter", s->names[0]);
    }
}

ist_status ist_recipe_load(const ist_recipe *s, ist_conv_weights *out, ist_error *err) {
    *out = (ist_conv_weights){0};
    IST_TRY(load(s, out, err));
    size_t count = (size_t)out->out * (size_t)out->in * (size_t)out->kh * (size_t)out->kw;
    for (size_t i = 0; s->scale != 0 && i < count; i++) out->w[i] *= s->scale;
    return IST_OK;
}

ist_status ist_recipe_load_norm(const ist_recipe *s, ist_norm_weights *out, ist_error *err) {
    return ist_load_norm(s->weights, s->names[0], out, err);
}

ist_status ist_recipe_load_array(const ist_recipe *s, size_t count, float **out, ist_error *err) {
    const ist_weight *w = ist_weights_find(s->weights, s->names[0]);
    *out = NULL;
    if (!w) return ist_weights_need(s->weights, s->names[0], 0, NULL, &w, err);
    if (w->count != count)
        return ist_fail(err, IST_E_WEIGHTS, "%s: want %zu elements, file has %zu", s->names[0], count, w->count);
    return ist_weights_f32(s->weights, s->names[0], w->rank, w->dims, out, err);
}
