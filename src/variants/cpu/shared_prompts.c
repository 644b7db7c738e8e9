/* Many prompts on one image: packs what their projections of it have in common, records. */
#include "variants/cpu/shared_prompts.h"
#include "variants/cpu/two_way_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = IST_TWO_WAY_HEADS, HEAD_MAX = IST_HEAD_CHANNELS, IMAGE_MAX = IST_IMAGE_CHANNELS };
enum { COLUMNS = IST_BLOCK_COLUMNS };
enum { SUB_ROWS = 42, GROUP_ROWS = 294, LENGTH_ROWS = 64, TILE_ROWS = 6, TO_ADD = 16, MOST_OUTS = 384 };
/* Projections of the image, in the order of cpu/two_way_shared. */
enum { KEYS0, QUERIES0, VALUES0, ALONG0, KEYS1, VALUES1, QUERIES1, ALONG1, ALONG2, KEYS2, VALUES2, PROJECTIONS };
enum { PLACES = 5, LENGTHS = 5, PLACED = 2 /* projections that have their position */ };
/* A prompt's matrices, as the kernel numbers them. */
enum { SCORES, SQUARE, CROSS, VALUES, COLUMNS_ONLY };
enum { FIRST_VALUES, SECOND_VALUES, TOKEN_KEYS, TOKEN_QUERIES };

typedef struct job {
    int left, right, kind, slot;
} job;
enum { MOST_JOBS = 10 };
static const job jobs_of[IST_SHARED_UPDATES][MOST_JOBS] = {{{FIRST_VALUES, FIRST_VALUES, SQUARE, 1},
                                                            {FIRST_VALUES, TOKEN_QUERIES, SCORES, 2},
                                                            {FIRST_VALUES, 0, VALUES, 3},
                                                            {FIRST_VALUES, 0, COLUMNS_ONLY, 0}},
                                                           {{FIRST_VALUES, TOKEN_KEYS, SCORES, 2},
                                                            {FIRST_VALUES, FIRST_VALUES, SQUARE, 3},
                                                            {FIRST_VALUES, SECOND_VALUES, CROSS, 4},
                                                            {SECOND_VALUES, SECOND_VALUES, SQUARE, 5},
                                                            {FIRST_VALUES, TOKEN_QUERIES, SCORES, 6},
                                                            {SECOND_VALUES, TOKEN_QUERIES, SCORES, 7},
                                                            {FIRST_VALUES, 0, VALUES, 8},
                                                            {SECOND_VALUES, 0, VALUES, 9},
                                                            {FIRST_VALUES, 0, COLUMNS_ONLY, 0},
                                                            {SECOND_VALUES, 0, COLUMNS_ONLY, 1}}};
static const int job_count[IST_SHARED_UPDATES] = {4, 10}, form_count[IST_SHARED_UPDATES] = {3, 8};

/* ---- host matrices ----
 * Rows of K floats. The image's deviations from its mean, x', reach a linear functional v of what it is behind an
 * update as x' . (gamma v), and so on: functionals are carried back to x. */

/* Row `to` = from * by, without its mean if `centred`. to may be from. */
static void carry(float *to, const float *from, const float *by, int rows, int k, bool centred) {
    for (int r = 0; r < rows; r++, to += k, from += k) {
        double sum = 0;
        for (int i = 0; i < k; i++) sum += (double)(to[i] = by ? from[i] * by[i] : from[i]);
        for (int i = 0; centred && i < k; i++) to[i] -= (float)(sum / k);
    }
}

static void scale(float *v, int count, float by) {
    for (int i = 0; i < count; i++) v[i] *= by;
}

/* Everything that the constants are made of: [8 d + 1][k] each, the last row constant; freed by the caller. */
typedef struct bases {
    float *first, *first_scaled, *second; /* x' + first v1; (x' gamma)' + first_scaled v1, + second v2 */
    float *keys[3], *values[3], *queries; /* functionals of x', of (x' gamma)'; constant rows are zeros */
    float *room;
    int k, inner;
} bases;

/* Output projections as rows, and their bias as the last, without means. */
static void take_out(const bases *b, const float *out, const float *bias, const float *more, float *to) {
    int k = b->k, inner = b->inner;
    for (int o = 0; o < inner; o++)
        for (int i = 0; i < k; i++) to[o * k + i] = out[i * inner + o];
    for (int i = 0; i < k; i++) to[inner * k + i] = bias[i] + (more ? more[i] : 0);
    carry(to, to, NULL, inner + 1, k, true);
}

