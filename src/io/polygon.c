/* Polygons to run lengths: see polygon.h.
 *
 * Only grid points on both sides of a column's middle matter, so an edge is never walked: each column it passes costs
 * one point (edges nearer to horizontal) or one search over its rows (nearer to vertical). */
#include "io/polygon.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Grid points per pixel, and the last one in the left half of pixel 0. */
enum { FINE = 5, MIDDLE = 2 };

/* An edge between grid points, from its lower to its higher end along the axis it is nearer to. */
typedef struct edge {
    int x, y;     /* the lower end */
    int steps;    /* grid points along that axis, less one */
    double slope; /* of the other coordinate per step; its points are rounded as C rounds after adding a half */
} edge;

static int fine(double coordinate) {
    return (int)(FINE * coordinate + .5);
}

static int point(int start, double slope, int step) {
    return (int)(start + slope * step + .5);
}

/* The row at which an edge nearer to vertical goes from grid column c to c + 1 or back: the last point before. */
static int row_of_steep(const edge *e, int c) {
    int low = 0, high = e->steps;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        bool right = point(e->x, e->slope, middle) > c;
        if (right == (e->slope < 0))
            low = middle;
        else
            high = middle;
    }
    return e->y + low;
}

/* The smaller row of an edge nearer to horizontal at grid columns c and c + 1. */
static int row_of_flat(const edge *e, int c) {
    int a = point(e->y, e->slope, c - e->x), b = point(e->y, e->slope, c + 1 - e->x);
    return a < b ? a : b;
}

/* The first pixel row whose middle lies at or below a grid row, 0 to height. */
static int pixel_row(int row, int height) {
    if (row <= MIDDLE) return 0;
    int y = (row - MIDDLE + FINE - 1) / FINE;
    return y < height ? y : height;
}

static ist_status draw_edge(ist_raster *r, int x0, int y0, int x1, int y1, ist_error *err) {
    int dx = abs(x1 - x0), dy = abs(y1 - y0);
    bool steep = dx < dy;
    if (!dx) return IST_OK;
    if (steep ? y0 > y1 : x0 > x1) {
        int x = x0, y = y0;
        x0 = x1, y0 = y1, x1 = x, y1 = y;
    }
    edge e = {
        .x = x0, .y = y0, .steps = steep ? dy : dx, .slope = steep ? (double)(x1 - x0) / dy : (double)(y1 - y0) / dx};
    int left = x0 < x1 ? x0 : x1, right = x0 < x1 ? x1 : x0;
    int first = left <= MIDDLE ? 0 : (left - MIDDLE + FINE - 1) / FINE;
    int last = right <= MIDDLE ? -1 : (right - MIDDLE - 1) / FINE;
    if (last > r->width - 1) last = r->width - 1;
    if (first > last) return IST_OK;
    size_t count = (size_t)(last - first) + 1;
    if (count > IST_POLYGON_CROSSINGS - r->total)
        return ist_fail(err, IST_E_LIMIT, "the outlines pass more than %zu columns", IST_POLYGON_CROSSINGS);
    r->total += count;
    if (!ist_grow((void **)&r->crossings, &r->crossing_capacity, r->crossing_count + count, sizeof *r->crossings))
        return ist_fail(err, IST_E_MEMORY, "out of memory for an outline through %zu columns", r->crossing_count);
    for (int x = first; x <= last; x++) {
        int c = FINE * x + MIDDLE, row = steep ? row_of_steep(&e, c) : row_of_flat(&e, c);
        r->crossings[r->crossing_count++] = (uint32_t)x * (uint32_t)r->height + (uint32_t)pixel_row(row, r->height);
    }
    return IST_OK;
}

static int compare_crossings(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int compare_spans(const void *a, const void *b) {
    uint32_t x = ((const ist_span *)a)->begin, y = ((const ist_span *)b)->begin;
    return (x > y) - (x < y);
}

static ist_status add_span(ist_raster *r, uint32_t begin, uint32_t end, ist_error *err) {
    if (!ist_grow((void **)&r->spans, &r->span_capacity, r->span_count + 1, sizeof *r->spans))
        return ist_fail(err, IST_E_MEMORY, "out of memory for a mask of %zu runs", r->span_count);
    r->spans[r->span_count++] = (ist_span){begin, end};
    return IST_OK;
}

/* Crossings to spans: where an even number falls on one pixel, nothing changes. */
static ist_status fill(ist_raster *r, ist_error *err) {
    uint32_t pixels = (uint32_t)r->width * (uint32_t)r->height, begin = 0;
    bool inside = false;
    if (r->crossing_count) qsort(r->crossings, r->crossing_count, sizeof *r->crossings, compare_crossings);
    for (size_t i = 0, next; i < r->crossing_count; i = next) {
        for (next = i + 1; next < r->crossing_count && r->crossings[next] == r->crossings[i];) next++;
        if ((next - i) % 2 == 0 || r->crossings[i] >= pixels) continue;
        if (inside) IST_TRY(add_span(r, begin, r->crossings[i], err));
        begin = r->crossings[i];
        inside = !inside;
    }
    return inside ? add_span(r, begin, pixels, err) : IST_OK;
}

ist_status ist_raster_add(ist_raster *r, const double *xy, size_t count, ist_error *err) {
    for (size_t i = 0; i < 2 * count; i++)
        if (!(fabs(xy[i]) <= IST_POLYGON_REACH))
            return ist_fail(err, IST_E_INPUT, "a polygon's coordinate is %g, the limit is %g", xy[i],
                            IST_POLYGON_REACH);
    r->crossing_count = 0;
    for (size_t i = 0; i < count; i++) {
        const double *a = xy + 2 * i, *b = i + 1 < count ? a + 2 : xy;
        IST_TRY(draw_edge(r, fine(a[0]), fine(a[1]), fine(b[0]), fine(b[1]), err));
    }
    return fill(r, err);
}

static bool add_runs(ist_rle *rle, uint32_t *at, uint32_t begin, uint32_t end) {
    bool added = ist_rle_add(rle, begin - *at) && ist_rle_add(rle, end - begin);
    *at = end;
    return added;
}

ist_status ist_raster_finish(ist_raster *r, ist_rle *rle, ist_error *err) {
    uint32_t pixels = (uint32_t)r->width * (uint32_t)r->height, at = 0;
    bool added = true;
    rle->count = 0;
    if (r->span_count) qsort(r->spans, r->span_count, sizeof *r->spans, compare_spans);
    for (size_t i = 0; i < r->span_count && added;) {
        uint32_t begin = r->spans[i].begin, end = r->spans[i].end;
        for (i++; i < r->span_count && r->spans[i].begin <= end; i++)
            if (r->spans[i].end > end) end = r->spans[i].end;
        added = add_runs(rle, &at, begin, end);
    }
    if (added && at < pixels) added = ist_rle_add(rle, pixels - at);
    r->span_count = 0;
    r->total = 0;
    return added ? IST_OK : ist_fail(err, IST_E_MEMORY, "out of memory for a mask of %zu runs", rle->count);
}

void ist_raster_free(ist_raster *r) {
    free(r->spans);
    free(r->crossings);
    *r = (ist_raster){0};
}
