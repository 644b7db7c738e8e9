/* What the results of a node are, and what its operands must be. Whoever sees a refusal here has a checkpoint whose
 * tensors do not fit each other, or has made a mistake: sentences name the layer and the extents. */
#include "graph/shapes_result.h"

enum { CHANNELS_MAX = 1024, HEAD_MAX = 64, POINTS_MAX = 64, SELECT_MAX = 512, SELECT_OF_MAX = 1 << 22, WINDOW_MAX = 16 };
enum { WINDOW_HEAD = 32, BOX = 4, SIDES = 4 };

static bool is_float(ist_tensor t) {
    return t.elem == IST_ELEM_T || t.elem == IST_ELEM_F32;
}

static bool same_pixels(ist_tensor a, ist_tensor b) {
    return a.h == b.h && a.w == b.w && a.c == b.c;
}

static bool filter_is(const ist_filter *f, int out, int in, int k) {
    return f->out == out && f->in == in && f->kh == k && f->kw == k;
}

static bool is_matrix(const ist_filter *f) {
    return f->kh == 1 && f->kw == 1;
}

/* ---- convolutions ---- */

static bool addend_fits(ist_tensor a, ist_tensor y, int shrink) {
    return !ist_has(a) || (is_float(a) && (a.n == 1 || a.n == y.n) && a.h * shrink == y.h && a.w * shrink == y.w &&
                           a.c == y.c);
}

static ist_status check_epilogue(const ist_epilogue *e, ist_tensor y, const char *label, ist_error *err) {
    bool before = addend_fits(e->add_before, y, e->up2 ? 2 : 1);
    if (before && addend_fits(e->add_after, y, 1)) return IST_OK;
    ist_tensor a = before ? e->add_after : e->add_before;
    return ist_fail(err, IST_E_ARGUMENT, "%s: addend [%d,%d,%d,%d] (element type %d%s) to a result [%d,%d,%d,%d]",
                    label, EXTENTS(a), a.elem, e->up2 ? ", upsampled" : "", EXTENTS(y));
}

/* The result of a window of k x k on x. */
static ist_status slide(ist_tensor x, const ist_conv_opts *o, int kh, int kw, int out, ist_tensor *y, const char *label,
                        ist_error *err) {
    int stride = o->stride ? o->stride : 1;
    ist_tensor want = extents(x.n, (x.h + o->top + o->bottom - kh) / stride + 1,
                              (x.w + o->left + o->right - kw) / stride + 1, out, o->exact ? IST_ELEM_F32 : IST_ELEM_T);
    if (ist_has(*y) && !is_float(*y))
        return ist_fail(err, IST_E_ARGUMENT, "%s: the place for the result holds no activations", label);
    IST_TRY(result(y, want, true, label, err));
    return check_epilogue(&o->epi, *y, label, err);
}

static bool window_fits(ist_tensor x, const ist_conv_opts *o, int kh, int kw) {
    return (o->stride ? o->stride : 1) >= 1 && x.h + o->top + o->bottom >= kh && x.w + o->left + o->right >= kw;
}

ist_status ist_infer_conv(void *node, ist_error *err) {
    ist_conv *q = node;
    const ist_filter *f = &q->filter;
    if (f->in != q->x.c || f->out < 1 || f->kh < 1 || f->kw < 1 || !window_fits(q->x, &q->o, f->kh, f->kw) ||
        !is_float(q->x))
        return ist_fail(err, IST_E_ARGUMENT, "%s: filter [%d,%d,%d,%d] with stride %d on [%d,%d,%d,%d]", q->label,
                        f->out, f->in, f->kh, f->kw, q->o.stride ? q->o.stride : 1, EXTENTS(q->x));
    return slide(q->x, &q->o, f->kh, f->kw, f->out, &q->y, q->label, err);
}

ist_status ist_infer_dwconv(void *node, ist_error *err) {
    ist_conv *q = node;
    const ist_filter *f = &q->filter;
    if (f->out != q->x.c || f->in != 1 || f->kh != f->kw || f->kh % 2 == 0 ||
        !window_fits(q->x, &q->o, f->kh, f->kw) || !is_float(q->x))
        return ist_fail(err, IST_E_ARGUMENT, "%s: depthwise filter [%d,%d,%d,%d] with stride %d on [%d,%d,%d,%d]",
                        q->label, f->out, f->in, f->kh, f->kw, q->o.stride ? q->o.stride : 1, EXTENTS(q->x));
    return slide(q->x, &q->o, f->kh, f->kw, f->out, &q->y, q->label, err);
}

ist_status ist_infer_maxpool(void *node, ist_error *err) {
    ist_maxpool *q = node;
    if (q->x.elem != IST_ELEM_T)
        return ist_fail(err, IST_E_ARGUMENT, "%s: the input holds no activations", q->label);
    return result(&q->y, extents(EXTENTS(q->x), IST_ELEM_T), false, q->label, err);
}

/* ---- rows ---- */

