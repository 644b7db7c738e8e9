/* See trust.h. */
#include "pipeline/trust.h"

#include "base/mem.h"
#include "graph/trust.h"
#include "variants/trust_args.h"

#include <stdlib.h>
#include <string.h>

/* X(name): kernel trust_NAME */
#define KERNELS(X) X(gray) X(begin) X(weights) X(columns) X(sums) X(lines) X(end) X(keep)

enum {
#define X(name) KERNEL_##name,
    KERNELS(X)
#undef X
        KERNEL_COUNT
};

enum { WEIGHTS = 3, TABLE_WORDS = IST_TT_HEADER + IST_TRUST_TRACKS * IST_TT_WORDS };

struct ist_trust_stage {
    ist_trust_options options;
    cl_kernel kernels[KERNEL_COUNT];
    cl_mem table, sums;                        /* two tables; [place][sum] */
    cl_mem gray, shown, masks, partial, lines; /* see trust.cl */
    size_t pixels, words, width;               /* that there is room for */
    bool half;                                 /* which table is the next one */
};

static ist_status open_kernels(ist_engine *e, ist_trust_stage *t, ist_error *err) {
    static const char *const names[] = {
#define X(name) "trust_" #name,
        KERNELS(X)
#undef X
    };
    for (int i = 0; i < KERNEL_COUNT; i++)
        IST_TRY(ist_kernel_create(e->device, "portable/trust", "codes/frame+codes/trust+portable/frame", "", names[i],
                                  &t->kernels[i], err));
    return IST_OK;
}

ist_status ist_trust_open(ist_engine *e, const ist_trust_options *options, ist_trust_stage **stage, ist_error *err) {
    if (!(ist_device_caps(e->device) & IST_CAP_INT64))
        return ist_fail(err, IST_E_UNSUPPORTED, "trust: %s has no 64-bit integers", ist_device_facts(e->device)->name);
    ist_trust_stage *t = *stage = calloc(1, sizeof *t);
    if (!t) return ist_fail(err, IST_E_MEMORY, "trust: out of host memory");
    t->options = *options;
    IST_TRY(open_kernels(e, t, err));
    IST_TRY(ist_buffer_zeroed(e->device, 2 * TABLE_WORDS * sizeof(int32_t), "tracks", &t->table, err));
    return ist_buffer_create(e->device, (size_t)IST_TRUST_TRACKS * IST_SUMS * sizeof(int64_t), "sums of tracks",
                             &t->sums, err);
}

static void release_frames(ist_engine *e, ist_trust_stage *t) {
    ist_buffer_release(e->device, &t->gray);
    ist_buffer_release(e->device, &t->shown);
    ist_buffer_release(e->device, &t->masks);
    ist_buffer_release(e->device, &t->partial);
    ist_buffer_release(e->device, &t->lines);
    t->pixels = t->words = t->width = 0;
}

void ist_trust_close(ist_engine *e, ist_trust_stage **stage) {
    ist_trust_stage *t = *stage;
    if (!t) return;
    release_frames(e, t);
    ist_buffer_release(e->device, &t->table);
    ist_buffer_release(e->device, &t->sums);
    for (int i = 0; i < KERNEL_COUNT; i++) ist_kernel_release(&t->kernels[i]);
    free(t);
    *stage = NULL;
}

static size_t words_of(int width, int height) {
    return (size_t)width * (size_t)ist_div_up(height, 32);
}

size_t ist_trust_record_words(const ist_trust_stage *t) {
    return t ? (size_t)IST_TRUST_TRACKS * IST_TS_WORDS : 0;
}

size_t ist_trust_weight_words(const ist_trust_stage *t, int width, int height) {
    return t ? (size_t)IST_TRUST_TRACKS * WEIGHTS * words_of(width, height) : 0;
}

bool ist_trust_reads_weights(const ist_trust_stage *t) {
    return t && t->options.weights;
}

