/* Engines and embeddings of the page: see serve.h. */
#include "serve.h"

#include <stdlib.h>

static ist_status open_engine(serve *s, serve_kind kind, ist_error *err) {
    ist_config config;
    int *classes = NULL;
    if (s->engines[kind].engine) return IST_OK;
    if (predict_configure(s->job, &config, &classes)) return ist_fail(err, IST_E_ARGUMENT, "the options are damaged");
    config.multimask = kind == SERVE_THREE_MASKS;
    if (kind == SERVE_ALL_MASKS) {
        config.prompts = IST_PROMPTS_EVERYTHING;
        config.everything = &s->job->options->parameters;
    }
    ist_status status = ist_open(&config, &s->engines[kind].engine, err);
    free(classes);
    return status;
}

static void close_engine(serve_engine *e) {
    for (int i = 0; e->engine && i < e->count; i++) ist_embedding_release(e->engine, &e->list[i].handle);
    ist_close(&e->engine);
    e->count = 0;
}

void serve_engines_close(serve *s) {
    for (int i = 0; i < SERVE_KINDS; i++) close_engine(&s->engines[i]);
}

/* What a lost device has computed is gone with it. */
static ist_status check(serve_engine *e, ist_status status) {
    if (status == IST_E_DEVICE || status == IST_E_BUILD || status == IST_E_STATE) close_engine(e);
    return status;
}

/* Room for one more: that of the image that was not asked for the longest time. */
static serve_embedding *make_room(serve_engine *e) {
    if (e->count < SERVE_EMBEDDINGS) return &e->list[e->count++];
    serve_embedding *oldest = &e->list[0];
    for (int i = 1; i < e->count; i++)
        if (e->list[i].used < oldest->used) oldest = &e->list[i];
    ist_embedding_release(e->engine, &oldest->handle);
    return oldest;
}

/* Whatever is wrong with a file, the request is not. */
static ist_status read_image(const ist_source *source, ist_bitmap *bitmap, ist_image *image, ist_error *err) {
    if (ist_source_read(source, IST_MAX_PIXELS, bitmap, err)) return err->code = IST_E_IO;
    *image = (ist_image){.width = bitmap->width,
                         .height = bitmap->height,
                         .format = bitmap->format,
                         .stride = bitmap->stride,
                         .pixels = bitmap->pixels,
                         .window_low = bitmap->window_low, /* of DICOM alone: the engine is open for it */
                         .window_high = bitmap->window_high};
    return IST_OK;
}

static ist_status encode_new(serve_engine *e, const ist_source *source, size_t image, ist_error *err) {
    ist_bitmap bitmap;
    ist_image pixels;
    ist_embedding *handle = NULL;
    IST_TRY(read_image(source, &bitmap, &pixels, err));
    serve_embedding *place = make_room(e);
    ist_status status = ist_encode(e->engine, &pixels, &handle, err);
    ist_bitmap_free(&bitmap);
    if (status)
        *place = e->list[--e->count];
    else
        *place = (serve_embedding){.handle = handle, .image = image};
    return check(e, status);
}

static serve_embedding *find(serve_engine *e, size_t image) {
    for (int i = 0; i < e->count; i++)
        if (e->list[i].image == image) return &e->list[i];
    return NULL;
}

ist_status serve_encode(serve *s, serve_kind kind, size_t image, ist_error *err) {
    serve_engine *e = &s->engines[kind];
    IST_TRY(open_engine(s, kind, err));
    if (!find(e, image)) IST_TRY(encode_new(e, &s->job->sources.items[image], image, err));
    find(e, image)->used = ++s->clock;
    return IST_OK;
}

ist_status serve_ask(serve *s, serve_kind kind, size_t image, const ist_prompt *prompt, const ist_result **result,
                     ist_error *err) {
    serve_engine *e = &s->engines[kind];
    IST_TRY(serve_encode(s, kind, image, err));
    IST_TRY(check(e, ist_submit_prompts(e->engine, find(e, image)->handle, prompt, 1, image, err)));
    return check(e, ist_receive(e->engine, result, err));
}

ist_status serve_everything(serve *s, size_t image, const ist_result **result, ist_error *err) {
    serve_engine *e = &s->engines[SERVE_ALL_MASKS];
    ist_bitmap bitmap;
    ist_image pixels;
    IST_TRY(open_engine(s, SERVE_ALL_MASKS, err));
    IST_TRY(read_image(&s->job->sources.items[image], &bitmap, &pixels, err));
    ist_status status = check(e, ist_submit(e->engine, &pixels, 1, err));
    ist_bitmap_free(&bitmap);
    return status ? status : check(e, ist_receive(e->engine, result, err));
}
