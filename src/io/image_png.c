/* PNG in and out through libpng, which reads and writes the chunks.
 *
 * The compressed rows take most of the time, and ISA-L a third of what zlib takes for them: it compresses what is
 * written and, in files of the plain form (8 bits, no palette, not interlaced), inflates what is read. A file that is
 * not of that form, or has anything wrong with it, is libpng's alone.
 *
 * libpng reports errors by longjmp; everything that must survive the jump lives in one struct, and each function with a
 * setjmp has a sibling that does the work. Warnings are silent: what matters is an error. */
#include "io/image.h"

#include "base/mem.h"
#include "io/atomic_file.h"
#include "io/png_rows.h"

#include <errno.h>
#include <isa-l/igzip_lib.h>
#include <limits.h>
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
    struct inflate_state *inflate;    /* reading the plain form: NULL before the first IDAT chunk */
    const unsigned char *data_end;    /* where the last IDAT chunk ended */
    struct isal_zstream *deflate;     /* writing */
    unsigned char *level, *from, *to; /* writing: the compressor's memory, filtered rows, compressed bytes */
    ist_status status;                /* set when a failure has already been described in err */
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

static bool is_within_limit(png_job *job, size_t width, size_t height) {
    if (!height || width <= job->max_pixels / height) return true;
    job->status = ist_fail(job->err, IST_E_LIMIT, "%s: %zu x %zu pixels are more than the limit of %zu", job->name,
                           width, height, job->max_pixels);
    return false;
}

/* Any PNG, by libpng. */
static void read_any(png_job *job) {
    png_structp png = job->png;
    png_read_info(png, job->info);
    size_t width = png_get_image_width(png, job->info), height = png_get_image_height(png, job->info);
    if (!is_within_limit(job, width, height)) return;
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

/* ---- the plain form ----
 * libpng checks the order, sizes and checksums of chunks and hands over what is in the IDAT ones. Whatever fails here
 * is no failure yet: libpng reads the file again by itself, and knows better, or what to say. The other way round,
 * ISA-L takes sets of codes that zlib finds incomplete, if the codes in use and zlib's checksum are right. */
enum { MAX_PLAIN_CHUNK = 64 << 20, SPARE = 1 };

/* Before the first IDAT chunk: memory for rows with their filters, and one byte more, which must stay unused. */
static void begin_plain(png_job *job) {
    png_structp png = job->png;
    size_t width = png_get_image_width(png, job->info), height = png_get_image_height(png, job->info), bytes;
    size_t pixel = png_get_channels(png, job->info), row = pixel * width;
    if (png_get_bit_depth(png, job->info) != 8 || png_get_color_type(png, job->info) == PNG_COLOR_TYPE_PALETTE ||
        png_get_interlace_type(png, job->info) != PNG_INTERLACE_NONE || png_get_valid(png, job->info, PNG_INFO_tRNS))
        png_error(png, "not of the plain form");
    if (!is_within_limit(job, width, height) || !ist_mul_size(row + 1, height, &bytes) || bytes > UINT_MAX - SPARE)
        png_error(png, "too large");
    ist_bitmap *b = job->bitmap;
    *b = (ist_bitmap){.width = (int)width,
                      .height = (int)height,
                      .format = (ist_pixel_format)(1 << 4 | pixel),
                      .stride = row,
                      .pixels = malloc(bytes + SPARE)};
    job->inflate = malloc(sizeof *job->inflate);
    if (!b->pixels || !job->inflate) png_error(png, "out of memory");
    isal_inflate_init(job->inflate);
    job->inflate->crc_flag = ISAL_ZLIB;
    job->inflate->next_out = b->pixels;
    job->inflate->avail_out = (uint32_t)(bytes + SPARE);
}

/* zlib's header without a dictionary and with the largest window: ISA-L does not hold others to a smaller one. */
static bool is_common_zlib(const unsigned char *data, size_t size) {
    return size >= 2 && data[0] == 0x78 && !(data[1] & 0x20);
}

/* libpng's callback for chunks that it is told not to know, read and found whole: below 0 an error, 1 for done. */
static int on_chunk(png_structp png, png_unknown_chunkp chunk) {
    png_job *job = png_get_user_chunk_ptr(png);
    bool ancillary = chunk->name[0] & 0x20;
    if (memcmp(chunk->name, "IDAT", 4)) return ancillary ? 1 : -1;
    if (!job->inflate) {
        begin_plain(job);
        if (!is_common_zlib(chunk->data, chunk->size)) return -1;
    } else if (job->bytes != job->data_end + 12 + chunk->size) { /* length, name, data, checksum */
        return -1;
    }
    job->data_end = job->bytes;
    job->inflate->next_in = chunk->data;
    job->inflate->avail_in = (uint32_t)chunk->size;
    return isal_inflate(job->inflate) || job->inflate->avail_in ? -1 : 1;
}

static void read_plain(png_job *job) {
    png_structp png = job->png;
    png_set_read_user_chunk_fn(png, job, on_chunk);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_ALWAYS, (png_const_bytep) "IDAT", 1);
    png_set_chunk_malloc_max(png, MAX_PLAIN_CHUNK);
    png_read_info(png, job->info);
    png_read_end(png, job->info);
    if (!job->inflate) png_error(png, "no rows");
}