static bool begin_bases(ist_plan *p, const ist_shared_weights *w, int k, const char *label, bases *b) {
    int inner = HEADS * w->d;
    size_t one = (size_t)(inner + 1) * (size_t)k;
    *b = (bases){.k = k, .inner = inner, .room = calloc(8 * one, sizeof *b->room)};
    if (!b->room) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", label);
        return false;
    }
    float **all[] = {&b->first,     &b->first_scaled, &b->second,  &b->keys[1],
                     &b->values[1], &b->queries,      &b->keys[2], &b->values[2]};
    for (int i = 0; i < 8; i++) *all[i] = b->room + (size_t)i * one;
    const float *gamma[] = {w->update[0].gamma, w->update[1].gamma};
    take_out(b, w->update[0].out, w->update[0].out_bias, NULL, b->first);
    carry(b->first_scaled, b->first, gamma[0], inner + 1, k, true);
    take_out(b, w->update[1].out, w->update[1].out_bias, w->update[0].beta, b->second);
    for (int i = 1; i < 3; i++) {
        carry(b->keys[i], w->reading[i].keys, gamma[i - 1], inner, k, true);
        carry(b->values[i], w->reading[i].values, gamma[i - 1], inner, k, true);
    }
    carry(b->queries, w->update[1].queries, gamma[0], inner, k, true);
    return true;
}

/* ---- constants ---- */

/* Where channel o = h * d + i of a projected row lies. */
static int place_of(int o, int d) {
    return o % d * HEADS + o / d;
}

/* to [inner + 1][wide] += left right^T, right's rows where projected rows have them. */
static void multiply(const bases *b, int d, const float *left, const float *right, double *sums, float *turned,
                     float *to) {
    int k = b->k, rows = b->inner + 1, wide = b->inner + TO_ADD;
    for (int o = 0; o < rows; o++)
        for (int i = 0; i < k; i++) turned[i * rows + (o < b->inner ? place_of(o, d) : o)] = right[o * k + i];
    for (int r = 0; r < rows; r++) {
        for (int o = 0; o < rows; o++) sums[o] = 0;
        for (int i = 0; i < k; i++)
            for (int o = 0; o < rows; o++) sums[o] += (double)left[r * k + i] * (double)turned[i * rows + o];
        for (int o = 0; o < rows; o++) to[r * wide + o] = (float)sums[o];
    }
}

