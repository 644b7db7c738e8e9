/* `isthmus live` over a double of the engine: frames from programs at the other end of a connection, results back to
 * them; faults of each; files. The programs at the other end are made of OpenIGTLink's own functions. What the engine
 * finds in a frame is known (tests/fake_engine.c). Nothing here depends on how fast anything is. */
#include "predict_bench.h"
#include "support/igtl_peer.h"

#include <stdarg.h>
#include <time.h>

enum { W = 48, H = 64, WHEN = 7 };
#define STAMP (UINT64_C(0x0123456789abcdef))

/* A running `isthmus live` and its ports; 0 for those it does not have. */
typedef struct live {
    bench b;
    pid_t pid;
    int in, out, metrics;
} live;

static int port_behind(const char *text, const char *words) {
    const char *at = strstr(text, words), *colon = at ? strchr(at + strlen(words), ':') : NULL;
    return colon ? (int)strtol(colon + 1, NULL, 10) : 0;
}

static char *errors(const live *l) {
    return scratch_read(scratch_path(&l->b.s, "stderr.txt"), NULL);
}

/* Waits until the program says so on stderr. */
static void await(const live *l, const char *words) {
    for (int i = 0; i < PEER_MS; i++) {
        char *text = errors(l);
        bool said = text && strstr(text, words);
        free(text);
        if (said) return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert_fail("it never says '%s': %s", words, errors(l));
}

static live start_with(bench b, const char *input, const char *first, ...) {
    live l = {.b = b};
    const char *argv[SPAWN_MAX_ARGS] = {PROGRAM, "live"};
    va_list more;
    int n = 2;
    va_start(more, first);
    for (const char *a = first; a; a = va_arg(more, const char *)) argv[n++] = a;
    va_end(more);
    l.pid = spawn_start(&l.b.s, input, argv);
    await(&l, "ready on");
    char *text = errors(&l);
    l.in = port_behind(text, "frames are expected on ");
    l.out = port_behind(text, "results are served on ");
    l.metrics = port_behind(text, "metrics on http://");
    free(text);
    return l;
}

#define START(...) start_with(make_bench(0), NULL, __VA_ARGS__, NULL)
#define LISTEN     "--from", "igtl-listen://:0"
#define SERVE      "--to", "igtl-listen://:0"

/* Ends it as a person would, and says what it said last. */
static void stop(live *l, const char *const *parts) {
    kill(l->pid, SIGINT);
    spawned r = spawn_finish(&l->b.s, l->pid);
    cr_expect_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
    for (; *parts; parts++) cr_expect_not_null(strstr(r.err, *parts), "stderr lacks '%s': %s", *parts, r.err);
    spawn_free(&r);
    scratch_remove(&l->b.s);
}
#define STOP(l, ...) stop(l, (const char *const[]){__VA_ARGS__, NULL})

/* A client that has been greeted: from now on it gets everything. */
static int subscribe(const live *l) {
    int fd = peer_connect(l->out);
    peer_received r = peer_expect(fd, "STATUS", "isthmus");
    cr_assert_eq(r.body[0] << 8 | r.body[1], 1);
    free(r.body);
    return fd;
}

/* The answer to one frame with the default --send: the timestamp, and the label map against what is known. */
static void expect_answer(int fd, const char *device, uint64_t timestamp, int width, int height) {
    char name[21];
    snprintf(name, sizeof name, "%s_objects", device);
    peer_received text = peer_expect(fd, "STRING", name);
    cr_expect_eq(text.h.timestamp, timestamp);
    snprintf(name, sizeof name, "%s_seg", device);
    peer_received map = peer_expect(fd, "IMAGE", name);
    cr_expect_eq(map.h.timestamp, timestamp);
    igtl_image_header h = peer_header_of(&map);
    cr_assert_eq(h.size[0] * h.size[1] * h.size[2], width * height);
    cr_expect_eq(h.scalar_type, IGTL_IMAGE_STYPE_TYPE_UINT8);
    const unsigned char *p = map.body + sizeof h;
    const unsigned char want[8] = {1, 1, 1, 1, 1, 2, 3, 0};
    cr_assert_eq(map.h.body_size, sizeof h + (size_t)(width * height));
    cr_expect_arr_eq(p, want, 8);
    if (height > 40) cr_expect_eq(p[40 * width], 0);
    free(text.body);
    free(map.body);
}

/* ---- there and back ---- */

static json_t *json_of(const peer_received *r) {
    igtl_string_header h;
    memcpy(&h, r->body, sizeof h);
    igtl_string_convert_byte_order(&h);
    cr_assert_eq(h.length, r->h.body_size - sizeof h);
    json_t *line = json_loadb((const char *)r->body + sizeof h, h.length, 0, NULL);
    cr_assert_not_null(line);
    return line;
}

static void check_string(int fd) {
    peer_received r = peer_expect(fd, "STRING", "Probe_objects");
    json_t *line = json_of(&r);
    cr_expect_str_eq(json_string_value(json_object_get(line, "device")), "Probe");
    cr_expect_eq(json_integer_value(json_object_get(line, "number")), 1);
    cr_expect_eq(json_integer_value(json_object_get(line, "width")), W);
    const json_t *objects = json_object_get(line, "objects"), *second = json_array_get(objects, 1);
    cr_assert_eq(json_array_size(objects), 3);
    cr_expect_eq(json_number_value(json_array_get(json_object_get(second, "box"), 2)), 1 + W / 2.0);
    cr_expect_eq(json_integer_value(json_object_get(second, "area")), 200);
    cr_expect_null(json_object_get(second, "rle"), "masks are the label map's");
    cr_expect_null(json_object_get(line, "ms"), "a replay would differ");
    json_decref(line);
    free(r.body);
}

/* Boxes are (i, i) to (i + W / 2, i + H / 2); pixels are 0.5 by 0.25 mm around (10, 20, 30). */
static void check_boxes(int fd) {
    peer_received r = peer_expect(fd, "POINT", "Probe_boxes");
    igtl_point_element e[6];
    cr_assert_eq(r.h.body_size, sizeof e);
    memcpy(e, r.body, sizeof e);
    igtl_point_convert_byte_order(e, 6);
    for (int k = 0; k < 6; k++) {
        int i = k / 2;
        float position[3];
        memcpy(position, e[k].position, sizeof position);
        double x = i + (k % 2 ? W / 2.0 : 0), y = i + (k % 2 ? H / 2.0 : 0);
        cr_expect_float_eq(position[0], 10 + 0.5 * (x - (W - 1) / 2.0), 1e-4, "point %d", k);
        cr_expect_float_eq(position[1], 20 + 0.25 * (y - (H - 1) / 2.0), 1e-4, "point %d", k);
        cr_expect_float_eq(position[2], 30, 1e-4);
    }
    cr_expect_str_eq(e[2].name, "1 stop sign upper left");
    cr_expect_str_eq(e[2].owner, "Probe");
    free(r.body);
}

static uint32_t big32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static float big_float(const unsigned char *p) {
    uint32_t bits = big32(p);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Each mask is a rectangle of 5 columns and 40 rows from (i, 0) on: four corners, at halves of pixels. */
static void check_contours(int fd) {
    peer_received r = peer_expect(fd, "POLYDATA", "Probe_contours");
    const unsigned char *points = r.body + 10 * 4, *lines = points + 12 * 12;
    cr_assert_eq(big32(r.body), 12);
    cr_assert_eq(big32(r.body + 12), 3);
    cr_assert_eq(big32(r.body + 16), 3 * 6 * 4);
    for (unsigned i = 0; i < 3; i++) {
        const double x[4] = {i - 0.5, i + 4.5, i + 4.5, i - 0.5}, y[4] = {-0.5, -0.5, 39.5, 39.5};
        cr_expect_eq(big32(lines + 24 * i), 5);
        for (unsigned k = 0; k < 5; k++) cr_expect_eq(big32(lines + 24 * i + 4 + 4 * k), 4 * i + k % 4);
        for (unsigned k = 0; k < 4; k++) {
            const unsigned char *p = points + 12 * (4 * i + k);
            cr_expect_float_eq(big_float(p), 10 + 0.5 * (x[k] - (W - 1) / 2.0), 1e-4, "loop %u, corner %u", i, k);
            cr_expect_float_eq(big_float(p + 4), 20 + 0.25 * (y[k] - (H - 1) / 2.0), 1e-4, "loop %u, corner %u", i, k);
        }
    }
    free(r.body);
}

static void check_label_map(int fd, const igtl_image_header *sent) {
    peer_received r = peer_expect(fd, "IMAGE", "Probe_seg");
    igtl_image_header h = peer_header_of(&r);
    cr_expect_eq(r.h.timestamp, STAMP);
    cr_expect_arr_eq(h.matrix, sent->matrix, sizeof h.matrix, "the source's geometry");
    cr_expect_arr_eq(h.size, sent->size, sizeof h.size);
    cr_expect_arr_eq(h.subvol_size, sent->size, sizeof h.size);
    cr_expect_eq(h.coord, sent->coord);
    cr_expect_eq(h.num_components, 1);
    const unsigned char *p = r.body + sizeof h, want[8] = {1, 1, 1, 1, 1, 2, 3, 0};
    cr_expect_arr_eq(p, want, 8);
    cr_expect_arr_eq(p + 39 * W, want, 8);
    cr_expect_eq(p[40 * W], 0);
    free(r.body);
}

Test(cli_live, every_kind_of_result_reaches_a_client, .timeout = 120) {
    live l = START(LISTEN, SERVE, "--send", "labels,string,boxes,contours,overlay", "--metrics", ":0");
    int client = subscribe(&l), scanner = peer_connect(l.in);
    igtl_image_header sent = peer_image_header(W, H);
    peer_received connected = peer_expect(client, "STATUS", "isthmus"); /* the source is there */
    free(connected.body);
    peer_send(scanner, peer_gray(W, H, STAMP, 0));
    check_string(client);
    check_boxes(client);
    check_contours(client);
    check_label_map(client, &sent);
    peer_received overlay = peer_expect(client, "IMAGE", "Probe_overlay");
    igtl_image_header h = peer_header_of(&overlay);
    cr_expect_eq(h.num_components, 3);
    cr_expect_eq(overlay.h.body_size, sizeof h + 3 * W * H);
    cr_expect_eq(overlay.body[sizeof h + 3 * (63 * W + 47)], (63 * W + 47) % 256, "a pixel that nothing is drawn on");
    free(overlay.body);

    int web = peer_connect(l.metrics);
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    char page[8192] = "";
    peer_write(web, request, strlen(request));
    for (size_t have = 0; have < sizeof page - 1;) {
        ssize_t n = recv(web, page + have, sizeof page - 1 - have, 0);
        if (n <= 0) break;
        have += (size_t)n;
    }
    cr_expect_not_null(strstr(page, "200 OK"), "%s", page);
    cr_expect_not_null(strstr(page, "\nisthmus_frames_processed_total 1\n"), "%s", page);
    cr_expect_not_null(strstr(page, "\nisthmus_latency_seconds_count 1\n"), "%s", page);
    cr_expect_not_null(strstr(page, "\nisthmus_clients_total 1\n"), "%s", page);
    close(web);
    close(scanner);
    peer_received lost = peer_expect(client, "STATUS", "isthmus");
    cr_expect_eq(lost.body[0] << 8 | lost.body[1], 7);
    free(lost.body);
    close(client);
    STOP(&l, "1 received, 1 processed, 0 dropped, 0 late");
}

/* ---- what images there are: --record shows what they were taken for ---- */

static void send_kind(int fd, int version, igtl_image_header h, const void *pixels, size_t count) {
    /* extended header of 16 bytes, 4 of them unknown; one entry of metadata: "k" = "v" */
    static const char extended[16] = {0, 16, 0, 10, 0, 0, 0, 2, 0, 0, 0, 9, 1, 2, 3, 4};
    static const char metadata[12] = {0, 1, 0, 1, 0, 3, 0, 0, 0, 1, 'k', 'v'};
    bool more = version > 1;
    peer_send(fd,
              peer_image(version, "Probe", WHEN, h, pixels, count, extended, more ? 16 : 0, metadata, more ? 12 : 0));
}

static void expect_picture(const live *l, int number, ist_pixel_format format, int width, int height,
                           const void *pixels) {
    ist_bitmap image;
    ist_error err;
    const char *path = scratch_path(&l->b.s, "rec/%08d.png", number);
    cr_assert_eq(ist_bitmap_read(path, 1 << 20, &image, &err), IST_OK, "%s", err.text);
    cr_assert_eq(image.format, format, "frame %d", number);
    cr_assert(image.width == width && image.height == height, "frame %d: %d x %d", number, image.width, image.height);
    cr_expect_arr_eq(image.pixels, pixels, image.stride * (size_t)height, "frame %d", number);
    ist_bitmap_free(&image);
}

Test(cli_live, every_kind_of_image_is_understood, .timeout = 120) {
    bench b = make_bench(0);
    live l = start_with(b, NULL, LISTEN, SERVE, "--no-drop", "--record", scratch_path(&b.s, "rec"), NULL);
    int client = subscribe(&l), fd = peer_connect(l.in);
    free(peer_expect(client, "STATUS", "isthmus").body);
    unsigned char bytes[10 * 8 * 6];
    uint16_t wide[80], turned[80], raised[80];
    unsigned char narrow[80];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(37 * i + 11);
    memcpy(wide, bytes, sizeof wide);
    for (int i = 0; i < 80; i++) {
        turned[i] = (uint16_t)(bytes[2 * i] << 8 | bytes[2 * i + 1]);
        raised[i] = (uint16_t)(wide[i] ^ 0x8000);
        narrow[i] = bytes[i] ^ 0x80;
    }
    igtl_image_header h = peer_image_header(10, 8);
    send_kind(fd, 1, h, bytes, 80);
    send_kind(fd, 2, h, bytes, 80);
    send_kind(fd, 3, h, bytes, 80);
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_INT8;
    send_kind(fd, 1, h, bytes, 80);
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_UINT16;
    send_kind(fd, 1, h, bytes, 160);
    h.endian = IGTL_IMAGE_ENDIAN_BIG;
    send_kind(fd, 2, h, bytes, 160);
    h.endian = IGTL_IMAGE_ENDIAN_LITTLE;
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_INT16;
    send_kind(fd, 1, h, bytes, 160);
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_UINT8;
    h.num_components = 3;
    send_kind(fd, 1, h, bytes, 240);
    h.num_components = 1; /* as pyigtl sends a picture of two dimensions */
    h.size[0] = h.subvol_size[0] = 1, h.size[1] = h.subvol_size[1] = 10, h.size[2] = h.subvol_size[2] = 8;
    send_kind(fd, 1, h, bytes, 80);
    h = peer_image_header(10, 8); /* a part: columns 2 to 4 of rows 3 and 4, over nothing, then over that */
    h.subvol_offset[0] = 2, h.subvol_offset[1] = 3, h.subvol_size[0] = 3, h.subvol_size[1] = 2;
    send_kind(fd, 1, h, bytes, 6);
    h.subvol_offset[1] = 4;
    send_kind(fd, 1, h, bytes, 6);
    for (int i = 0; i < 11; i++) expect_answer(client, "Probe", WHEN, 10, 8);
    kill(l.pid, SIGINT);
    spawned r = spawn_finish(&l.b.s, l.pid);
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "11 received, 11 processed, 0 dropped"), "%s", r.err);
    for (int i = 1; i <= 3; i++) expect_picture(&l, i, IST_GRAY8, 10, 8, bytes);
    expect_picture(&l, 4, IST_GRAY8, 10, 8, narrow);
    expect_picture(&l, 5, IST_GRAY16, 10, 8, wide);
    expect_picture(&l, 6, IST_GRAY16, 10, 8, turned);
    expect_picture(&l, 7, IST_GRAY16, 10, 8, raised);
    expect_picture(&l, 8, IST_RGB8, 10, 8, bytes);
    expect_picture(&l, 9, IST_GRAY8, 10, 8, bytes);
    unsigned char part[80] = {0};
    for (int y = 0; y < 2; y++) memcpy(part + (3 + y) * 10 + 2, bytes + 3 * y, 3);
    expect_picture(&l, 10, IST_GRAY8, 10, 8, part);
    for (int y = 0; y < 2; y++) memcpy(part + (4 + y) * 10 + 2, bytes + 3 * y, 3);
    expect_picture(&l, 11, IST_GRAY8, 10, 8, part);
    spawn_free(&r);
    close(fd);
    close(client);
    scratch_remove(&l.b.s);
}

