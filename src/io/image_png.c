/* PNG in and out through libpng.
 *
 * libpng reports errors by longjmp; everything that must survive the jump lives in one struct, and each function with a
 * setjmp has a sibling that does the work. Warnings are silent: what matters is an error. */
#include "io/image.h"

#include "io/atomic_file.h"

#include <errno.h>
#include <limits.h>
#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

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

/* ---- how to compress ----
 * Colour goes through the filter "average": Paeth takes longer than all the rest where nothing repeats, and wins
 * little. Then either zlib's search for repetitions at level 1, or runs and Huffman codes alone, which take a third of
 * the time and make photographs and noise no larger, but drawings half as large again: a few bands of the image tell.
 */
enum { BANDS = 4, BAND_ROWS = 8, LARGER_PERCENT = 5 };

/* Rows [y0, y0 + BAND_ROWS) of an RGB8 image behind the filter, 3 * width bytes each; returns the end. */
static unsigned char *filter_band(const ist_bitmap *b, int y0, unsigned char *to) {
    size_t row = 3 * (size_t)b->width;
    for (int y = y0; y < y0 + BAND_ROWS; y++) {
        const unsigned char *p = (const unsigned char *)b->pixels + (size_t)y * b->stride,
                            *up = y ? p - b->stride : NULL;
        for (size_t i = 0; i < row; i++)
            *to++ = (unsigned char)(p[i] - (((i < 3 ? 0 : p[i - 3]) + (up ? up[i] : 0)) >> 1));
    }
    return to;
}

/* Bytes that `count` bytes become, SIZE_MAX when zlib has no memory; `room` holds deflateBound's of any strategy. */
static size_t deflated(unsigned char *bytes, size_t count, unsigned char *room, size_t capacity, int strategy) {
    z_stream z = {0};
    size_t size = SIZE_MAX;
    if (deflateInit2(&z, 1, Z_DEFLATED, MAX_WBITS, MAX_MEM_LEVEL, strategy) != Z_OK) return size;
    z.next_in = bytes;
    z.avail_in = (uInt)count;
    z.next_out = room;
    z.avail_out = (uInt)capacity;
    if (deflate(&z, Z_FINISH) == Z_STREAM_END) size = z.total_out;
    deflateEnd(&z);
    return size;
}

/* Whether runs alone compress an RGB8 image about as well. */
static bool runs_suffice(const ist_bitmap *b) {
    size_t count = (size_t)BANDS * BAND_ROWS * 3 * (size_t)b->width, capacity = count + count / 8 + 1024;
    if (b->height < 2 * BANDS * BAND_ROWS || capacity > UINT_MAX) return false;
    unsigned char *sample = malloc(count + capacity), *end = sample;
    if (!sample) return false;
    for (int k = 0; k < BANDS; k++) end = filter_band(b, (int)((long)(b->height - BAND_ROWS) * k / (BANDS - 1)), end);
    size_t searched = deflated(sample, count, end, capacity, Z_FILTERED);
    size_t runs = deflated(sample, count, end, capacity, Z_RLE);
    free(sample);
    return runs != SIZE_MAX && searched != SIZE_MAX && runs * 100 <= searched * (100 + LARGER_PERCENT);
}

static void write_pixels(png_job *job, FILE *stream) {
    png_structp png = job->png;
    const ist_bitmap *b = job->bitmap;
    int depth = 8 * ist_format_bytes(b->format);
    png_init_io(png, stream);
    bool color = ist_format_channels(b->format) == 3;
    /* maps are long runs of equal bytes in lines like the ones above: no filter improves them, a search does */
    png_set_compression_level(png, color ? 1 : 2);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, color ? PNG_FILTER_AVG : PNG_FILTER_NONE);
    if (color && runs_suffice(b)) png_set_compression_strategy(png, Z_RLE);
    png_set_IHDR(png, job->info, (png_uint_32)b->width, (png_uint_32)b->height, depth,
                 color ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_write_info(png, job->info);
    if (depth == 16 && host_is_little_endian()) png_set_swap(png);
    for (int y = 0; y < b->height; y++) png_write_row(png, (png_const_bytep)b->pixels + (size_t)y * b->stride);
    png_write_end(png, NULL);
}

static ist_status write_stream(FILE *stream, const char *path, const ist_bitmap *bitmap, ist_error *err) {
    ist_bitmap copy = *bitmap;
    png_job job = {.name = path, .bitmap = &copy, .err = err};
    png_job *volatile j = &job;
    job.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning);
    job.info = job.png ? png_create_info_struct(job.png) : NULL;
    if (!job.info) {
        png_destroy_write_struct(&job.png, NULL);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    }
    errno = 0;
    if (setjmp(png_jmpbuf(job.png)))
        j->status = ist_fail(err, IST_E_IO, "cannot write %s: %s", path, errno ? strerror(errno) : j->message);
    else
        write_pixels(&job, stream);
    png_destroy_write_struct(&j->png, &j->info);
    return j->status;
}

ist_status ist_png_write(const char *path, const ist_bitmap *bitmap, ist_error *err) {
    if (bitmap->format != IST_GRAY8 && bitmap->format != IST_GRAY16 && bitmap->format != IST_RGB8)
        return ist_fail(err, IST_E_ARGUMENT, "%s: pixel format 0x%x is not written", path, (unsigned)bitmap->format);
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin(&file, path, err));
    ist_status status = write_stream(file.stream, path, bitmap, err);
    if (status) {
        ist_atomic_abort(&file);
        return status;
    }
    return ist_atomic_commit(&file, err);
}
