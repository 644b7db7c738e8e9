/* Official names for every checkpoint.
 *
 * Hugging Face D-FINE (transformers, DFineForObjectDetection) renames the official modules and splits each in_proj into
 * q, k and v; both its naming of 2025 and the later one (o_proj, mlp.layers, aifi) are understood. Facts from
 * convert_d_fine_original_pytorch_checkpoint_to_hf.py and conversion_mapping.py of that project. */
#include "weights/store.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name being rewritten; the longest possible one has one more prefix than the input. */
typedef struct name_buffer {
    char text[IST_WEIGHTS_NAME_MAX + 64];
} name_buffer;

static bool starts_with(const char *text, const char *prefix) {
    return !strncmp(text, prefix, strlen(prefix));
}

/* Replaces the first `from` at or after `text + at`; false when there is none. Stays unchanged when it would not fit.
 */
static bool replace(name_buffer *n, size_t at, const char *from, const char *to) {
    char *hit = strstr(n->text + at, from);
    size_t length = strlen(n->text), old = strlen(from), new = strlen(to);
    if (!hit || length - old + new >= sizeof n->text) return false;
    memmove(hit + new, hit + old, strlen(hit + old) + 1);
    memcpy(hit, to, new);
    return true;
}

typedef struct name_rule {
    const char *from, *to;
} name_rule;

/* The first rule whose `from` the name starts with is applied. */
static const name_rule prefixes[] = {
    {"backbone.model.embedder.", "backbone.stem."},
    {"backbone.model.encoder.", "backbone."},
    {"encoder_input_proj.", "encoder.input_proj."},
    {"decoder_input_proj.", "decoder.input_proj."},
    {"encoder.aifi.", "encoder.encoder."},
    {"decoder.layers.", "decoder.decoder.layers."},
    {"decoder.lqe_layers.", "decoder.decoder.lqe_layers."},
    {"decoder.class_embed.", "decoder.dec_score_head."},
    {"decoder.bbox_embed.", "decoder.dec_bbox_head."},
    {"class_embed.", "decoder.dec_score_head."},
    {"bbox_embed.", "decoder.dec_bbox_head."},
    {"denoising_class_embed.", "decoder.denoising_class_embed."},
    {"enc_output.0.", "decoder.enc_output.proj."},
    {"enc_output.1.", "decoder.enc_output.norm."},
    {"enc_score_head.", "decoder.enc_score_head."},
    {"enc_bbox_head.", "decoder.enc_bbox_head."},
};

static const name_rule backbone_parts[] = {{".convolution.", ".conv."}, {".normalization.", ".bn."}, {NULL, NULL}};
static const name_rule layer_parts[] = {
    {".self_attn_layer_norm.", ".norm1."},
    {".encoder_attn_layer_norm.", ".norm2."},
    {".encoder_attn.", ".cross_attn."},
    {".fc1.", ".linear1."},
    {".fc2.", ".linear2."},
    {".mlp.layers.0.", ".linear1."},
    {".mlp.layers.1.", ".linear2."},
    {".o_proj.", ".out_proj."},
    {NULL, NULL},
};
static const name_rule block_parts[] = {
    {".csp_rep1.", ".cv2.0."}, {".csp_rep2.", ".cv3.0."}, {".conv1.", ".cv1."}, {".conv2.", ".cv2.1."},
    {".conv3.", ".cv3.1."},    {".conv4.", ".cv4."},      {NULL, NULL},
};
static const name_rule down_parts[] = {{".conv1.", ".0.cv1."}, {".conv2.", ".0.cv2."}, {NULL, NULL}};

/* Applies the first rule that hits, or all of them. */
static void apply(name_buffer *n, const name_rule *rules, bool all) {
    for (; rules->from; rules++)
        if (replace(n, 0, rules->from, rules->to) && !all) return;
}

