/* Video in through libavformat, libavcodec and libswscale: AVI, MP4 and its relatives, Matroska and WebM. Frames of the
 * best video stream, gray or RGB of 8 bits by the matrix and range that the stream says, not turned.
 *
 * Frames are counted by the packets that show one, without decoding, and decoded in order as they are asked for; going
 * back begins again. Nothing but the file itself is opened. Damage ends the video: what follows could not be numbered.
 */
#include "io/image_format.h"

#include "base/cores.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <stdlib.h>

enum {
    IO_BYTES = 1 << 16,
    MAX_THREADS = 4,
    KEPT_FRAMES = 24,
    MOST_BYTES = 5 << 27 /* of one allocation; the largest frame has 8 bytes for each of IST_MAX_PIXELS */
};

typedef struct video {
    const ist_byte_source *source;
    uint64_t at;
    const char *name;
    size_t max_pixels;
    AVFormatContext *format;
    AVCodecContext *codec; /* NULL while packets are counted */
    AVPacket *packet;
    AVFrame *frame;
    struct SwsContext *scaler;
    int stream;
    bool drained;
    size_t count, next; /* frames; number of the one that is decoded next */
    int failure;        /* libav's code that ended it */
} video;

static int on_read(void *context, uint8_t *to, int size) {
    video *v = context;
    size_t n = ist_byte_source_read(v->source, v->at, to, (size_t)size);
    v->at += n;
    return n ? (int)n : AVERROR_EOF;
}

static int64_t on_seek(void *context, int64_t offset, int whence) {
    video *v = context;
    if (whence & AVSEEK_SIZE) return (int64_t)v->source->size;
    int whole = whence & ~AVSEEK_FORCE;
    int64_t from = whole == SEEK_CUR ? (int64_t)v->at : whole == SEEK_END ? (int64_t)v->source->size : 0;
    if (offset < -from || offset > INT64_MAX - from) return AVERROR(EINVAL);
    return (int64_t)(v->at = (uint64_t)(from + offset));
}

/* What a file refers to is not opened. */
static int on_open(AVFormatContext *format, AVIOContext **io, const char *url, int flags, AVDictionary **options) {
    (void)format, (void)io, (void)url, (void)flags, (void)options;
    return AVERROR(EPERM);
}

static ist_status fail_video(const video *v, int code, ist_error *err) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(code, text, sizeof text);
    if (code == AVERROR(ENOMEM)) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", v->name);
    return ist_fail(err, IST_E_INPUT, "%s: damaged video: %s", v->name, text);
}

/* The demuxer that the first bytes tell: no other is tried. */
static const AVInputFormat *input_format(const ist_byte_source *source) {
    unsigned char head[12] = {0};
    ist_byte_source_read(source, 0, head, sizeof head);
    return av_find_input_format(head[0] == 'R' ? "avi" : head[0] == 0x1A ? "matroska" : "mov");
}

static void close_streams(video *v) {
    sws_freeContext(v->scaler);
    v->scaler = NULL;
    av_frame_free(&v->frame);
    av_packet_free(&v->packet);
    avcodec_free_context(&v->codec);
    AVIOContext *io = v->format ? v->format->pb : NULL;
    avformat_close_input(&v->format);
    if (io) av_freep(&io->buffer);
    avio_context_free(&io);
}

static void close_video(void *state) {
    close_streams(state);
    free(state);
}

static int begin_format(video *v) {
    uint8_t *buffer = av_malloc(IO_BYTES);
    AVIOContext *io = buffer ? avio_alloc_context(buffer, IO_BYTES, 0, v, on_read, NULL, on_seek) : NULL;
    AVFormatContext *format = io ? avformat_alloc_context() : NULL;
    if (!format) {
        av_free(buffer);
        avio_context_free(&io);
        return AVERROR(ENOMEM);
    }
    format->pb = io;
    format->io_open = on_open;
    format->flags |= AVFMT_FLAG_CUSTOM_IO;
    v->at = 0;
    int code = avformat_open_input(&format, NULL, input_format(v->source), NULL);
    if (code < 0) { /* the format is freed, what we gave it is not */
        av_freep(&io->buffer);
        avio_context_free(&io);
        return code;
    }
    v->format = format;
    return avformat_find_stream_info(v->format, NULL);
}

