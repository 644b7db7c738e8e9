/* See sam_span.h. */
#include "support/sam_span.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { HEADS = 8, ROOM = 2000000 };
static const float EPS = 1e-5f;

float *sam_numbers(optest *t, sam_span *s, int count, float low, float high) {
    float *v = s->room;
    s->room += count;
    for (int i = 0; i < count; i++) v[i] = optest_uniform(t, low, high);
    return v;
}

ref_linear sam_linear(optest *t, sam_span *s, int out, int in) {
    float reach = 1.5f / sqrtf((float)in);
    const float *w = sam_numbers(t, s, out * in, -reach, reach);
    return (ref_linear){out, in, w, sam_numbers(t, s, out, -0.5f, 0.5f)};
}

ist_filter sam_filter(ref_linear l) {
    return (ist_filter){l.out, l.in, 1, 1, l.w, l.b, NULL};
}

static ref_attention_weights draw_attention(optest *t, sam_span *s, int inner) {
    int dim = s->shape.dim;
    ref_attention_weights w = {.heads = HEADS, .eps = (double)EPS};
    w.query = sam_linear(t, s, inner, dim);
    w.key = sam_linear(t, s, inner, dim);
    w.value = sam_linear(t, s, inner, dim);
    w.out = sam_linear(t, s, dim, inner);
    w.gamma = sam_numbers(t, s, dim, 0.5f, 1.5f);
    w.beta = sam_numbers(t, s, dim, -0.5f, 0.5f);
    return w;
}

static void draw_weights(optest *t, sam_span *s) {
    int dim = s->shape.dim, inner = s->shape.inner;
    for (int i = 0; i < 2; i++) {
        s->weights.self[i] = draw_attention(t, s, dim);
        s->weights.read[i] = draw_attention(t, s, inner);
        s->weights.mlp[i].lin1 = sam_linear(t, s, s->shape.hidden, dim);
        s->weights.mlp[i].lin2 = sam_linear(t, s, dim, s->shape.hidden);
        s->weights.mlp[i].gamma = sam_numbers(t, s, dim, 0.5f, 1.5f);
        s->weights.mlp[i].beta = sam_numbers(t, s, dim, -0.5f, 0.5f);
        s->weights.mlp[i].eps = (double)EPS;
        s->weights.update[i] = draw_attention(t, s, inner);
    }
    s->weights.last = draw_attention(t, s, inner);
    s->gauss = sam_numbers(t, s, dim, -1, 1);
    s->shift = sam_numbers(t, s, dim, -1, 1);
}

void sam_begin(optest *t, sam_span *s, sam_shape shape, const int *map) {
    *s = (sam_span){.shape = shape, .room = optest_alloc(t, ROOM * sizeof(float))};
    cr_assert_leq(shape.prompts, SAM_PROMPTS);
    draw_weights(t, s);
    for (int i = 0; i < shape.prompts; i++) s->map[i] = map ? map[i] : (i + 1) % shape.images;
    s->tokens = optest_random(t, shape.prompts, 1, shape.tokens, shape.dim);
    s->embedding = optest_random(t, shape.images, shape.grid, shape.grid, shape.dim);
    lowered_begin(&s->graph);
    s->tokens_in = lowered_input(&s->graph, optest_in(t, s->tokens, IST_ELEM_T, false));
    s->embedding_in = lowered_input(&s->graph, optest_in(t, s->embedding, IST_ELEM_T, false));
    s->map_in = lowered_input(&s->graph, optest_ints(t, s->map, shape.prompts));
    for (int i = 0; i < shape.prompts; i++) s->counts[i] = shape.counted ? 1 + (i + 1) % shape.tokens : shape.tokens;
    if (shape.counted) s->counts_in = lowered_input(&s->graph, optest_ints(t, s->counts, shape.prompts));
    if (shape.dense) {
        s->dense = optest_random(t, shape.prompts, 1, shape.grid * shape.grid, shape.dim);
        s->dense_in = lowered_input(&s->graph, optest_in(t, s->dense, IST_ELEM_T, false));
    }
    if (shape.count < shape.prompts)
        ist_graph_limit(s->graph.graph, lowered_input(&s->graph, optest_ints(t, &shape.count, 1)));
}

static ist_tensor attend(sam_span *s, const ref_attention_weights *w, ist_attention_layer l) {
    l.label = "attention";
    l.heads = w->heads;
    l.eps = EPS;
    l.query = sam_filter(w->query);
    l.key = sam_filter(w->key);
    l.value = sam_filter(w->value);
    l.out = sam_filter(w->out);
    l.norm = (ist_affine){w->gamma, w->beta, s->shape.dim, NULL};
    lowered_add(&s->graph, IST_NODE_ATTENTION_LAYER, &l);
    return l.y;
}