static ist_status check_channels(int c, const char *label, ist_error *err) {
    if (c >= 1 && c <= CHANNELS_MAX) return IST_OK;
    return ist_fail(err, IST_E_LIMIT, "%s: normalisation over %d channels, the most is %d", label, c, CHANNELS_MAX);
}

static ist_status check_norm(const ist_affine *norm, int c, const char *label, ist_error *err) {
    if (norm->n == c) return IST_OK;
    return ist_fail(err, IST_E_WEIGHTS, "%s: norm of %d channels, the tensor has %d", label, norm->n, c);
}

ist_status ist_infer_layer_norm(void *node, ist_error *err) {
    ist_layer_norm *q = node;
    IST_TRY(check_channels(q->x.c, q->label, err));
    IST_TRY(check_norm(&q->norm, q->x.c, q->label, err));
    if (ist_has(q->add) && (!same_pixels(q->add, q->x) || (q->add.n != 1 && q->add.n != q->x.n)))
        return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] added to [%d,%d,%d,%d] before the normalisation",
                        q->label, EXTENTS(q->add), EXTENTS(q->x));
    return result(&q->y, extents(EXTENTS(q->x), IST_ELEM_T), false, q->label, err);
}

static ist_status check_values(ist_tensor a, ist_tensor y, const char *label, ist_error *err) {
    if (a.elem != IST_ELEM_U8 && y.elem != IST_ELEM_U8) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: bytes are not activations", label);
}

ist_status ist_infer_add(void *node, ist_error *err) {
    ist_add *q = node;
    bool pixel = ist_tokens_of(q->b) == 1 && ist_tokens_of(q->a) != 1;
    if (q->a.c != q->b.c || (q->b.n != 1 && q->b.n != q->a.n) || (!pixel && (q->b.h != q->a.h || q->b.w != q->a.w)))
        return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] + [%d,%d,%d,%d]", q->label, EXTENTS(q->a),
                        EXTENTS(q->b));
    IST_TRY(result(&q->y, extents(EXTENTS(q->a), q->a.elem), true, q->label, err));
    return check_values(q->a, q->y, q->label, err);
}

ist_status ist_infer_copy(void *node, ist_error *err) {
    ist_copy *q = node;
    bool repeat = q->x.n == 1 && ist_has(q->y) && q->y.n > 1;
    ist_tensor want = extents(repeat ? q->y.n : q->x.n, q->x.h, q->x.w, q->x.c, q->x.elem);
    IST_TRY(result(&q->y, want, true, q->label, err));
    return check_values(q->x, q->y, q->label, err);
}

ist_status ist_infer_copy_rows(void *node, ist_error *err) {
    ist_copy_rows *q = node;
    if (q->x.n != q->into.n || q->x.c != q->into.c || q->first < 0 ||
        ist_tokens_of(q->x) > ist_tokens_of(q->into) - q->first)
        return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] as rows %d and on of [%d,%d,%d,%d]", q->label,
                        EXTENTS(q->x), q->first, EXTENTS(q->into));
    return check_values(q->x, q->into, q->label, err);
}

ist_status ist_infer_put_items(void *node, ist_error *err) {
    ist_put_items *q = node;
    ist_tensor x = q->x, into = q->into, counts = q->counts;
    bool same = x.n == into.n && x.h == into.h && x.w == into.w && x.c == into.c && x.elem == IST_ELEM_F32 &&
                into.elem == IST_ELEM_F32;
    if (!same || counts.elem != IST_ELEM_I32 || counts.c != 1 || counts.ld != 1 || x.n % ist_pixels(counts))
        return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] into [%d,%d,%d,%d] by %d counts", q->label, EXTENTS(x),
                        EXTENTS(into), ist_pixels(counts));
    return IST_OK;
}

ist_status ist_infer_clamp(void *node, ist_error *err) {
    ist_clamp *q = node;
    IST_TRY(result(&q->y, extents(EXTENTS(q->x), q->x.elem), false, q->label, err));
    return check_values(q->x, q->y, q->label, err);
}

ist_status ist_infer_expand(void *node, ist_error *err) {
    ist_expand *q = node;
    int count = q->map.n * ist_tokens_of(q->map);
    if (q->map.elem != IST_ELEM_I32 || q->map.c != 1)
        return ist_fail(err, IST_E_ARGUMENT, "%s: expansion by a map of [%d,%d,%d,%d]", q->label, EXTENTS(q->map));
    IST_TRY(result(&q->y, extents(count, q->x.h, q->x.w, q->x.c, q->x.elem), false, q->label, err));
    return check_values(q->x, q->y, q->label, err);
}

static ist_status side_by_side(ist_concat *q, bool rows, ist_error *err) {
    ist_tensor sum = q->x[0];
    if (rows) sum.w = ist_tokens_of(sum), sum.h = 1;
    for (int i = 1; i < IST_CONCAT_MAX && ist_has(q->x[i]); i++) {
        ist_tensor x = q->x[i];
        bool fits = rows ? x.c == sum.c : x.h == sum.h && x.w == sum.w;
        if (!fits || x.n != sum.n || x.elem != sum.elem)
            return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] beside [%d,%d,%d,%d]", q->label, EXTENTS(x),
                            EXTENTS(sum));
        if (rows)
            sum.w += ist_tokens_of(x);
        else
            sum.c += x.c;
    }
    return result(&q->y, extents(EXTENTS(sum), sum.elem), false, q->label, err);
}