/* Byte `at` of the picture's last row: nothing is drawn there. */
static int last_row(const peer_received *overlay, int at) {
    igtl_image_header h = peer_header_of(overlay);
    return overlay->body[sizeof h + (size_t)(3 * h.size[0] * (h.size[1] - 1) + at)];
}

/* Values below zero through a window in the values of whoever sent them; what is kept is what came. */
Test(cli_live, a_window_is_in_the_senders_values, .timeout = 120) {
    static const int16_t row[10] = {-32768, -100, -99, 0, 155, 409, 410, 32767, 0, 0};
    static const unsigned char want[10] = {0, 0, 1, 50, 128, 255, 255, 255, 50, 50};
    bench b = make_bench(0);
    char lines[200], again[200], rec[180];
    snprintf(rec, sizeof rec, "%s/rec", b.s.path);
    snprintf(lines, sizeof lines, "ndjson:%s/lines", b.s.path);
    snprintf(again, sizeof again, "ndjson:%s/again", b.s.path);
    live l = start_with(b, NULL, LISTEN, SERVE, "--to", lines, "--send", "overlay", "--record", rec, "--no-drop",
                        "--window", "-100:410", NULL);
    int client = subscribe(&l), fd = peer_connect(l.in);
    free(peer_expect(client, "STATUS", "isthmus").body);
    int16_t values[640];
    uint16_t raised[640];
    for (int i = 0; i < 640; i++) {
        values[i] = row[i % 10];
        raised[i] = (uint16_t)(values[i] + 32768);
    }
    values[0] = 155, raised[0] = 155 + 32768;
    igtl_image_header h = peer_image_header(10, 64);
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_INT16;
    send_kind(fd, 1, h, values, sizeof values);
    peer_received overlay = peer_expect(client, "IMAGE", "Probe_overlay");
    for (int i = 0; i < 10; i++) cr_expect_eq(last_row(&overlay, 3 * i), want[i], "column %d", i);
    free(overlay.body);
    close(fd);
    close(client);
    kill(l.pid, SIGINT);
    spawned r = spawn_finish(&l.b.s, l.pid);
    cr_expect_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    expect_picture(&l, 1, IST_GRAY16, 10, 64, raised);
    const char *const argv[] = {PROGRAM, "live",      "--from",   rec,        "--to",
                                again,   "--no-drop", "--window", "-100:410", NULL};
    expect(spawn_run(&b.s, NULL, argv), 0, "1 received, 1 processed");
    char command[500];
    snprintf(command, sizeof command, "cmp %s/lines %s/again && grep -q '\"mask_score\":0.50196' %s/lines", b.s.path,
             b.s.path, b.s.path);
    cr_expect_eq(system(command), 0, "155 is 128 of 255 at both times");
    scratch_remove(&l.b.s);
}

