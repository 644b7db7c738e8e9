/* GRID_CLEAN: small holes filled and small islands removed as segment-anything's remove_small_regions does, with
 * regions found by flooding; then those that changed give way to those that did not. By every variant of the table. */
#include "graph/found.h"
#include "support/each_variant.h"
#include "support/external.h"
#include "variants/upload.h"

#include <stdlib.h>

enum { UPLOAD, FOUND, STORE, REGIONS, WIDTH = 70, HEIGHT = 75, COLUMN = 3, CROPS = 2, MASKS = 11, CAPACITY = 40 };
enum { PIXELS = WIDTH * HEIGHT, STORE_WORDS = WIDTH * COLUMN + 2 };

static const int crops[CROPS][4] = {{0, 0, WIDTH, HEIGHT}, {10, 35, 61, 73}};

typedef struct mask {
    bool bit[PIXELS];                  /* row by row */
    int crop, candidate, area, box[4]; /* x0 x1 y0 y1 */
    bool changed;
} mask;

/* ---- the published way ---- */

/* Labels of 8-connected regions of `value`, -1 elsewhere, and their sizes; how many. */
static int flood(const bool *bit, bool value, int *label, int *size) {
    int *stack = malloc(sizeof *stack * PIXELS), count = 0;
    for (int i = 0; i < PIXELS; i++) label[i] = -1;
    for (int i = 0; i < PIXELS; i++) {
        if (bit[i] != value || label[i] >= 0) continue;
        int top = 0;
        size[count] = 0;
        label[stack[top++] = i] = count;
        while (top) {
            const int p = stack[--top], px = p % WIDTH, py = p / WIDTH;
            size[count]++;
            for (int y = py - 1; y <= py + 1; y++)
                for (int x = px - 1; x <= px + 1; x++) {
                    if (x < 0 || x >= WIDTH || y < 0 || y >= HEIGHT) continue;
                    const int q = y * WIDTH + x;
                    if (bit[q] != value || label[q] >= 0) continue;
                    label[stack[top++] = q] = count;
                }
        }
        count++;
    }
    free(stack);
    return count;
}

/* Of islands all of which are small the largest stays, of several the one that OpenCV numbers first: it goes through
 * blocks of two by two. */
static bool ref_remove(mask *m, bool holes, int least) {
    int *label = malloc(sizeof *label * PIXELS), *size = malloc(sizeof *size * PIXELS), staying = -1, most = 0;
    const int count = flood(m->bit, !holes, label, size);
    bool small = false, large = false;
    for (int i = 0; i < count; i++) {
        small |= size[i] < least;
        large |= size[i] >= least;
        most = size[i] > most ? size[i] : most;
    }
    for (int b = 0; b < PIXELS && !holes && !large && staying < 0; b++) { /* more blocks than there are */
        const int across = (WIDTH + 1) / 2, x0 = b % across * 2, y0 = b / across * 2;
        for (int k = 0; k < 4 && staying < 0; k++) {
            const int x = x0 + k % 2, y = y0 + k / 2;
            if (x >= WIDTH || y >= HEIGHT) continue;
            const int l = label[y * WIDTH + x];
            if (l >= 0 && size[l] == most) staying = l;
        }
    }
    for (int i = 0; i < PIXELS && small; i++)
        if (label[i] >= 0 && label[i] != staying && size[label[i]] < least) m->bit[i] = holes;
    free(label);
    free(size);
    return small;
}

static void measure(mask *m) {
    m->area = 0;
    memcpy(m->box, (int[4]){WIDTH, -1, HEIGHT, -1}, sizeof m->box);
    for (int i = 0; i < PIXELS; i++) {
        if (!m->bit[i]) continue;
        const int x = i % WIDTH, y = i / WIDTH;
        m->area++;
        if (x < m->box[0]) m->box[0] = x;
        if (x > m->box[1]) m->box[1] = x;
        if (y < m->box[2]) m->box[2] = y;
        if (y > m->box[3]) m->box[3] = y;
    }
    if (!m->area) memset(m->box, 0, sizeof m->box);
}

static void ref_clean(mask *m, int least) {
    const bool filled = ref_remove(m, true, least), removed = ref_remove(m, false, least);
    m->changed = filled || removed;
    if (m->changed) measure(m);
}

static float overlap(const int *a, const int *b) {
    const int w = (a[1] < b[1] ? a[1] : b[1]) - (a[0] > b[0] ? a[0] : b[0]);
    const int h = (a[3] < b[3] ? a[3] : b[3]) - (a[2] > b[2] ? a[2] : b[2]);
    const float inter = w > 0 && h > 0 ? (float)(w * h) : 0;
    const float both = (float)((a[1] - a[0]) * (a[3] - a[2]) + (b[1] - b[0]) * (b[3] - b[2]));
    return inter > 0 ? inter / (both - inter) : 0;
}

/* Numbers of the masks that stay: the unchanged first. */
static int ref_stay(const mask *m, double threshold, int *stay) {
    int kept = 0;
    for (int changed = 0; changed < 2; changed++)
        for (int i = 0; i < MASKS; i++) {
            bool stays = m[i].changed == changed;
            for (int k = 0; stays && k < kept; k++) stays = !((double)overlap(m[stay[k]].box, m[i].box) > threshold);
            if (stays) stay[kept++] = i;
        }
    return kept;
}