/* input_proj.I.{0,1}.x -> input_proj.I.{conv,norm}.x */
static void translate_projection(name_buffer *n) {
    char *part = strstr(n->text, "input_proj.") + strlen("input_proj.");
    part += strspn(part, "0123456789");
    size_t at = (size_t)(part - n->text);
    if (starts_with(part, ".0."))
        replace(n, at, ".0.", ".conv.");
    else if (starts_with(part, ".1."))
        replace(n, at, ".1.", ".norm.");
}

/* decoder.norm3 is final_layer_norm, but encoder.norm2 is too. */
static void translate_layer(name_buffer *n) {
    bool encoder = starts_with(n->text, "encoder.");
    replace(n, 0, ".final_layer_norm.", encoder ? ".norm2." : ".norm3.");
    apply(n, layer_parts, true);
}

static void translate(name_buffer *n) {
    if (starts_with(n->text, "model.")) replace(n, 0, "model.", "");
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (starts_with(n->text, prefixes[i].from)) {
            replace(n, 0, prefixes[i].from, prefixes[i].to);
            break;
        }
    if (starts_with(n->text, "backbone."))
        apply(n, backbone_parts, true);
    else if (starts_with(n->text, "encoder.input_proj.") || starts_with(n->text, "decoder.input_proj."))
        translate_projection(n);
    else if (starts_with(n->text, "encoder.encoder.") || starts_with(n->text, "decoder.decoder.layers."))
        translate_layer(n);
    else if (starts_with(n->text, "encoder.fpn_blocks.") || starts_with(n->text, "encoder.pan_blocks."))
        apply(n, block_parts, false);
    else if (starts_with(n->text, "encoder.downsample_convs."))
        apply(n, down_parts, false);
}

static ist_status rename_to(ist_weight *t, const char *name, ist_error *err) {
    char *copy = ist_strdup(name);
    if (!copy) return ist_fail(err, IST_E_MEMORY, "out of host memory for a tensor name");
    if (t->in_file || !strcmp(t->name, name))
        free((char *)t->name);
    else
        t->in_file = t->name;
    t->name = copy;
    return IST_OK;
}

/* What becomes of a tensor; names stay as they are until all is decided, because searching needs their order. */
enum { KEEP, DROP, MERGED };

/* Removes the tensors marked DROP and frees the marks. */
static void compact(ist_weights *w, unsigned char *marks) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (marks[i] == DROP) {
            free((char *)w->items[i].name);
            free((char *)w->items[i].in_file);
        } else
            w->items[kept++] = w->items[i];
    }
    w->count = kept;
    free(marks);
}

static unsigned char *new_marks(const ist_weights *w, ist_error *err) {
    unsigned char *marks = calloc(w->count, 1);
    if (!marks) ist_fail(err, IST_E_MEMORY, "out of host memory for %zu tensor names", w->count);
    return marks;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ist_weight *)a)->name, ((const ist_weight *)b)->name);
}

/* The heads exist under two names that share storage; a file holds either or both. Wants sorted names. */
static ist_status drop_aliases(ist_weights *w, ist_error *err) {
    char full[IST_WEIGHTS_NAME_MAX + 64];
    unsigned char *marks = new_marks(w, err);
    if (!marks) return IST_E_MEMORY;
    for (size_t i = 0; i < w->count; i++) {
        const char *name = w->items[i].name;
        if (!starts_with(name, "class_embed.") && !starts_with(name, "bbox_embed.")) continue;
        snprintf(full, sizeof full, "model.decoder.%s", name);
        if (ist_weights_find(w, full)) marks[i] = DROP;
    }
    compact(w, marks);
    return IST_OK;
}

/* The tensor named like `q` with q_proj replaced, or NULL. */
static const ist_weight *sibling(const ist_weights *w, const ist_weight *q, const char *part) {
    name_buffer n;
    snprintf(n.text, sizeof n.text, "%s", q->name);
    return replace(&n, 0, ".self_attn.q_proj.", part) ? ist_weights_find(w, n.text) : NULL;
}