/* States of tracks in the STRING, by thresholds that reach the engine. */
Test(cli_live, tracks_are_judged, .timeout = 120) {
    live l = START(LISTEN, SERVE, "--send", "string,overlay", "--track", "--trust", "--n-lost", "12");
    int client = subscribe(&l), fd = peer_connect(l.in);
    free(peer_expect(client, "STATUS", "isthmus").body);
    peer_send(fd, peer_gray(120, 90, 1, 0));
    peer_received r = peer_expect(client, "STRING", "Probe_objects");
    json_t *line = json_of(&r);
    const json_t *objects = json_object_get(line, "objects"), *first = json_array_get(objects, 0);
    const json_t *lost = json_array_get(json_object_get(line, "unseen"), 0);
    cr_expect_eq(json_integer_value(json_object_get(first, "track")), 1);
    cr_expect_str_eq(json_string_value(json_object_get(first, "state")), "VISIBLE");
    cr_expect_eq(json_number_value(json_object_get(first, "S")), 0.75);
    cr_expect_eq(json_number_value(json_object_get(first, "C")), 0.5);
    cr_expect_eq(json_number_value(json_object_get(json_object_get(first, "scores"), "S1")), 2);
    cr_expect_eq(json_number_value(json_object_get(json_object_get(first, "scores"), "C3")), 14);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(objects, 1), "state")), "RELOCALIZING");
    cr_expect_null(json_object_get(json_array_get(objects, 2), "state"));
    cr_expect_eq(json_integer_value(json_object_get(lost, "track")), 99);
    cr_expect_str_eq(json_string_value(json_object_get(lost, "state")), "LOST");
    json_decref(line);
    free(r.body);
    free(peer_expect(client, "IMAGE", "Probe_overlay").body);
    close(fd);
    close(client);
    STOP(&l, "1 received, 1 processed");
}

