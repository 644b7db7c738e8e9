#include "core/arena.h"

#include "base/mem.h"

#include <stdlib.h>

static int by_size_then_start(const void *a, const void *b) {
    const ist_span *x = *(ist_span *const *)a, *y = *(ist_span *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y; /* qsort is not stable: the array order decides, so that placement is reproducible */
}

static int by_offset(const void *a, const void *b) {
    const ist_span *x = *(ist_span *const *)a, *y = *(ist_span *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Lowest offset at which `span` fits between the `count` placed spans in `overlap` (alive at the same time). */
static size_t lowest_gap(ist_span **overlap, int count, const ist_span *span, size_t align) {
    qsort(overlap, (size_t)count, sizeof *overlap, by_offset);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (overlap[i]->offset >= at && overlap[i]->offset - at >= span->bytes) return at;
        size_t end = ist_align_up(overlap[i]->offset + overlap[i]->bytes, align);
        if (end > at) at = end;
    }
    return at;
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

ist_status ist_arena_place(ist_span *spans, int count, size_t align, ist_arena_size *size, ist_error *err) {
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        if (!ist_add_size(sum, spans[i].bytes, &sum) || !ist_add_size(sum, align, &sum))
            return ist_fail(err, IST_E_LIMIT, "arena: the sizes of %d tensors overflow", count);
    ist_span **order = malloc((size_t)(count ? count : 1) * 2 * sizeof *order);
    if (!order) return ist_fail(err, IST_E_MEMORY, "arena: no memory to place %d tensors", count);
    ist_span **overlap = order + count;
    for (int i = 0; i < count; i++) order[i] = &spans[i];
    qsort(order, (size_t)count, sizeof *order, by_size_then_start);

    size->peak = 0;
    for (int i = 0; i < count; i++) {
        int n = 0;
        for (int j = 0; j < i; j++)
            if (order[j]->first <= order[i]->last && order[i]->first <= order[j]->last) overlap[n++] = order[j];
        order[i]->offset = lowest_gap(overlap, n, order[i], align);
        size_t end = ist_align_up(order[i]->offset + order[i]->bytes, align);
        if (end > size->peak) size->peak = end;
    }
    size->lower_bound = most_alive(spans, count, align);
    free(order);
    return IST_OK;
}
