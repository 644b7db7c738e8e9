/* The smallest useful program: prints what isthmus finds in one PNG.   example DETECTOR SEGMENTER IMAGE.png */
#include <isthmus.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: example DETECTOR SEGMENTER IMAGE.png\n"), 2;
    png_image png = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_file(&png, argv[3])) return fprintf(stderr, "%s\n", png.message), 1;
    png.format = PNG_FORMAT_RGB;
    void *pixels = malloc(PNG_IMAGE_SIZE(png));
    if (!pixels || !png_image_finish_read(&png, NULL, pixels, 0, NULL)) return fprintf(stderr, "%s\n", png.message), 1;

    ist_config config = ist_config_default();
    config.detector = argv[1], config.segmenter = argv[2];
    ist_image image = {.width = (int)png.width, .height = (int)png.height, .format = IST_RGB8, .pixels = pixels};
    ist_engine *engine = NULL;
    const ist_result *result = NULL;
    ist_error err = {0};
    if (ist_open(&config, &engine, &err) || ist_submit(engine, &image, 1, &err) || ist_receive(engine, &result, &err))
        return fprintf(stderr, "%s\n", err.text), 1;
    for (int i = 0; i < result->frames[0].object_count; i++) {
        const ist_object *o = &result->frames[0].objects[i];
        printf("label %d score %.3f box %.1f %.1f %.1f %.1f area %d\n", o->label, o->score, o->box[0], o->box[1],
               o->box[2], o->box[3], o->area);
    }
    ist_release(engine, &result);
    ist_close(&engine);
    free(pixels);
    return 0;
}