/* ---- faults: each is survived and counted, and a good frame is answered after it ---- */

Test(cli_live, a_source_that_errs, .timeout = 120) {
    live l = START(LISTEN, SERVE, "--no-drop");
    int client = subscribe(&l), fd = peer_connect(l.in);
    unsigned char pixels[80] = {0};
    uint64_t when = 100;
    free(peer_expect(client, "STATUS", "isthmus").body);

    peer_message bad = peer_gray(10, 8, 1, 0); /* a wrong checksum */
    bad.bytes[sizeof(igtl_header) + 75] ^= 1;
    peer_send(fd, bad);
    peer_send(fd, peer_wrap(1, "TRANSFORM", "Probe", 1, pixels, 48)); /* no image */
    peer_send(fd, peer_wrap(1, "GET_STATUS", "", 1, "", 0));
    igtl_image_header h = peer_image_header(10, 8);
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_FLOAT32; /* kinds that are not supported */
    send_kind(fd, 1, h, pixels, 80);
    h = peer_image_header(10, 8);
    h.num_components = 2;
    send_kind(fd, 1, h, pixels, 80);
    h.num_components = 1;
    h.size[2] = h.subvol_size[2] = 2; /* a volume */
    send_kind(fd, 1, h, pixels, 80);
    h.size[2] = h.subvol_size[2] = 1;
    send_kind(fd, 1, h, pixels, 79); /* fewer pixels than it says */
    h.subvol_offset[0] = 1;          /* a part beyond the image */
    send_kind(fd, 1, h, pixels, 80);
    h.subvol_offset[0] = 0;
    h.endian = 3;
    send_kind(fd, 1, h, pixels, 80);
    h.endian = 1;
    h.size[0] = h.subvol_size[0] = 0;
    send_kind(fd, 1, h, pixels, 80);
    static const char lies[16] = {0, 12, 0, 200, 0, 0, 0, 0}; /* metadata larger than the message */
    peer_send(fd, peer_image(2, "Probe", 1, peer_image_header(10, 8), pixels, 80, lies, 12, NULL, 0));
    peer_send(fd, peer_wrap(1, "IMAGE", "Probe", 1, pixels, 10)); /* no header */
    static const int sizes[3][2] = {{10, 8}, {33, 17}, {12, 50}}; /* sizes that change in flight */
    for (int i = 0; i < 3; i++, when++) peer_send(fd, peer_gray(sizes[i][0], sizes[i][1], when, i));
    for (int i = 0; i < 3; i++) expect_answer(client, "Probe", 100 + (uint64_t)i, sizes[i][0], sizes[i][1]);

    static const char *const nonsense[3] = {"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: everything there is\r\n\r\n",
                                            "\xff\xff\xff\xff and so on, for as many bytes as a header has, and more",
                                            NULL};
    for (int i = 0; i < 3; i++) {
        if (nonsense[i]) {
            peer_write(fd, nonsense[i], 58); /* garbage */
        } else {                             /* a header that claims 2^40 bytes */
            igtl_header huge = {.version = 1, .name = "IMAGE", .device_name = "Probe", .body_size = UINT64_C(1) << 40};
            igtl_header_convert_byte_order(&huge);
            peer_write(fd, &huge, sizeof huge);
        }
        char byte;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        cr_assert_eq(poll(&p, 1, PEER_MS), 1);
        cr_assert_leq(recv(fd, &byte, 1, 0), 0, "the connection is ended");
        close(fd);
        free(peer_expect(client, "STATUS", "isthmus").body); /* lost */
        fd = peer_connect(l.in);
        free(peer_expect(client, "STATUS", "isthmus").body); /* there again */
        peer_send(fd, peer_gray(10, 8, when, 0));
        expect_answer(client, "Probe", when++, 10, 8);
    }
    peer_message cut = peer_gray(40, 40, 1, 0); /* a connection that ends in the middle of a message */
    peer_write(fd, cut.bytes, 700);
    free(cut.bytes);
    close(fd);
    free(peer_expect(client, "STATUS", "isthmus").body);
    fd = peer_connect(l.in);
    free(peer_expect(client, "STATUS", "isthmus").body);
    peer_send(fd, peer_gray(10, 8, when, 0));
    expect_answer(client, "Probe", when, 10, 8);
    close(fd);
    close(client);
    STOP(&l, "has a wrong checksum", "scalar type 10, want 8 or 16 bit integers",
         "claims 1099511627776 bytes, the limit is 536875008", "this is not OpenIGTLink", "in the middle of a message",
         "7 received, 7 processed, 0 dropped, 0 late", "9 unsupported images", "1 messages with a wrong checksum",
         "4 broken connections");
}