/* Forms of the jobs of a reading behind updates. */
static ist_tensor take_forms(ist_plan *p, const bases *b, int d, int updates, const char *label) {
    const float *first[] = {b->first, b->keys[1], b->values[1]};
    const float *lefts[] = {b->first,        b->first_scaled, b->first_scaled, b->second,
                            b->first_scaled, b->second,       b->first_scaled, b->second};
    const float *rights[] = {b->queries, b->first_scaled, b->second,    b->second,
                             b->keys[2], b->keys[2],      b->values[2], b->values[2]};
    int count = form_count[updates - 1], rows = b->inner + 1;
    size_t one = (size_t)rows * (size_t)(b->inner + TO_ADD), turned = (size_t)rows * (size_t)b->k;
    float *forms = calloc((size_t)count * one + turned, sizeof *forms);
    double *sums = malloc((size_t)rows * sizeof *sums);
    ist_tensor t = {0};
    if (forms && sums) {
        for (int j = 0; j < count && ist_plan_has_values(p); j++)
            multiply(b, d, updates == 1 ? b->first : lefts[j], updates == 1 ? first[j] : rights[j], sums,
                     forms + (size_t)count * one, forms + (size_t)j * one);
        t = ist_plan_const_bytes(p, forms, (size_t)count * one * sizeof *forms, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", label);
    }
    free(forms);
    free(sums);
    return t;
}

/* Projections [projection][place][k] of x, and the map behind them. Only part of the basis is left afterwards. */
static void take_projections(const bases *b, const ist_shared_weights *w, float *to) {
    int k = b->k, inner = b->inner;
    const float *gamma = w->update[0].gamma;
    size_t one = (size_t)inner * (size_t)k;
    const struct {
        const float *rows, *by;
        bool centred;
        float scale;
    } all[PROJECTIONS] = {[KEYS0] = {w->reading[0].keys, NULL, false, 1},
                          [VALUES0] = {w->reading[0].values, NULL, false, 1},
                          [QUERIES0] = {w->update[0].queries, NULL, false, 1},
                          [ALONG0] = {b->first, NULL, true, 2},
                          [KEYS1] = {b->keys[1], NULL, true, 1},
                          [VALUES1] = {b->values[1], NULL, true, 1},
                          [QUERIES1] = {b->queries, NULL, true, 1},
                          [ALONG1] = {b->first_scaled, gamma, true, 2},
                          [ALONG2] = {b->second, gamma, true, 2},
                          [KEYS2] = {b->keys[2], gamma, true, 1},
                          [VALUES2] = {b->values[2], gamma, true, 1}};
    float row[IMAGE_MAX];
    for (int i = 0; i < PROJECTIONS; i++)
        for (int o = 0; o < inner; o++) {
            carry(row, all[i].rows + o * k, all[i].by, 1, k, all[i].centred);
            scale(row, k, all[i].scale);
            memcpy(to + (size_t)i * one + (size_t)place_of(o, w->d) * (size_t)k, row, (size_t)k * sizeof *row);
        }
    to += PROJECTIONS * one;
    for (int o = 0; o < w->outs; o++)
        for (int i = 0; i < k; i++) to[o * k + i] = w->map[i * w->outs + o];
}

/* What the position and constants add to keys and to the updates' queries: to those of PLACED [length][PLACED][inner],
 * to the others [length + TILE_ROWS][PLACES - PLACED][inner]. */
static void take_places(const bases *b, const ist_shared_weights *w, int length, float *turned, float *placed,
                        float *to) {
    int k = b->k, inner = b->inner, wide = PLACES * inner, first = PLACED * inner;
    const float *from[] = {w->reading[0].keys, w->update[0].queries, w->reading[1].keys, w->update[1].queries,
                           w->reading[2].keys};
    float *bias = turned + wide * k, row[PLACES * HEADS * HEAD_MAX];
    for (int j = 0; j < PLACES; j++)
        for (int o = 0; o < inner; o++) {
            const float *rows = from[j] + o * k;
            int at = j * inner + place_of(o, w->d);
            double sum = j % 2 ? (double)w->update[j / 2].query_bias[o] : 0;
            for (int i = 0; j == 3 && i < k; i++) sum += (double)rows[i] * (double)w->update[0].beta[i];
            for (int i = 0; i < k; i++) turned[i * wide + at] = rows[i];
            bias[at] = (float)sum;
        }
    for (int r = 0; r < length; r++, placed += first, to += wide - first) {
        const float *v = w->position + (size_t)r * (size_t)k, *m = turned;
        memcpy(row, bias, (size_t)wide * sizeof *row);
        for (int i = 0; i < k; i += 4, v += 4, m += 4 * wide) /* by four: the sums pass through memory less often */
            for (int o = 0; o < wide; o++)
                row[o] += (v[0] * m[o] + v[1] * m[wide + o]) + (v[2] * m[2 * wide + o] + v[3] * m[3 * wide + o]);
        memcpy(placed, row, (size_t)first * sizeof *row);
        memcpy(to, row + first, (size_t)(wide - first) * sizeof *row);
    }
}

static ist_tensor reading_bias(ist_plan *p, const ist_shared_weights *w, int k, int i, const char *label) {
    float bias[HEADS * HEAD_MAX];
    for (int o = 0; o < HEADS * w->d; o++) {
        double sum = (double)w->reading[i].value_bias[o];
        for (int c = 0; i && c < k; c++)
            sum += (double)w->reading[i].values[o * k + c] * (double)w->update[i - 1].beta[c];
        bias[o] = (float)sum;
    }
    return ist_plan_const(p, bias, 1, 1, 1, HEADS * w->d, IST_ELEM_F32, label);
}

/* {shift, gamma, vectors} of the kernel image_lengths. */
static ist_tensor take_lengths(ist_plan *p, const bases *b, const float *shift, const float *gamma, const char *label) {
    float all[LENGTHS][IMAGE_MAX] = {{0}}, packed[LENGTHS * IMAGE_MAX];
    const float *last[] = {b->first, b->first_scaled, b->second};
    for (int i = 0; i < b->k; i++) {
        all[0][i] = shift ? shift[i] : 0;
        all[1][i] = gamma[i];
        for (int j = 0; j < 3; j++) all[2 + j][i] = 2 * last[j][b->inner * b->k + i];
    }
    for (int j = 0; j < LENGTHS; j++) memcpy(packed + j * b->k, all[j], (size_t)b->k * sizeof *packed);
    return ist_plan_const(p, packed, 1, 1, LENGTHS, b->k, IST_ELEM_F32, label);
}

/* ---- recording ---- */

static ist_defines defines_of(const ist_plan *p, int k) {
    return ist_defines_of(p, "-DK=%d -DBLOCKS=1 -DSUB=%d", k, SUB_ROWS);
}

static void launch(ist_plan *p, ist_launch *l, int k) {
    ist_defines defines = defines_of(p, k);
    l->op = "cpu/two_way_shared";
    l->isa = "cpu/tile+cpu/two_way_columns+cpu/prompt_products";
    l->defines = defines.text;
    l->local[0] = l->local[1] = 1;
    ist_plan_launch(p, l);
}

/* The rows that prompts share. */
static void project_image(ist_plan *p, const ist_image_side *s, const ist_shared_weights *w, const bases *b,
                          const char *label, ist_shared_image *image) {
    int k = b->k, outs = PROJECTIONS * b->inner + w->outs, length = image->length;
    int placed = PLACED * b->inner, others = (PLACES - PLACED) * b->inner;
    size_t places = (size_t)(length + TILE_ROWS) * (size_t)others, added = (size_t)length * (size_t)placed;
    size_t weights = (size_t)outs * (size_t)k, turned = PLACES * (size_t)b->inner * (size_t)(k + 1);
    float *room = calloc(weights + places + added + turned + (size_t)outs, sizeof *room), *bias = room + weights;
    if (!room) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", label);
        return;
    }
    if (ist_plan_has_values(p)) {
        take_projections(b, w, room);
        take_places(b, w, length, bias + outs + places + added, bias + outs + places, bias + outs);
    }
    for (int o = 0; o < outs && s->shift; o++)
        for (int i = 0; i < k; i++) bias[o] += room[(size_t)o * (size_t)k + (size_t)i] * s->shift[i];
    image->position = ist_plan_const(p, bias + outs, 1, 1, length + TILE_ROWS, others, IST_ELEM_F32, label);
    ist_tensor add = ist_plan_const(p, bias + outs + places, 1, 1, length, placed, IST_ELEM_T, label);
    /* The last image's last tile may read behind it. */
    ist_tensor rows = ist_plan_tensor(p, 1, 1, s->x.n * length + TILE_ROWS, outs, IST_ELEM_F32);
    ist_tensor lengths = ist_plan_tensor(p, 1, 1, s->x.n * length + TILE_ROWS, 4, IST_ELEM_F32);
    image->rows = ist_view(rows, s->x.n, 1, length);
    image->lengths = ist_view(lengths, s->x.n, 1, length);
    image->map = ist_slice(image->rows, PROJECTIONS * b->inner, w->outs);
    ist_tensor constants = take_lengths(p, b, s->shift, w->update[0].gamma, label);
    const ist_image_lengths_args by_value = {
        .length = length, .group_rows = LENGTH_ROWS, .x_ld = s->x.ld, .x_c0 = s->x.c0};
    ist_launch l = {.label = label,
                    .kernel = "image_lengths",
                    .dims = 2,
                    .global = {(size_t)ist_div_up(length, LENGTH_ROWS), (size_t)s->x.n},
                    .args = {IST_OUT(image->lengths), IST_IN(s->x), IST_IN(constants),
                             IST_IN(ist_plan_current_limit(p)), IST_STRUCT(image_lengths_args, &by_value)},
                    .arg_count = 5,
                    .bytes = 4.0 * s->x.n * length * k};
    launch(p, &l, k);
    for (int first = 0, count = placed; first < outs; first += count) { /* weights that stay in a core's cache */
        if (first) count = outs - first < MOST_OUTS ? outs - first : MOST_OUTS;
        ist_filter f = {count, k, 1, 1, room + (size_t)first * (size_t)k, bias + first, NULL};
        ist_conv node = {.label = label,
                         .x = ist_view(s->x, s->x.n, 1, length),
                         .y = ist_slice(image->rows, first, count),
                         .filter = f};
        if (!first) node.o.epi.add_before = add;
        ist_emit(p, IST_NODE_CONV, &node);
    }
    free(room);
}

