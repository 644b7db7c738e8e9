/* Gathers steps into a sequence and cuts it into pieces, each of which a machine's form makes a launch. */
#include "variants/sequence_steps.h"

#include "base/mem.h"
#include "variants/defines.h"

#include <stdlib.h>
#include <string.h>

void ist_sequence_begin(ist_plan *p, const ist_sequence_form *form, int n, int rows, int map_width) {
    if (ist_plan_status(p)) return;
    struct ist_sequence *s = calloc(1, sizeof *s);
    if (!s) {
        ist_plan_fail(p, IST_E_MEMORY, "out of host memory for a sequence of operators");
        return;
    }
    s->form = form;
    s->values = ist_plan_has_values(p);
    s->n = n;
    s->rows = rows;
    s->width = map_width;
    s->inside = ist_plan_buffers(p);
    ist_plan_set_sequence(p, s);
}

float *ist_sequence_weights(struct ist_sequence *s, size_t count, size_t *at) {
    if (!count || !ist_grow((void **)&s->weights, &s->weight_capacity, s->weight_count + count, sizeof *s->weights))
        return NULL;
    *at = s->weight_count;
    s->weight_count += count;
    return s->weights + *at;
}

static bool copy_data(struct ist_sequence *s, const float *data, int count, size_t *at) {
    size_t room = ist_round_up((size_t)count, (size_t)s->form->vector);
    if (!data) return true;
    if (!ist_grow((void **)&s->table, &s->table_capacity, s->table_count + room, sizeof *s->table)) return false;
    memcpy(s->table + s->table_count, data, (size_t)count * sizeof *data);
    memset(s->table + s->table_count + count, 0, (room - (size_t)count) * sizeof *data);
    *at = s->table_count;
    s->table_count += room;
    return true;
}

static bool rows_fit(const struct ist_sequence *s, ist_tensor t, bool repeats) {
    return !ist_has(t) || (t.h * t.w == s->rows && (t.n == s->n || (repeats && t.n == 1)));
}

/* Copies what the step points to. */
static bool keep(struct ist_sequence *s, ist_step *step) {
    if (!copy_data(s, step->data[0], step->sizes[0], &step->data_at[0]) ||
        !copy_data(s, step->data[1], step->sizes[1], &step->data_at[1]))
        return false;
    if (step->op != IST_STEP_LINEAR) return true;
    step->has_bias = step->filter.b != NULL;
    return s->form->pack(s, step) && copy_data(s, step->filter.b, step->filter.out, &step->data_at[0]);
}

void ist_sequence_append(ist_plan *p, const ist_step *step, const char *label) {
    struct ist_sequence *s = ist_plan_sequence(p);
    if (ist_plan_status(p)) return;
    bool fits = true, last = step->op == IST_STEP_DEPTHWISE;
    bool ended = s->width && s->count && s->steps[s->count - 1].op == IST_STEP_DEPTHWISE;
    for (int i = 0; i < 2 && !last; i++) fits = fits && rows_fit(s, step->out[i], false);
    for (int i = 0; i < 3; i++) fits = fits && rows_fit(s, step->rows[i], true);
    if (ended || !fits) {
        ist_plan_fail(p, IST_E_STATE,
                      ended ? "%s: behind the depthwise convolution that ends a sequence"
                            : "%s: not on the %d rows of %d items of the sequence it is in",
                      label, s->rows, s->n);
        return;
    }
    ist_step own = *step;
    if (own.op == IST_STEP_LINEAR &&
        !ist_plan_representable(p, own.filter.w, (size_t)own.filter.out * (size_t)own.filter.in, label))
        return;
    bool room = ist_grow((void **)&s->steps, &s->capacity, s->count + 1, sizeof *s->steps) && keep(s, &own);
    own.data[0] = own.data[1] = own.filter.w = own.filter.b = NULL;
    if (room)
        s->steps[s->count++] = own;
    else
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", label);
}