/* A client: connects to a server that comes late, and again when the connection breaks. */
Test(cli_live, a_scanner_that_comes_and_goes, .timeout = 120) {
    int port, listener = peer_listen(&port);
    char from[64];
    snprintf(from, sizeof from, "igtl://127.0.0.1:%d/Probe", port);
    live l = START("--from", from, SERVE);
    int client = subscribe(&l);
    for (int round = 0; round < 3; round++) {
        int fd = peer_accept(listener);
        peer_send(fd, peer_image(1, "Other", 1, peer_image_header(2, 2), "abcd", 4, NULL, 0, NULL, 0));
        peer_send(fd, peer_gray(10, 8, 50 + (uint64_t)round, 0));
        if (round == 1) peer_write(fd, "\0\1IM", 4);
        peer_received r;
        while (!strcmp((r = peer_receive(client)).type, "STATUS")) free(r.body);
        cr_expect_str_eq(r.type, "STRING");
        cr_expect_eq(r.h.timestamp, 50 + (uint64_t)round);
        free(r.body);
        free(peer_expect(client, "IMAGE", "Probe_seg").body);
        close(fd);
    }
    close(listener);
    await(&l, "trying again");
    close(client);
    STOP(&l, "3 received, 3 processed", "1 broken connections");
}

/* Two senders, two clients, and one that never reads: nobody waits for it. */
Test(cli_live, a_slow_client_holds_up_nobody, .timeout = 300) {
    enum { WIDE = 1024, HIGH = 768, FRAMES = 40 };
    live l = START(LISTEN, SERVE);
    int slow = peer_connect(l.out), first = subscribe(&l), second = subscribe(&l);
    int senders[2] = {peer_connect(l.in), -1};
    free(peer_expect(first, "STATUS", "isthmus").body);
    free(peer_expect(second, "STATUS", "isthmus").body);
    senders[1] = peer_connect(l.in);
    free(peer_expect(first, "STATUS", "isthmus").body);
    free(peer_expect(second, "STATUS", "isthmus").body);
    for (int i = 0; i < FRAMES; i++) { /* more than the system buffers for a connection */
        peer_send(senders[i % 2], peer_gray(WIDE, HIGH, (uint64_t)i, i));
        expect_answer(first, "Probe", (uint64_t)i, WIDE, HIGH);
        expect_answer(second, "Probe", (uint64_t)i, WIDE, HIGH);
    }
    close(first);
    peer_send(senders[0], peer_gray(10, 8, 99, 0));
    expect_answer(second, "Probe", 99, 10, 8);
    close(slow);
    close(second);
    close(senders[0]);
    close(senders[1]);
    STOP(&l, "41 received, 41 processed, 0 dropped", "results not sent to slow clients");
}

