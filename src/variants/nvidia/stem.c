/* HGNetv2's stem as one launch on matrix instructions: packs the five layers' weights as fragments and records it
 * (cl/nvidia/stem). */
#include "variants/fragments.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of the kernel. */
enum { INPUTS = 32, OUTPUTS = 8, LAYERS = 5, SCALES = 16 };
/* Of local memory: what there is (cl/probe/ptx_mma.cl); for two groups side by side where there is more (ptx_wgmma.cl).
 */
enum { MOST_BYTES = 97 << 10, LARGE_BYTES = 112 << 10 };

/* Pixels of a group, its work-items; the first one that fits. */
typedef struct tile {
    int h, w, items;
} tile;
static const tile tiles[] = {{10, 10, 512}, {8, 8, 256}, {4, 8, 256}};

/* How a layer's inputs follow each other: per tap (stem1: per line of taps) `each` of them, rounded up from what there
 * is; `outs` channels with those that are added. */
typedef struct layout {
    int each, outs;
} layout;

static int sixteens(int channels) {
    return ist_div_up(channels, 16) * 16;
}

static void layouts_of(const ist_stem_layer layers[LAYERS], layout l[LAYERS]) {
    int m = layers[0].f.out, mp = sixteens(m), zp = sixteens(m / 2);
    l[0] = (layout){16, mp};
    l[1] = (layout){mp, zp};
    l[2] = (layout){zp, m};
    l[3] = (layout){2 * m, mp};
    l[4] = (layout){mp, layers[4].f.out};
}

/* Of a layer, in whole 32 inputs. */
static int inputs_of(const ist_filter *f, const layout *l, bool lines) {
    return ist_div_up((lines ? f->kh : f->kh * f->kw) * l->each, INPUTS) * INPUTS;
}

static size_t weights_of(const ist_stem_layer layers[LAYERS], const layout l[LAYERS]) {
    size_t count = 0;
    for (int i = 0; i < LAYERS; i++) count += (size_t)inputs_of(&layers[i].f, &l[i], i == 0) * (size_t)l[i].outs;
    return count;
}

/* Bytes of local memory. */
static size_t room(const ist_stem_layer layers[LAYERS], tile t) {
    layout l[LAYERS];
    layouts_of(layers, l);
    size_t cat = (size_t)(2 * t.h + 1) * (size_t)(2 * t.w + 1), z = (size_t)(2 * t.h + 2) * (size_t)(2 * t.w + 2);
    size_t y = (size_t)(2 * t.h + 3) * (size_t)(2 * t.w + 3),
           image = (size_t)(4 * t.h + 7) * (size_t)(6 * t.w + 14) * 4;
    size_t maps = y * (size_t)(l[0].outs * 2 + 16) + cat * (size_t)(l[3].each * 2 + 16);
    size_t third = (size_t)(t.h * t.w) * (size_t)(l[3].outs * 2 + 16), first = z * (size_t)(l[1].outs * 2 + 16);
    if (first < image + 16) first = image + 16; /* image, z and stem3's result in turn */
    return (first > third ? first : third) + maps + 2 * weights_of(layers, l) + 4 * (size_t)(SCALES + 5 * 64);
}

/* NULL: none fits. The first one needs more local memory, which its variant's configuration says there is. */
static const tile *tile_of(const ist_plan *p, const ist_variant *v, const ist_stem_layer layers[LAYERS]) {
    const bool *more = v->config;
    bool large = *more || ist_device_local_bytes(ist_plan_device(p)) >= LARGE_BYTES;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        if (room(layers, tiles[i]) <= (large && !i ? LARGE_BYTES : MOST_BYTES)) return &tiles[i];
    return NULL;
}

/* Few groups: with more, what they compute twice costs more than the launches and the maps that they save. */
static bool few_groups(const ist_plan *p, ist_tensor image, const tile *t) {
    enum { GROUPS_OF_UNIT = 8, PIXELS = 64 };
    double groups = (double)image.n * ist_div_up(image.h / 4, t->h) * ist_div_up(image.w / 4, t->w);
    return groups * t->h * t->w / PIXELS <= (double)GROUPS_OF_UNIT * ist_plan_units(p);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_stem *q = node;
    const tile *t = tile_of(p, v, q->layers);
    return q->image.elem == IST_ELEM_T && q->image.c == 3 && q->layers[0].f.out % 8 == 0 &&
           q->layers[4].f.out % 8 == 0 && t && few_groups(p, q->image, t);
}

