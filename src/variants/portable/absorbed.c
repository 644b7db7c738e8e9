/* Absorbed projections by work-groups with local memory (cl/portable/two_way). */
#include "variants/absorbed.h"
#include "variants/defines.h"

#include "base/mem.h"

enum { HEADS = IST_TWO_WAY_HEADS, MERGE_LANES = 64, GROUP_ROWS = 32, GROUP_ROWS_MAX = 256 };
enum { LOCAL_ROOM = 24 << 10 /* bytes of local memory for eight rows of the image */ };

/* Image rows that a group keeps in local memory. */
static int local_rows(const ist_plan *p, const ist_absorbed_kernels *k, int tokens) {
    bool room = ist_device_local_bytes(ist_plan_device(p)) >= LOCAL_ROOM;
    return k->items == 256 && ist_blocks_of(tokens) == 1 && room ? 8 : 4;
}

enum {
    TILE_ROWS = 32,
    TILE_CHANNELS = 256,
    TILE_ROOM = 28 << 10,
    TILE_MORE = 9 << 10 /* bytes of local memory, by block */
};
enum { TILE_BLOCKS = 2 /* of an update */ };

/* The image's side on register tiles (cl/portable/two_way_tile). */
typedef struct image_kernel {
    const char *op;
    int rows;   /* of an update's group */
    int blocks; /* groups of a reading by their columns */
    ist_defines defines;
} image_kernel;

static bool quads(ist_tensor x) {
    return (x.ld | x.c0) % 4 == 0;
}

static ist_defines defines_of(const ist_plan *p, const ist_absorbed_kernels *k, int channels, int tokens) {
    return ist_defines_of(p, "-DK=%d -DBLOCKS=%d -DGROUP=%d -DROWS=%d", channels, ist_blocks_of(tokens), k->items,
                          local_rows(p, k, tokens));
}

static int group_rows(const ist_plan *p, int length, int prompts) {
    int rows = GROUP_ROWS, units = ist_plan_units(p);
    while (rows < GROUP_ROWS_MAX && (int64_t)prompts * length >= (int64_t)4 * rows * units) rows *= 2;
    return rows;
}

static void fold(ist_plan *p, const ist_absorbed_kernels *k, const ist_fold_job *job, ist_fold_form form, ist_tensor y,
                 const char *label) {
    const ist_head_fold *f = &job->fold;
    ist_tensor x = job->x, add = job->add;
    int d = f->d;
    ist_defines defines = defines_of(p, k, f->k, x.w);
    ist_tensor w = ist_head_const(p, f->w, x.c, d, label), b = ist_head_const(p, f->b, 1, d, label);
    ist_tensor m = ist_plan_const(p, f->m, 1, 1, HEADS * d, f->k, IST_ELEM_F32, label);
    ist_tensor mb = ist_head_const(p, f->mb, 1, d, label);
    const ist_fold_args by_value = ist_fold_args_of(job, form);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "portable/two_way",
                         .defines = defines.text,
                         .kernel = "fold_heads",
                         .dims = 3,
                         .global = {(size_t)k->items, HEADS, (size_t)x.n},
                         .local = {(size_t)k->items, 1, 1},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(add), IST_IN(w), IST_IN(b), IST_IN(m), IST_IN(mb),
                                  IST_IN(ist_plan_current_limit(p)), IST_STRUCT(fold_args, &by_value)},
                         .arg_count = 9,
                         .flops = 2.0 * x.n * x.w * HEADS * d * (x.c + f->k)});
}

/* `blocks`: whose columns a group keeps in local memory. */
static image_kernel image_kernel_of(const ist_plan *p, const ist_absorbed_kernels *k, const ist_image_step_job *s,
                                    const ist_image_side *x, int blocks) {
    uint64_t room = TILE_ROOM + (uint64_t)(blocks - 1) * TILE_MORE;
    int all = ist_blocks_of(s->tokens);
    if (k->items == 256 && s->k == TILE_CHANNELS && blocks <= TILE_BLOCKS &&
        ist_device_local_bytes(ist_plan_device(p)) >= room)
        return (image_kernel){
            "portable/two_way_tile", TILE_ROWS, all,
            ist_defines_of(p, "-DBLOCKS=%d%s", all, quads(x->x) && quads(x->position) ? " -DALIGNED" : "")};
    return (image_kernel){"portable/two_way", local_rows(p, k, s->tokens), 1, defines_of(p, k, s->k, s->tokens)};
}

