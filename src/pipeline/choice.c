/* Recording a frame for what it would be: see choice.h. */
#include "pipeline/choice.h"

#include "base/mem.h"
#include "pipeline/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct use_list {
    ist_variant_use *items;
    size_t count, capacity;
} use_list;

static void free_uses(use_list *l) {
    for (size_t i = 0; i < l->count; i++) {
        free(l->items[i].op);
        free(l->items[i].isa);
        free(l->items[i].defines);
    }
    free(l->items);
    *l = (use_list){0};
}

static const char *or_empty(const char *s) {
    return s ? s : "";
}

static bool same_program(const ist_variant_use *a, const ist_variant_use *b) {
    return !strcmp(a->defines, b->defines) && !strcmp(a->op, b->op) && !strcmp(a->isa, b->isa) &&
           !strcmp(a->variant, b->variant) && !strcmp(a->machine, b->machine) && !strcmp(a->node, b->node);
}

static ist_variant_use *find(const use_list *l, const ist_variant_use *like) {
    for (size_t i = 0; i < l->count; i++)
        if (same_program(&l->items[i], like)) return &l->items[i];
    return NULL;
}

static ist_status add(use_list *l, const ist_launch *launch, ist_error *err) {
    ist_variant_use like = {.node = or_empty(launch->from.node),
                            .machine = or_empty(launch->from.machine),
                            .variant = or_empty(launch->from.variant),
                            .op = (char *)launch->op,
                            .isa = (char *)or_empty(launch->isa),
                            .defines = (char *)launch->defines,
                            .launches = 1};
    ist_variant_use *u = find(l, &like);
    if (u) {
        u->launches++;
        return IST_OK;
    }
    if (!ist_grow((void **)&l->items, &l->capacity, l->count + 1, sizeof *l->items))
        return ist_fail(err, IST_E_MEMORY, "choice: out of host memory");
    u = &l->items[l->count++];
    *u = like;
    u->op = ist_strdup(like.op);
    u->isa = ist_strdup(like.isa);
    u->defines = ist_strdup(like.defines);
    if (!u->op || !u->isa || !u->defines) return ist_fail(err, IST_E_MEMORY, "choice: out of host memory");
    return IST_OK;
}

/* The programs of a recorded plan. On failure *uses is as good as empty. */
static ist_status gather(const ist_plan *p, use_list *uses, ist_error *err) {
    ist_status status = IST_OK;
    *uses = (use_list){0};
    for (int i = 0; i < ist_plan_describe(p).launches && !status; i++)
        status = add(uses, ist_plan_launch_at(p, i), err);
    if (status) free_uses(uses);
    return status;
}

/* ---- what if ---- */

typedef struct question {
    unsigned found, missing; /* one bit in one of them, or none */
    bool tuned;
} question;

/* What the frame would be: the uses that lose launches by it were decided by what was asked. A frame that cannot be
 * recorded then is an answer too. */
static ist_status ask(ist_engine *e, const ist_config *config, question q, use_list *uses, ist_choice *c,
                      ist_error *err) {
    ist_error refusal;
    use_list other;
    ist_status status = ist_engine_record_if(e, config, q.found | q.missing, !q.tuned, &refusal);
    if (status == IST_E_UNSUPPORTED) {
        c->needed |= q.found;
        return IST_OK;
    }
    if (status) {
        *err = refusal;
        return status;
    }
    IST_TRY(gather(e->plan, &other, err));
    for (size_t i = 0; i < uses->count; i++) {
        ist_variant_use *u = &uses->items[i];
        const ist_variant_use *then = find(&other, u);
        if (then && then->launches >= u->launches) continue;
        u->found |= q.found;
        u->missing |= q.missing;
        u->tuned |= q.tuned;
    }
    free_uses(&other);
    return IST_OK;
}

static ist_status ask_all(ist_engine *e, const ist_config *config, use_list *uses, ist_choice *c, ist_error *err) {
    for (int bit = 0; bit < IST_CAP_COUNT; bit++) {
        unsigned cap = 1u << bit;
        if (c->caps & cap)
            IST_TRY(ask(e, config, (question){.found = cap}, uses, c, err));
        else if (!(cap & IST_CAP_CPU)) /* which no other device becomes */
            IST_TRY(ask(e, config, (question){.missing = cap}, uses, c, err));
    }
    return ask(e, config, (question){.tuned = true}, uses, c, err);
}

static ist_status choose(ist_engine *e, const ist_config *config, ist_choice *c, ist_error *err) {
    use_list uses;
    if (!e->plan) return ist_fail(err, IST_E_STATE, "choice: a frame needs a detector");
    if (ist_plan_status(e->plan)) {
        *err = *ist_plan_error(e->plan);
        return err->code;
    }
    IST_TRY(gather(e->plan, &uses, err));
    *c = (ist_choice){.caps = ist_device_caps(e->device),
                      .deadly = ist_device_deadly(e->device),
                      .precision = e->config.precision,
                      .launches = ist_plan_describe(e->plan).launches};
    snprintf(c->detector, sizeof c->detector, "%s", e->detector);
    snprintf(c->segmenter, sizeof c->segmenter, "%s", e->segmenter);
    ist_status status = ask_all(e, config, &uses, c, err);
    c->uses = uses.items;
    c->count = (int)uses.count;
    return status;
}

ist_status ist_choice_make(const ist_config *config, ist_choice *choice, ist_error *err) {
    ist_engine *e = NULL;
    *choice = (ist_choice){0};
    IST_TRY(ist_engine_open_as(config, IST_OPEN_RECORDED, NULL, &e, err));
    ist_status status = choose(e, config, choice, err);
    ist_engine_close(&e);
    if (status) ist_choice_free(choice);
    return status;
}

void ist_choice_free(ist_choice *c) {
    use_list uses = {.items = c->uses, .count = (size_t)c->count};
    free_uses(&uses);
    *c = (ist_choice){0};
}