ist_status ist_infer_concat(void *node, ist_error *err) {
    return side_by_side(node, false, err);
}

ist_status ist_infer_concat_rows(void *node, ist_error *err) {
    return side_by_side(node, true, err);
}

ist_status ist_infer_fill_rows(void *node, ist_error *err) {
    ist_fill_rows *q = node;
    if (q->x.elem != IST_ELEM_T || q->rows.elem != IST_ELEM_I32 || q->rows.n != 1 || q->rows.ld != 1 ||
        q->filter.out != q->x.c)
        return ist_fail(err, IST_E_ARGUMENT, "%s: fill_rows wants activations and one dense list of rows", q->label);
    q->y = extents(EXTENTS(q->x), IST_ELEM_T);
    return IST_OK;
}

ist_status ist_infer_repeat_rows(void *node, ist_error *err) {
    ist_repeat_rows *q = node;
    if (q->x.elem != IST_ELEM_T) return ist_fail(err, IST_E_ARGUMENT, "%s: repeat_rows wants activations", q->label);
    q->y = extents(EXTENTS(q->x), IST_ELEM_T);
    return IST_OK;
}

ist_status ist_infer_gate(void *node, ist_error *err) {
    ist_gate *q = node;
    ist_tensor g = q->g, a = q->a, b = q->b;
    IST_TRY(check_channels(a.c, q->label, err));
    IST_TRY(check_norm(&q->norm, a.c, q->label, err));
    if (g.c != 2 * a.c || !same_pixels(a, b) || g.h != a.h || g.w != a.w || g.n != a.n || b.n != a.n)
        return ist_fail(err, IST_E_ARGUMENT, "%s: gate [%d,%d,%d,%d] for [%d,%d,%d,%d] and [%d,%d,%d,%d]", q->label,
                        EXTENTS(g), EXTENTS(a), EXTENTS(b));
    return result(&q->y, extents(EXTENTS(a), IST_ELEM_T), false, q->label, err);
}

/* ---- attention ---- */

/* One count for each of n items, or none. */
static bool counts_fit(ist_tensor counts, int n) {
    return !ist_has(counts) || (counts.elem == IST_ELEM_I32 && ist_pixels(counts) >= n && counts.c == 1);
}

ist_status ist_infer_attention(void *node, ist_error *err) {
    ist_attention *o = node;
    ist_tensor q = o->q, k = o->k, v = o->v;
    int d = o->heads > 0 ? q.c / o->heads : 0, n = o->count ? o->count : q.n;
    bool items = (ist_has(o->q_map) || q.n >= n) && (ist_has(o->kv_map) || k.n >= n);
    if (d * o->heads != q.c || d % 4 || d < 4 || d > HEAD_MAX || k.c != q.c || v.c != q.c || v.n != k.n ||
        ist_tokens_of(v) != ist_tokens_of(k) || !items || !counts_fit(o->k_count, n))
        return ist_fail(err, IST_E_ARGUMENT,
                        "%s: attention of q [%d,%d,%d], k [%d,%d,%d], v [%d,%d,%d] with %d heads is not possible",
                        o->label, q.n, ist_tokens_of(q), q.c, k.n, ist_tokens_of(k), k.c, v.n, ist_tokens_of(v), v.c, o->heads);
    return result(&o->y, extents(n, 1, ist_tokens_of(q), q.c, IST_ELEM_T), false, o->label, err);
}

ist_status ist_infer_window_attention(void *node, ist_error *err) {
    ist_window_attention *q = node;
    if (q->heads < 1 || q->qkv.c != q->heads * 3 * WINDOW_HEAD || q->ws < 1 || q->ws > WINDOW_MAX)
        return ist_fail(err, IST_E_ARGUMENT, "%s: window attention of %d channels with %d heads, windows of %d",
                        q->label, q->qkv.c, q->heads, q->ws);
    return result(&q->y, extents(q->qkv.n, q->qkv.h, q->qkv.w, q->heads * WINDOW_HEAD, IST_ELEM_T), false, q->label,
                  err);
}

ist_status ist_infer_relative_attention(void *node, ist_error *err) {
    ist_relative_attention *q = node;
    int d = q->heads > 0 ? q->qkv.c / 3 / q->heads : 0;
    if (d < 4 || d % 4 || d > HEAD_MAX || 3 * q->heads * d != q->qkv.c || q->pad.count != (size_t)q->qkv.c)
        return ist_fail(err, IST_E_ARGUMENT, "%s: attention of %d channels, %zu of padding, in %d heads", q->label,
                        q->qkv.c, q->pad.count, q->heads);
    int wh = ist_relative_side(q->rel_h.count, d), ww = ist_relative_side(q->rel_w.count, d);
    if (wh < 1 || ww < 1 || wh > IST_RELATIVE_SIDE_MAX || ww > IST_RELATIVE_SIDE_MAX)
        return ist_fail(err, IST_E_WEIGHTS,
                        "%s: %zu and %zu relative positions of %d channels are not 2 s - 1 of windows of up to %d tokens",
                        q->label, q->rel_h.count / (size_t)d, q->rel_w.count / (size_t)d, d, IST_RELATIVE_SIDE_MAX);
    return result(&q->y, extents(q->qkv.n, q->qkv.h, q->qkv.w, q->heads * d, IST_ELEM_T), false, q->label, err);
}