static int begin_codec(video *v, const AVCodec *codec) {
    v->codec = avcodec_alloc_context3(codec);
    if (!v->codec) return AVERROR(ENOMEM);
    int code = avcodec_parameters_to_context(v->codec, v->format->streams[v->stream]->codecpar);
    int cores = ist_cores();
    int64_t pixels = (int64_t)v->codec->width * v->codec->height, most = (int64_t)v->max_pixels;
    if (pixels < most) most = pixels;            /* memory was asked for by the size that the file says */
    v->codec->max_pixels = 2 * most + (1 << 20); /* decoders count what they add at the edges */
    v->codec->thread_count = cores < MAX_THREADS ? cores : MAX_THREADS;
    v->codec->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE;
    v->codec->error_concealment = 0;
    return code < 0 ? code : avcodec_open2(v->codec, codec, NULL);
}

/* From the beginning. */
static ist_status begin(video *v, ist_error *err) {
    const AVCodec *codec = NULL;
    close_streams(v);
    v->next = 0;
    v->failure = 0;
    v->drained = false;
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    if (!v->packet || !v->frame) return fail_video(v, AVERROR(ENOMEM), err);
    int code = begin_format(v);
    if (code < 0) return fail_video(v, code, err);
    v->stream = av_find_best_stream(v->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (v->stream == AVERROR_DECODER_NOT_FOUND)
        return ist_fail(err, IST_E_INPUT, "%s: libavcodec has no decoder for its video", v->name);
    if (v->stream < 0) return ist_fail(err, IST_E_INPUT, "%s: there is no video in it", v->name);
    code = begin_codec(v, codec);
    return code < 0 ? fail_video(v, code, err) : IST_OK;
}

/* The stream's next packet; AVERROR_EOF behind the last. */
static int next_packet(video *v) {
    for (;;) {
        int code = av_read_frame(v->format, v->packet);
        if (code < 0 || v->packet->stream_index == v->stream) return code;
        av_packet_unref(v->packet);
    }
}

static ist_status count_frames(video *v, ist_error *err) {
    int code;
    while ((code = next_packet(v)) >= 0) {
        v->count += v->packet->size > 0 && !(v->packet->flags & AV_PKT_FLAG_DISCARD);
        av_packet_unref(v->packet);
    }
    return code == AVERROR_EOF ? IST_OK : fail_video(v, code, err);
}

static ist_status open_video(const ist_byte_source *source, const char *name, size_t max_pixels, void **state,
                             size_t *frames, ist_image_size *largest, ist_error *err) {
    video *v = calloc(1, sizeof *v);
    if (!v) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    *v = (video){.source = source, .name = name, .max_pixels = max_pixels};
    av_log_set_level(AV_LOG_QUIET); /* the process's: what is wrong is in our sentences */
    av_max_alloc(MOST_BYTES);       /* too: headers that are compressed, or count what is not there */
    ist_status status = begin(v, err);
    if (!status) {
        const AVCodecParameters *p = v->format->streams[v->stream]->codecpar;
        size_t width = p->width > 0 ? (size_t)p->width : 0, height = p->height > 0 ? (size_t)p->height : 0;
        ist_image_size_set(largest, width, height, 3, max_pixels);
        largest->passing =
            largest->pixels * 2 * KEPT_FRAMES; /* frames that the decoder refers to, in threads and order */
        status = count_frames(v, err);
    }
    if (status) {
        close_video(v);
        return status;
    }
    close_streams(v); /* reading begins anew */
    *state = v;
    *frames = v->count;
    return IST_OK;
}

/* Decodes the next frame into v->frame. */
static int decode_next(video *v) {
    for (;;) {
        int code = avcodec_receive_frame(v->codec, v->frame);
        if (code != AVERROR(EAGAIN) || v->drained) {
            bool bad = code >= 0 && (v->frame->decode_error_flags || v->frame->flags & AV_FRAME_FLAG_CORRUPT);
            return bad ? AVERROR_INVALIDDATA : code;
        }
        code = next_packet(v);
        if (code == AVERROR_EOF) {
            v->drained = true;
            code = avcodec_send_packet(v->codec, NULL);
        } else if (code >= 0) {
            code = v->packet->size > 0 ? avcodec_send_packet(v->codec, v->packet)
                                       : 0; /* empty: a frame that was dropped */
            av_packet_unref(v->packet);
        }
        if (code < 0 && code != AVERROR_EOF) return code;
    }
}

static ist_pixel_format pixel_format(const AVFrame *f, enum AVPixelFormat *to) {
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    bool gray = d && d->nb_components == 1 && !(d->flags & AV_PIX_FMT_FLAG_PAL);
    *to = !gray ? AV_PIX_FMT_RGB24 : d->comp[0].depth > 8 ? AV_PIX_FMT_GRAY16 : AV_PIX_FMT_GRAY8;
    return !gray ? IST_RGB8 : d->comp[0].depth > 8 ? IST_GRAY16 : IST_GRAY8;
}

/* Accurate rounding and chroma of full width, by the frame's matrix and range; BT.601 where it says none. */
static ist_status convert(video *v, ist_bitmap *out, ist_error *err) {
    AVFrame *f = v->frame;
    enum AVPixelFormat to;
    ist_pixel_format format = pixel_format(f, &to);
    size_t width = f->width > 0 ? (size_t)f->width : 0, height = f->height > 0 ? (size_t)f->height : 0;
    IST_TRY(ist_bitmap_allocate(v->name, width, height, format, v->max_pixels, out, err));
    v->scaler = sws_getCachedContext(v->scaler, f->width, f->height, f->format, f->width, f->height, to,
                                     SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, NULL, NULL, NULL);
    if (!v->scaler) return ist_fail(err, IST_E_INPUT, "%s: its pixels cannot become RGB", v->name);
    const int *matrix =
        sws_getCoefficients(f->colorspace == AVCOL_SPC_UNSPECIFIED ? SWS_CS_DEFAULT : (int)f->colorspace);
    sws_setColorspaceDetails(v->scaler, matrix, f->color_range == AVCOL_RANGE_JPEG, matrix, 1, 0, 1 << 16, 1 << 16);
    uint8_t *const rows[4] = {out->pixels};
    const int strides[4] = {(int)out->stride};
    if (out->stride > INT_MAX ||
        sws_scale(v->scaler, (const uint8_t *const *)f->data, f->linesize, 0, f->height, rows, strides) != f->height)
        return ist_fail(err, IST_E_INPUT, "%s: its pixels cannot become RGB", v->name);
    return IST_OK;
}

static ist_status read_video(void *state, size_t frame, ist_bitmap *out, ist_error *err) {
    video *v = state;
    if (!v->codec || frame < v->next) {
        ist_status status = begin(v, err);
        if (status) {
            close_streams(v);
            return status;
        }
    }
    while (!v->failure && v->next <= frame) {
        int code = decode_next(v);
        if (code < 0)
            v->failure = code;
        else
            v->next++;
    }
    if (v->failure == AVERROR_EOF)
        return ist_fail(err, IST_E_INPUT, "%s: the video ends after %zu frames", v->name, v->next);
    if (v->failure) return fail_video(v, v->failure, err);
    return convert(v, out, err); /* the caller frees what a failure leaves */
}

const ist_container ist_video_container = {.open = open_video, .read = read_video, .close = close_video};
