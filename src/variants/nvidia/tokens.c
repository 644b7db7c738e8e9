/* Layers on few tokens: packs weights by slices of hidden channels and records one launch of cl/nvidia/token_*. */
#include "variants/nvidia/tokens.h"
#include "variants/nvidia/token_args.h"
#include "variants/fragments.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* What comes before the layer. */
typedef enum token_kind { FIRST_LAYER, ATTENTION, READING, MERGE } token_kind;
static const struct {
    const char *op, *isa, *kernel;
} kinds[] = {
    [FIRST_LAYER] = {"nvidia/token_layer", "nvidia/ptx+nvidia/token", "token_layer"},
    [ATTENTION] = {"nvidia/token_attention", "nvidia/ptx+nvidia/token", "token_attention"},
    [READING] = {"nvidia/token_read", "nvidia/ptx+nvidia/sums+nvidia/token", "token_read"},
    [MERGE] = {"nvidia/token_merge", "nvidia/ptx+nvidia/token", "token_merge"},
};
enum { ROWS = 8, ITEMS = 256, SLICE = 128, OUT_MAX = 512, HIDDEN_MAX = 256, PART_SUMS = 128 /* floats */ };
enum { FEW = 8 /* prompts whose merging groups are all at work at once */ };
enum { HEADS = IST_TWO_WAY_HEADS, HEAD_MAX = IST_HEAD_CHANNELS, IMAGE_MAX = IST_IMAGE_CHANNELS };
enum { FOLD_HEAD = 16, READ = 128 /* channels that a reading has */ };

float *ist_matrix_part(const float *w, int in, int first, int rows, int from, int inputs, float *to) {
    for (int r = first; r < first + rows; r += 8)
        for (int k = from; k < from + inputs; k += 32)
            to = ist_fragments(w + (size_t)r * (size_t)in + k, 1, 1, (size_t)in, false, to);
    return to;
}

/* ---- folds ---- */

static bool like(ist_tensor t, ist_tensor x, int c) {
    return t.n == x.n && t.h == 1 && t.w == x.w && t.c == c && t.elem == IST_ELEM_T && (t.ld | t.c0) % 8 == 0;
}

/* Channels that a folded token has, 0 for a plain one. */
static int fold_width(const ist_token_folds *f) {
    return f->jobs->fold.plain ? 0 : f->jobs->fold.k;
}

static size_t fold_halves(const ist_token_job *l) {
    return l->folds ? (size_t)(l->folds->count * HEADS * FOLD_HEAD) * (size_t)(l->out + fold_width(l->folds)) : 0;
}

/* A head's w [16][out] with outputs as keys have them: of two blocks of eight, work-item t of four has in each two of
 * its four channels. */
static void turn_head(const float *w, int out, float *to) {
    for (int i = 0; i < FOLD_HEAD; i++, to += out)
        memcpy(to, w + (i % 8 / 2 * 4 + i / 8 * 2 + i % 2) * out, sizeof *to * (size_t)out);
}

/* Of each job and head: fragments of w [16][out], scaled, then of m [16][k] with columns where the kernel has them. */
static void pack_folds(const ist_token_job *l, float *to) {
    for (int j = 0; l->folds && j < l->folds->count * HEADS; j++) {
        const ist_head_fold *f = &l->folds->jobs[j / HEADS].fold;
        int first = j % HEADS * FOLD_HEAD;
        float *w = to, turned[FOLD_HEAD * OUT_MAX];
        if (f->plain) {
            turn_head(f->w + first * l->out, l->out, turned);
            to = ist_matrix_part(turned, l->out, 0, FOLD_HEAD, 0, l->out, to);
        } else {
            to = ist_matrix_part(f->w, l->out, first, FOLD_HEAD, 0, l->out, to);
        }
        while (w < to) *w++ *= f->scale;
        for (int k = 0; k < fold_width(l->folds); k += 16)
            for (int lane = 0; lane < 32; lane++)
                for (int e = 0; e < 8; e++) {
                    int row = e % 4 / 2 * 8 + lane % 4 * 2 + e % 2, column = k + e / 4 * 8 + lane / 4;
                    *to++ = f->m[(first + row) * f->k +
                                 ist_two_way_channel(l->folds->groups, f->k, ist_place_channel(column))];
                }
    }
}