/* More frames than the device can take: the newest is always answered, and all are counted. */
Test(cli_live, the_newest_frame_wins, .timeout = 120) {
    enum { FRAMES = 30 };
    setenv("FAKE_ENGINE", "slow:20", 1);
    live l = START(LISTEN, SERVE);
    int client = subscribe(&l), fd = peer_connect(l.in);
    uint64_t last = 0;
    free(peer_expect(client, "STATUS", "isthmus").body);
    for (uint64_t i = 1; i <= FRAMES; i++) peer_send(fd, peer_gray(10, 8, i, 0));
    while (last < FRAMES) {
        peer_received text = peer_expect(client, "STRING", "Probe_objects");
        cr_assert_gt(text.h.timestamp, last, "in order");
        last = text.h.timestamp;
        free(text.body);
        free(peer_expect(client, "IMAGE", "Probe_seg").body);
    }
    close(fd);
    close(client);
    kill(l.pid, SIGINT);
    spawned r = spawn_finish(&l.b.s, l.pid);
    unsigned received = 0, processed = 0, dropped = 0;
    const char *line = strstr(r.err, "30 received, ");
    for (const char *next = line; next; next = strstr(next + 1, "30 received, ")) line = next; /* the summary is last */
    cr_assert_not_null(line, "%s", r.err);
    cr_assert_eq(sscanf(line, "%u received, %u processed, %u dropped", &received, &processed, &dropped), 3);
    cr_expect_eq(processed + dropped, received, "%s", r.err);
    cr_expect_gt(dropped, 0u, "%s", r.err);
    spawn_free(&r);
    unsetenv("FAKE_ENGINE");
    scratch_remove(&l.b.s);
}

