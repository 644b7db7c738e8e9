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
    ist_tensor upload, pixels, packet, store, embedding, found, regions; /* of no size: external */
    const ist_everything *everything;
    const ist_grids *grids;
    int group; /* tiles that the detector takes at a time; 0: there are none */
    bool masks, kept;
    bool few_apart; /* prompts of few places may be decoded by themselves */
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

/* Automatic windows, before anything reads the images. */
static void find_windows(const frame *f) {
    ist_sample_window window = {
        .label = "automatic windows", .upload = f->upload, .pixels = f->pixels, .batch = f->config->batch};
    if (f->config->window != IST_WINDOW_AUTO) return;
    ist_graph_part(f->g);
    of_all(f, "preprocess");
    node(f, IST_NODE_SAMPLE_WINDOW, &window);
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
                         .windows = config->window != IST_WINDOW_NONE,
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
                         .keep = keep,
                         .nms_iou = config->nms_iou,
                         .agnostic = config->nms_agnostic};
    node(f, IST_NODE_DETECT, &detect);
    return detect.det;
}

static ist_tensor match(const frame *f, const ist_detections *det, ist_detected raw) {
    const ist_config *config = f->config;
    ist_match m = {.label = config->match == IST_MATCH_TRACKS ? "tracks" : "targets",
                   .upload = f->upload,
                   .det = *det,
                   .track_iou = config->track_iou,
                   .track_high = config->track_high,
                   .motion = config->track_motion,
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

/* The embeddings of the images; *content: where the pictures are in the input. */
static ist_tensor encode(const frame *f, ist_tensor *content) {
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    of_images(f, "preprocess");
    ist_resize resize = {.label = "segmenter input",
                         .upload = f->upload,
                         .pixels = f->pixels,
                         .what = IST_RESIZE_SEGMENTER,
                         .batch = f->config->batch,
                         .w = f->side,
                         .h = f->side,
                         .orders = has_orders(f->config),
                         .windows = f->config->window != IST_WINDOW_NONE,
                         .channels = 3};
    memcpy(resize.mean, model->mean, sizeof resize.mean);
    memcpy(resize.std, model->std, sizeof resize.std);
    ist_tensor x = node(f, IST_NODE_RESIZE, &resize);
    ist_graph_stage(f->g, "segmenter_encoder");
    *content = resize.content;
    return model->encode(&net, x, resize.content);
}

/* Bits and statistics of the masks, for the packet. */
static void make_masks(const frame *f, const ist_prompt_masks *out, ist_pack *pack) {
    of_all(f, "masks");
    ist_graph_part(f->g);
    ist_masks masks = {.label = "masks",
                       .logits = out->low_res,
                       .upload = f->upload,
                       .store = f->store,
                       .det = pack->det,
                       .side = f->side,
                       .offset = 1};
    pack->stats = node(f, IST_NODE_MASKS, &masks);
    pack->score = out->iou;
    pack->store = f->store;
}

/* Masks for the detections: each prompt is a box. Fills in what the packet needs of them. */
static void segment(const frame *f, ist_pack *pack) {
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    const ist_detections *det = &pack->det;
    ist_tensor content;
    ist_graph_part(f->g);
    if (f->config->prompts == IST_PROMPTS_DETECTIONS) ist_graph_branch(f->g, 2);
    ist_prompted in = {.embedding = encode(f, &content), .image_of = det->image_of};
    ist_graph_branch(f->g, 0);
    ist_graph_limit(f->g, det->total);
    ist_graph_stage(f->g, "segmenter_decoder");
    ist_tensor corners = det->boxes; /* [P,1,1,4] read as two points [P,1,2,2] */
    corners.w = corners.c = corners.ld = 2;
    in.sparse = model->boxes(&net, corners, f->side, true);
    if (!f->kept) in.content = content;
    ist_prompt_masks out = model->decode(&net, &in, false);
    make_masks(f, &out, pack);
}

/* ---- given prompts: encoder and decoder are frames of their own ---- */

/* The embeddings as they lie in the buffer between the two. */
static ist_tensor embeddings(const frame *f) {
    int grid = f->side / ist_segmenter_of(f->c->segmenter_info.kind)->patch;
    ist_tensor e = f->embedding;
    e.n = f->config->batch, e.h = e.w = grid; /* crops are encoded one by one */
    e.c = e.ld = ist_segmenter_of(f->c->segmenter_info.kind)->channels;
    return e;
}

static void record_encoder(const frame *f) {
    ist_tensor content, into = embeddings(f);
    if (!f->group) find_windows(f);
    ist_graph_part(f->g);
    if (f->everything) {
        ist_found_none none = {.label = "nothing found", .found = f->found};
        of_all(f, "prompts");
        node(f, IST_NODE_FOUND_NONE, &none);
    }
    ist_tensor x = encode(f, &content);
    ist_copy_rows copy = {.label = "embedding", .x = x, .into = ist_view(into, into.n, 1, into.h * into.w)};
    node(f, IST_NODE_COPY_ROWS, &copy);
}

static ist_prompt_masks decode(const frame *f, ist_prompted in, ist_tensor points, ist_tensor labels,
                               ist_tensor tokens) {
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    in.sparse = model->points(&net, points, labels, f->side);
    in.counts = tokens;
    return model->decode(&net, &in, f->config->multimask);
}

/* Prompts with few places, then all of them with theirs, of which those with more take the places of the others. */
static ist_prompt_masks decode_apart(const frame *f, const ist_prompted *in, const ist_given_prompts *given) {
    ist_graph_section(f->g, IST_SECTION_FEW);
    ist_prompt_masks few = decode(f, *in, given->few_points, given->few_labels, given->few_tokens);
    ist_graph_part(f->g);
    ist_graph_section(f->g, IST_SECTION_MANY);
    ist_prompt_masks all = decode(f, *in, given->points, given->labels, given->tokens);
    ist_put_items put = {.label = "prompts of many points", .counts = given->tokens, .above = given->own + given->few};
    put.x = all.low_res, put.into = few.low_res;
    node(f, IST_NODE_PUT_ITEMS, &put);
    put.x = all.iou, put.into = few.iou;
    node(f, IST_NODE_PUT_ITEMS, &put);
    ist_graph_section(f->g, 0);
    return few;
}

static void record_decoder(const frame *f) {
    const ist_config *config = f->config;
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    ist_given_prompts given = {.label = "given prompts",
                               .upload = f->upload,
                               .det = {.batch = config->batch},
                               .prompts = config->max_objects,
                               .masks = config->multimask ? IST_MULTIMASKS : 1,
                               .k = ist_prompt_points(config),
                               .few = f->few_apart && ist_prompt_points(config) > IST_FEW_PLACES ? IST_FEW_PLACES : 0,
                               .own = model->own_tokens,
                               .low = config->mask_prompts ? f->side / IST_LOGIT_PIXELS : 0};
    ist_pack pack = {.label = "packet", .upload = f->upload, .packet = f->packet};
    of_all(f, "prompts");
    node(f, IST_NODE_GIVEN_PROMPTS, &given);
    pack.det = given.det;
    pack.match = given.match;
    ist_graph_part(f->g);
    ist_graph_limit(f->g, given.total);
    ist_graph_stage(f->g, "segmenter_decoder");
    ist_prompted in = {.embedding = embeddings(f), .image_of = given.image_of};
    if (config->mask_prompts) in.dense = model->dense(&net, given.mask, given.masked);
    if (!f->kept && !config->low_res) in.content = given.content;
    ist_prompt_masks out =
        given.few ? decode_apart(f, &in, &given) : decode(f, in, given.points, given.labels, given.tokens);
    make_masks(f, &out, &pack);
    if (config->low_res) pack.logits = out.low_res;
    of_all(f, "pack");
    node(f, IST_NODE_PACK, &pack);
}

/* ---- masks of everything ---- */

/* Masks that the points may have: room for all to be candidates. */
static int capacity_of(const frame *f) {
    return f->grids->points * IST_MULTIMASKS;
}

/* A batch of points and what passes of their masks; after selection the masks that were kept. */
static void record_points(const frame *f) {
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    ist_grid_points points = {.label = "grid points",
                              .upload = f->upload,
                              .found = f->found,
                              .prompts = f->everything->points_per_batch,
                              .crops = f->grids->crops,
                              .capacity = capacity_of(f)};
    of_all(f, "prompts");
    node(f, IST_NODE_GRID_POINTS, &points);
    ist_graph_part(f->g);
    ist_graph_limit(f->g, points.total);
    ist_graph_stage(f->g, "segmenter_decoder");
    ist_prompted in = {.embedding = embeddings(f), .image_of = points.image_of};
    in.embedding.n = f->grids->crops;
    in.sparse = model->points(&net, points.points, points.labels, f->side);
    if (!f->kept) in.content = points.content;
    ist_prompt_masks out = model->decode(&net, &in, true);
    of_all(f, "masks");
    ist_graph_part(f->g);
    ist_grid_picks picks = {.label = "predicted quality",
                            .found = f->found,
                            .iou = out.iou,
                            .image_of = points.image_of,
                            .total = points.total,
                            .iou_thresh = (float)f->everything->pred_iou_thresh,
                            .capacity = capacity_of(f)};
    node(f, IST_NODE_GRID_PICKS, &picks);
    ist_masks masks = {.label = "masks",
                       .logits = out.low_res,
                       .upload = f->upload,
                       .store = f->store,
                       .picks = picks.picks,
                       .det = picks.det,
                       .side = f->side,
                       .offset = (float)f->everything->stability_score_offset};
    ist_mask_sums sums = {.label = "masks", .stats = node(f, IST_NODE_MASKS, &masks), .det = picks.det};
    ist_grid_keep keep = {.label = "stability",
                          .upload = f->upload,
                          .found = f->found,
                          .iou = out.iou,
                          .total = points.total,
                          .picks = picks.picks,
                          .stats = node(f, IST_NODE_MASK_SUMS, &sums),
                          .det = picks.det,
                          .stability_thresh = (float)f->everything->stability_score_thresh,
                          .capacity = capacity_of(f)};
    node(f, IST_NODE_GRID_KEEP, &keep);
}

static void record_selection(const frame *f) {
    ist_grid_select select = {.label = "selection",
                              .upload = f->upload,
                              .found = f->found,
                              .crop_thresh = f->everything->box_nms_thresh,
                              .across_thresh = f->everything->crop_nms_thresh,
                              .crops = f->grids->crops,
                              .most = f->config->max_objects,
                              .capacity = capacity_of(f)};
    of_all(f, "selection");
    ist_graph_part(f->g);
    node(f, IST_NODE_GRID_SELECT, &select);
}

static void record_cleaning(const frame *f) {
    const ist_everything *e = f->everything;
    ist_grid_clean clean = {.label = "small regions",
                            .upload = f->upload,
                            .found = f->found,
                            .store = f->store,
                            .regions = f->regions,
                            .thresh = e->box_nms_thresh > e->crop_nms_thresh ? e->box_nms_thresh : e->crop_nms_thresh,
                            .least = e->min_mask_region_area,
                            .most = f->config->max_objects,
                            .capacity = capacity_of(f)};
    of_all(f, "selection");
    ist_graph_part(f->g);
    node(f, IST_NODE_GRID_CLEAN, &clean);
}

static void record_packing(const frame *f) {
    ist_grid_objects objects = {.label = "objects",
                                .found = f->found,
                                .det = {.max_objects = f->config->max_objects},
                                .capacity = capacity_of(f)};
    of_all(f, "pack");
    ist_graph_part(f->g);
    node(f, IST_NODE_GRID_OBJECTS, &objects);
    ist_pack pack = {.label = "packet",
                     .match = objects.match,
                     .stats = objects.stats,
                     .score = objects.score,
                     .upload = f->upload,
                     .store = f->store,
                     .packet = f->packet,
                     .det = objects.det,
                     .summed = true};
    node(f, IST_NODE_PACK, &pack);
}

/* ---- tiles ---- */

enum { TILE_OBJECTS = 300 /* that a tile may have: all candidates */ };

static void record_tile(const frame *f, const unsigned char *keep) {
    frame tile = *f;
    ist_config config = *f->config;
    ist_detected raw;
    config.batch = f->group;
    config.max_objects = TILE_OBJECTS;
    config.nms_iou = 0, config.nms_agnostic = 0; /* once, over all tiles */
    tile.config = &config;
    ist_tile_keep found = {
        .label = "detections", .upload = f->upload, .found = f->found, .det = detect(&tile, keep, &raw)};
    node(f, IST_NODE_TILE_KEEP, &found);
}

static void record_merging(const frame *f) {
    ist_tile_merge merge = {.label = "detections of all tiles",
                            .upload = f->upload,
                            .found = f->found,
                            .iou = f->config->nms_iou > 0 ? f->config->nms_iou : 0.5,
                            .agnostic = f->config->nms_agnostic,
                            .most = f->config->max_objects};
    of_all(f, "detections");
    ist_graph_part(f->g);
    node(f, IST_NODE_TILE_MERGE, &merge);
}

/* Masks, each from the embedding of its object's tile: a copy for each object, since decoders have memory for what they
 * make of every embedding. */
static void segment_tiles(const frame *f, const ist_tile_objects *objects, ist_pack *pack) {
    const ist_net net = {f->g, f->c->segmenter};
    const ist_segmenter_model *model = ist_segmenter_of(f->c->segmenter_info.kind);
    ist_tensor all = embeddings(f), corners = objects->det.boxes; /* as segment has it */
    const int grid = all.h;
    corners.w = corners.c = corners.ld = 2;
    ist_graph_part(f->g);
    ist_graph_limit(f->g, objects->det.total);
    ist_graph_stage(f->g, "segmenter_decoder");
    ist_expand each = {
        .label = "embeddings of objects", .x = ist_view(all, IST_TILES_MAX, 1, grid * grid), .map = objects->tile_of};
    ist_tensor embedding = node(f, IST_NODE_EXPAND, &each);
    ist_prompted in = {.embedding = ist_view(embedding, embedding.n, grid, grid), .image_of = objects->own};
    in.sparse = model->boxes(&net, corners, f->side, true);
    ist_prompt_masks out = model->decode(&net, &in, false);
    of_all(f, "masks");
    ist_graph_part(f->g);
    ist_masks masks = {.label = "masks",
                       .logits = out.low_res,
                       .upload = f->upload,
                       .store = f->store,
                       .picks = objects->picks,
                       .det = objects->det,
                       .side = f->side,
                       .offset = 1};
    masks.det.image_of = objects->tile_of;
    pack->stats = node(f, IST_NODE_MASKS, &masks);
    pack->score = out.iou;
    pack->store = f->store;
}

static void record_tiled(const frame *f) {
    ist_tile_objects objects = {
        .label = "objects", .upload = f->upload, .found = f->found, .det = {.max_objects = f->config->max_objects}};
    ist_pack pack = {.label = "packet", .upload = f->upload, .packet = f->packet};
    of_all(f, "detections");
    ist_graph_part(f->g);
    node(f, IST_NODE_TILE_OBJECTS, &objects);
    pack.det = objects.det;
    pack.match = match(f, &pack.det, (ist_detected){0});
    if (f->masks) segment_tiles(f, &objects, &pack);
    of_all(f, "pack");
    ist_graph_part(f->g);
    node(f, IST_NODE_PACK, &pack);
}

/* ---- all of it ---- */

static void record_frame(const frame *f, const unsigned char *keep) {
    ist_pack pack = {.label = "packet", .upload = f->upload, .packet = f->packet};
    find_windows(f);
    if (f->config->prompts == IST_PROMPTS_TARGETS) {
        pack.det = given_boxes(f, &pack.match);
    } else {
        ist_detected raw;
        if (f->masks) ist_graph_branch(f->g, 1);
        pack.det = detect(f, keep, &raw);
        pack.match = match(f, &pack.det, raw);
    }
    if (f->masks) segment(f, &pack);
    of_all(f, "pack");
    if (!f->masks) ist_graph_part(f->g);
    node(f, IST_NODE_PACK, &pack);
}

ist_status ist_frame_record(ist_engine *e, ist_plan *plan, ist_frame_part part, const ist_checkpoints *c,
                            const unsigned char *keep, bool kept, ist_error *err) {
    frame f = {.config = &e->config,
               .side = e->config.segmenter_size,
               .c = c,
               .masks = e->has_masks,
               .kept = kept,
               .group = e->tiles.batch};
    /* Not in half on CPUs, which nobody gains by: one of their compilers stores halves beyond the ends of tensors in the
     * portable variants of both ways together (guards tell; a GPU does not). */
    f.few_apart = !(e->config.precision == IST_PRECISION_FP16 && ist_device_is_cpu(e->device));
    IST_TRY(ist_graph_open(&f.g, err));
    f.upload = ist_graph_external(f.g, IST_EXT_UPLOAD, IST_ELEM_I32);
    f.pixels = ist_graph_external(f.g, IST_EXT_PIXELS, IST_ELEM_U8);
    f.packet = ist_graph_external(f.g, IST_EXT_PACKET, IST_ELEM_I32);
    if (f.masks) f.store = ist_graph_external(f.g, IST_EXT_STORE, IST_ELEM_I32);
    const bool detects =
        part == IST_FRAME_WHOLE || part == IST_FRAME_WINDOWS || part == IST_FRAME_TILE || part == IST_FRAME_MERGING;
    if (!detects) f.embedding = ist_graph_external(f.g, IST_EXT_EMBEDDING, IST_ELEM_T);
    if (part >= IST_FRAME_TILE) f.found = ist_graph_external(f.g, IST_EXT_FOUND, IST_ELEM_I32);
    if (e->config.prompts == IST_PROMPTS_EVERYTHING) {
        f.everything = &e->everything, f.grids = &e->grids;
        f.found = ist_graph_external(f.g, IST_EXT_FOUND, IST_ELEM_I32);
        f.regions = ist_graph_external(f.g, IST_EXT_REGIONS, IST_ELEM_I32);
    }
    switch (part) {
    case IST_FRAME_ENCODER:
        record_encoder(&f);
        break;
    case IST_FRAME_DECODER:
        record_decoder(&f);
        break;
    case IST_FRAME_POINTS:
        record_points(&f);
        break;
    case IST_FRAME_SELECTION:
        record_selection(&f);
        break;
    case IST_FRAME_CLEANING:
        record_cleaning(&f);
        break;
    case IST_FRAME_PACKING:
        record_packing(&f);
        break;
    case IST_FRAME_WINDOWS:
        find_windows(&f);
        break;
    case IST_FRAME_TILE:
        record_tile(&f, keep);
        break;
    case IST_FRAME_MERGING:
        record_merging(&f);
        break;
    case IST_FRAME_TILED:
        record_tiled(&f);
        break;
    default:
        record_frame(&f, keep);
    }
    ist_lower_shared(plan, f.g);
    ist_graph_close(&f.g);
    return IST_OK;
}