/* {b, mb} of each job. */
static void fold_table(const ist_token_job *l, float *to) {
    enum { ALL = HEADS * FOLD_HEAD };
    for (int j = 0; l->folds && j < l->folds->count; j++, to += 2 * ALL) {
        const ist_head_fold *f = &l->folds->jobs[j].fold;
        for (int o = 0; o < ALL; o++) {
            int i = o % FOLD_HEAD, from = f->plain ? o - i + i % 8 / 2 * 4 + i / 8 * 2 + i % 2 : o;
            to[o] = f->b[from] * f->scale;
            to[ALL + o] = f->mb ? f->mb[o] : 0;
        }
    }
}

static bool folds_fit(ist_plan *p, ist_tensor x, const ist_token_job *l, const char *label) {
    if (!l->folds) return true;
    const ist_fold_job *jobs = l->folds->jobs;
    bool good = l->folds->count >= 1 && l->folds->count <= (jobs->fold.plain ? 1 : IST_FOLDS);
    for (int j = 0; good && j < l->folds->count; j++)
        good = jobs[j].fold.d == FOLD_HEAD && jobs[j].fold.k == jobs->fold.k && jobs->fold.k % 64 == 0 &&
               ist_two_way_matrix(x.w, jobs->fold.k) && jobs[j].fold.plain == jobs->fold.plain &&
               (!ist_has(jobs[j].add) || like(jobs[j].add, x, l->out));
    if (!good) ist_plan_fail(p, IST_E_ARGUMENT, "%s: folds of %d channels do not fit", label, l->out);
    return good;
}

static ist_tensor pack_weights(ist_plan *p, const ist_token_job *l, int slices, const char *label) {
    size_t own = (size_t)l->hidden * (size_t)(l->in + l->out), count = own + fold_halves(l);
    float *packed = malloc(count * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    const bool made = ist_plan_has_values(p);
    for (int s = 0, each = l->hidden / slices; s < slices && made; s++) {
        if (l->in) to = ist_matrix_part(l->w1, l->in, s * each, each, 0, l->in, to);
        to = ist_matrix_part(l->w, l->hidden, 0, l->out, s * each, each, to);
    }
    if (made) pack_folds(l, to);
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* {b, gamma, beta}, then `behind` [more], then the folds'. */
static ist_tensor pack_table(ist_plan *p, const ist_token_job *l, const float *behind, int more, const char *label) {
    size_t out = (size_t)l->out, first = 3 * out + (size_t)more;
    size_t count = first + (l->folds ? (size_t)(l->folds->count * 2 * HEADS * FOLD_HEAD) : 0);
    float *table = malloc(count * sizeof *table);
    ist_tensor t = {0};
    if (!table) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a table of %zu numbers", label, count);
        return t;
    }
    memcpy(table, l->b, out * sizeof *table);
    memcpy(table + out, l->gamma, out * sizeof *table);
    memcpy(table + 2 * out, l->beta, out * sizeof *table);
    if (more) memcpy(table + 3 * out, behind, (size_t)more * sizeof *table);
    fold_table(l, table + first);
    t = ist_plan_const(p, table, 1, 1, 1, (int)count, IST_ELEM_F32, label);
    free(table);
    return t;
}

static bool check(ist_plan *p, ist_tensor x, const ist_token_job *l, token_kind kind, const char *label) {
    if (ist_plan_status(p)) return false;
    bool good = x.w <= ROWS && like(x, x, kind == FIRST_LAYER ? l->in : l->hidden) && l->hidden >= 32 &&
                (l->in > 0) == (kind == FIRST_LAYER) && l->hidden % 32 == 0 && l->in % 32 == 0 && l->in <= HIDDEN_MAX &&
                l->out >= 64 && l->out % 64 == 0 && l->out <= OUT_MAX &&
                (kind == FIRST_LAYER ? l->hidden % SLICE == 0 : l->hidden <= HIDDEN_MAX) &&
                (kind != READING || (l->hidden == READ && !l->in)) && (!ist_has(l->add) || like(l->add, x, l->out)) &&
                (!l->folds || kind == FIRST_LAYER || kind == ATTENTION);
    if (good) return folds_fit(p, x, l, label);
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: a layer of %d, %d and %d channels on tokens [%d,%d,%d,%d]", label, l->in,
                  l->hidden, l->out, x.n, x.h, x.w, x.c);
    return false;
}

