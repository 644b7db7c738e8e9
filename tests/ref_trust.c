/* See ref_trust.h; the definitions are those of ist_trust in isthmus.h. */
#include "ref_trust.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ref_trust_bit(const ist_mask *m, int x, int y) {
    int c = x - m->x0, r = y - m->y0;
    if (c < 0 || c >= m->columns || r < 0 || r >= 32 * m->words) return false;
    return m->bits[(size_t)c * (size_t)m->words + (size_t)(r / 32)] >> (r % 32) & 1;
}

void ref_trust_weights(const unsigned char *mask, int w, int h, unsigned char *edge, unsigned char *in,
                       unsigned char *out) {
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            bool d3 = false, d5 = false, e3 = true;
            for (int dy = -2; dy <= 2; dy++)
                for (int dx = -2; dx <= 2; dx++) {
                    int u = x + dx, v = y + dy;
                    if (u < 0 || u >= w || v < 0 || v >= h) continue;
                    bool near = abs(dx) < 2 && abs(dy) < 2, set = mask[v * w + u];
                    d5 |= set;
                    if (near) d3 |= set;
                    if (near && !set) e3 = false;
                }
            edge[y * w + x] = d3 && !e3;
            in[y * w + x] = e3;
            out[y * w + x] = d5 && !mask[y * w + x];
        }
}

typedef struct moments {
    double n, x, y, xx, yy, xy;
} moments;

static void add(moments *m, double x, double y) {
    m->n++, m->x += x, m->y += y, m->xx += x * x, m->yy += y * y, m->xy += x * y;
}

static double variance(const moments *m) {
    return m->n > 0 ? (m->xx - m->x * m->x / m->n) / m->n : 0;
}

static double likeness(const moments *m) {
    double vx = m->n * m->xx - m->x * m->x, vy = m->n * m->yy - m->y * m->y;
    double r = vx > 0 && vy > 0 ? (m->n * m->xy - m->x * m->y) / sqrt(vx * vy) : 0;
    return 0.5 + 0.5 * fmin(fmax(r, -1), 1);
}

static int laplacian(const unsigned char *g, int w, int h, int x, int y) {
    int l = x > 0 ? x - 1 : x, r = x + 1 < w ? x + 1 : x, u = y > 0 ? y - 1 : y, d = y + 1 < h ? y + 1 : y;
    return g[y * w + l] + g[y * w + r] + g[u * w + x] + g[d * w + x] - 4 * g[y * w + x];
}

static double box_iou(const float box[4], const int m[4]) {
    double w = fmin((double)box[2], m[2] + 1) - fmax((double)box[0], m[0]);
    double h = fmin((double)box[3], m[3] + 1) - fmax((double)box[1], m[1]);
    double both = fmax(w, 0) * fmax(h, 0);
    double own = fmax((double)box[2] - (double)box[0], 0) * fmax((double)box[3] - (double)box[1], 0);
    double all = own + (m[2] + 1 - m[0]) * (double)(m[3] + 1 - m[1]) - both;
    return all > 0 ? both / all : 0;
}

static double longest_run(const unsigned char *mask, int w, const int box[4]) {
    bool columns = box[2] - box[0] >= box[3] - box[1];
    int lines = columns ? box[2] - box[0] + 1 : box[3] - box[1] + 1, run = 0, best = 0;
    for (int i = 0; i < lines; i++) {
        bool any = false;
        for (int k = columns ? box[1] : box[0]; k <= (columns ? box[3] : box[2]); k++)
            any |= columns ? mask[k * w + box[0] + i] : mask[(box[1] + i) * w + k];
        run = any ? run + 1 : 0;
        if (run > best) best = run;
    }
    return (double)best / lines;
}

static void tight_box(const unsigned char *mask, int w, int h, int box[4]) {
    box[0] = w, box[1] = h, box[2] = box[3] = -1;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            if (mask[y * w + x]) {
                if (x < box[0]) box[0] = x;
                if (x > box[2]) box[2] = x;
                if (y < box[1]) box[1] = y;
                if (y > box[3]) box[3] = y;
            }
}

/* Scores of an object; returns its depth, negative for an empty mask. */
static double judge(const ref_trust *s, const ref_track *t, const unsigned char *g, const unsigned char *mask, int w,
                    int h, const ist_object *o, double score[7]) {
    size_t n = (size_t)w * (size_t)h;
    unsigned char *edge = malloc(3 * n), *in = edge + n, *out = in + n;
    moments lap = {0}, steady = {0}, inner = {0}, outer = {0}, look = {0};
    double rows = 0, both = 0, old = 0;
    int box[4];
    ref_trust_weights(mask, w, h, edge, in, out);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            int i = y * w + x;
            if (edge[i]) add(&lap, laplacian(g, w, h, x, y), 0), add(&steady, g[i], s->gray ? s->gray[i] : 0);
            if (in[i]) add(&inner, g[i], 0);
            if (out[i]) add(&outer, g[i], 0);
            if (mask[i]) add(&look, g[i], t->shown ? t->shown[i] : 0), rows += y;
            if (t->mask) both += mask[i] && t->mask[i], old += t->mask[i];
        }
    free(edge);
    for (int i = 0; i < 7; i++) score[i] = 0;
    if (look.n == 0) return -1;
    tight_box(mask, w, h, box);
    double v = variance(&lap), depth = rows / look.n;
    score[0] = v / (v + 100);
    if (inner.n > 0 && outer.n > 0) {
        double c = fabs(inner.x / inner.n - outer.x / outer.n) / sqrt(variance(&inner) + variance(&outer) + 1);
        score[1] = c / (1 + c);
    }
    score[2] = longest_run(mask, w, box);
    score[3] = steady.n == 0 ? 0 : s->gray ? likeness(&steady) : 0.5;
    score[4] = 0.5 * (box_iou(o->box, box) + (t->mask && look.n + old > both ? both / (look.n + old - both) : 0));
    score[5] = t->shown ? likeness(&look) : 0.5;
    if (t->depth >= 0) score[6] = fmax(0, 1 - fabs(depth - t->depth) / (0.1 * h));
    return depth;
}

