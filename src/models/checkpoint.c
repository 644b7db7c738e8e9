/* Recognition, completeness and facts of a checkpoint, all from one walk over the expected tensors. */
#include "models/checkpoint.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static ist_status list_add(ist_name_list *list, const char *text, ist_error *err) {
    char *copy = ist_strdup(text);
    if (copy && ist_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
        list->items[list->count++] = copy;
        return IST_OK;
    }
    free(copy);
    return ist_fail(err, IST_E_MEMORY, "out of host memory for a list of tensor names");
}

static void list_free(ist_name_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
}

void ist_checkpoint_info_free(ist_checkpoint_info *info) {
    if (!info) return;
    list_free(&info->missing);
    list_free(&info->mismatched);
    list_free(&info->unused);
    *info = (ist_checkpoint_info){0};
}

/* ---- recognition ---- */

/* How well a file fits one model: needed entries, and how many of them are there with the right shape. */
typedef struct fit {
    const ist_weights *weights;
    int needed, matched;
} fit;

static ist_status count_fit(void *user, const ist_arch_entry *e) {
    fit *f = user;
    if (!e->needed) return IST_OK;
    const ist_weight *t = ist_weights_find(f->weights, e->name);
    f->needed++;
    if (t && !ist_weight_check_shape(t, e->rank, e->dims, NULL)) f->matched++;
    return IST_OK;
}

static ist_status unknown(const ist_weights *weights, const ist_arch_form *best, const fit *most, ist_error *err) {
    char none[160], segmenters[80];
    ist_model_families(IST_SLOT_DETECTOR, " nor ", none, sizeof none);
    size_t used = strlen(none), tensors = ist_weights_count(weights);
    snprintf(none + used, sizeof none - used, " nor %s",
             ist_model_families(IST_SLOT_SEGMENTER, " nor ", segmenters, sizeof segmenters));
    if (!most->matched)
        return ist_fail(err, IST_E_WEIGHTS, "is neither %s: of its %zu %s (first: %s) none is known", none, tensors,
                        ist_plural(tensors, "tensor", "tensors"), tensors ? ist_weights_at(weights, 0)->name : "");
    return ist_fail(err, IST_E_WEIGHTS, "is neither %s: the closest, %s, finds %d of its %d tensors", none,
                    ist_model_name(best->kind), most->matched, most->needed);
}

/* The model whose needed tensors are matched best; it must be at least half of them. */
static ist_status recognise(const ist_weights *weights, ist_arch_form *best, ist_error *err) {
    fit most = {weights, 1, 0};
    for (int k = IST_MODEL_UNKNOWN + 1; k < IST_MODEL_KINDS; k++) {
        ist_arch_form form = ist_arch_form_of(weights, (ist_model_kind)k);
        fit f = {weights, 0, 0};
        ist_arch_walk(&form, count_fit, &f);
        if ((int64_t)f.matched * most.needed > (int64_t)most.matched * f.needed) {
            most = f;
            *best = form;
        }
    }
    if (2 * most.matched >= most.needed) return IST_OK;
    return unknown(weights, best, &most, err);
}

/* ---- facts ---- */

typedef struct survey {
    const ist_weights *weights;
    ist_checkpoint_info *info;
    bool *used; /* per tensor of the file */
    ist_error *err;
} survey;

static ist_status survey_entry(void *user, const ist_arch_entry *e) {
    survey *s = user;
    ist_error why;
    if (!e->needed) return IST_OK;
    const ist_weight *t = ist_weights_find(s->weights, e->name);
    if (!t) return list_add(&s->info->missing, e->name, s->err);
    s->used[t - ist_weights_at(s->weights, 0)] = true;
    if (ist_weight_check_shape(t, e->rank, e->dims, &why)) return list_add(&s->info->mismatched, why.text, s->err);
    return IST_OK;
}

/* Learned values: floating tensors except running statistics and the constants D-FINE stores. */
static bool is_parameter(const ist_weight *t) {
    static const char *const constants[] = {"running_mean", "running_var", "anchors", "num_points_scale",
                                            "positional_encoding_gaussian_matrix"};
    const char *dot = strrchr(t->name, '.'), *last = dot ? dot + 1 : t->name;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!strcmp(last, constants[i])) return false;
    return t->type == IST_WEIGHT_F64 || t->type == IST_WEIGHT_F32 || t->type == IST_WEIGHT_F16 ||
           t->type == IST_WEIGHT_BF16;
}