/* ---- scenes ---- */

/* kind 0: noise, 1: noise in blobs, 2: dots of one size, 3: empty, 4: full, 5: a checkerboard, 6: a square, 7: a grid
 * of small squares and one hole. In one crop. */
static void fill(optest *t, mask *m, int kind) {
    const int *c = crops[m->crop], cx = optest_int(t, c[0], c[2]), cy = optest_int(t, c[1], c[3]);
    const int r = optest_int(t, 5, 25), dot = optest_int(t, 2, 4), part = optest_int(t, 2, 8);
    memset(m->bit, 0, sizeof m->bit);
    for (int y = c[1]; y < c[3]; y++)
        for (int x = c[0]; x < c[2]; x++) {
            const bool blob = (x - cx) * (x - cx) + (y - cy) * (y - cy) < r * r;
            const bool some = !optest_int(t, 0, part);
            bool *b = &m->bit[y * WIDTH + x];
            if (kind == 0) *b = some;
            if (kind == 1) *b = blob != some;
            if (kind == 4) *b = true;
            if (kind == 5) *b = (x + y) % 2;
            if (kind == 6) *b = abs(x - cx) < r && abs(y - cy) < r;
            if (kind == 7) *b = (x % 9 < 5 && y % 8 < 5) || (blob && x % 7);
        }
    for (int k = 0; kind == 2 && k < 20; k++) { /* in cells of 12, which do not touch */
        const int x0 = c[0] + k % 4 * 12 + optest_int(t, 0, 6), y0 = c[1] + k / 4 * 12 + optest_int(t, 0, 1);
        for (int j = 0; j < dot * dot && y0 + dot <= c[3] && k % 3; j++)
            m->bit[(y0 + j / dot) * WIDTH + x0 + j % dot] = true;
    }
    measure(m);
}

/* As MASKS leaves it: zeros beside the crop in words that it has a part of, noise in others. */
static void store_mask(optest *t, const mask *m, uint32_t *to) {
    const int *c = crops[m->crop];
    for (int x = 0; x < WIDTH; x++)
        for (int j = 0; j < COLUMN; j++) {
            const bool own = x >= c[0] && x < c[2] && j >= c[1] / 32 && j < (c[3] + 31) / 32;
            uint32_t word = own ? 0 : optest_u32(t);
            for (int y = 32 * j; own && y < 32 * j + 32 && y < HEIGHT; y++)
                word |= (uint32_t)m->bit[y * WIDTH + x] << y % 32;
            to[x * COLUMN + j] = word;
        }
}

static external upload_of(optest *t, int cleaners) {
    const size_t bytes = 4 * (IST_UP_HEADER + (size_t)CROPS * IST_IM_WORDS);
    uint32_t *up = optest_alloc(t, bytes);
    up[IST_UP_STORE_WORDS] = STORE_WORDS;
    up[IST_UP_CLEANERS] = (uint32_t)cleaners;
    for (int c = 0; c < CROPS; c++) {
        uint32_t *im = up + IST_UP_HEADER + c * IST_IM_WORDS;
        im[IST_IM_WIDTH] = (uint32_t)(crops[c][2] - crops[c][0]);
        im[IST_IM_HEIGHT] = (uint32_t)(crops[c][3] - crops[c][1]);
        im[IST_IM_CROP_X] = (uint32_t)crops[c][0];
        im[IST_IM_CROP_Y] = (uint32_t)crops[c][1];
    }
    return external_create(t, up, bytes);
}

static external found_of(optest *t, const mask *m) {
    const size_t words = ist_found_words(CAPACITY);
    int *w = optest_alloc(t, 4 * words), *kept = w + IST_FD_HEADER + CAPACITY * (IST_CD_WORDS + IST_FL_KEPT);
    for (size_t i = IST_FD_HEADER; i < words; i++) w[i] = (int)optest_u32(t);
    w[IST_FD_CANDIDATES] = CAPACITY;
    w[IST_FD_SELECTED] = 1;
    w[IST_FD_KEPT] = w[IST_FD_STORED] = MASKS;
    for (int i = 0; i < MASKS; i++) {
        int *c = w + IST_FD_HEADER + m[i].candidate * IST_CD_WORDS;
        kept[i] = m[i].candidate;
        c[IST_CD_AREA] = m[i].area;
        memcpy(c + IST_CD_X0, m[i].box, sizeof m[i].box);
        c[IST_CD_CROP] = m[i].crop;
        c[IST_CD_CHANGED] = 0;
    }
    return external_create(t, w, 4 * words);
}

