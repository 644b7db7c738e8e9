/* SAM's ViT as the segmenter of a whole frame: three blocks of 192 channels at the side of the checkpoint, 320. */
#include "models/sam.h"
#include "pipeline/inspect.h"
#include "ref.h"
#include "support/engines.h"
#include "synth.h"
#include "variants/upload.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 320, LOW = SIDE / 4 };

static ist_error err;
static char path[512];

static void write_checkpoint(void) {
    const ist_arch_form form = {
        .kind = IST_MODEL_SAM_VIT, .classes = 1, .side = SIDE, .blocks = 3, .width = 192, .whole_map = 1 << 1};
    snprintf(path, sizeof path, IST_BUILD_DIR "/sam_vit_XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert_eq(synth_form_checkpoint(&form, 1, NULL, NULL, path, &err), IST_OK, "%s", err.text);
}

static ist_config prompted(int batch) {
    ist_config c = ist_config_default();
    c.segmenter = path;
    c.prompts = IST_PROMPTS_TARGETS;
    c.precision = IST_PRECISION_FP32;
    c.batch = batch;
    c.max_objects = 2;
    return c;
}

static const ist_target boxes[2] = {{{10, 20, 90, 140}, 0}, {{50, 5, 119, 60}, 0}};

static ist_image image_of(int height, int width, uint64_t seed) {
    ist_image m = engines_image(height, width, seed);
    m.targets = boxes;
    m.target_count = 2;
    return m;
}

static bool mask_bit(const ist_mask *m, int x, int y) {
    if (x < m->x0 || x >= m->x0 + m->columns || y < m->y0 || y >= m->y0 + 32 * m->words) return false;
    return m->bits[(x - m->x0) * m->words + (y - m->y0) / 32] >> (y - m->y0) % 32 & 1;
}

/* Masks of two pictures of unequal sides against their low-resolution logits. */
Test(pipeline_sam_vit, masks) {
    write_checkpoint();
    ist_config c = prompted(2);
    ist_engine *e = NULL;
    ist_engine_info info;
    cr_assert_eq(ist_engine_open_kept(&c, &e, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    cr_expect_str_eq(info.segmenter, "sam-vit");
    cr_expect_eq(info.segmenter_size, SIDE);
    ist_image images[2] = {image_of(160, 120, 4), image_of(150, 200, 9)};
    const ist_result *r = engines_run(e, images, 2);
    ist_kept logits, embedding;
    cr_assert_eq(ist_engine_read_kept(e, "masks", &logits, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_engine_read_kept(e, "embedding", &embedding, &err), IST_OK, "%s", err.text);
    cr_assert(embedding.h == SIDE / 16 && embedding.w == SIDE / 16 && embedding.c == 256);
    cr_assert(logits.h == LOW && logits.w == LOW);
    for (int i = 0; i < 2; i++) {
        const ist_frame *f = &r->frames[i];
        int w, h;
        ist_segmenter_size(SIDE, f->width, f->height, &w, &h);
        float *v = malloc((size_t)f->width * (size_t)f->height * sizeof *v);
        cr_assert_not_null(v);
        cr_assert_eq(f->object_count, 2);
        for (int k = 0; k < 2; k++) {
            int area = 0;
            ref_upsample(logits.values + (size_t)(2 * i + k) * LOW * LOW, LOW, w, h, v, f->width, f->height);
            for (int y = 0; y < f->height; y++)
                for (int x = 0; x < f->width; x++) {
                    bool in = v[(size_t)y * (size_t)f->width + (size_t)x] > 0;
                    area += in;
                    cr_assert_eq(mask_bit(&f->objects[k].mask, x, y), in, "image %d, object %d, pixel %d,%d", i, k, x,
                                 y);
                }
            cr_expect_eq(f->objects[k].area, area);
            cr_expect(area > 0 && area < f->width * f->height, "image %d, object %d: %d pixels", i, k, area);
        }
        free(v);
    }
    free(logits.values), free(embedding.values);
    ist_release(e, &r);
    ist_close(&e);
    for (int i = 0; i < 2; i++) free((void *)images[i].pixels);
    remove(path);
}

/* Its position embedding is for one side. */
Test(pipeline_sam_vit, another_side) {
    write_checkpoint();
    ist_config c = prompted(1);
    ist_engine *e = NULL;
    c.segmenter_size = 512;
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);
    cr_expect_not_null(strstr(err.text, "segmenter size 512: this sam-vit checkpoint is for 320"), "%s", err.text);
    cr_expect_null(e);
    remove(path);
}

/* It is no detector. */
Test(pipeline_sam_vit, not_a_detector) {
    write_checkpoint();
    ist_config c = ist_config_default();
    ist_engine *e = NULL;
    c.detector = path;
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "is a sam-vit checkpoint; the detector must be D-FINE"), "%s", err.text);
    cr_expect_null(e);
    remove(path);
}