static ist_status fill_lists(const ist_weights *weights, const ist_arch_form *form, ist_checkpoint_info *info,
                             ist_error *err) {
    size_t n = ist_weights_count(weights);
    survey s = {weights, info, calloc(n, sizeof(bool)), err};
    if (!s.used) return ist_fail(err, IST_E_MEMORY, "out of host memory for %zu tensors", n);
    ist_status status = ist_arch_walk(form, survey_entry, &s);
    for (size_t i = 0; i < n && !status; i++) {
        const ist_weight *t = ist_weights_at(weights, i);
        if (!s.used[i]) status = list_add(&info->unused, t->in_file ? t->in_file : t->name, err);
    }
    free(s.used);
    return status;
}

ist_status ist_checkpoint_identify(const ist_weights *weights, ist_checkpoint_info *info, ist_error *err) {
    ist_arch_form form = {0};
    *info = (ist_checkpoint_info){.format = ist_weights_format(weights), .naming = ist_weights_naming(weights)};
    info->tensors = ist_weights_count(weights);
    for (size_t i = 0; i < info->tensors; i++) {
        const ist_weight *t = ist_weights_at(weights, i);
        info->bytes += t->bytes;
        info->type_counts[t->type]++;
        if (is_parameter(t)) info->parameters += t->count;
    }
    IST_TRY(recognise(weights, &form, err));
    info->kind = form.kind;
    info->classes = form.classes;
    info->deployed = form.deployed;
    info->channels = form.channels;
    info->silu = form.silu;
    info->side = form.side;
    return fill_lists(weights, &form, info, err);
}

ist_status ist_checkpoint_check(const ist_checkpoint_info *info, ist_error *err) {
    size_t problems = info->missing.count + info->mismatched.count;
    if (!problems) return IST_OK;
    char more[48] = "";
    if (problems > 1)
        snprintf(more, sizeof more, " (and %zu more %s)", problems - 1,
                 ist_plural(problems - 1, "problem", "problems"));
    if (info->missing.count)
        return ist_fail(err, IST_E_WEIGHTS, "%s: missing from this %s checkpoint%s", info->missing.items[0],
                        ist_model_name(info->kind), more);
    return ist_fail(err, IST_E_WEIGHTS, "%s%s", info->mismatched.items[0], more);
}

static ist_status check_entry(void *user, const ist_arch_entry *e) {
    const survey *s = user;
    const ist_weight *t = e->needed ? ist_weights_find(s->weights, e->name) : NULL;
    return t ? ist_weight_check_finite(t, s->err) : IST_OK;
}

ist_status ist_checkpoint_check_values(const ist_weights *weights, const ist_checkpoint_info *info, ist_error *err) {
    ist_arch_form form = ist_arch_form_of(weights, info->kind);
    survey s = {.weights = weights, .err = err};
    return ist_arch_walk(&form, check_entry, &s);
}

static ist_status check_slot(const ist_checkpoint_info *info, ist_checkpoint_slot slot, ist_error *err) {
    char families[80];
    if (ist_model_is(info->kind, slot)) return IST_OK;
    return ist_fail(err, IST_E_WEIGHTS, "is a %s checkpoint; the %s must be %s", ist_model_name(info->kind),
                    slot == IST_SLOT_DETECTOR ? "detector" : "segmenter",
                    ist_model_families(slot, " or ", families, sizeof families));
}

ist_status ist_checkpoint_open(const char *path, ist_checkpoint_slot slot, ist_weights **weights,
                               ist_checkpoint_info *info, ist_error *err) {
    ist_weights *w = NULL;
    IST_TRY(ist_weights_open(path, &w, err));
    ist_status status = ist_checkpoint_identify(w, info, err);
    if (!status) status = check_slot(info, slot, err);
    if (!status) status = ist_checkpoint_check(info, err);
    if (!status) {
        *weights = w;
        return IST_OK;
    }
    ist_fail_context(err, "%s", path);
    ist_checkpoint_info_free(info);
    ist_weights_close(&w);
    return status;
}

char *ist_checkpoint_types_text(const ist_checkpoint_info *info, char *text, size_t size) {
    bool shown[IST_WEIGHT_TYPES] = {false};
    size_t used = 0;
    if (size) *text = '\0';
    for (;;) {
        int most = -1;
        for (int i = 0; i < IST_WEIGHT_TYPES; i++)
            if (!shown[i] && info->type_counts[i] && (most < 0 || info->type_counts[i] > info->type_counts[most]))
                most = i;
        if (most < 0) return text;
        shown[most] = true;
        int n = snprintf(text + used, size - used, "%s%s %zu", used ? ", " : "",
                         ist_weight_type_name((ist_weight_type)most), info->type_counts[most]);
        if (n < 0 || (size_t)n >= size - used) return text;
        used += (size_t)n;
    }
}