ist_status ist_trust_reserve(ist_engine *e, ist_trust_stage *t, int width, int height, ist_error *err) {
    size_t pixels = (size_t)width * (size_t)height, words = words_of(width, height), columns = (size_t)width;
    if (pixels <= t->pixels && words <= t->words && columns <= t->width) return IST_OK;
    if (pixels < t->pixels) pixels = t->pixels;
    if (words < t->words) words = t->words;
    if (columns < t->width) columns = t->width;
    release_frames(e, t);
    IST_TRY(ist_buffer_create(e->device, 2 * pixels, "gray frames", &t->gray, err));
    IST_TRY(ist_buffer_create(e->device, IST_TRUST_TRACKS * pixels, "frames of tracks", &t->shown, err));
    IST_TRY(ist_buffer_create(e->device, 2 * IST_TRUST_TRACKS * words * sizeof(uint32_t), "masks of tracks", &t->masks,
                              err));
    IST_TRY(ist_buffer_create(e->device,
                              (size_t)IST_TRUST_TRACKS * IST_SUMS * IST_TRUST_PARTS * columns * sizeof(int64_t),
                              "sums of columns", &t->partial, err));
    IST_TRY(ist_buffer_create(e->device, IST_TRUST_TRACKS * (columns + words) * sizeof(uint32_t), "lines of tracks",
                              &t->lines, err));
    t->pixels = pixels, t->words = words, t->width = columns;
    return IST_OK;
}

/* Sets the buffers and, behind them, the struct. */
static ist_status launch(ist_engine *e, const ist_trust_stage *t, int kernel, const cl_mem *buffers, cl_uint count,
                         const ist_trust_args *args, int dims, const size_t global[3], ist_error *err) {
    cl_int rc = CL_SUCCESS;
    for (cl_uint i = 0; i < count && rc == CL_SUCCESS; i++)
        rc = clSetKernelArg(t->kernels[kernel], i, sizeof buffers[i], &buffers[i]);
    if (rc == CL_SUCCESS) rc = clSetKernelArg(t->kernels[kernel], count, sizeof *args, args);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clSetKernelArg", "trust, kernel %d", kernel);
    return ist_enqueue(e->device, t->kernels[kernel], dims, global, NULL, "trust", err);
}

#define LAUNCH(name, dims, x, y, z, ...)                                                                               \
    IST_TRY(launch(e, t, KERNEL_##name, (const cl_mem[]){__VA_ARGS__},                                                 \
                   sizeof((const cl_mem[]){__VA_ARGS__}) / sizeof(cl_mem), &args, dims, (const size_t[3]){x, y, z},    \
                   err))

ist_status ist_trust_enqueue(ist_engine *e, ist_trust_stage *t, const ist_slot *s, const ist_image *image, bool reset,
                             ist_error *err) {
    size_t masks = ist_packet_masks_at(e->config.batch, e->objects), records = masks + s->mask_words + s->logit_words;
    size_t width = (size_t)image->width, height = (size_t)image->height, blocks = (size_t)ist_div_up(image->height, 32);
    const ist_trust_options *o = &t->options;
    if (records + ist_trust_record_words(t) + ist_trust_weight_words(t, image->width, image->height) > INT32_MAX)
        return ist_fail(err, IST_E_LIMIT, "trust: an image of %d x %d pixels", image->width, image->height);
    const ist_trust_args args = {.width = image->width,
                                 .height = image->height,
                                 .blocks = (int)blocks,
                                 .turn = t->half,
                                 .objects_at = (int)ist_packet_objects_at(e->config.batch),
                                 .masks_at = (int)masks,
                                 .records_at = (int)records,
                                 .weights_at = (int)(records + ist_trust_record_words(t)),
                                 .tracks = e->config.match == IST_MATCH_TRACKS,
                                 .age = e->config.track_age,
                                 .n_lost = o->n_lost,
                                 .reset = reset,
                                 .tau_conf = o->tau_conf,
                                 .theta_on = o->theta_on,
                                 .theta_off = o->theta_off,
                                 .theta_cont = o->theta_cont};
    cl_mem pixels = image->cl_buffer ? (cl_mem)image->cl_buffer : s->upload;
    LAUNCH(gray, 2, width, height, 1, t->gray, pixels, s->upload);
    LAUNCH(begin, 1, 1, 1, 1, t->table, s->packet);
    LAUNCH(weights, 3, width, blocks, IST_TRUST_TRACKS, s->packet, s->store, t->table, t->masks);
    LAUNCH(columns, 2, width * IST_TRUST_PARTS, IST_TRUST_TRACKS, 1, t->partial, s->packet, t->table, t->masks, t->gray,
           t->shown);
    LAUNCH(sums, 2, IST_SUMS, IST_TRUST_TRACKS, 1, t->sums, t->partial, s->packet, t->table);
    LAUNCH(lines, 2, width + blocks, IST_TRUST_TRACKS, 1, t->lines, s->packet, t->table, t->masks);
    LAUNCH(end, 1, IST_TRUST_TRACKS, 1, 1, s->packet, t->table, t->sums, t->lines);
    LAUNCH(keep, 2, (width * height + IST_TRUST_KEPT - 1) / IST_TRUST_KEPT, IST_TRUST_TRACKS, 1, t->shown, t->table,
           t->gray);
    return IST_OK;
}

