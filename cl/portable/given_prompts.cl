/* Prompts of the upload (graph/frame.h) as what the prompt encoder takes, and the objects that they become
 * (GIVEN_PROMPTS of graph/nodes.h). */
#define NOTHING 4 /* a label that nothing is added for */

static inline __global const uint *prompt_at(__global const uint *upload, int p) {
    return upload + upload[UP_PROMPT_AT] + (size_t)p * PM_WORDS;
}

/* Work-item (j, p): place j of prompt p. */
__kernel void given_points(__global float *points, __global int *labels, __global int *tokens,
                           __global float *few_points, __global int *few_labels, __global int *few_tokens,
                           __global int *image_of, __global const uint *upload, given_prompts_args arg) {
    const int j = (int)get_global_id(0), p = (int)get_global_id(1), places = (int)get_global_size(0);
    const bool there = p < (int)upload[UP_PROMPTS];
    __global const uint *prompt = prompt_at(upload, there ? p : 0);
    const int count = there ? (int)prompt[PM_POINTS] : 0, image = there ? (int)prompt[PM_IMAGE] : 0;
    float x = 0.0f, y = 0.0f;
    int label = NOTHING;
    if (j < count) {
        __global const uint *im = IMAGE_AT(upload, image), *point = upload + prompt[PM_POINT_AT] + j * POINT_WORDS;
        x = scaled(as_float(point[POINT_X]), im[IM_SCALE_X], im[IM_SCALE_X_LOW]);
        y = scaled(as_float(point[POINT_Y]), im[IM_SCALE_Y], im[IM_SCALE_Y_LOW]);
        label = (int)point[POINT_LABEL];
    }
    vstore2((float2)(x, y), p * places + j, points);
    labels[p * places + j] = label;
    if (j < arg.few) {
        vstore2((float2)(x, y), p * arg.few + j, few_points);
        few_labels[p * arg.few + j] = label;
    }
    if (j) return;
    tokens[p] = arg.own + count;
    if (arg.few) few_tokens[p] = arg.own + min(count, arg.few);
    image_of[p] = image;
}

/* Work-item (i, n): object i of image n, and of the flat list of all. */
__kernel void given_objects(__global int *objects, __global int *counts, __global int *image_of, __global int *total,
                            __global int *total_prompts, __global int *match, __global int *content,
                            __global const uint *upload, given_prompts_args arg) {
    const int i = (int)get_global_id(0), n = (int)get_global_id(1), most = (int)get_global_size(0);
    const int all = (int)upload[UP_PROMPTS], flat = n * most + i;
    __global const uint *im = IMAGE_AT(upload, n);
    const bool live = n < (int)upload[UP_COUNT];
    const int given = live ? (int)im[IM_PROMPTS] * arg.objects_each : 0, first = live ? (int)im[IM_PROMPT] : all;
    if (flat == 0) total[0] = all * arg.objects_each, total_prompts[0] = all;
    if (i == 0) {
        vstore4((int4)(given, 0, first * arg.objects_each, 0), n, counts);
        vstore2(live ? (int2)((int)im[IM_SEG_WIDTH], (int)im[IM_SEG_HEIGHT]) : (int2)(0), n, content);
    }
    image_of[flat] = flat < all * arg.objects_each ? (int)prompt_at(upload, flat / arg.objects_each)[PM_IMAGE] : 0;
    if (i >= given) return;
    __global const uint *prompt = prompt_at(upload, first + i / arg.objects_each);
    __global int *o = objects + (size_t)flat * DET_WORDS;
    o[DET_LABEL] = 0;
    o[DET_SCORE] = as_int(1.0f);
    o[DET_QUERY] = i % arg.objects_each;
    vstore4(as_int4(vload4(0, prompt + PM_BOX)), 0, o + DET_BOX);
    o[DET_WORDS - 1] = 0;
    match[2 * flat] = i / arg.objects_each;
    match[2 * flat + 1] = as_int(1.0f);
}

/* Work-item (i, p): value i of the mask of prompt p. */
__kernel void given_masks(__global float *mask, __global int *masked, __global const uint *upload,
                          given_prompts_args arg) {
    const int i = (int)get_global_id(0), p = (int)get_global_id(1);
    const uint at = p < (int)upload[UP_PROMPTS] ? prompt_at(upload, p)[PM_MASK_AT] : 0u;
    if (i == 0) masked[p] = at != 0u;
    if (i < arg.pixels) mask[(size_t)p * arg.pixels + i] = at ? as_float(upload[at + i]) : 0.0f;
}
