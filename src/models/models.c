/* The list of models, and what is asked of all of them: see models.h. */
#include "models/models.h"

#include <stdio.h>
#include <string.h>

#define DETECTOR(id, descriptor)  extern const ist_detector_model descriptor;
#define SEGMENTER(id, descriptor) extern const ist_segmenter_model descriptor;
#include "models/models.inc"
#undef DETECTOR
#undef SEGMENTER

const ist_model *ist_model_of(ist_model_kind kind) {
    switch (kind) {
#define DETECTOR(id, descriptor)                                                                                       \
    case IST_MODEL_##id:                                                                                               \
        return &descriptor.is;
#define SEGMENTER DETECTOR
#include "models/models.inc"
#undef DETECTOR
#undef SEGMENTER
    default:
        return NULL;
    }
}

const ist_detector_model *ist_detector_of(ist_model_kind kind) {
    switch (kind) {
#define DETECTOR(id, descriptor)                                                                                       \
    case IST_MODEL_##id:                                                                                               \
        return &descriptor;
#define SEGMENTER(id, descriptor)
#include "models/models.inc"
#undef DETECTOR
#undef SEGMENTER
    default:
        return NULL;
    }
}

const ist_segmenter_model *ist_segmenter_of(ist_model_kind kind) {
    switch (kind) {
#define DETECTOR(id, descriptor)
#define SEGMENTER(id, descriptor)                                                                                      \
    case IST_MODEL_##id:                                                                                               \
        return &descriptor;
#include "models/models.inc"
#undef DETECTOR
#undef SEGMENTER
    default:
        return NULL;
    }
}

const char *ist_model_name(ist_model_kind kind) {
    const ist_model *m = ist_model_of(kind);
    return m ? m->name : "unknown";
}

bool ist_model_is(ist_model_kind kind, ist_checkpoint_slot slot) {
    return slot == IST_SLOT_DETECTOR ? ist_detector_of(kind) != NULL : ist_segmenter_of(kind) != NULL;
}

char *ist_model_families(ist_checkpoint_slot slot, const char *between, char *text, size_t size) {
    const char *last = NULL; /* sizes of a family stand together */
    size_t used = 0;
    if (size) *text = '\0';
    for (int k = IST_MODEL_UNKNOWN + 1; k < IST_MODEL_KINDS; k++) {
        const char *family = ist_model_of((ist_model_kind)k)->family;
        if (!ist_model_is((ist_model_kind)k, slot) || (last && !strcmp(last, family))) continue;
        int n = snprintf(text + used, size - used, "%s%s", last ? between : "", family);
        if (n < 0 || (size_t)n >= size - used) return text;
        used += (size_t)n;
        last = family;
    }
    return text;
}

ist_arch_form ist_arch_form_of(const ist_weights *weights, ist_model_kind kind) {
    ist_arch_form form = {.kind = kind, .channels = 3};
    const ist_model *m = ist_model_of(kind);
    if (m && m->form) m->form(weights, &form);
    return form;
}

ist_status ist_arch_walk(const ist_arch_form *form, ist_arch_visit visit, void *user) {
    ist_walk w = {.form = form, .visit = visit, .user = user, .needed = true, .tracked = true};
    const ist_model *m = ist_model_of(form->kind);
    if (m) m->tensors(&w);
    return w.status;
}

ist_status ist_segmenter_side(const ist_checkpoint_info *info, int asked, int *side, ist_error *err) {
    const ist_segmenter_model *m = ist_segmenter_of(info->kind);
    *side = asked ? asked : info->side ? info->side : m->side;
    if (m->one_side && asked && info->side && asked != info->side)
        return ist_fail(err, IST_E_ARGUMENT, "segmenter size %d: this %s checkpoint is for %d", asked, m->is.name,
                        info->side);
    if (*side >= m->least && *side <= m->most && *side % m->multiple == 0) return IST_OK;
    return ist_fail(err, asked ? IST_E_ARGUMENT : IST_E_WEIGHTS,
                    "segmenter size %d: %s works at multiples of %d from %d to %d", *side, m->is.name, m->multiple,
                    m->least, m->most);
}