void ist_trust_advance(ist_trust_stage *t) {
    t->half = !t->half;
}

/* ---- results ---- */

static float float_at(const uint32_t *words, size_t i) {
    float f;
    memcpy(&f, words + i, sizeof f);
    return f;
}

static ist_mask weight(const uint32_t *bits, const ist_frame *f, int which) {
    return (ist_mask){.columns = f->width,
                      .words = ist_div_up(f->height, 32),
                      .bits = bits + (size_t)which * words_of(f->width, f->height)};
}

ist_status ist_trust_unpack(const ist_engine *e, const ist_trust_stage *t, ist_slot *s, ist_error *err) {
    ist_frame *f = &s->frames[0];
    size_t masks = ist_packet_masks_at(e->config.batch, e->objects);
    const uint32_t *r = (const uint32_t *)s->landing.data + masks + s->mask_words + s->logit_words;
    const uint32_t *weights = r + ist_trust_record_words(t);
    f->trust_count = 0;
    for (int i = 0; i < IST_TRUST_TRACKS; i++, r += IST_TS_WORDS) {
        int object = (int)r[IST_TS_OBJECT];
        if (!r[IST_TS_ID]) continue;
        if (object < -1 || object >= f->object_count || r[IST_TS_STATE] > IST_VISIBLE)
            return ist_fail(err, IST_E_DEVICE, "packet: track %u has object %d of %d and state %u", r[IST_TS_ID],
                            object, f->object_count, r[IST_TS_STATE]);
        ist_trust *o = &s->trust[f->trust_count++];
        *o = (ist_trust){.track = (int)r[IST_TS_ID],
                         .object = object,
                         .state = (ist_visibility)r[IST_TS_STATE],
                         .sharpness = float_at(r, IST_TS_SCORES),
                         .contrast = float_at(r, IST_TS_SCORES + 1),
                         .continuity = float_at(r, IST_TS_SCORES + 2),
                         .stability = float_at(r, IST_TS_SCORES + 3),
                         .geometry = float_at(r, IST_TS_SCORES + 4),
                         .appearance = float_at(r, IST_TS_SCORES + 5),
                         .depth = float_at(r, IST_TS_SCORES + 6),
                         .s = float_at(r, IST_TS_S),
                         .c = float_at(r, IST_TS_C)};
        if (!t->options.weights || object < 0) continue;
        const uint32_t *bits = weights + (size_t)i * WEIGHTS * words_of(f->width, f->height);
        o->edge = weight(bits, f, 0);
        o->in = weight(bits, f, 1);
        o->out = weight(bits, f, 2);
    }
    f->trust = s->trust;
    return IST_OK;
}