/* Points of all levels, or 0 when the levels do not describe `tokens`. */
static int points_of(const ist_deform *q, int tokens) {
    int points = 0;
    if (q->levels < 1 || q->levels > IST_LEVELS_MAX) return 0;
    for (int i = 0; i < q->levels; i++) {
        const ist_level *l = &q->level[i];
        if (l->h < 1 || l->w < 1 || l->points < 1 || l->start < 0 || l->points > POINTS_MAX ||
            l->start > tokens - l->h * l->w)
            return 0;
        points += l->points;
    }
    return points <= POINTS_MAX ? points : 0;
}

ist_status ist_infer_deform_attention(void *node, ist_error *err) {
    ist_deform *q = node;
    ist_tensor offsets = q->offsets, weights = q->weights, ref = q->ref, memory = q->memory;
    int queries = ist_tokens_of(offsets), tokens = ist_tokens_of(memory), points = points_of(q, tokens);
    int d = q->heads > 0 ? memory.c / q->heads : 0;
    if (!points || q->heads < 1 || d * q->heads != memory.c || d % 4 || offsets.c != q->heads * points * 2 ||
        weights.c != q->heads * points || ist_tokens_of(weights) != queries || ist_tokens_of(ref) != queries || ref.c != BOX ||
        weights.n != offsets.n || ref.n != offsets.n || (memory.n != offsets.n && memory.n != 1) ||
        ref.elem != IST_ELEM_F32 || offsets.elem != weights.elem)
        return ist_fail(err, IST_E_ARGUMENT,
                        "%s: deformable attention of offsets [%d,%d,%d], weights [%d,%d,%d], boxes [%d,%d,%d], memory "
                        "[%d,%d,%d], %d heads, %d points",
                        q->label, offsets.n, queries, offsets.c, weights.n, ist_tokens_of(weights), weights.c, ref.n,
                        ist_tokens_of(ref), ref.c, memory.n, tokens, memory.c, q->heads, points);
    return result(&q->y, extents(offsets.n, 1, queries, memory.c, IST_ELEM_T), false, q->label, err);
}

/* ---- selection and boxes ---- */

ist_status ist_infer_row_max(void *node, ist_error *err) {
    ist_row_max *q = node;
    return result(&q->y, extents(q->x.n, 1, ist_tokens_of(q->x), 1, IST_ELEM_F32), false, q->label, err);
}

static ist_status select_of(ist_top_rows *q, int total, bool values, ist_error *err) {
    if (!values || q->k < 1 || q->k > total || q->k > SELECT_MAX || total > SELECT_OF_MAX)
        return ist_fail(err, IST_E_ARGUMENT, "%s: the %d largest of %d values (%d channels): at most %d of %d are possible",
                        q->label, q->k, total, q->x.c, SELECT_MAX, SELECT_OF_MAX);
    return result(&q->y, extents(q->x.n, 1, q->k, 1, IST_ELEM_I32), false, q->label, err);
}

ist_status ist_infer_topk(void *node, ist_error *err) {
    ist_top_rows *q = node;
    return select_of(q, ist_tokens_of(q->x), q->x.c == 1 && q->x.elem == IST_ELEM_F32, err);
}

ist_status ist_infer_top_rows(void *node, ist_error *err) {
    ist_top_rows *q = node;
    return select_of(q, ist_tokens_of(q->x), is_float(q->x), err);
}

ist_status ist_infer_top_scores(void *node, ist_error *err) {
    ist_top_scores *q = node;
    int total = ist_tokens_of(q->x) * q->x.c;
    if (q->x.elem != IST_ELEM_F32 || q->k < 1 || q->k > total || q->k > SELECT_MAX || total > SELECT_OF_MAX)
        return ist_fail(err, IST_E_ARGUMENT, "%s: the %d largest of %d scores: at most %d of %d are possible", q->label,
                        q->k, total, SELECT_MAX, SELECT_OF_MAX);
    q->scores = extents(q->x.n, 1, 1, total, IST_ELEM_F32);
    q->index = extents(q->x.n, 1, q->k, 1, IST_ELEM_I32);
    return IST_OK;
}

static bool is_list(ist_tensor t, ist_tensor boxes, int c, ist_elem elem) {
    return t.n == boxes.n && t.h == 1 && t.w == boxes.w && t.c == c && t.elem == elem;
}

