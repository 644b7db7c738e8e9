/* Video in, from files that libavcodec's encoders and libavformat's muxers write here: pixels, order, going back, what
 * is cut or damaged. */
#include "io/image_format.h"
#include "io/sources.h"

#include "scratch.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

enum { W = 64, H = 48, FRAMES = 15 };

/* Gray of frame i: none like its neighbours. */
static int gray_of(int i) {
    return 30 + i * 12;
}

/* Bytes of RGB frame i. */
static uint8_t byte_of(int i, int x, int y, int c) {
    return (uint8_t)(i * 40 + x * 3 + y * 5 + c * 70);
}

static void fill(AVFrame *f, int i) {
    cr_assert_eq(av_frame_make_writable(f), 0);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            if (f->format == AV_PIX_FMT_BGR24)
                for (int c = 0; c < 3; c++) f->data[0][y * f->linesize[0] + 3 * x + 2 - c] = byte_of(i, x, y, c);
            else
                f->data[0][y * f->linesize[0] + x] = (uint8_t)gray_of(i);
            if (f->format == AV_PIX_FMT_YUV420P)
                f->data[1][y / 2 * f->linesize[1] + x / 2] = f->data[2][y / 2 * f->linesize[2] + x / 2] = 128;
        }
}

/* Writes what the encoder has; frame NULL: the last. */
static void encode(AVFormatContext *file, AVCodecContext *codec, const AVFrame *frame) {
    AVPacket *packet = av_packet_alloc();
    cr_assert_eq(avcodec_send_frame(codec, frame), 0);
    while (avcodec_receive_packet(codec, packet) == 0) {
        packet->duration = 1; /* else the last frame of an MP4 is shown for no time, and is none */
        av_packet_rescale_ts(packet, codec->time_base, file->streams[0]->time_base);
        cr_assert_eq(av_interleaved_write_frame(file, packet), 0);
    }
    av_packet_free(&packet);
}

static void write_video(const char *path, const char *encoder, enum AVPixelFormat pixels, int b_frames) {
    AVFormatContext *file = NULL;
    const AVCodec *found = avcodec_find_encoder_by_name(encoder);
    cr_assert(found && avformat_alloc_output_context2(&file, NULL, NULL, path) >= 0, "%s", encoder);
    AVCodecContext *codec = avcodec_alloc_context3(found);
    codec->width = W, codec->height = H, codec->pix_fmt = pixels;
    codec->time_base = (AVRational){1, 25};
    codec->max_b_frames = b_frames;
    codec->gop_size = 6;
    codec->bit_rate = 4000000;
    if (file->oformat->flags & AVFMT_GLOBALHEADER) codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    codec->flags |= AV_CODEC_FLAG_BITEXACT;
    cr_assert_eq(avcodec_open2(codec, found, NULL), 0);
    AVStream *stream = avformat_new_stream(file, NULL);
    avcodec_parameters_from_context(stream->codecpar, codec);
    stream->time_base = codec->time_base;
    cr_assert(avio_open(&file->pb, path, AVIO_FLAG_WRITE) >= 0 && avformat_write_header(file, NULL) >= 0);
    AVFrame *frame = av_frame_alloc();
    frame->format = pixels, frame->width = W, frame->height = H;
    cr_assert_eq(av_frame_get_buffer(frame, 0), 0);
    for (int i = 0; i < FRAMES; i++) {
        fill(frame, i);
        frame->pts = i;
        encode(file, codec, frame);
    }
    encode(file, codec, NULL);
    cr_assert_eq(av_write_trailer(file), 0);
    av_frame_free(&frame);
    avcodec_free_context(&codec);
    avio_closep(&file->pb);
    avformat_free_context(file);
}

static void check(const ist_bitmap *b, int i, enum AVPixelFormat pixels) {
    int wrong = 0;
    cr_assert(b->width == W && b->height == H);
    cr_assert_eq(b->format, pixels == AV_PIX_FMT_GRAY8 ? IST_GRAY8 : IST_RGB8);
    for (int k = 0; k < W * H; k++) {
        const uint8_t *p = (const uint8_t *)b->pixels + k * (pixels == AV_PIX_FMT_GRAY8 ? 1 : 3);
        if (pixels == AV_PIX_FMT_BGR24)
            for (int c = 0; c < 3; c++) wrong += p[c] != byte_of(i, k % W, k / W, c);
        else if (pixels == AV_PIX_FMT_GRAY8)
            wrong += *p != gray_of(i);
        else /* 16 .. 235 become 0 .. 255 */
            wrong += abs(p[1] - (gray_of(i) - 16) * 255 / 219) > 4;
    }
    cr_expect_eq(wrong, 0, "frame %d: %d are wrong", i, wrong);
}