/* Whether libpng stopped behind the head of a good last chunk. From 1.6.45 on it takes that one to be out of place
 * where it has not inflated the rows itself. */
static bool is_at_end(const png_job *job) {
    return job->left >= 4 && !memcmp(job->bytes - 8, "\0\0\0\0IEND\xAE\x42\x60\x82", 12);
}

/* What follows the last chunk: the rows without their filters; false when they are not whole. */
static bool finish_plain(png_job *job) {
    const ist_bitmap *b = job->bitmap;
    return job->inflate->block_state == ISAL_BLOCK_FINISH && job->inflate->avail_out == SPARE &&
           ist_png_unfilter(b->pixels, (size_t)b->height, b->stride, (size_t)ist_format_channels(b->format));
}

/* ---- either ---- */

/* Creates libpng's reader of a file in memory, lets `read` work with it, and describes what stopped it. */
static ist_status run_reader(png_job *job, const void *bytes, size_t count, void (*read)(png_job *)) {
    png_job *volatile j = job; /* survives the jump */
    job->bytes = bytes;
    job->left = count;
    job->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, job, on_error, on_warning);
    job->info = job->png ? png_create_info_struct(job->png) : NULL;
    if (!job->info) {
        png_destroy_read_struct(&job->png, NULL, NULL);
        return ist_fail(job->err, IST_E_MEMORY, "%s: out of memory", job->name);
    }
    if (setjmp(png_jmpbuf(job->png))) {
        if (j->ended)
            j->status = ist_fail(j->err, IST_E_INPUT, "%s: the PNG is truncated after %zu bytes", j->name, count);
        else if (!j->inflate || !is_at_end(j))
            j->status = ist_fail(j->err, IST_E_INPUT, "%s: damaged PNG: %s", j->name, j->message);
    } else {
        /* our own limit speaks first, with numbers; libpng's is 10^6 per side */
        png_set_user_limits(job->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
        png_set_crc_action(job->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
        png_set_read_fn(job->png, job, on_read);
        read(job);
    }
    png_destroy_read_struct(&j->png, &j->info, NULL);
    if (!j->status && j->inflate && !finish_plain(j)) j->status = IST_E_INPUT;
    free(j->inflate);
    if (j->status) ist_bitmap_free(j->bitmap);
    return j->status;
}

ist_status ist_png_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                          ist_error *err) {
    *out = (ist_bitmap){0};
    png_job plain = {.name = name, .max_pixels = max_pixels, .bitmap = out};
    if (run_reader(&plain, bytes, count, read_plain) == IST_OK) return IST_OK;
    png_job any = {.name = name, .max_pixels = max_pixels, .bitmap = out, .err = err};
    return run_reader(&any, bytes, count, read_any);
}

/* ---- writing ----
 * Colour goes through the filter "average": Paeth takes as long as all the rest, and wins little. Maps are long runs of
 * equal bytes in lines like the ones above: no filter improves them. ISA-L's level 3, since with levels 1 and 2 (2.30)
 * where a process has its memory decides, once in a hundred, how a stream begins: the same picture made other bytes. It
 * takes a map of 1280 x 720 0.9 ms longer, and colours no longer. */