/* Fragments of a layer; room is [outs][inputs]. */
static float *pack_layer(const ist_filter *f, const layout *l, bool lines, float *room, float *to) {
    int inputs = inputs_of(f, l, lines);
    memset(room, 0, (size_t)inputs * (size_t)l->outs * sizeof *room);
    for (int o = 0; o < f->out; o++)
        for (int i = 0; i < f->in; i++)
            for (int t = 0; t < f->kh * f->kw; t++) {
                int at = lines ? t / f->kw * l->each + t % f->kw * f->in + i : t * l->each + i;
                room[o * inputs + at] = f->w[(o * f->in + i) * f->kh * f->kw + t];
            }
    for (int k = 0; k < inputs; k += INPUTS)
        to = ist_fragments(room + k, l->outs / OUTPUTS, 1, (size_t)inputs, false, to);
    return to;
}

typedef struct packed {
    ist_tensor weights, constants;
} packed;

static bool pack(ist_plan *p, const ist_stem_layer layers[LAYERS], const char *label, packed *c) {
    layout l[LAYERS];
    layouts_of(layers, l);
    size_t count = weights_of(layers, l), biases = SCALES;
    for (int i = 0; i < LAYERS; i++) biases += (size_t)l[i].outs;
    float *w = malloc(count * sizeof *w), *turned = malloc(count * sizeof *turned);
    float *b = calloc(biases, sizeof *b), *to = turned, *bias = b ? b + SCALES : NULL;
    for (int i = 0; i < LAYERS && w && turned && b; i++) {
        to = pack_layer(&layers[i].f, &l[i], i == 0, w, to);
        b[2 * i] = layers[i].lab_scale;
        b[2 * i + 1] = layers[i].lab_bias;
        if (layers[i].f.b) memcpy(bias, layers[i].f.b, (size_t)layers[i].f.out * sizeof *bias);
        bias += l[i].outs;
    }
    if (w && turned && b) {
        c->weights = ist_plan_const(p, turned, 1, 1, 1, (int)count, IST_ELEM_T, label);
        c->constants = ist_plan_const(p, b, 1, 1, 1, (int)biases, IST_ELEM_F32, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
    }
    free(w);
    free(turned);
    free(b);
    return !ist_plan_status(p);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_stem *q = node;
    const ist_stem_layer *layers = q->layers;
    ist_tensor image = q->image, y = q->y;
    packed c;
    const tile *t = tile_of(p, v, layers);
    (void)way;
    if (!pack(p, layers, q->label, &c)) return;
    int across = ist_div_up(y.w, t->w), count = across * ist_div_up(y.h, t->h);
    ist_defines d = ist_defines_of(p, "-DTHREADS=%d -DM=%d -DOUT=%d -DTILE_H=%d -DTILE_W=%d", t->items, layers[0].f.out,
                                   layers[4].f.out, t->h, t->w);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "nvidia/stem",
                                     .isa = "nvidia/ptx",
                                     .defines = d.text,
                                     .kernel = "stem",
                                     .dims = 2,
                                     .global = {(size_t)(count * t->items), (size_t)image.n},
                                     .local = {(size_t)t->items, 1},
                                     .args = {IST_OUT(y), IST_IN(image), IST_IN(c.weights), IST_IN(c.constants),
                                              IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(image.h, image.w, image.ld, image.c0),
                                              IST_INT4(y.n, y.ld, y.c0, across)},
                                     .arg_count = 7,
                                     .flops = 2 * ist_multiply_adds(IST_NODE_STEM, q),
                                     .bytes = 2.0 * (ist_pixels(image) * 3.0 + (double)ist_pixels(y) * y.c)});
}

const ist_family ist_nvidia_stem = {.takes = takes, .emit = emit};
