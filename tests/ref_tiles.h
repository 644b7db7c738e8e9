/* What detections of tiles become, as scalar code: TILE_MERGE of graph/nodes.h. */
#ifndef REF_TILES_H
#define REF_TILES_H

#include "ref.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct ref_tile {
    int x, y, width, height;
} ref_tile;

/* Of an image of w x h pixels in tiles: in pixels of the image. */
typedef struct ref_detection {
    int label, query, tile;
    float score, box[4];
} ref_detection;

static inline bool ref_ends_at_border(const ref_detection *d, const ref_tile *t, int w, int h) {
    const float near_x = (float)t->width / 64, near_y = (float)t->height / 64;
    return (t->x > 0 && d->box[0] < (float)t->x + near_x) || (t->y > 0 && d->box[1] < (float)t->y + near_y) ||
           (t->x + t->width < w && d->box[2] > (float)(t->x + t->width) - near_x) ||
           (t->y + t->height < h && d->box[3] > (float)(t->y + t->height) - near_y);
}

static inline double ref_covered(const float *a, const float *b) {
    double w = (double)(a[2] < b[2] ? a[2] : b[2]) - (double)(a[0] > b[0] ? a[0] : b[0]);
    double h = (double)(a[3] < b[3] ? a[3] : b[3]) - (double)(a[1] > b[1] ? a[1] : b[1]);
    double area = ((double)a[2] - (double)a[0]) * ((double)a[3] - (double)a[1]);
    return w > 0 && h > 0 && area > 0 ? w * h / area : 0;
}

/* Writes those of the `count` detections that stay, best first; returns how many. */
static inline int ref_tiles_stay(const ref_detection *all, int count, const ref_tile *tiles, int w, int h, double iou,
                                 bool agnostic, int *stay) {
    size_t n = count ? (size_t)count : 1;
    float *boxes = malloc(4 * n * sizeof *boxes), *scores = malloc(n * sizeof *scores);
    int *labels = malloc(n * sizeof *labels), *index = malloc(n * sizeof *index), kept, left = 0;
    bool *part = calloc(n, sizeof *part), *gone = calloc(n, sizeof *gone);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 4; k++) boxes[4 * i + k] = all[i].box[k];
        scores[i] = all[i].score;
        labels[i] = all[i].label;
    }
    kept = ref_nms(boxes, scores, agnostic ? NULL : labels, count, iou, index);
    for (int i = 0; i < kept; i++) part[i] = ref_ends_at_border(&all[index[i]], &tiles[all[index[i]].tile], w, h);
    for (int i = 0; i < kept; i++)
        for (int k = 0; k < kept && part[i] && !gone[i]; k++) {
            const ref_detection *own = &all[index[i]], *other = &all[index[k]];
            if (k == i || gone[k] || (part[k] && k > i) || (!agnostic && own->label != other->label)) continue;
            gone[i] = ref_covered(own->box, other->box) > iou;
        }
    for (int i = 0; i < kept; i++)
        if (!gone[i]) stay[left++] = index[i];
    free(boxes), free(scores), free(labels), free(index), free(part), free(gone);
    return left;
}

#endif