static void launch_update(ist_plan *p, const ist_absorbed_kernels *k, const ist_image_step_job *s) {
    const ist_image_side *x = s->side;
    const ist_image_update *u = s->update;
    const ist_image_update_args by_value = {
        .image = ist_image_args_of(x, s->length), .update_columns = s->columns, .eps = u->eps};
    size_t items = (size_t)k->items;
    const image_kernel kernel = image_kernel_of(p, k, s, x, ist_blocks_of(s->tokens));
    ist_plan_launch(p, &(ist_launch){.label = s->label,
                                     .op = kernel.op,
                                     .defines = kernel.defines.text,
                                     .kernel = "image_update",
                                     .dims = 2,
                                     .global = {(size_t)ist_div_up(s->length, kernel.rows) * items, (size_t)s->n},
                                     .local = {items, 1},
                                     .args = {IST_OUT(s->updated), IST_IN(x->x), IST_IN(x->position), IST_IN(x->map),
                                              IST_IN(s->shift), IST_IN(u->keys), IST_IN(u->values), IST_IN(s->norm),
                                              IST_IN(s->limit), IST_STRUCT(image_update_args, &by_value)},
                                     .arg_count = 10,
                                     .flops = 4.0 * s->n * s->length * s->columns * s->k});
}

static void launch_read(ist_plan *p, const ist_absorbed_kernels *k, const ist_image_step_job *s,
                        const ist_image_side *x) {
    const ist_image_read_args by_value = {.image = ist_image_args_of(x, s->length),
                                          .groups = s->groups,
                                          .group_rows = s->rows,
                                          .read_columns = s->columns};
    size_t items = (size_t)k->items;
    const image_kernel kernel = image_kernel_of(p, k, s, x, 1);
    ist_plan_launch(p, &(ist_launch){.label = s->label,
                                     .op = kernel.op,
                                     .defines = kernel.defines.text,
                                     .kernel = "image_read",
                                     .dims = 3,
                                     .global = {(size_t)s->groups * items, (size_t)s->n, (size_t)kernel.blocks},
                                     .local = {items, 1, 1},
                                     .args = {IST_OUT(s->parts), IST_IN(x->x), IST_IN(x->position), IST_IN(x->map),
                                              IST_IN(s->shift), IST_IN(s->queries), IST_IN(s->limit),
                                              IST_STRUCT(image_read_args, &by_value)},
                                     .arg_count = 8,
                                     .flops = 4.0 * s->n * s->length * s->columns * s->k});
}

static void step(ist_plan *p, const ist_absorbed_kernels *k, ist_image_step_job *s) {
    static const float zeros[IST_IMAGE_CHANNELS] = {0};
    ist_image_side now = *s->side;
    if (s->update) {
        launch_update(p, k, s);
        now = (ist_image_side){.x = s->updated, .position = s->side->position};
        s->shift = ist_plan_const(p, zeros, 1, 1, 1, s->k, IST_ELEM_F32, s->label);
    }
    launch_read(p, k, s, &now);
}

static void merge(ist_plan *p, const ist_absorbed_kernels *k, const ist_merge_job *job, ist_tensor y,
                  const char *label) {
    ist_tensor parts = job->parts;
    ist_tensor weights = ist_head_const(p, job->w, job->k, job->d, label);
    ist_tensor bias = ist_head_const(p, job->b, 1, job->d, label);
    ist_defines defines = defines_of(p, k, job->k, job->tokens);
    const ist_image_merge_args by_value = {.tokens = job->tokens, .groups = parts.h, .d = job->d, .y_ld = y.ld};
    size_t n = (size_t)parts.n, columns = (size_t)job->tokens * HEADS;
    size_t lanes = job->k % k->items ? MERGE_LANES : (size_t)k->items;
    ist_plan_launch(p,
                    &(ist_launch){.label = label,
                                  .op = "portable/two_way",
                                  .defines = defines.text,
                                  .kernel = "image_merge",
                                  .dims = 3,
                                  .global = {lanes, columns, n},
                                  .local = {lanes, 1, 1},
                                  .args = {IST_OUT(y), IST_IN(parts), IST_IN(weights), IST_IN(bias),
                                           IST_IN(ist_plan_current_limit(p)), IST_STRUCT(image_merge_args, &by_value)},
                                  .arg_count = 6,
                                  .flops = 2.0 * parts.n * job->tokens * HEADS * job->k * (parts.h + job->d)});
}

const ist_absorbed_kernels ist_portable_absorbed_256 = {false, 256, group_rows, fold, step, merge};
const ist_absorbed_kernels ist_portable_absorbed_64 = {false, 64, group_rows, fold, step, merge};