/* What a frame takes is known after the first: then each would come too late. */
Test(cli_live, a_deadline_gives_up_before_the_device, .timeout = 120) {
    setenv("FAKE_ENGINE", "takes:900000", 1);
    live l = START(LISTEN, SERVE, "--deadline", "600000");
    int client = subscribe(&l), fd = peer_connect(l.in);
    free(peer_expect(client, "STATUS", "isthmus").body);
    peer_send(fd, peer_gray(10, 8, 1, 0));
    expect_answer(client, "Probe", 1, 10, 8);
    peer_send(fd, peer_gray(10, 8, 2, 0));
    for (int i = 0; i < 2; i++) { /* the end of the connection comes behind the frame */
        close(fd);
        free(peer_expect(client, "STATUS", "isthmus").body);
        if (i) break;
        fd = peer_connect(l.in);
        free(peer_expect(client, "STATUS", "isthmus").body);
        peer_send(fd, peer_gray(10, 8, 3, 0));
    }
    close(client);
    unsetenv("FAKE_ENGINE");
    kill(l.pid, SIGINT);
    spawned r = spawn_finish(&l.b.s, l.pid);
    cr_expect_eq(r.code, 0);
    unsigned late = 0, dropped = 0;
    const char *line = strstr(r.err, "3 received, 1 processed, ");
    cr_assert_not_null(line, "%s", r.err);
    cr_assert_eq(sscanf(line, "3 received, 1 processed, %u dropped, %u late", &dropped, &late), 2);
    cr_expect_eq(late + dropped, 2u, "%s", r.err);
    spawn_free(&r);
    scratch_remove(&l.b.s);
}

Test(cli_live, a_device_that_is_lost_ends_it, .timeout = 120) {
    setenv("FAKE_ENGINE", "lost:2", 1); /* the first batch is a black frame before the stream */
    live l = START(LISTEN, SERVE);
    int client = subscribe(&l), fd = peer_connect(l.in);
    free(peer_expect(client, "STATUS", "isthmus").body);
    peer_send(fd, peer_gray(10, 8, 1, 0));
    expect_answer(client, "Probe", 1, 10, 8);
    peer_send(fd, peer_gray(10, 8, 2, 0));
    spawned r = spawn_finish(&l.b.s, l.pid);
    unsetenv("FAKE_ENGINE");
    cr_expect_eq(r.code, 1, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "the device is lost"), "%s", r.err);
    spawn_free(&r);
    close(fd);
    close(client);
    scratch_remove(&l.b.s);
}

/* ---- files ---- */

#define LIVE(b, ...) spawn_run(&(b)->s, NULL, (const char *const[]){PROGRAM, "live", __VA_ARGS__, NULL})

/* A folder's frames, kept as they came; and again from there, to the same bytes. */
Test(cli_live, a_recording_gives_the_same_bytes, .timeout = 120) {
    bench b = make_bench(6);
    char first[200], second[200], kept[200], folder[200], lines[220];
    snprintf(first, sizeof first, "%s/first", b.s.path);
    snprintf(second, sizeof second, "%s/second", b.s.path);
    snprintf(kept, sizeof kept, "%s/kept", b.s.path);
    snprintf(folder, sizeof folder, "%s", b.in);
    snprintf(lines, sizeof lines, "ndjson:%s/lines", b.s.path);
    expect(LIVE(&b, "--from", folder, "--to", first, "--to", lines, "--record", kept, "--no-drop"), 0,
           "6 received, 6 processed, 0 dropped, 0 late");
    expect(LIVE(&b, "--from", kept, "--to", second, "--no-drop"), 0, "6 received, 6 processed");
    char command[700];
    snprintf(command, sizeof command, "diff -r %s %s && cmp %s/frames.ndjson %s/lines", first, second, first, b.s.path);
    cr_expect_eq(system(command), 0);
    json_t *all = read_lines(scratch_path(&b.s, "first/frames.ndjson"));
    cr_assert_eq(json_array_size(all), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *line = json_array_get(all, i);
        cr_expect_eq(json_integer_value(json_object_get(line, "number")), (json_int_t)i + 1);
        cr_expect_eq(json_integer_value(json_object_get(line, "width")), 50 + (json_int_t)i);
        cr_expect(scratch_exists(scratch_path(&b.s, "second/masks/%08d.png", (int)i + 1)));
    }
    json_decref(all);
    expect(LIVE(&b, "--from", folder, "--record", kept), 1, "has a recording already");
    expect(LIVE(&b, "--from", kept, "--to", second, "--limit", "4", "--quiet", "--no-drop"), 0, "ready");
    all = read_lines(scratch_path(&b.s, "second/frames.ndjson"));
    cr_expect_eq(json_array_size(all), 4);
    json_decref(all);
    scratch_put(scratch_path(&b.s, "kept/stream.ndjson"), "{\"file\":\"../00000001.png\"}\n");
    expect(LIVE(&b, "--from", kept, "--to", second), 1, "line 1 names no file of the recording");
    scratch_remove(&b.s);
}

Test(cli_live, a_picture_that_is_none_makes_it_partial, .timeout = 120) {
    bench b = make_bench(3);
    scratch_put(scratch_path(&b.s, "in/01-bad.png"), "no picture");
    char folder[200], out[200];
    snprintf(folder, sizeof folder, "%s", b.in);
    snprintf(out, sizeof out, "%s/out", b.s.path);
    expect(LIVE(&b, "--from", folder, "--to", out, "--no-drop"), 7, "01-bad.png: is no image");
    json_t *all = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_expect_eq(json_array_size(all), 3);
    json_decref(all);
    scratch_remove(&b.s);
}