static bool touches(const ist_step *s, int buffer) {
    for (int i = 0; i < 2; i++)
        if (s->out[i].buffer == buffer || s->whole[i].buffer == buffer) return true;
    for (int i = 0; i < 3; i++)
        if (s->rows[i].buffer == buffer) return true;
    return false;
}

int ist_sequence_argument(ist_plan *p, const char *label, ist_arg *arguments, int *count, int most, ist_tensor t,
                          ist_arg_kind use) {
    for (int i = 0; i < *count; i++) {
        if (arguments[i].tensor.buffer != t.buffer) continue;
        if (arguments[i].kind != use) arguments[i].kind = IST_ARG_INOUT;
        return i;
    }
    if (*count == most) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: a piece of a sequence uses more than %d tensors from outside", label, most);
        return 0;
    }
    arguments[*count] = (ist_arg){.kind = use, .tensor = t};
    return (*count)++;
}

bool ist_sequence_shares(const ist_plan *p, const struct ist_sequence *s, size_t first, size_t end, int buffer) {
    bool needed = buffer <= s->inside || ist_plan_keeps(p, buffer);
    for (int i = 0; i < s->result_count && !needed; i++) needed = s->results[i].buffer == buffer;
    for (size_t i = 0; i < s->count && !needed; i++) needed = (i < first || i >= end) && touches(&s->steps[i], buffer);
    return needed;
}

/* Attention is a launch of its own: many small groups are faster than those of a sequence, of which there are few. */
static bool alone(const struct ist_sequence *s, size_t i) {
    return s->steps[i].op == IST_STEP_ATTENTION;
}

/* A step that reads, at any row, what the piece makes, or that begins or ends a piece by itself. */
static bool must_cut(const struct ist_sequence *s, size_t first, size_t i) {
    if (alone(s, i) || alone(s, i - 1)) return true;
    for (int w = 0; w < 2; w++)
        for (size_t k = first; k < i && ist_has(s->steps[i].whole[w]); k++)
            for (int o = 0; o < 2; o++)
                if (s->steps[k].out[o].buffer == s->steps[i].whole[w].buffer) return true;
    return false;
}

/* [1,1,1,count], one zero when there is nothing. */
static ist_tensor constant(ist_plan *p, const float *values, size_t count, ist_elem elem, const char *label) {
    static const float zero = 0;
    return ist_plan_const(p, count ? values : &zero, 1, 1, 1, count ? (int)count : 1, elem, label);
}

static void launch_pieces(ist_plan *p, struct ist_sequence *s, const char *label) {
    ist_tensor weights = {0}, table = {0};
    if (!s->form->streams) {
        weights = constant(p, s->weights, s->weight_count, IST_ELEM_T, label);
        table = constant(p, s->table, s->table_count, IST_ELEM_F32, label);
    }
    size_t first = 0;
    for (size_t i = 1; i <= s->count; i++) {
        if (i < s->count && !must_cut(s, first, i)) continue;
        const ist_step *q = &s->steps[first];
        if (alone(s, first))
            ist_emit(p, IST_NODE_ATTENTION,
                     &(ist_attention){.label = label,
                                      .q = q->rows[0],
                                      .k = q->whole[0],
                                      .v = q->whole[1],
                                      .y = q->out[0],
                                      .heads = q->ints[0],
                                      .scale = q->floats[0]});
        else
            s->form->launch(p, s, first, i, weights, table, label);
        first = i;
    }
}

void ist_sequence_end(ist_plan *p, const ist_tensor *results, int count, const char *label) {
    struct ist_sequence *s = ist_plan_sequence(p);
    if (!s) return;
    ist_plan_set_sequence(p, NULL);
    s->results = results;
    s->result_count = count;
    if (s->form->fits && !s->form->fits(s)) s->form = s->form->otherwise;
    if (!ist_plan_status(p) && s->count) launch_pieces(p, s, label);
    free(s->steps);
    free(s->weights);
    free(s->table);
    free(s);
}