enum { LEVEL = 3, LEVEL_BYTES = ISAL_DEF_LVL3_DEFAULT, ROWS_BYTES = 1 << 16, CHUNK_BYTES = 1 << 16 };

/* Row y as it is compressed; returns the end. */
static unsigned char *filter_row(const ist_bitmap *b, int y, unsigned char *to) {
    const unsigned char *p = (const unsigned char *)b->pixels + (size_t)y * b->stride;
    if (b->format == IST_RGB8) {
        ist_png_filter_average(to, p, y ? p - b->stride : NULL, b->stride, 3);
    } else {
        *to = PNG_FILTER_VALUE_NONE;
        memcpy(to + 1, p, b->stride);
        if (ist_format_bytes(b->format) == 2 && host_is_little_endian())
            for (size_t i = 1; i < b->stride; i += 2) {
                unsigned char low = to[i];
                to[i] = to[i + 1];
                to[i + 1] = low;
            }
    }
    return to + 1 + b->stride;
}

static void begin_deflate(png_job *job) {
    if (job->bitmap->stride > INT_MAX) png_error(job->png, "the rows are too long");
    job->deflate = malloc(sizeof *job->deflate);
    job->level = malloc(LEVEL_BYTES);
    job->from = malloc(ROWS_BYTES + 1 + job->bitmap->stride);
    job->to = malloc(CHUNK_BYTES);
    if (!job->deflate || !job->level || !job->from || !job->to) png_error(job->png, "out of memory");
    isal_deflate_init(job->deflate);
    job->deflate->gzip_flag = IGZIP_ZLIB;
    job->deflate->level = LEVEL;
    job->deflate->level_buf = job->level;
    job->deflate->level_buf_size = LEVEL_BYTES;
    job->deflate->next_out = job->to;
    job->deflate->avail_out = CHUNK_BYTES;
}

/* What is compressed so far as a chunk. */
static void write_data(png_job *job) {
    if (job->deflate->avail_out == CHUNK_BYTES) return;
    png_write_chunk(job->png, (png_const_bytep) "IDAT", job->to, CHUNK_BYTES - job->deflate->avail_out);
    job->deflate->next_out = job->to;
    job->deflate->avail_out = CHUNK_BYTES;
}

static void write_pixels(png_job *job, FILE *stream) {
    png_structp png = job->png;
    const ist_bitmap *b = job->bitmap;
    png_init_io(png, stream);
    png_set_IHDR(png, job->info, (png_uint_32)b->width, (png_uint_32)b->height, 8 * ist_format_bytes(b->format),
                 ist_format_channels(b->format) == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_write_info(png, job->info);
    begin_deflate(job);
    for (int y = 0; y < b->height;) {
        unsigned char *end = job->from;
        while (y < b->height && end < job->from + ROWS_BYTES) end = filter_row(b, y++, end);
        job->deflate->next_in = job->from;
        job->deflate->avail_in = (uint32_t)(end - job->from);
        job->deflate->end_of_stream = y == b->height;
        do {
            if (!job->deflate->avail_out) write_data(job);
            if (isal_deflate(job->deflate)) png_error(png, "the rows cannot be compressed");
        } while (!job->deflate->avail_out);
    }
    write_data(job);
    png_write_chunk(png, (png_const_bytep) "IEND", NULL, 0);
}

ist_status ist_png_write_stream(FILE *stream, const char *path, const ist_bitmap *bitmap, ist_error *err) {
    if (ist_format_channels(bitmap->format) != 1 && ist_format_channels(bitmap->format) != 3)
        return ist_fail(err, IST_E_ARGUMENT, "%s: pixel format 0x%x is not written", path, (unsigned)bitmap->format);
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
    free(j->deflate);
    free(j->level);
    free(j->from);
    free(j->to);
    return j->status;
}

ist_status ist_png_write(const char *path, const ist_bitmap *bitmap, ist_error *err) {
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin(&file, path, err));
    ist_status status = ist_png_write_stream(file.stream, path, bitmap, err);
    if (!status) return ist_atomic_commit(&file, err);
    ist_atomic_abort(&file);
    return status;
}