/* Rows of q, k and v stacked into q. */
static ist_status stack(ist_weights *w, ist_weight *q, const ist_weight *k, const ist_weight *v, ist_error *err) {
    const ist_weight *parts[] = {k, v};
    for (int i = 0; i < 2; i++)
        if (parts[i]->type != q->type || !q->rank || ist_weight_check_shape(parts[i], q->rank, q->dims, NULL))
            return ist_fail(err, IST_E_WEIGHTS, "%s: type or shape differs from %s", parts[i]->name, q->name);
    size_t bytes;
    unsigned char *block =
        ist_mul_size(q->bytes, 3, &bytes) && q->dims[0] <= INT64_MAX / 3 ? ist_store_block(w, bytes) : NULL;
    if (!block) return ist_fail(err, IST_E_MEMORY, "%s: out of host memory", q->name);
    if (q->bytes) {
        memcpy(block, q->data, q->bytes);
        memcpy(block + q->bytes, k->data, q->bytes);
        memcpy(block + 2 * q->bytes, v->data, q->bytes);
    }
    q->data = block;
    q->dims[0] *= 3;
    q->count *= 3;
    q->bytes = bytes;
    return IST_OK;
}

static ist_status mark_projections(ist_weights *w, unsigned char *marks, ist_error *err) {
    for (size_t i = 0; i < w->count; i++) {
        ist_weight *q = &w->items[i];
        const ist_weight *k = sibling(w, q, ".self_attn.k_proj."), *v = sibling(w, q, ".self_attn.v_proj.");
        if (!k || !v || marks[k - w->items] || marks[v - w->items]) continue;
        IST_TRY(stack(w, q, k, v, err));
        marks[i] = MERGED;
        marks[k - w->items] = marks[v - w->items] = DROP;
    }
    return IST_OK;
}

/* self_attn.{q,k,v}_proj.{weight,bias} -> self_attn.in_proj_{weight,bias}. Wants sorted names; an incomplete triple
 * stays as it is and is reported as missing later. */
static ist_status merge_projections(ist_weights *w, ist_error *err) {
    unsigned char *marks = new_marks(w, err);
    if (!marks) return IST_E_MEMORY;
    ist_status status = mark_projections(w, marks, err);
    for (size_t i = 0; i < w->count && !status; i++) {
        name_buffer n;
        if (marks[i] != MERGED) continue;
        snprintf(n.text, sizeof n.text, "%s", w->items[i].name);
        replace(&n, 0, ".self_attn.q_proj.", ".self_attn.in_proj_");
        status = rename_to(&w->items[i], n.text, err);
    }
    compact(w, marks);
    return status;
}

static ist_status strip_module(ist_weights *w, ist_error *err) {
    for (size_t i = 0; i < w->count; i++)
        if (starts_with(w->items[i].name, "module.") && w->items[i].name[7])
            IST_TRY(rename_to(&w->items[i], w->items[i].name + 7, err));
    return IST_OK;
}

ist_status ist_names_official(ist_weights *w, ist_error *err) {
    IST_TRY(strip_module(w, err));
    if (!w->count) return IST_OK;
    bool translated = false;
    for (size_t i = 0; i < w->count && !translated; i++)
        translated = starts_with(w->items[i].name, "model.backbone.model.") ||
                     starts_with(w->items[i].name, "model.encoder_input_proj.");
    if (!translated) return IST_OK;
    w->naming = "huggingface";
    qsort(w->items, w->count, sizeof *w->items, by_name);
    IST_TRY(drop_aliases(w, err));
    for (size_t i = 0; i < w->count; i++) {
        name_buffer n;
        snprintf(n.text, sizeof n.text, "%s", w->items[i].name);
        translate(&n);
        IST_TRY(rename_to(&w->items[i], n.text, err));
    }
    qsort(w->items, w->count, sizeof *w->items, by_name);
    return merge_projections(w, err);
}