static bool check_share(ist_plan *p, const ist_image_side *s, const ist_shared_weights *w, int prompts, int tokens,
                        const char *label) {
    if (ist_plan_status(p)) return false;
    int k = s->x.c;
    if (tokens > 0 && tokens <= IST_TRACE_TOKENS && ist_has(s->map) && s->map.elem == IST_ELEM_I32 &&
        ist_pixels(s->map) >= prompts && s->x.elem == IST_ELEM_T && k >= 64 && k <= IMAGE_MAX && k % 64 == 0 &&
        w->d >= 4 && w->d <= HEAD_MAX && w->d % 4 == 0)
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d prompts of %d tokens share an image of [%d,%d,%d,%d]", label, prompts,
                  tokens, s->x.n, s->x.h, s->x.w, k);
    return false;
}

ist_shared_image ist_share_image(ist_plan *p, const ist_image_side *s, const ist_shared_weights *w, int prompts,
                                    int tokens, int most, const char *label) {
    ist_shared_image image = {.of = s->map,
                              .k = s->x.c,
                              .d = w->d,
                              .length = s->x.h * s->x.w,
                              .prompts = prompts,
                              .tokens = tokens,
                              .eps = w->eps};
    bases b;
    if (!check_share(p, s, w, prompts, tokens, label) || !begin_bases(p, w, image.k, label, &b)) return image;
    ist_tensor images = ist_plan_tensor(p, 1, 1, 1, 1, IST_ELEM_I32), limit = ist_plan_current_limit(p);
    image.ways = ist_plan_tensor(p, 1, 1, prompts, 1, IST_ELEM_I32);
    ist_launch ways = {
        .label = label,
        .kernel = "image_ways",
        .dims = 1,
        .global = {1},
        .args = {IST_OUT(image.ways), IST_OUT(images), IST_IN(s->map), IST_IN(limit), IST_INT(prompts), IST_INT(most)},
        .arg_count = 6};
    launch(p, &ways, image.k);
    ist_plan_limit(p, images);
    project_image(p, s, w, &b, label, &image);
    ist_plan_limit(p, limit);
    for (int i = 0; i < IST_SHARED_UPDATES; i++) {
        image.forms[i] = take_forms(p, &b, w->d, i + 1, label);
        image.jobs[i] = ist_plan_const(p, jobs_of[i], 1, 1, job_count[i], 4, IST_ELEM_I32, label);
    }
    for (int i = 0; i < IST_SHARED_READINGS; i++) image.bias[i] = reading_bias(p, w, image.k, i, label);
    image.trace = ist_plan_tensor(p, prompts, IST_SHARED_UPDATES, image.length, IST_TRACE_FLOATS, IST_ELEM_F32);
    free(b.room);
    return image;
}