ist_status ist_infer_nms(void *node, ist_error *err) {
    ist_nms *q = node;
    ist_tensor boxes = q->boxes, scores = q->scores, group = q->group, count = q->count;
    if (boxes.w < 1 || boxes.w > IST_NMS_MAX || !is_list(boxes, boxes, BOX, IST_ELEM_F32) ||
        !is_list(scores, boxes, 1, IST_ELEM_F32) || (ist_has(group) && !is_list(group, boxes, 1, IST_ELEM_I32)))
        return ist_fail(err, IST_E_ARGUMENT,
                        "%s: suppression among [%d,%d,%d,%d] boxes with [%d,%d,%d,%d] scores and [%d,%d,%d,%d] groups; at "
                        "most %d boxes", q->label, EXTENTS(boxes), EXTENTS(scores), EXTENTS(group), IST_NMS_MAX);
    if (ist_has(count) && (ist_pixels(count) != boxes.n || count.c != 1 || count.elem != IST_ELEM_I32))
        return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] counts of %d lists of boxes", q->label, EXTENTS(count),
                        boxes.n);
    if (!(q->iou >= 0 && q->iou <= 1))
        return ist_fail(err, IST_E_ARGUMENT, "%s: boxes that overlap by more than %g; 0 to 1 is possible", q->label, q->iou);
    IST_TRY(result(&q->index, extents(boxes.n, 1, boxes.w, 1, IST_ELEM_I32), false, q->label, err));
    return result(&q->kept, extents(boxes.n, 1, 1, 1, IST_ELEM_I32), false, q->label, err);
}

ist_status ist_infer_gather(void *node, ist_error *err) {
    ist_gather *q = node;
    ist_tensor x = q->x, index = q->index;
    if ((x.n != 1 && x.n != index.n) || index.elem != IST_ELEM_I32 || index.c != 1 || index.ld != 1 || !is_float(x))
        return ist_fail(err, IST_E_ARGUMENT, "%s: gather of [%d,%d,%d] by [%d,%d,%d] is not possible", q->label, x.n,
                        ist_tokens_of(x), x.c, index.n, ist_tokens_of(index), index.c);
    return result(&q->y, extents(index.n, 1, ist_tokens_of(index), x.c, x.elem), false, q->label, err);
}

/* Over the pixels of a with b beside it. */
static ist_status pixelwise(ist_box *q, ist_error *err) {
    ist_tensor a = q->a, b = q->b;
    if (ist_tokens_of(b) != ist_tokens_of(a) || (b.n != 1 && b.n != a.n) || (b.c != a.c && b.c != 1))
        return ist_fail(err, IST_E_ARGUMENT, "%s: [%d,%d,%d] beside [%d,%d,%d]", q->label, a.n, ist_tokens_of(a), a.c, b.n,
                        ist_tokens_of(b), b.c);
    return result(&q->y, extents(EXTENTS(a), IST_ELEM_F32), false, q->label, err);
}

ist_status ist_infer_box_init(void *node, ist_error *err) {
    return pixelwise(node, err);
}

ist_status ist_infer_box_refine(void *node, ist_error *err) {
    return pixelwise(node, err);
}

ist_status ist_infer_add_quality(void *node, ist_error *err) {
    ist_box *q = node;
    if (q->b.c != 1)
        return ist_fail(err, IST_E_ARGUMENT, "%s: quality has %d channels, not 1", q->label, q->b.c);
    return pixelwise(q, err);
}

static bool dense_f32(ist_tensor t, int n, int pixels, int c) {
    return t.elem == IST_ELEM_F32 && t.n == n && ist_tokens_of(t) == pixels && t.c == c && t.ld == c && t.c0 == 0;
}

ist_status ist_infer_fdr(void *node, ist_error *err) {
    ist_fdr *q = node;
    int n = q->increment.n, queries = ist_tokens_of(q->increment);
    if (q->increment.c != SIDES * IST_FDR_BINS || !dense_f32(q->ref, n, queries, BOX) ||
        (ist_has(q->previous) && !dense_f32(q->previous, n, queries, SIDES * IST_FDR_BINS)))
        return ist_fail(err, IST_E_ARGUMENT, "%s: increments [%d,%d,%d], boxes [%d,%d,%d] do not fit", q->label, n,
                        queries, q->increment.c, q->ref.n, ist_tokens_of(q->ref), q->ref.c);
    IST_TRY(result(&q->boxes, extents(n, 1, queries, BOX, IST_ELEM_F32), false, q->label, err));
    return result(&q->corners, extents(n, 1, queries, SIDES * IST_FDR_BINS, IST_ELEM_F32), false, q->label, err);
}

ist_status ist_infer_lqe(void *node, ist_error *err) {
    ist_lqe *q = node;
    int n = q->corners.n, queries = ist_tokens_of(q->corners);
    if (!dense_f32(q->corners, n, queries, SIDES * IST_FDR_BINS))
        return ist_fail(err, IST_E_ARGUMENT, "%s: corners [%d,%d,%d] are not dense floats of %d", q->label, n, queries,
                        q->corners.c, SIDES * IST_FDR_BINS);
    return result(&q->y, extents(n, 1, queries, SIDES * 5, IST_ELEM_F32), false, q->label, err);
}

/* ---- composite nodes ---- */