static void check_masks(optest *t, const mask *m, const int *place, int count, const external *found,
                        const external *store, const int *stay, int stays) {
    const int *w = external_read(t, found), *kept = w + IST_FD_HEADER + CAPACITY * (IST_CD_WORDS + IST_FL_KEPT);
    const uint32_t *bits = external_read(t, store);
    for (int k = 0; k < count; k++) {
        const mask *x = &m[place[k]];
        const int *c = w + IST_FD_HEADER + x->candidate * IST_CD_WORDS;
        cr_assert_eq(c[IST_CD_CHANGED] != 0, x->changed, "%s, seed %llu: mask %d", t->name, (unsigned long long)t->seed,
                     place[k]);
        cr_assert_eq(c[IST_CD_AREA], x->area, "%s, mask %d: area %d, not %d", t->name, place[k], c[IST_CD_AREA],
                     x->area);
        cr_assert_arr_eq(c + IST_CD_X0, x->box, sizeof x->box, "%s, mask %d", t->name, place[k]);
        for (int i = 0; i < WIDTH * 32 * COLUMN; i++) {
            const int px = i / (32 * COLUMN), py = i % (32 * COLUMN);
            const bool got = bits[(size_t)k * STORE_WORDS + (size_t)(px * COLUMN + py / 32)] >> py % 32 & 1;
            cr_assert_eq(got, py < HEIGHT && x->bit[py * WIDTH + px], "%s, seed %llu, mask %d: pixel %d,%d is %d",
                         t->name, (unsigned long long)t->seed, place[k], px, py, got);
        }
    }
    cr_assert_eq(w[IST_FD_KEPT], stays, "%s, seed %llu: %d masks stay, not %d", t->name, (unsigned long long)t->seed,
                 w[IST_FD_KEPT], stays);
    cr_assert_eq(w[IST_FD_STORED], 0);
    for (int k = 0; k < stays; k++)
        cr_assert_eq(kept[k], m[stay[k]].candidate, "%s: candidate %d is at place %d", t->name, kept[k], k);
}

typedef struct shape {
    int least, cleaners;
    double threshold;
} shape;

static bool clean(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    optest own, *t = &own;
    optest_begin(t, "regions", i);
    mask *m = optest_alloc(t, sizeof *m * MASKS), *raw = optest_alloc(t, sizeof *m * MASKS);
    uint32_t *bits = optest_alloc(t, 4 * STORE_WORDS * MASKS);
    int all[MASKS], stay[MASKS], changed = 0;
    for (int k = 0; k < MASKS; k++) {
        all[k] = k;
        m[k].crop = k % 3 == 2;
        m[k].candidate = (7 * k + (int)i) % CAPACITY;
        fill(t, &m[k], (k + (int)i) % 8);
        store_mask(t, &m[k], bits + (size_t)k * STORE_WORDS);
    }
    memcpy(raw, m, sizeof *m * MASKS);
    external upload = upload_of(t, s->cleaners), found = found_of(t, m);
    external store = external_create(t, bits, 4 * STORE_WORDS * MASKS);
    external regions = external_create(t, NULL, 4 * ist_region_words(WIDTH, HEIGHT) * (size_t)s->cleaners);
    const external *const parts[] = {&upload, &found, &store, &regions};
    ist_grid_clean node = {.label = "clean",
                           .upload = ist_plan_external(t->plan, UPLOAD, IST_ELEM_I32),
                           .found = ist_plan_external(t->plan, FOUND, IST_ELEM_I32),
                           .store = ist_plan_external(t->plan, STORE, IST_ELEM_I32),
                           .regions = ist_plan_external(t->plan, REGIONS, IST_ELEM_I32),
                           .thresh = s->threshold,
                           .least = s->least,
                           .most = MASKS,
                           .capacity = CAPACITY};
    cr_assert(each_emits(t, way, &node));
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    for (int k = 0; k < 4; k++) EXTERNAL_OK(t, ist_plan_bind(t->plan, k, parts[k]->mem, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    for (int k = 0; k < MASKS; k++) {
        ref_clean(&m[k], s->least);
        changed += m[k].changed;
    }
    cr_assert(s->least == 1 ? !changed : changed > 1 && changed < MASKS, "%d of the masks change", changed);
    const int stays = ref_stay(m, s->threshold, stay);
    check_masks(t, m, all, MASKS, &found, &store, stay, stays);
    /* those that stay are stored anew, and cleaned */
    for (int k = 0; k < stays; k++) store_mask(t, &raw[stay[k]], bits + (size_t)k * STORE_WORDS);
    EXTERNAL_OK(t, ist_write(t->device, (ist_frame_scope){0}, store.whole, EXTERNAL_MARGIN, store.bytes, bits, true,
                             "masks", &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    check_masks(t, m, stay, stays, &found, &store, stay, stays);
    external_release(t, &upload);
    external_release(t, &found);
    external_release(t, &store);
    external_release(t, &regions);
    optest_end(t);
    return true;
}

Test(op_regions, as_by_flooding) {
    static const shape all[] = {{9, 2, 0.7}, {25, 11, 0.6}, {4, 1, 1}, {2, 3, 0.3}, {1, 2, 0.7}, {200, 64, 0.9}};
    hide(0);
    for (unsigned i = 0; i < (optest_small() ? 1 : 12); i++)
        each_variant(IST_NODE_GRID_CLEAN, 0, clean, &all[i % 6], i, false);
    each_had_its_case(IST_NODE_GRID_CLEAN, 0);
}