/* What differs between kinds of launches: the kernel's x and what stands beside it, its groups, and what they hand to
 * the last of a tile's. */
typedef struct token_launch {
    token_kind kind;
    int in, hidden, slices, each; /* 0: none */
    size_t groups[3];             /* the last 0: of two dimensions */
    ist_tensor x, beside, weights, table, position, queries, map, counts;
    ist_tensor y, partial;
    const ist_image_keys_step *image; /* or NULL */
    bool narrow;
    double flops;
} token_launch;

/* Tensors for the folds, and their -D options. */
static void begin_folds(ist_plan *p, int prompts, int tokens, const ist_token_job *l, token_launch *t,
                        ist_defines *defines) {
    int k = fold_width(l->folds), adds = 0;
    for (int j = 0; j < l->folds->count; j++) {
        l->folds->y[j] = k ? ist_plan_tensor(p, prompts, 1, tokens * HEADS + 2, k, IST_ELEM_T)
                           : ist_plan_tensor(p, ist_div_up(prompts, 2), HEADS, 32, 8, IST_ELEM_T);
        if (ist_has(l->folds->jobs[j].add)) adds |= 1 << j, t->position = l->folds->jobs[j].add;
    }
    ist_defines_add(defines, " -DFOLDS=%d -DFOLD_K=%d -DADDS=%d", l->folds->count, k, adds);
}

/* Arguments behind those that all kernels have, in their order. */
static ist_arg *more_args(ist_plan *p, int prompts, const ist_token_job *l, const token_launch *t, ist_arg *next) {
    if (t->kind != FIRST_LAYER) *next++ = (ist_arg)IST_IN(t->beside);
    if (ist_has(t->partial)) {
        *next++ = (ist_arg)IST_OUT(t->partial);
        *next++ = (ist_arg)IST_INOUT(ist_plan_persistent(p, 1, 1, ist_div_up(prompts, 2), 1, IST_ELEM_I32));
    }
    if (t->kind == READING) {
        *next++ = (ist_arg)IST_IN(t->queries);
        *next++ = (ist_arg)IST_IN(t->map);
    }
    if (l->folds) *next++ = (ist_arg)IST_IN(t->position);
    for (int j = 0; l->folds && j < l->folds->count; j++) *next++ = (ist_arg)IST_OUT(l->folds->y[j]);
    if (t->image) {
        *next++ = (ist_arg)IST_OUT(t->image->y);
        *next++ = (ist_arg)IST_IN(t->image->x);
        *next++ = (ist_arg)IST_IN(t->image->beside);
    }
    if (ist_has(t->counts)) *next++ = (ist_arg)IST_IN(t->counts);
    return next;
}

/* What a launch takes by value. */
typedef union by_value {
    ist_token_layer_args layer;
    ist_token_attention_args attention;
    ist_token_read_args read;
    ist_token_merge_args merge;
} by_value;

static by_value values_of(int prompts, int tokens, const ist_token_job *l, const token_launch *t) {
    const ist_token_args common = {
        .tokens = tokens, .prompts = prompts, .add_ld = l->add.ld, .add_c0 = l->add.c0, .eps = l->eps};
    ist_tensor x = t->x, beside = t->beside, position = t->position;
    by_value v = {0};
    switch (t->kind) {
    case FIRST_LAYER:
        v.layer = (ist_token_layer_args){
            .common = common, .x_ld = x.ld, .x_c0 = x.c0, .position_ld = position.ld, .position_c0 = position.c0};
        break;
    case ATTENTION:
        v.attention = (ist_token_attention_args){.common = common,
                                                 .x_ld = x.ld,
                                                 .x_c0 = x.c0,
                                                 .beside_ld = beside.ld,
                                                 .beside_c0 = beside.c0,
                                                 .position_ld = position.ld,
                                                 .position_c0 = position.c0};
        if (t->image) v.attention.image = ist_image_rows_of(t->image->x);
        break;
    case READING:
        v.read = (ist_token_read_args){.common = common,
                                       .length = beside.w,
                                       .image_ld = beside.ld,
                                       .image_c0 = beside.c0,
                                       .mapped = ist_has(t->map),
                                       .part_floats = t->partial.c};
        break;
    case MERGE:
        v.merge = (ist_token_merge_args){.common = common, .parts = x.h, .part_floats = x.c};
        break;
    }
    return v;
}