ist_status ist_infer_stem(void *node, ist_error *err) {
    ist_stem *q = node;
    const ist_stem_layer *l = q->layers;
    int m = l[0].f.out, out = l[4].f.out;
    if (!filter_is(&l[0].f, m, q->image.c, 3) || !filter_is(&l[1].f, m / 2, m, 2) || !filter_is(&l[2].f, m, m / 2, 2) ||
        !filter_is(&l[3].f, m, 2 * m, 3) || !filter_is(&l[4].f, out, m, 1) || q->image.h % 4 || q->image.w % 4)
        return ist_fail(err, q->image.h % 4 || q->image.w % 4 ? IST_E_ARGUMENT : IST_E_WEIGHTS, "%s: no stem of %d and %d channels for an image [%d,%d,%d,%d]", q->label, m,
                        out, EXTENTS(q->image));
    return result(&q->y, extents(q->image.n, q->image.h / 4, q->image.w / 4, out, IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_separable(void *node, ist_error *err) {
    ist_separable *q = node;
    const ist_filter *point = &q->point, *depth = &q->depth;
    if (point->in != q->x.c || !is_matrix(point) || depth->out != point->out || depth->in != 1 ||
        !window_fits(q->x, &q->o, depth->kh, depth->kw))
        return ist_fail(err, IST_E_ARGUMENT, "%s: filters [%d,%d,%d,%d] and [%d,%d,%d,%d] on [%d,%d,%d,%d]", q->label,
                        point->out, point->in, point->kh, point->kw, depth->out, depth->in, depth->kh, depth->kw,
                        EXTENTS(q->x));
    return slide(q->x, &q->o, depth->kh, depth->kw, depth->out, &q->y, q->label, err);
}

ist_status ist_infer_csp(void *node, ist_error *err) {
    ist_csp *q = node;
    int c = q->last.out;
    bool right = filter_is(&q->first, 2 * c, q->x.c, 1) && filter_is(&q->last, c, c, 3) && q->necks >= 1 &&
                 q->necks <= IST_CSP_NECKS;
    for (int i = 0; right && i < q->necks; i++) right = filter_is(&q->neck[i], c, c, 3);
    if (!right)
        return ist_fail(err, IST_E_ARGUMENT, "%s: CSP block of %d outputs, %d bottlenecks and %d channels on [%d,%d,%d,%d]",
                        q->label, q->first.out, q->necks, c, EXTENTS(q->x));
    return result(&q->y, extents(q->x.n, q->x.h, q->x.w, c, IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_fuse(void *node, ist_error *err) {
    ist_fuse *q = node;
    int side = q->side_filter.out ? q->side_filter.out : q->side.c;
    if (!is_matrix(&q->filter) || q->filter.in != q->top.c + side || 2 * q->top.h != q->side.h ||
        2 * q->top.w != q->side.w || q->top.n != q->side.n ||
        (q->side_filter.out && (!is_matrix(&q->side_filter) || q->side_filter.in != q->side.c)))
        return ist_fail(err, IST_E_WEIGHTS, "%s: filter [%d,%d] on [%d,%d,%d,%d], upsampled, and %d channels of [%d,%d,%d,%d]",
                        q->label, q->filter.out, q->filter.in, EXTENTS(q->top), side, EXTENTS(q->side));
    return result(&q->y, extents(q->side.n, q->side.h, q->side.w, q->filter.out, IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_qkv(void *node, ist_error *err) {
    ist_qkv *q = node;
    if (!is_matrix(&q->filter) || q->filter.in != q->x.c || q->filter.out != 3 * q->x.c || q->x.h != 1 ||
        q->grid_h * q->grid_w != q->x.w || q->x.c % 4)
        return ist_fail(err, IST_E_WEIGHTS, "%s: projection [%d,%d] of [%d,%d,%d,%d] on a grid of %d x %d", q->label,
                        q->filter.out, q->filter.in, EXTENTS(q->x), q->grid_h, q->grid_w);
    return result(&q->y, extents(q->x.n, 1, q->x.w, q->filter.out, IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_patch_embed(void *node, ist_error *err) {
    ist_patch_embed *q = node;
    const ist_filter *first = &q->first, *second = &q->second;
    if (first->in != q->image.c || second->in != first->out || first->kh != 3 || first->kw != 3 || second->kh != 3 ||
        second->kw != 3)
        return ist_fail(err, IST_E_ARGUMENT, "%s: %d -> %d -> %d on [%d,%d,%d,%d]", q->label, first->in, first->out,
                        second->out, EXTENTS(q->image));
    return result(&q->y,
                  extents(q->image.n, ist_halved(ist_halved(q->image.h)), ist_halved(ist_halved(q->image.w)), second->out, IST_ELEM_T),
                  false, q->label, err);
}

ist_status ist_infer_mbconv(void *node, ist_error *err) {
    ist_mbconv *q = node;
    ist_tensor x = q->x;
    int hidden = q->expand.out;
    if (!is_matrix(&q->expand) || !is_matrix(&q->project) || q->expand.in != x.c || q->spread.out != hidden ||
        q->spread.in != 1 || q->spread.kh != 3 || q->spread.kw != 3 || q->project.in != hidden ||
        (q->stride != 1 && q->stride != 2) || (q->residual && (q->stride != 1 || q->project.out != x.c)))
        return ist_fail(err, IST_E_ARGUMENT, "%s: bottleneck %d -> %d -> %d, stride %d, on [%d,%d,%d,%d]", q->label,
                        q->expand.in, hidden, q->project.out, q->stride, EXTENTS(x));
    ist_tensor want =
        extents(x.n, (x.h - 1) / q->stride + 1, (x.w - 1) / q->stride + 1, q->project.out, IST_ELEM_T);
    return result(&q->y, want, false, q->label, err);
}

ist_status ist_infer_norm_window(void *node, ist_error *err) {
    ist_norm_window *q = node;
    const ist_filter *f = &q->qkv;
    IST_TRY(check_norm(&q->norm, q->x.c, q->label, err));
    if (q->heads < 1 || q->x.c != q->heads * WINDOW_HEAD || f->in != q->x.c || f->out != 3 * q->x.c || !is_matrix(f))
        return ist_fail(err, IST_E_ARGUMENT, "%s: projection %d -> %d for %d heads on [%d,%d,%d,%d]", q->label, f->in,
                        f->out, q->heads, EXTENTS(q->x));
    return result(&q->y, extents(EXTENTS(q->x), IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_norm_mlp(void *node, ist_error *err) {
    ist_norm_mlp *q = node;
    const ist_filter *a = &q->fc1, *b = &q->fc2, *f = &q->spread;
    ist_tensor x = q->x;
    bool spread = f->out == 0 || (f->out == x.c && f->in == 1 && f->kh == 3 && f->kw == 3);
    bool second = b->out == 0 || (b->out == x.c && b->in == a->out && is_matrix(b));
    IST_TRY(check_norm(&q->norm, x.c, q->label, err));
    if (a->in != x.c || !is_matrix(a) || !second || !spread)
        return ist_fail(err, IST_E_ARGUMENT, "%s: layers %d -> %d and %d -> %d on [%d,%d,%d,%d]", q->label, a->in,
                        a->out, b->in, b->out, EXTENTS(x));
    return result(&q->y, extents(x.n, x.h, x.w, b->out ? b->out : a->out, IST_ELEM_T), false, q->label, err);
}

/* ---- prompts and masks ---- */

ist_status ist_infer_point_tokens(void *node, ist_error *err) {
    ist_point_tokens *q = node;
    ist_tensor points = q->points, labels = q->labels, own = q->own;
    if (points.elem != IST_ELEM_F32 || points.c != 2 || points.h != 1 ||
        (ist_has(labels) && (labels.elem != IST_ELEM_I32 || labels.n != points.n || labels.w != points.w)))
        return ist_fail(err, IST_E_ARGUMENT, "%s: points [%d,%d,%d,%d], want float pairs and one int label each",
                        q->label, EXTENTS(points));
    if (ist_has(own) &&
        (own.n != 1 || own.h != 1 || own.c != IST_POINT_DIM || own.ld != own.c || own.c0 || own.elem != IST_ELEM_T))
        return ist_fail(err, IST_E_ARGUMENT, "%s: own tokens [%d,%d,%d,%d], want dense ones of %d channels", q->label,
                        EXTENTS(own), IST_POINT_DIM);
    return result(&q->y, extents(points.n, 1, own.w + points.w + q->pad, IST_POINT_DIM, IST_ELEM_T), false, q->label,
                  err);
}

ist_status ist_infer_join_tokens(void *node, ist_error *err) {
    ist_join_tokens *q = node;
    ist_tensor a = q->a, b = q->b;
    if (a.c != b.c || (a.n != 1 && a.n != b.n) || a.h != 1 || b.h != 1 || a.elem != IST_ELEM_T || b.elem != a.elem)
        return ist_fail(err, IST_E_ARGUMENT, "%s: joins [%d,%d,%d,%d] and [%d,%d,%d,%d]", q->label, EXTENTS(a),
                        EXTENTS(b));
    return result(&q->y, extents(b.n, 1, a.w + b.w, a.c, IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_dense_prompt(void *node, ist_error *err) {
    ist_dense_prompt *q = node;
    ist_tensor x = q->x;
    if (!counts_fit(q->given, x.n) || !ist_has(q->given) || q->none.count != (size_t)x.c || x.elem != IST_ELEM_T)
        return ist_fail(err, IST_E_WEIGHTS, "%s: %zu values for [%d,%d,%d,%d]", q->label, q->none.count, EXTENTS(x));
    return result(&q->y, extents(EXTENTS(x), IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_parameter(void *node, ist_error *err) {
    ist_parameter *q = node;
    size_t want = (size_t)q->y.n * (size_t)ist_tokens_of(q->y) * (size_t)q->y.c;
    if (q->rows[0].count + q->rows[1].count == want) return IST_OK;
    return ist_fail(err, IST_E_WEIGHTS, "%s: %zu values for [%d,%d,%d,%d]", q->label,
                    q->rows[0].count + q->rows[1].count, EXTENTS(q->y));
}

ist_status ist_infer_grid_code(void *node, ist_error *err) {
    ist_grid_code *q = node;
    if (q->grid < 1 || q->gauss.count < 2 || q->gauss.count % 2)
        return ist_fail(err, IST_E_WEIGHTS, "%s: a grid of %d by %zu values", q->label, q->grid, q->gauss.count);
    q->y = extents(1, 1, q->grid * q->grid, (int)q->gauss.count, IST_ELEM_T);
    return IST_OK;
}

static bool position_fits(ist_tensor p, ist_tensor x) {
    return !ist_has(p) || (p.c == x.c && ist_tokens_of(p) == ist_tokens_of(x) && (p.n == 1 || p.n == x.n));
}

ist_status ist_infer_attention_layer(void *node, ist_error *err) {
    ist_attention_layer *l = node;
    ist_tensor q = l->q, k = l->k;
    int inner = l->query.out;
    IST_TRY(check_norm(&l->norm, l->out.out, l->label, err));
    if (q.n != k.n || !position_fits(l->q_pos, q) || !position_fits(l->k_pos, k) ||
        !filter_is(&l->query, inner, q.c, 1) || !filter_is(&l->key, inner, k.c, 1) ||
        !filter_is(&l->value, inner, k.c, 1) || !filter_is(&l->out, q.c, inner, 1) || l->heads < 1 ||
        inner % l->heads || (ist_has(l->add) && (!same_pixels(l->add, q) || l->add.n != q.n)) ||
        !counts_fit(l->k_count, q.n))
        return ist_fail(err, IST_E_WEIGHTS,
                        "%s: attention of [%d,%d,%d,%d] to [%d,%d,%d,%d] by projections %d -> %d, %d -> %d, %d -> %d "
                        "and %d -> %d in %d heads",
                        l->label, EXTENTS(q), EXTENTS(k), l->query.in, l->query.out, l->key.in, l->key.out,
                        l->value.in, l->value.out, l->out.in, l->out.out, l->heads);
    return result(&l->y, extents(q.n, 1, ist_tokens_of(q), q.c, IST_ELEM_T), false, l->label, err);
}

ist_status ist_infer_mlp_layer(void *node, ist_error *err) {
    ist_mlp_layer *l = node;
    IST_TRY(check_norm(&l->norm, l->x.c, l->label, err));
    if (!filter_is(&l->lin1, l->lin1.out, l->x.c, 1) || !filter_is(&l->lin2, l->x.c, l->lin1.out, 1))
        return ist_fail(err, IST_E_WEIGHTS, "%s: layers %d -> %d and %d -> %d on [%d,%d,%d,%d]", l->label, l->lin1.in,
                        l->lin1.out, l->lin2.in, l->lin2.out, EXTENTS(l->x));
    return result(&l->y, extents(EXTENTS(l->x), IST_ELEM_T), false, l->label, err);
}

ist_status ist_infer_token_mlps(void *node, ist_error *err) {
    ist_token_mlps *q = node;
    int c = q->x.c;
    bool fits = q->count >= 2 && q->count <= IST_TOKEN_MLPS_MAX && q->first >= 0 && q->first + q->count <= q->x.w;
    for (int i = 0; fits && i < q->count; i++) {
        const ist_filter *f = q->mlp[i];
        fits = filter_is(&f[0], f[0].out, c, 1) && filter_is(&f[1], f[1].out, f[0].out, 1) &&
               filter_is(&f[2], i > 1 ? q->mlp[1][2].out : f[2].out, f[1].out, 1);
    }
    if (!fits)
        return ist_fail(err, IST_E_WEIGHTS, "%s: %d MLPs of tokens %d and on of [%d,%d,%d,%d]", q->label, q->count,
                        q->first, EXTENTS(q->x));
    IST_TRY(result(&q->iou, extents(q->x.n, 1, 1, q->mlp[0][2].out, IST_ELEM_F32), false, q->label, err));
    return result(&q->vectors, extents(q->x.n, 1, q->count - 1, q->mlp[1][2].out, IST_ELEM_T), false, q->label, err);
}

ist_status ist_infer_upscale(void *node, ist_error *err) {
    ist_upscale *q = node;
    ist_tensor x = q->x, vectors = q->vectors;
    if (x.c < 16 || x.c > 256 || x.c % 16 || vectors.c != IST_UPSCALE_OUT || vectors.n != x.n || x.elem != IST_ELEM_T ||
        vectors.elem != IST_ELEM_T || q->norm.n != IST_UPSCALE_MIDDLE)
        return ist_fail(err, IST_E_ARGUMENT, "%s: masks of [%d,%d,%d,%d] and [%d,%d,%d,%d]", q->label, EXTENTS(x),
                        EXTENTS(vectors));
    return result(&q->y, extents(x.n * ist_tokens_of(vectors), 4 * x.h, 4 * x.w, 1, IST_ELEM_F32), false, q->label, err);
}
