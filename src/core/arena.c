#include "core/arena.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>

static int by_size_then_start(const void *a, const void *b) {
    const ist_span *x = *(ist_span *const *)a, *y = *(ist_span *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y; /* qsort is not stable: the array order decides, so that placement is reproducible */
}

static bool meet(const ist_span *a, const ist_span *b) {
    if (((a->sides & 1) && (b->sides & 2)) || ((a->sides & 2) && (b->sides & 1))) return true;
    return a->first <= b->last && b->first <= a->last;
}

/* Steps that the region's tenants leave unused between them and `span`: the less, the better they follow each other. -1
 * when one of them is alive together with `span`. */
static int idle_steps(ist_span **placed, int count, int region, const ist_span *span) {
    int least = INT_MAX;
    for (int i = 0; i < count; i++) {
        if (placed[i]->region != region) continue;
        if (meet(placed[i], span)) return -1;
        int gap = placed[i]->last < span->first ? span->first - placed[i]->last : placed[i]->first - span->last;
        if (gap < least) least = gap;
    }
    return least;
}

/* The smallest free region, of equal ones the one whose tenants come closest; -1 when none is free. Spans arrive by
 * falling size, so every region is large enough. */
static int best_region(ist_span **placed, int count, const ist_region *regions, int region_count,
                       const ist_span *span) {
    int best = -1, best_idle = INT_MAX;
    for (int r = 0; r < region_count; r++) {
        int idle = idle_steps(placed, count, r, span);
        if (idle < 0) continue;
        if (best < 0 || regions[r].bytes < regions[best].bytes ||
            (regions[r].bytes == regions[best].bytes && idle < best_idle)) {
            best = r;
            best_idle = idle;
        }
    }
    return best;
}

static size_t most_alive(const ist_span *spans, int count, size_t align) {
    size_t most = 0;
    for (int i = 0; i < count; i++) { /* the maximum is reached on some span's first step */
        size_t alive = 0;
        for (int j = 0; j < count; j++)
            if (spans[j].first <= spans[i].first && spans[i].first <= spans[j].last)
                alive += ist_align_up(spans[j].bytes, align);
        if (alive > most) most = alive;
    }
    return most;
}

ist_status ist_arena_place(ist_span *spans, int count, size_t align, ist_region *regions, int *region_count,
                           ist_arena_size *size, ist_error *err) {
    size_t sum = 0;
    *region_count = 0;
    for (int i = 0; i < count; i++)
        if (!ist_add_size(sum, spans[i].bytes, &sum) || !ist_add_size(sum, align, &sum))
            return ist_fail(err, IST_E_LIMIT, "arena: the sizes of %d tensors overflow", count);
    ist_span **order = malloc((count > 0 ? (size_t)count : 1) * sizeof *order);
    if (!order) return ist_fail(err, IST_E_MEMORY, "arena: no memory to place %d tensors", count);
    for (int i = 0; i < count; i++) order[i] = &spans[i];
    qsort(order, (size_t)count, sizeof *order, by_size_then_start);

    size->peak = 0;
    for (int i = 0; i < count; i++) {
        order[i]->region = best_region(order, i, regions, *region_count, order[i]);
        if (order[i]->region >= 0) continue;
        order[i]->region = (*region_count)++;
        regions[order[i]->region] = (ist_region){size->peak, ist_align_up(order[i]->bytes, align)};
        size->peak += regions[order[i]->region].bytes;
    }
    size->lower_bound = most_alive(spans, count, align);
    free(order);
    return IST_OK;
}