static ist_arg struct_of(token_kind kind, const by_value *v) {
    switch (kind) {
    case ATTENTION:
        return (ist_arg)IST_STRUCT(token_attention_args, &v->attention);
    case READING:
        return (ist_arg)IST_STRUCT(token_read_args, &v->read);
    case MERGE:
        return (ist_arg)IST_STRUCT(token_merge_args, &v->merge);
    default:
        return (ist_arg)IST_STRUCT(token_layer_args, &v->layer);
    }
}

static void launch(ist_plan *p, int prompts, int tokens, const ist_token_job *l, token_launch *t, const char *label) {
    ist_defines defines = ist_defines_of(p, "-DHID=%d -DOUT=%d", t->hidden, l->out);
    char isa[64];
    if (t->in) ist_defines_add(&defines, " -DIN=%d", t->in);
    if (t->slices) ist_defines_add(&defines, " -DSLICES=%d", t->slices);
    if (t->each) ist_defines_add(&defines, " -DEACH=%d", t->each);
    if (t->narrow) ist_defines_add(&defines, " -DNARROW");
    if (t->image) ist_defines_add(&defines, " -DIMAGE");
    if (ist_has(t->counts)) ist_defines_add(&defines, " -DCOUNTED");
    if (l->folds) begin_folds(p, prompts, tokens, l, t, &defines);
    snprintf(isa, sizeof isa, "%s%s%s", kinds[t->kind].isa, l->folds ? "+nvidia/token_folds" : "",
             t->image ? "+nvidia/image_rows" : "");
    by_value values = values_of(prompts, tokens, l, t);
    ist_launch all = {.label = label,
                      .op = kinds[t->kind].op,
                      .isa = isa,
                      .defines = defines.text,
                      .kernel = kinds[t->kind].kernel,
                      .dims = t->groups[2] ? 3 : 2,
                      .global = {t->groups[0] * ITEMS, t->groups[1], t->groups[2]},
                      .local = {ITEMS, 1, 1},
                      .args = {IST_OUT(t->y), IST_IN(t->x), IST_IN(l->add), IST_IN(t->weights), IST_IN(t->table),
                               IST_IN(ist_plan_current_limit(p)), struct_of(t->kind, &values)},
                      .flops = t->flops};
    all.arg_count = (int)(more_args(p, prompts, l, t, all.args + 7) - all.args);
    ist_plan_launch(p, &all);
}

ist_tensor ist_token_layer(ist_plan *p, ist_tensor x, const ist_token_job *l, const char *label) {
    ist_tensor none = {0};
    if (!check(p, x, l, FIRST_LAYER, label)) return none;
    int slices = l->hidden / SLICE, tiles = ist_div_up(x.n, 2);
    ist_tensor y = ist_plan_tensor(p, x.n, 1, x.w, l->out, IST_ELEM_T);
    token_launch t = {.kind = FIRST_LAYER,
                      .in = l->in,
                      .hidden = l->hidden / slices,
                      .slices = slices,
                      .groups = {(size_t)tiles, (size_t)slices},
                      .x = x,
                      .weights = pack_weights(p, l, slices, label),
                      .table = pack_table(p, l, l->b1, l->hidden, label),
                      .y = y,
                      .flops = 2.0 * x.n * x.w * l->hidden * (l->in + l->out)};
    if (slices > 1) t.partial = ist_plan_tensor(p, tiles, slices, 16, ist_div_up(l->out, 128) * 128, IST_ELEM_F32);
    launch(p, x.n, x.w, l, &t, label);
    return y;
}

/* ---- layers behind attention ---- */

