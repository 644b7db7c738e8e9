/* See record.h. */
#include "pipeline/record.h"

#include "models/models.h"
#include "variants/lower.h"

#include <string.h>

typedef struct frame {
    ist_graph *g;
    const ist_config *config;
    int side; /* of the segmenter's input */
    const ist_checkpoints *c;
    ist_tensor upload, pixels, packet, store; /* of no size: external */
    bool masks, kept;
} frame;

static ist_tensor node(const frame *f, ist_node_kind kind, void *node) {
    return ist_net_node(&(ist_net){f->g, NULL}, kind, node);
}

/* Works on as many images as there are in the batch: the upload's first word. */
static void of_images(const frame *f, const char *stage) {
    ist_graph_limit(f->g, f->upload);
    ist_graph_stage(f->g, stage);
}

static void of_all(const frame *f, const char *stage) {
    ist_graph_limit(f->g, (ist_tensor){0});
    ist_graph_stage(f->g, stage);
}

/* Whether pictures may be resampled vertically first. */
static bool has_orders(const ist_config *config) {
    return config->resize_order == IST_RESIZE_ORDER_VERTICAL || config->resize_order == IST_RESIZE_ORDER_PILLOW_13;
}

/* ---- detector ---- */

static ist_detections detect(const frame *f, const unsigned char *keep, ist_detected *raw) {
    const ist_config *config = f->config;
    ist_graph_part(f->g);
    of_images(f, "preprocess");
    const ist_detector_model *model = ist_detector_of(f->c->detector_info.kind);
    ist_resize resize = {.label = "detector input",
                         .upload = f->upload,
                         .pixels = f->pixels,
                         .what = IST_RESIZE_DETECTOR,
                         .batch = config->batch,
                         .w = config->input_width,
                         .h = config->input_height,
                         .orders = has_orders(config),
                         .channels = f->c->detector_info.channels};
    memcpy(resize.mean, model->mean, sizeof resize.mean);
    memcpy(resize.std, model->std, sizeof resize.std);
    const ist_net net = {f->g, f->c->detector};
    *raw = model->record(&net, &f->c->detector_info, node(f, IST_NODE_RESIZE, &resize));
    of_all(f, "detections");
    ist_detect detect = {.label = "detections",
                         .logits = raw->logits,
                         .boxes = raw->boxes,
                         .upload = f->upload,
                         .det = {.max_objects = config->max_objects},
                         .conf = config->conf,
                         .keep = keep};
    node(f, IST_NODE_DETECT, &detect);
    return detect.det;
}

static ist_tensor match(const frame *f, const ist_detections *det, ist_detected raw) {
    const ist_config *config = f->config;
    ist_match m = {.label = config->match == IST_MATCH_TRACKS ? "tracks" : "targets",
                   .upload = f->upload,
                   .det = *det,
                   .track_iou = config->track_iou,
                   .age = config->track_age,
                   .max_targets = config->max_targets};
    ist_graph_stage(f->g, "match");
    ist_graph_part(f->g);
    switch (config->match) {
    case IST_MATCH_TRACKS:
        m.by = IST_MATCH_BY_TRACKS;
        break;
    case IST_MATCH_TARGETS:
        m.by = IST_MATCH_BY_TARGETS;
        break;
    case IST_MATCH_TARGETS_SET:
        m.by = IST_MATCH_BY_SET;
        m.logits = raw.logits;
        m.boxes = raw.boxes;
        break;
    default:
        return (ist_tensor){0};
    }
    return node(f, IST_NODE_MATCH, &m);
}

static ist_detections given_boxes(const frame *f, ist_tensor *match) {
    ist_given_boxes given = {.label = "given boxes",
                             .upload = f->upload,
                             .det = {.batch = f->config->batch, .max_objects = f->config->max_objects}};
    ist_graph_stage(f->g, "detections");
    *match = node(f, IST_NODE_GIVEN_BOXES, &given);
    return given.det;
}

/* ---- segmenter ---- */

/* Masks for the detections: each prompt is a box. Fills in what the packet needs of them. */
static void segment(const frame *f, const ist_detections *det, ist_pack *pack) {
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    ist_graph_part(f->g);
    if (f->config->prompts == IST_PROMPTS_DETECTIONS) ist_graph_branch(f->g, 2);
    of_images(f, "preprocess");
    ist_resize resize = {.label = "segmenter input",
                         .upload = f->upload,
                         .pixels = f->pixels,
                         .what = IST_RESIZE_SEGMENTER,
                         .batch = f->config->batch,
                         .w = f->side,
                         .h = f->side,
                         .orders = has_orders(f->config),
                         .channels = 3};
    memcpy(resize.mean, model->mean, sizeof resize.mean);
    memcpy(resize.std, model->std, sizeof resize.std);
    ist_tensor x = node(f, IST_NODE_RESIZE, &resize);
    ist_graph_stage(f->g, "segmenter_encoder");
    ist_prompted in = {.embedding = model->encode(&net, x, resize.content), .image_of = det->image_of};
    ist_graph_branch(f->g, 0);
    ist_graph_limit(f->g, det->total);
    ist_graph_stage(f->g, "segmenter_decoder");
    ist_tensor corners = det->boxes; /* [P,1,1,4] read as two points [P,1,2,2] */
    corners.w = corners.c = corners.ld = 2;
    in.sparse = model->boxes(&net, corners, f->side, true);
    if (!f->kept) in.content = resize.content;
    ist_prompt_masks out = model->decode(&net, &in, false);
    of_all(f, "masks");
    ist_graph_part(f->g);
    ist_masks masks = {
        .label = "masks", .logits = out.low_res, .upload = f->upload, .store = f->store, .det = *det, .side = f->side};
    pack->stats = node(f, IST_NODE_MASKS, &masks);
    pack->score = out.iou;
    pack->store = f->store;
}

/* ---- all of it ---- */

static void record(const frame *f, const unsigned char *keep) {
    ist_pack pack = {.label = "packet", .upload = f->upload, .packet = f->packet};
    if (f->config->prompts == IST_PROMPTS_TARGETS) {
        pack.det = given_boxes(f, &pack.match);
    } else {
        ist_detected raw;
        if (f->masks) ist_graph_branch(f->g, 1);
        pack.det = detect(f, keep, &raw);
        pack.match = match(f, &pack.det, raw);
    }
    ist_detections det = pack.det;
    if (f->masks) segment(f, &det, &pack);
    of_all(f, "pack");
    if (!f->masks) ist_graph_part(f->g);
    node(f, IST_NODE_PACK, &pack);
}

ist_status ist_frame_record(ist_engine *e, const ist_checkpoints *c, const unsigned char *keep, bool kept,
                            ist_error *err) {
    ist_lowering *lowering = NULL;
    frame f = {.config = &e->config, .side = e->config.segmenter_size, .c = c, .masks = e->has_masks, .kept = kept};
    IST_TRY(ist_graph_open(&f.g, err));
    f.upload = ist_graph_external(f.g, IST_EXT_UPLOAD, IST_ELEM_I32);
    f.pixels = ist_graph_external(f.g, IST_EXT_PIXELS, IST_ELEM_U8);
    f.packet = ist_graph_external(f.g, IST_EXT_PACKET, IST_ELEM_I32);
    if (f.masks) f.store = ist_graph_external(f.g, IST_EXT_STORE, IST_ELEM_I32);
    record(&f, keep);
    ist_lower(e->plan, f.g, NULL, &lowering);
    ist_lowering_close(&lowering);
    ist_graph_close(&f.g);
    return IST_OK;
}