Test(cli_live, raw_frames_on_standard_input, .timeout = 120) {
    bench b = make_bench(0);
    char raw[200];
    unsigned char bytes[3 * 200 + 7]; /* three frames of 10 x 10 with two bytes each, and a piece of a fourth */
    uint16_t want[100];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(31 * i);
    for (int i = 0; i < 100; i++) want[i] = (uint16_t)(bytes[200 + 2 * i] | bytes[201 + 2 * i] << 8);
    snprintf(raw, sizeof raw, "%s/raw", b.s.path);
    FILE *f = fopen(raw, "wb");
    cr_assert_eq(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    fclose(f);
    live l = {.b = b};
    char kept[200];
    snprintf(kept, sizeof kept, "%s/rec", b.s.path);
    spawned r = spawn_run(&b.s, raw,
                          (const char *const[]){PROGRAM, "live", "--from", "raw:10x10:gray16le", "--to", "ndjson:-",
                                                "--no-drop", "--record", kept, NULL});
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "ends within a frame: 7 of 200 bytes"), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "3 received, 3 processed"), "%s", r.err);
    int lines = 0;
    for (const char *p = r.out; (p = strchr(p, '\n')); p++) lines++;
    cr_expect_eq(lines, 3);
    cr_expect_not_null(strstr(r.out, "\"device\":\"isthmus\",\"number\":2,"), "%s", r.out);
    expect_picture(&l, 2, IST_GRAY16, 10, 10, want);
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_live, a_disk_that_is_full_ends_it, .timeout = 120) {
    bench b = make_bench(3);
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:/dev/full", "--no-drop"), 1, "No space left");
    scratch_remove(&b.s);
}

/* Those that compile with it at a first start are gone once it is ready, and do not stay beside it as ended processes. */
Test(cli_live, it_has_no_processes_when_it_is_ready, .timeout = 120) {
    bench b = make_bench(0);
    setenv("FAKE_CORES", "4", 1);
    setenv("FAKE_AHEAD", b.s.path, 1);
    setenv("FAKE_ENGINE", "ahead:1", 1);
    live l = start_with(b, NULL, LISTEN, SERVE, NULL);
    char path[100], list[100] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)l.pid, (int)l.pid);
    FILE *f = fopen(path, "r"); /* not every kernel has it */
    if (f && fgets(list, sizeof list, f)) cr_expect_fail("it still has the processes %s", list);
    if (f) fclose(f);
    STOP(&l, "0 received");
}

/* ---- mistakes ---- */

Test(cli_live, mistakes_are_named, .timeout = 120) {
    bench b = make_bench(1);
    int port, listener = peer_listen(&port);
    char to[64], from[64];
    snprintf(to, sizeof to, "igtl-listen://:%d", port);
    snprintf(from, sizeof from, "igtl-listen://127.0.0.1:%d", port);
    expect(LIVE(&b, "--to", "ndjson:-"), 2, "--from SRC is missing");
    expect(LIVE(&b, "--from", b.in), 2, "--to DST is missing");
    expect(LIVE(&b, "--from", "no/such", "--to", "ndjson:-"), 2, "'no/such' is none of");
    expect(LIVE(&b, "--from", "igtl://host", "--to", "ndjson:-"), 2, "'host' has no :PORT");
    expect(LIVE(&b, "--from", "igtl://host:x", "--to", "ndjson:-"), 2, "the port is no number");
    expect(LIVE(&b, "--from", "igtl://host:65536", "--to", "ndjson:-"), 2, "not from 0 to 65535");
    expect(LIVE(&b, "--from", "raw:0x5:gray8", "--to", "ndjson:-"), 2, "is not raw:WxH:FORMAT");
    expect(LIVE(&b, "--from", "raw:5x5:gray", "--to", "ndjson:-"), 2, "is not raw:WxH:FORMAT");
    expect(LIVE(&b, "--from", b.in, "--to", "ftp://x"), 2, "'ftp://x' is none of");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:"), 2, "names no file");
    expect(LIVE(&b, "--from", b.in, "--to", to), 1, "Address already in use");
    expect(LIVE(&b, "--from", from, "--to", "ndjson:-"), 1, "Address already in use");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--metrics", strchr(to, ':') + 3), 1, "Address already in use");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--send", "labels,all"), 2, "'all' is none of");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--window", "5:5"), 2, "is none of LOW:HIGH");
    expect(LIVE(&b, "--from", "raw:5x5:gray16le", "--to", "ndjson:-", "--window", "dicom"), 2,
           "--window dicom: only the frames of a folder can carry a window; give LOW:HIGH or auto");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--queue", "0"), 2, "whole number from 1 to 256");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--no-drop", "--deadline", "5"), 2, "exclude each other");
    expect(LIVE(&b, "--from", "raw:5x5:gray8", "--to", "ndjson:-", "--fps", "5"), 2, "--fps is for folders");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--no-masks", "--send", "labels"), 2, "leaves nothing");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--track-age", "5"), 2, "--track-age needs --track");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--n-lost", "5"), 2, "thresholds of trust need --trust");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--trust", "--theta-on", "0.3"), 2, "--theta-off is above");
    expect(LIVE(&b, "--from", b.in, "--to", "ndjson:-", "--trust", "--tau-conf", "2"), 2, "not a number from 0 to 1");
    close(listener);
    scratch_remove(&b.s);
}