/* Fragments of the projection, then those of the layer, of folds and of the image's keys and values. */
static ist_tensor pack_both(ist_plan *p, const ist_token_projection *q, const ist_token_job *l,
                            const ist_image_keys_step *image, const char *label) {
    size_t first = (size_t)q->outs * (size_t)q->in;
    size_t own = first + (size_t)l->hidden * (size_t)l->out + fold_halves(l), count = own + (image ? image->count : 0);
    float *packed = malloc(count * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    const bool made = ist_plan_has_values(p);
    if (made) {
        to = ist_matrix_part(q->w, q->in, 0, q->outs, 0, q->in, to);
        to = ist_matrix_part(l->w, l->hidden, 0, l->out, 0, l->hidden, to);
        pack_folds(l, to);
    }
    if (image && made) memcpy(packed + own, image->weights, image->count * sizeof *packed);
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* How many times 64 projections a group makes: more where there would be more groups than units. */
static int projection_blocks(const ist_plan *p, int tiles, int outs) {
    int units = ist_plan_units(p), each = 1;
    while (each < 4 && tiles * (outs / (64 * each)) > units && outs % (128 * each) == 0) each *= 2;
    return each;
}

ist_tensor ist_token_attention(ist_plan *p, ist_tensor x, const ist_token_projection *q, const ist_token_job *l,
                               ist_tensor *all, const char *label) {
    enum { EACH = 64 };
    ist_tensor none = {0}, like_x = x;
    *all = none;
    like_x.c = l->hidden; /* of the layer's input there are as many rows */
    if (!check(p, like_x, l, ATTENTION, label)) return none;
    if (l->in || x.c != q->in || q->in % 32 || q->in > HIDDEN_MAX || q->outs % EACH || q->outs < 3 * l->hidden ||
        (ist_has(q->add) && !like(q->add, x, q->outs))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d projections of %d channels for %d, tokens have %d", label, q->outs,
                      q->in, l->hidden, x.c);
        return none;
    }
    ist_image_keys_step step = {0}, *image = NULL;
    int tiles = ist_div_up(x.n, 2), each = projection_blocks(p, tiles, q->outs), slices = q->outs / (EACH * each);
    int more = 0;
    if (q->image && q->image->joins && q->image->side->x.c == q->in) {
        if (ist_image_keys_begin(p, q->image->side, q->image->weights, label, &step)) image = &step;
        more = ist_div_up(ist_div_up(step.x.n * step.x.w, 64), slices);
        q->image->y = step.y;
    } else if (q->image) {
        q->image->y = ist_image_make_keys(p, q->image->side, q->image->weights, label);
    }
    ist_tensor y = ist_plan_tensor(p, x.n, 1, x.w, l->out, IST_ELEM_T);
    *all = ist_plan_tensor(p, x.n, 1, x.w, q->outs, IST_ELEM_T);
    token_launch t = {.kind = ATTENTION,
                      .in = q->in,
                      .hidden = l->hidden,
                      .slices = slices,
                      .each = each,
                      .groups = {(size_t)(tiles + more), (size_t)slices},
                      .x = x,
                      .beside = q->add,
                      .weights = pack_both(p, q, l, image, label),
                      .table = pack_table(p, l, q->b, q->outs, label),
                      .y = y,
                      .partial = *all,
                      .image = image,
                      .counts = q->counts,
                      .flops = 2.0 * x.n * x.w * (q->in * q->outs + l->hidden * l->out)};
    launch(p, x.n, x.w, l, &t, label);
    free(step.weights);
    return y;
}

/* Tokens that a layer behind a reading takes: `hidden` channels. */
static ist_tensor seen(ist_tensor parts, int tokens, int hidden) {
    return (ist_tensor){.n = parts.n, .h = 1, .w = tokens, .c = hidden, .elem = IST_ELEM_T};
}

static bool reading_fits(ist_plan *p, ist_tensor x, const ist_token_reading *r, const char *label) {
    ist_tensor image = r->image;
    bool good = ist_two_way_matrix(x.w, 64) && x.c % 32 == 0 && x.c >= 32 && x.c <= IMAGE_MAX && like(x, x, x.c) &&
                r->queries.n == ist_div_up(x.n, 2) && r->queries.c == 8 && image.c == 2 * READ && image.h == 1 &&
                image.elem == IST_ELEM_T && (image.ld | image.c0) % 4 == 0 &&
                (ist_has(r->map) ? r->map.elem == IST_ELEM_I32 && ist_pixels(r->map) >= x.n : image.n >= x.n);
    if (!good)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: tokens [%d,%d,%d,%d] read [%d,%d,%d,%d]", label, x.n, x.h, x.w, x.c,
                      image.n, image.h, image.w, image.c);
    return good;
}

