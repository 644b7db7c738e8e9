/* PNG in: the common kind by png_plain.c, all others, and whatever is damaged, through libpng.
 *
 * libpng reports errors by longjmp; everything that must survive the jump lives in one struct, and each function with a
 * setjmp has a sibling that does the work. Warnings are silent: what matters is an error. */
#include "io/image.h"

#include "io/png_plain.h"

#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct png_job {
    png_structp png;
    png_infop info;
    const char *name;
    const unsigned char *bytes; /* reading: what is left of the file */
    size_t left;
    bool ended; /* libpng asked for more than there is */
    size_t max_pixels;
    ist_bitmap *bitmap;
    ist_status status; /* set when a failure has already been described in err */
    ist_error *err;
    char message[200]; /* libpng's sentence */
} png_job;

static bool host_is_little_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

static void on_error(png_structp png, png_const_charp message) {
    png_job *job = png_get_error_ptr(png);
    snprintf(job->message, sizeof job->message, "%s", message);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep out, size_t count) {
    png_job *job = png_get_io_ptr(png);
    if (count > job->left) {
        job->ended = true;
        png_error(png, "the file ends early");
    }
    memcpy(out, job->bytes, count);
    job->bytes += count;
    job->left -= count;
}

/* Expansion that needs no knowledge of the image: palette to RGB, depths below 8 to 8, a transparent colour to alpha.
 */
static ist_pixel_format choose_format(png_job *job) {
    png_structp png = job->png;
    png_set_expand(png);
    if (png_get_bit_depth(png, job->info) == 16 && host_is_little_endian()) png_set_swap(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, job->info);
    int channels = png_get_channels(png, job->info), bytes = png_get_bit_depth(png, job->info) / 8;
    return (ist_pixel_format)(bytes << 4 | channels);
}

static void read_pixels(png_job *job) {
    png_structp png = job->png;
    png_read_info(png, job->info);
    size_t width = png_get_image_width(png, job->info), height = png_get_image_height(png, job->info);
    if (height && width > job->max_pixels / height) {
        job->status = ist_fail(job->err, IST_E_LIMIT, "%s: %zu x %zu pixels are more than the limit of %zu", job->name,
                               width, height, job->max_pixels);
        return;
    }
    int passes = png_get_interlace_type(png, job->info) == PNG_INTERLACE_ADAM7 ? PNG_INTERLACE_ADAM7_PASSES : 1;
    ist_pixel_format format = choose_format(job);
    ist_bitmap *b = job->bitmap;
    job->status = ist_bitmap_allocate(job->name, width, height, format, job->max_pixels, b, job->err);
    if (job->status) return;
    if (png_get_rowbytes(png, job->info) != b->stride) png_error(png, "unexpected row size");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < b->height; y++) png_read_row(png, (png_bytep)b->pixels + (size_t)y * b->stride, NULL);
    png_read_end(png, NULL);
}

ist_status ist_png_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err) {
    *out = (ist_bitmap){0};
    if (ist_png_decode_plain(bytes, count, max_pixels, out)) return IST_OK;
    png_job job = {.name = name, .bytes = bytes, .left = count, .max_pixels = max_pixels, .bitmap = out, .err = err};
    png_job *volatile j = &job; /* survives the jump */
    job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning);
    job.info = job.png ? png_create_info_struct(job.png) : NULL;
    if (!job.info) {
        png_destroy_read_struct(&job.png, NULL, NULL);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    }
    if (setjmp(png_jmpbuf(job.png))) {
        if (j->ended)
            j->status = ist_fail(err, IST_E_INPUT, "%s: the PNG is truncated after %zu bytes", name, count);
        else
            j->status = ist_fail(err, IST_E_INPUT, "%s: damaged PNG: %s", name, j->message);
    } else {
        /* our own limit speaks first, with numbers; libpng's is 10^6 per side */
        png_set_user_limits(job.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
        png_set_crc_action(job.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
        png_set_read_fn(job.png, &job, on_read);
        read_pixels(&job);
    }
    png_destroy_read_struct(&j->png, &j->info, NULL);
    if (j->status) ist_bitmap_free(out);
    return j->status;
}