static ist_visibility next_state(ref_track *t, double score, double s, double c, const ist_trust_options *o) {
    bool low = score <= (double)o->tau_conf || s < (double)o->theta_off;
    int count = t->low;
    t->low = 0;
    if (t->state == IST_LOST) return score > (double)o->tau_conf ? IST_RELOCALIZING : IST_LOST;
    if (t->state == IST_VISIBLE) return low ? IST_RELOCALIZING : IST_VISIBLE;
    if (low && count + 1 >= o->n_lost) return IST_LOST;
    if (low) t->low = count + 1;
    return !low && s > (double)o->theta_on && c > (double)o->theta_cont ? IST_VISIBLE : IST_RELOCALIZING;
}

static void keep(unsigned char **to, const unsigned char *from, size_t n) {
    if (!*to) *to = malloc(n);
    memcpy(*to, from, n);
}

static void forget(ref_track *t) {
    free(t->mask);
    free(t->shown);
    t->mask = t->shown = NULL;
    t->depth = -1;
}

static ref_track *find(ref_trust *s, int id) {
    for (int i = 0; i < REF_TRUST_TRACKS; i++)
        if (s->tracks[i].id == id) return &s->tracks[i];
    return NULL;
}

int ref_trust_frame(ref_trust *s, const unsigned char *gray, int w, int h, const ist_object *objects, int count,
                    bool tracks, int age, const ist_trust_options *options, ist_trust *out) {
    size_t n = (size_t)w * (size_t)h;
    int object[REF_TRUST_TRACKS], judged = 0;
    if (s->width != w || s->height != h) {
        free(s->gray);
        s->gray = NULL;
        for (int i = 0; i < REF_TRUST_TRACKS; i++) forget(&s->tracks[i]);
    }
    s->width = w, s->height = h;
    for (int i = 0; i < REF_TRUST_TRACKS; i++) object[i] = -1;
    for (int k = 0; k < (tracks ? count : count > 0); k++) {
        int id = tracks ? objects[k].match : 1;
        ref_track *t = id > 0 ? find(s, id) : NULL;
        if (id > 0 && !t && (t = find(s, 0))) {
            *t = (ref_track){.id = id, .state = IST_RELOCALIZING, .depth = -1};
        }
        if (t) object[t - s->tracks] = k;
    }
    unsigned char *mask = malloc(n);
    for (int i = 0; i < REF_TRUST_TRACKS; i++) {
        ref_track *t = &s->tracks[i];
        double score[7] = {0}, depth = -1;
        const ist_object *o = object[i] >= 0 ? &objects[object[i]] : NULL;
        if (!t->id) continue;
        t->unseen = o ? 0 : t->unseen + 1;
        if (tracks && t->unseen > age) {
            forget(t);
            *t = (ref_track){.depth = -1};
            continue;
        }
        for (int y = 0; o && y < h; y++)
            for (int x = 0; x < w; x++) mask[y * w + x] = ref_trust_bit(&o->mask, x, y);
        if (o) depth = judge(s, t, gray, mask, w, h, o, score);
        double S = (score[0] + score[1] + score[2] + score[3]) / 4, C = (score[4] + score[5] + score[6]) / 3;
        t->state = next_state(t, o ? (double)o->score : 0, S, C, options);
        out[judged++] = (ist_trust){.track = t->id,
                                    .object = object[i],
                                    .state = t->state,
                                    .sharpness = (float)score[0],
                                    .contrast = (float)score[1],
                                    .continuity = (float)score[2],
                                    .stability = (float)score[3],
                                    .geometry = (float)score[4],
                                    .appearance = (float)score[5],
                                    .depth = (float)score[6],
                                    .s = (float)S,
                                    .c = (float)C};
        if (!o) continue;
        keep(&t->mask, mask, n);
        if (depth >= 0) t->depth = depth;
        if (t->state == IST_VISIBLE) keep(&t->shown, gray, n);
    }
    free(mask);
    keep(&s->gray, gray, n);
    return judged;
}

void ref_trust_free(ref_trust *s) {
    free(s->gray);
    for (int i = 0; i < REF_TRUST_TRACKS; i++) forget(&s->tracks[i]);
    *s = (ref_trust){0};
}