ist_tensor ist_token_read(ist_plan *p, ist_tensor x, const ist_token_reading *r, const ist_token_job *layer,
                          const char *label) {
    enum { ROWS_EACH = 128 };
    ist_token_job own = *layer, *l = &own;
    ist_tensor none = {0}, image = r->image;
    l->add = x;
    if (!check(p, seen(x, x.w, READ), l, READING, label) || !reading_fits(p, x, r, label)) return none;
    int parts = ist_div_up(image.w, ROWS_EACH), floats = PART_SUMS + x.w * READ / 2;
    ist_tensor y = ist_plan_tensor(p, x.n, 1, x.w, l->out, IST_ELEM_T);
    token_launch t = {.kind = READING,
                      .hidden = READ,
                      .groups = {(size_t)parts, (size_t)ist_div_up(x.n, 2), x.n > 1 ? 2 : 1},
                      .x = x,
                      .beside = image,
                      .queries = r->queries,
                      .map = r->map,
                      .weights = pack_weights(p, l, 1, label),
                      .table = pack_table(p, l, NULL, 0, label),
                      .y = y,
                      .partial = ist_plan_tensor(p, x.n, parts, 1, floats, IST_ELEM_F32),
                      .flops = 2.0 * x.n * x.w * READ * (2.0 * image.w + l->out)};
    launch(p, x.n, x.w, l, &t, label);
    return y;
}

static bool parts_fit(ist_plan *p, ist_tensor parts, int tokens, int halves, const char *label) {
    if (parts.w == 1 && parts.c == PART_SUMS + tokens * halves / 2 && parts.elem == IST_ELEM_F32) return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d tokens' parts [%d,%d,%d,%d]", label, tokens, parts.n, parts.h, parts.w,
                  parts.c);
    return false;
}

/* weights of head h: [8 eighths of k][d][k / 8]. */
static ist_tensor merge_weights(ist_plan *p, const ist_token_merging *m, const char *label) {
    int k = m->k, d = m->d;
    size_t count = (size_t)(HEADS * d) * (size_t)k;
    float *packed = malloc(count * sizeof *packed);
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int o = 0; o < HEADS * d; o++)
        for (int c = 0; c < k; c++)
            packed[((o / d * 8 + c / (k / 8)) * d + o % d) * (k / 8) + c % (k / 8)] = m->w[o * k + c];
    t = ist_plan_const(p, packed, 1, 1, HEADS * d, k, IST_ELEM_T, label);
    free(packed);
    return t;
}

ist_tensor ist_token_merge(ist_plan *p, ist_tensor parts, int tokens, const ist_token_merging *m,
                           const ist_token_job *l, const char *label) {
    ist_tensor none = {0};
    int hidden = HEADS * m->d;
    if (!check(p, seen(parts, tokens, hidden), l, MERGE, label)) return none;
    if (l->in || m->k % 64 || m->k > HIDDEN_MAX || m->d % 4 || m->d > HEAD_MAX) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: averages of %d channels for heads of %d", label, m->k, m->d);
        return none;
    }
    if (!parts_fit(p, parts, tokens, HEADS * m->k, label)) return none;
    ist_tensor y = ist_plan_tensor(p, parts.n, 1, tokens, l->out, IST_ELEM_T);
    token_launch t = {.kind = MERGE,
                      .in = m->k,
                      .hidden = hidden,
                      .groups = {(size_t)(tokens * HEADS), (size_t)parts.n},
                      .x = parts,
                      .beside = merge_weights(p, m, label),
                      .weights = pack_weights(p, l, 1, label),
                      .table = pack_table(p, l, m->b, hidden, label),
                      .y = y,
                      .partial = ist_plan_tensor(p, parts.n, 1, tokens, hidden, IST_ELEM_T),
                      .narrow = parts.n > FEW, /* the same sums */
                      .flops = 2.0 * parts.n * tokens * (HEADS * m->k * (parts.h + m->d) + hidden * y.c)};
    launch(p, parts.n, tokens, l, &t, label);
    return y;
}