static bool plain_fits(const ist_shared_image *s, ist_tensor t) {
    return t.n == s->prompts && t.w == s->d + 1 && t.c == COLUMNS && t.elem == IST_ELEM_F32;
}

static bool check_read(ist_plan *p, const ist_shared_image *s, int updates, const ist_shared_tokens *t, ist_tensor y,
                       const char *label) {
    if (ist_plan_status(p)) return false;
    bool good = updates >= 0 && updates <= IST_SHARED_UPDATES && plain_fits(s, t->queries) && y.n == s->prompts &&
                y.c == HEADS * s->d && y.elem == IST_ELEM_T && y.w <= IST_BLOCK_TOKENS;
    for (int i = 0; good && i < updates; i++) good = plain_fits(s, t->values[i]) && plain_fits(s, t->keys);
    if (good) return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: shared reading %d by [%d,%d,%d,%d]", label, updates, y.n, y.h, y.w, y.c);
    return false;
}

/* Floats of a slot. */
static int slot_floats(int d) {
    return COLUMNS * (HEADS * d > COLUMNS ? HEADS * d : COLUMNS);
}

/* A prompt's matrices for a reading behind updates. */
static ist_tensor relate(ist_plan *p, const ist_shared_image *s, int updates, const ist_shared_tokens *t,
                         const char *label) {
    int jobs = job_count[updates - 1], slot = slot_floats(s->d);
    ist_tensor y = ist_plan_tensor(p, s->prompts, 1, jobs, slot, IST_ELEM_F32);
    double depth = (s->tokens - 1) * HEADS, inner = HEADS * s->d;
    const ist_relate_args by_value = {.tokens = s->tokens, .d = s->d, .slots = jobs, .slot_floats = slot};
    ist_launch l = {.label = label,
                    .kernel = "relate",
                    .dims = 2,
                    .global = {(size_t)jobs, (size_t)s->prompts},
                    .args = {IST_OUT(y), IST_IN(t->values[0]), IST_IN(t->values[updates - 1]), IST_IN(t->keys),
                             IST_IN(t->queries), IST_IN(s->forms[updates - 1]), IST_IN(s->jobs[updates - 1]),
                             IST_IN(s->ways), IST_IN(ist_plan_current_limit(p)), IST_STRUCT(relate_args, &by_value)},
                    .arg_count = 10,
                    .flops = 2.0 * s->prompts * jobs * depth * s->d * (inner + COLUMNS)};
    launch(p, &l, s->k);
    return y;
}

