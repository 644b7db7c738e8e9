/* Prompts of the upload as tokens' points, masks and objects (cl/portable/given_prompts). */
#include "variants/defines.h"
#include "variants/portable/given_prompts_args.h"
#include "variants/portable/launch_with.h"
#include "variants/variant.h"

enum { GROUP = 64 };

static ist_launch launch_of(const ist_given_prompts *q, const char *kernel, size_t across, size_t down, size_t group) {
    return (ist_launch){.label = q->label,
                        .op = "portable/given_prompts",
                        .isa = "codes/frame+portable/frame",
                        .defines = "",
                        .kernel = kernel,
                        .dims = 2,
                        .global = {across, down},
                        .local = {group, 1}};
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_given_prompts *q = node;
    const ist_detections *d = &q->det;
    size_t prompts = (size_t)d->batch * (size_t)q->prompts, pixels = (size_t)q->low * (size_t)q->low;
    ist_defines defines = ist_defines_of(p, "%s", "");
    const ist_given_prompts_args by_value = {
        .objects_each = q->masks, .own = q->own, .few = q->few, .pixels = (int)pixels};
    (void)v, (void)way;
    ist_launch points = launch_of(q, "given_points", (size_t)q->k, prompts, 1);
    ist_launch objects = launch_of(q, "given_objects", (size_t)d->max_objects, (size_t)d->batch, 1);
    ist_launch masks = launch_of(q, "given_masks", ist_round_up(pixels, GROUP), prompts, GROUP);
    points.defines = objects.defines = masks.defines = defines.text;
    LAUNCH_WITH(p, points, IST_OUT(q->points), IST_OUT(q->labels), IST_OUT(q->tokens), IST_OUT(q->few_points),
                IST_OUT(q->few_labels), IST_OUT(q->few_tokens), IST_OUT(q->image_of), IST_IN(q->upload),
                IST_STRUCT(given_prompts_args, &by_value));
    LAUNCH_WITH(p, objects, IST_OUT(d->objects), IST_OUT(d->counts), IST_OUT(d->image_of), IST_OUT(d->total),
                IST_OUT(q->total), IST_OUT(q->match), IST_OUT(q->content), IST_IN(q->upload),
                IST_STRUCT(given_prompts_args, &by_value));
    if (q->low)
        LAUNCH_WITH(p, masks, IST_OUT(q->mask), IST_OUT(q->masked), IST_IN(q->upload),
                    IST_STRUCT(given_prompts_args, &by_value));
}

const ist_family ist_portable_given_prompts = {.emit = emit};