static const struct {
    const char *name, *encoder;
    enum AVPixelFormat pixels;
    int b_frames;
} videos[] = {{"raw.avi", "rawvideo", AV_PIX_FMT_BGR24, 0},
              {"lossless.mkv", "ffv1", AV_PIX_FMT_GRAY8, 0},
              {"turned.mp4", "mpeg4", AV_PIX_FMT_YUV420P, 2},
              {"plain.avi", "mpeg4", AV_PIX_FMT_YUV420P, 0}};
enum { VIDEOS = sizeof videos / sizeof *videos };

Test(io_video, frames_come_in_the_order_they_are_shown) {
    scratch s = scratch_make();
    for (size_t v = 0; v < VIDEOS; v++) {
        const char *path = scratch_path(&s, "%s", videos[v].name);
        ist_sources l = {0};
        ist_error err = {0};
        write_video(path, videos[v].encoder, videos[v].pixels, videos[v].b_frames);
        cr_assert_eq(ist_sources_add(&l, path, false, NULL, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_sources_finish(&l, &err), IST_OK, "%s", err.text);
        cr_assert_eq(l.count, FRAMES, "%s: %zu frames", path, l.count);
        ist_image_size need = ist_source_measure(&l.items[0], 10000);
        cr_expect(need.pixels == W * H && need.decoded == 3 * W * H && need.passing > 10 * W * H);
        for (int i = 0; i < FRAMES + 3; i++) { /* and three again: back, on, far on */
            const int again[3] = {4, 5, 13};
            int k = i < FRAMES ? i : again[i - FRAMES];
            ist_bitmap b;
            cr_assert_eq(ist_source_read_next(&l.items[k], &l.items[0], 10000, &b, &err), IST_OK, "%s", err.text);
            check(&b, k, videos[v].pixels);
            ist_bitmap_free(&b);
        }
        ist_sources_free(&l);
    }
    scratch_remove(&s);
}

/* What is left of a cut file is read, what was damaged and what follows is not, and no pixel is made up. */
Test(io_video, damage_ends_it) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "raw.avi");
    ist_frames *f = NULL;
    ist_error err = {0};
    size_t count = 0, read = 0;
    write_video(path, "rawvideo", AV_PIX_FMT_BGR24, 0);
    char *bytes = scratch_read(path, &count);
    scratch_write(path, bytes, count * 2 / 3);
    cr_assert_eq(ist_frames_open(path, 10000, &f, &err), IST_OK, "%s", err.text);
    cr_assert(ist_frames_count(f) >= 9 && ist_frames_count(f) <= 11);
    for (size_t i = 0; i < ist_frames_count(f); i++) {
        ist_bitmap b;
        if (ist_frames_read(f, i, &b, &err)) {
            cr_expect_null(b.pixels);
            cr_expect_not_null(strstr(err.text, "video"), "%s", err.text);
            continue;
        }
        cr_expect_eq(read, i, "none behind damage");
        check(&b, (int)i, AV_PIX_FMT_BGR24);
        read++;
        ist_bitmap_free(&b);
    }
    cr_expect_geq(read, 9);
    ist_frames_close(&f);
    scratch_write(path, bytes, 60);
    cr_expect_eq(ist_frames_open(path, 10000, &f, &err), IST_E_INPUT);
    cr_expect_null(f);
    cr_expect_not_null(strstr(err.text, "raw.avi: "), "%s", err.text);
    free(bytes);
    scratch_remove(&s);
}

Test(io_video, larger_than_the_limit_is_refused) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.mkv");
    ist_frames *f = NULL;
    ist_error err = {0};
    ist_bitmap b;
    write_video(path, "ffv1", AV_PIX_FMT_GRAY8, 0);
    ist_status status = ist_frames_open(path, W * H - 1, &f, &err);
    if (!status) status = ist_frames_read(f, 0, &b, &err);
    cr_expect(status == IST_E_LIMIT || status == IST_E_INPUT, "%s", err.text);
    cr_expect_not_null(strstr(err.text, "a.mkv: "), "%s", err.text);
    ist_frames_close(&f);
    scratch_remove(&s);
}