/* As models/sam_two_way.c: the image of each prompt. */
static ist_tensor prompted_image(sam_span *s) {
    int dim = s->shape.dim, length = s->shape.grid * s->shape.grid;
    ist_expand e = {.label = "image of prompt", .map = s->map_in};
    e.x = ist_view(s->embedding_in, s->shape.images, 1, length);
    lowered_add(&s->graph, IST_NODE_EXPAND, &e);
    ist_add sum = {.label = "prompt", .a = s->dense_in, .b = e.y};
    if (!s->shape.dense) {
        ist_parameter none = {
            .label = "no mask", .y = {.n = 1, .h = 1, .w = 1, .c = dim}, .rows = {{s->shift, (size_t)dim, NULL}}};
        lowered_add(&s->graph, IST_NODE_PARAMETER, &none);
        sum.a = e.y;
        sum.b = none.y;
    }
    lowered_add(&s->graph, IST_NODE_ADD, &sum);
    return sum.y;
}

void sam_add_two_way(sam_span *s) {
    const ist_tensor none = {0}, t = s->tokens_in;
    const ref_two_way_weights *w = &s->weights;
    ist_graph_begin(s->graph.graph, IST_SPAN_TWO_WAY, "transformer");
    ist_grid_code code = {.label = "code", .gauss = {s->gauss, (size_t)s->shape.dim, NULL}, .grid = s->shape.grid};
    lowered_add(&s->graph, IST_NODE_GRID_CODE, &code);
    ist_tensor k = prompted_image(s), q = t, pe = code.y;
    for (int i = 0; i < 2; i++) {
        ist_tensor pos = i ? t : none;
        q = attend(s, &w->self[i],
                   (ist_attention_layer){
                       .q = q, .q_pos = pos, .k = q, .k_pos = pos, .k_count = s->counts_in, .add = i ? q : none});
        q = attend(s, &w->read[i], (ist_attention_layer){.q = q, .q_pos = t, .k = k, .k_pos = pe, .add = q});
        ist_mlp_layer mlp = {.label = "mlp", .x = q, .eps = EPS, .act = IST_ACT_RELU};
        mlp.lin1 = sam_filter(w->mlp[i].lin1);
        mlp.lin2 = sam_filter(w->mlp[i].lin2);
        mlp.norm = (ist_affine){w->mlp[i].gamma, w->mlp[i].beta, s->shape.dim, NULL};
        lowered_add(&s->graph, IST_NODE_MLP_LAYER, &mlp);
        q = mlp.y;
        k = attend(s, &w->update[i],
                   (ist_attention_layer){.q = k, .q_pos = pe, .k = q, .k_pos = t, .k_count = s->counts_in, .add = k});
    }
    q = attend(s, &w->last, (ist_attention_layer){.q = q, .q_pos = t, .k = k, .k_pos = pe, .add = q});
    ist_graph_end(s->graph.graph);
    s->tokens_out = q;
    s->image_out = k;
}

void sam_reference(optest *t, const sam_span *s, ref_map *tokens, ref_map *image) {
    int count = s->shape.count, length = s->shape.grid * s->shape.grid, dim = s->shape.dim;
    ref_map from = s->tokens, code = optest_zeros(t, 1, 1, length, dim);
    from.n = count;
    *tokens = optest_zeros(t, count, 1, s->shape.tokens, dim);
    *image = optest_zeros(t, count, 1, length, dim);
    ref_grid_code(s->gauss, s->shape.grid, code);
    for (int n = 0; n < count; n++)
        for (int i = 0; i < length * dim; i++)
            ref_at(*image, n, 0, 0)[i] = ref_at(s->embedding, s->map[n], 0, 0)[i] +
                                         (s->shape.dense ? ref_at(s->dense, n, 0, 0)[i] : s->shift[i % dim]);
    for (int n = 0; n < count; n++) {
        ref_map own = {1, 1, s->counts[n], dim, ref_at(from, n, 0, 0)}, y = own,
                x = {1, 1, length, dim, ref_at(*image, n, 0, 0)};
        y.v = ref_at(*tokens, n, 0, 0);
        ref_two_way(own, code, &s->weights, x, y);
    }
}

void sam_made_by(const optest *t, const char *op, const char *variant) {
    int found = 0;
    for (int i = 0; i < ist_plan_describe(t->plan).launches; i++) {
        const ist_launch *l = ist_plan_launch_at(t->plan, i);
        if (strcmp(l->op, op)) continue;
        cr_expect_str_eq(l->from.variant, variant, "%s was launched by %s, not %s", op, l->from.variant, variant);
        found++;
    }
    cr_expect_gt(found, 0, "%s: no launch of %s", variant, op);
}
