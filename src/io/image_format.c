/* The table: see image_format.h. */
#include "io/image_format.h"

#include <stdio.h>
#include <string.h>

static bool begins(const unsigned char *head, size_t count, const char *with, size_t length) {
    return count >= length && !memcmp(head, with, length);
}

static bool is_png(const unsigned char *head, size_t count) {
    return begins(head, count, "\x89PNG\r\n\x1A\n", 8);
}

static bool is_jpeg(const unsigned char *head, size_t count) {
    return begins(head, count, "\xFF\xD8\xFF", 3);
}

static bool is_tiff(const unsigned char *head, size_t count) {
    return begins(head, count, "II*\0", 4) || begins(head, count, "MM\0*", 4) || begins(head, count, "II+\0", 4) ||
           begins(head, count, "MM\0+", 4);
}

static bool is_dicom(const unsigned char *head, size_t count) {
    return count >= 132 && !memcmp(head + 128, "DICM", 4);
}

/* AVI, the family of MP4 (of which still pictures are members, too), Matroska. */
static bool is_video(const unsigned char *head, size_t count) {
    static const char stills[][5] = {"avif", "avis", "heic", "heix", "hevc", "hevx", "mif1", "msf1"};
    if (count >= 12 && begins(head, count, "RIFF", 4) && !memcmp(head + 8, "AVI ", 4)) return true;
    if (begins(head, count, "\x1A\x45\xDF\xA3", 4)) return true;
    if (count < 12 || memcmp(head + 4, "ftyp", 4)) return false;
    for (size_t i = 0; i < sizeof stills / sizeof *stills; i++)
        if (!memcmp(head + 8, stills[i], 4)) return false;
    return true;
}

static bool is_webp(const unsigned char *head, size_t count) {
    return count >= 12 && begins(head, count, "RIFF", 4) && !memcmp(head + 8, "WEBP", 4);
}

static bool is_bmp(const unsigned char *head, size_t count) { /* reserved words are zero: text may begin with BM */
    return count >= 18 && begins(head, count, "BM", 2) && !memcmp(head + 6, "\0\0\0\0", 4) && head[15] == 0 &&
           head[16] == 0 && head[17] == 0;
}

static bool is_pnm(const unsigned char *head, size_t count) {
    return count >= 3 && head[0] == 'P' && head[1] >= '1' && head[1] <= '7' && strchr(" \t\n\r\v\f#", head[2]) &&
           head[2];
}

#ifdef ISTHMUS_TIFF
#define TIFF_ROW .container = &ist_tiff_container, .version = ISTHMUS_TIFF
#else
#define TIFF_ROW .container = NULL
#endif
#ifdef ISTHMUS_JPEG2000 /* within DICOM files only */
#define WITH_JPEG2000 " (JPEG 2000 " ISTHMUS_JPEG2000 ")"
#else
#define WITH_JPEG2000 " (no JPEG 2000: built without libopenjp2-7-dev)"
#endif
#ifdef ISTHMUS_DICOM
#define DICOM_ROW .container = &ist_dicom_container, .version = ISTHMUS_DICOM WITH_JPEG2000
#else
#define DICOM_ROW .container = NULL
#endif
#ifdef ISTHMUS_VIDEO
#define VIDEO_ROW .container = &ist_video_container, .version = ISTHMUS_VIDEO
#else
#define VIDEO_ROW .container = NULL
#endif
#ifdef ISTHMUS_WEBP
#define WEBP_ROW                                                                                                       \
    .decode = ist_webp_decode, .measure = ist_webp_measure, .container = &ist_webp_container,                          \
    .in_frames = ist_webp_in_frames, .version = ISTHMUS_WEBP
#else
#define WEBP_ROW .decode = NULL
#endif

/* PNG and JPEG come first: nearly all files are. image_size.c measures them, whose headers need more than the head. */
static const ist_image_format formats[] = {
    {.name = "PNG", .extensions = ".png ", .recognise = is_png, .decode = ist_png_decode},
    {.name = "JPEG", .extensions = ".jpg .jpeg ", .recognise = is_jpeg, .decode = ist_jpeg_decode},
    {.name = "DICOM", .extensions = ".dcm ", .package = "libdcmtk-dev g++", .recognise = is_dicom, DICOM_ROW},
    {.name = "TIFF", .extensions = ".tif .tiff ", .package = "libtiff-dev", .recognise = is_tiff, TIFF_ROW},
    {.name = "video",
     .extensions = ".avi .mp4 .m4v .mov .mkv .webm ",
     .package = "libavformat-dev libavcodec-dev libswscale-dev",
     .recognise = is_video,
     VIDEO_ROW},
    {.name = "WebP", .extensions = ".webp ", .package = "libwebp-dev", .recognise = is_webp, WEBP_ROW},
    {.name = "BMP", .extensions = ".bmp ", .recognise = is_bmp, .decode = ist_bmp_decode, .measure = ist_bmp_measure},
    {.name = "PNM",
     .extensions = ".pbm .pgm .ppm .pnm .pam ",
     .recognise = is_pnm,
     .decode = ist_pnm_decode,
     .measure = ist_pnm_measure},
};
enum { FORMATS = sizeof formats / sizeof *formats };

const ist_image_format *ist_image_format_at(size_t index) {
    return index < FORMATS ? &formats[index] : NULL;
}

const ist_image_format *ist_image_format_of(const unsigned char *head, size_t count) {
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].recognise(head, count)) return &formats[i];
    return NULL;
}

ist_status ist_image_format_refuse(const ist_image_format *format, const char *name, ist_error *err) {
    return ist_fail(err, IST_E_INPUT, "%s: is a %s file, which this isthmus was built without (Debian: %s)", name,
                    format->name, format->package);
}

/* The last dot of the last part; NULL where there is none or it begins the part. */
static const char *extension_of(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strrchr(base, '.');
    return dot && dot != base ? dot : NULL;
}

static const ist_image_format *by_name(const char *name) {
    const char *extension = extension_of(name);
    char word[16], lower[16];
    if (!extension || (size_t)snprintf(word, sizeof word, "%s ", extension) >= sizeof word) return NULL;
    for (size_t i = 0; i <= strlen(word); i++)
        lower[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
    for (size_t i = 0; i < FORMATS; i++) {
        const char *at = strstr(formats[i].extensions, lower);
        if (at) return &formats[i];
    }
    return NULL;
}

bool ist_is_image_name(const char *name) {
    return by_name(name) != NULL;
}

bool ist_is_container_name(const char *name) {
    const ist_image_format *format = by_name(name);
    return format && format->container;
}