/* Multiplications of a step for one row. */
static double step_products(const ist_shared_image *s, int updates, int tokens) {
    double depth = (s->tokens - 1) * HEADS, columns = depth + HEADS, read = tokens * HEADS, d = s->d;
    if (updates == 0) return 2 * read * d;
    double square = depth * (depth + 16) / 2;
    if (updates == 1) return (2 * columns + 2 * read) * d + square + 2 * depth * read;
    return (3 * columns + 2 * read) * d + 2 * (square + depth * depth) + 4 * depth * read;
}

void ist_shared_read(ist_plan *p, const ist_shared_image *s, int updates, const ist_shared_tokens *t, ist_tensor y,
                        const char *label) {
    if (!check_read(p, s, updates, t, y, label)) return;
    int groups = ist_div_up(s->length, GROUP_ROWS), tokens = y.w;
    ist_tensor none = {0}, slots = updates ? relate(p, s, updates, t, label) : none;
    ist_tensor parts = ist_plan_tensor(p, s->prompts, groups, s->d + 2, COLUMNS, IST_ELEM_F32);
    ist_tensor limit = ist_plan_current_limit(p);
    ist_arg trace = IST_IN(none);
    if (updates == 1) trace = (ist_arg)IST_OUT(s->trace);
    if (updates == 2) trace = (ist_arg)IST_INOUT(s->trace);
    const ist_shared_step_args by_value = {.length = s->length,
                                           .groups = groups,
                                           .group_rows = GROUP_ROWS,
                                           .updates = updates,
                                           .image_ld = s->rows.ld,
                                           .d = s->d,
                                           .slots = updates ? job_count[updates - 1] : 0,
                                           .slot_floats = slot_floats(s->d),
                                           .update_tokens = s->tokens,
                                           .read_tokens = tokens,
                                           .eps = s->eps};
    const ist_image_merge_args merging = {.tokens = tokens, .groups = groups, .d = s->d, .y_ld = y.ld};
    ist_launch step = {.label = label,
                       .kernel = "shared_step",
                       .dims = 2,
                       .global = {(size_t)s->prompts, (size_t)groups},
                       .args = {IST_OUT(parts), trace, IST_IN(s->rows), IST_IN(s->position), IST_IN(s->lengths),
                                IST_IN(s->of), IST_IN(s->ways), IST_IN(t->keys), IST_IN(t->queries), IST_IN(slots),
                                IST_IN(limit),
                                IST_STRUCT(shared_step_args, &by_value)},
                       .arg_count = 12,
                       .flops = 2.0 * s->prompts * s->length * step_products(s, updates, tokens)};
    launch(p, &step, s->k);
    ist_launch merge = {.label = label,
                        .kernel = "shared_merge",
                        .dims = 1,
                        .global = {(size_t)s->prompts},
                        .args = {IST_INOUT(y), IST_IN(parts), IST_IN(s->bias[updates]), IST_IN(s->ways), IST_IN(limit),
                                 IST_STRUCT(image_merge_args, &merging)},
                        .arg_count = 6};
    launch(p, &merge, s->k);
}
