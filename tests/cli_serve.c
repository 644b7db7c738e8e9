/* `isthmus segment --serve`: what the server answers, over a double of the engine; what it refuses, its limits, its
 * end; and, on a real device, that a click gives the mask that `segment --points` gives. What the page does with the
 * answers is page.py. */
#include "predict_bench.h"

#include "io/rle.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { MOST_ARGS = 16 };

/* The server, started. */
typedef struct server {
    scratch *s;
    pid_t pid;
    int port;
} server;

/* Waits for the address line; port 0 when the program ends instead, which is to be waited for. */
static server try_start(scratch *s, const char *program, const char *const *arguments) {
    const char *argv[MOST_ARGS] = {program, "segment"};
    server v = {.s = s};
    for (int i = 0; arguments[i]; i++) argv[i + 2] = arguments[i];
    v.pid = spawn_start(s, NULL, argv);
    for (char *out = NULL;; free(out)) {
        siginfo_t ended = {.si_pid = 0};
        out = scratch_read(scratch_path(s, "stdout.txt"), NULL);
        if (out && strchr(out, '\n')) {
            cr_assert_eq(sscanf(out, "http://127.0.0.1:%d/\n", &v.port), 1, "%s", out);
            free(out);
            return v;
        }
        cr_assert_eq(waitid(P_PID, (id_t)v.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        if (ended.si_pid) {
            free(out);
            return v;
        }
        poll(NULL, 0, 5);
    }
}

static server start(scratch *s, const char *program, const char *const *arguments) {
    server v = try_start(s, program, arguments);
    cr_assert(v.port, "it ended: %s", scratch_read(scratch_path(s, "stderr.txt"), NULL));
    return v;
}

#define START(b, ...)                                                                                                  \
    start(&(b)->s, PROGRAM, (const char *const[]){(b)->in, "--serve", "127.0.0.1:0", __VA_ARGS__, NULL})

/* Ends it with the signal and expects that it minds nothing. */
static void stop(const server *v, int number) {
    kill(v->pid, number);
    spawned r = spawn_finish(v->s, v->pid);
    cr_expect_eq(r.code, 0, "signal %d: exit code %d: %s", number, r.code, r.err);
    spawn_free(&r);
}

static int connect_to(const server *v) {
    struct sockaddr_in where = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)v->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)(const void *)&where, sizeof where), 0);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t count) {
    for (ssize_t n; count; bytes += n, count -= (size_t)n)
        cr_assert_gt(n = send(fd, bytes, count, MSG_NOSIGNAL), 0, "the server closed the connection");
}

typedef struct answer {
    int status;
    char *all, *body; /* body points into all, which is owned */
    size_t size;      /* of the body */
} answer;

/* All that comes until the server closes the connection; status 0 when that is nothing. */
static answer read_answer(int fd) {
    size_t size = 0, capacity = 1 << 16;
    answer a = {.all = malloc(capacity)};
    for (ssize_t n; (n = recv(fd, a.all + size, capacity - size - 1, 0)) > 0;)
        if (capacity - (size += (size_t)n) < 1 << 15) a.all = realloc(a.all, capacity *= 2);
    close(fd);
    a.all[size] = '\0';
    a.body = a.all;
    if (!size) return a;
    cr_assert_eq(sscanf(a.all, "HTTP/1.1 %d", &a.status), 1, "%s", a.all);
    cr_assert_not_null(a.body = strstr(a.all, "\r\n\r\n"));
    a.body += 4;
    a.size = size - (size_t)(a.body - a.all);
    return a;
}

static answer request(const server *v, const char *method, const char *path, const char *headers, const char *body) {
    char head[600];
    int fd = connect_to(v),
        n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nConnection: close\r\n%s", method, path, headers);
    if (!strstr(headers, "Host:")) n += snprintf(head + n, sizeof head - (size_t)n, "Host: 127.0.0.1:%d\r\n", v->port);
    if (body) n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %zu\r\n", strlen(body));
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    send_all(fd, head, (size_t)n);
    if (body) send_all(fd, body, strlen(body));
    return read_answer(fd);
}

static void expect_refused(answer a, int status, const char *sentence) {
    json_t *root = json_loads(a.body, 0, NULL);
    const char *error = json_string_value(json_object_get(root, "error"));
    cr_expect_eq(a.status, status, "status %d, want %d: %s", a.status, status, a.body);
    cr_expect(error && strstr(error, sentence), "the sentence lacks '%s': %s", sentence, a.body);
    json_decref(root);
    free(a.all);
}

static json_t *post(const server *v, const char *path, const char *body) {
    answer a = request(v, "POST", path, "", body);
    json_t *root = json_loads(a.body, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_eq(a.status, 200, "%s", a.all);
    cr_assert_not_null(root, "%s", a.body);
    free(a.all);
    return root;
}

static json_t *masks_of(const json_t *answered, size_t count) {
    json_t *masks = json_object_get(answered, "masks");
    cr_assert_eq(json_array_size(masks), count);
    return masks;
}

static double number(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    cr_assert(json_is_number(v), "no number '%s'", key);
    return json_number_value(v);
}

Test(cli_serve, the_page_comes_with_a_policy) {
    bench b = make_bench(1);
    server v = START(&b, "--quiet");
    answer a = request(&v, "GET", "/", "", NULL);
    size_t size;
    char *page = scratch_read(IST_SOURCE_DIR "/apps/serve.html", &size);
    cr_expect_eq(a.status, 200);
    cr_expect(a.size == size && !memcmp(a.body, page, size), "another page than apps/serve.html");
    cr_expect_null(strstr(page, "http://"), "the page must load nothing");
    cr_expect_null(strstr(page, "https://"), "the page must load nothing");
    static const char *const headers[] = {"\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-",
                                          "\r\nX-Content-Type-Options: nosniff\r\n", "\r\nX-Frame-Options: DENY\r\n",
                                          "\r\nCross-Origin-Resource-Policy: same-origin\r\n",
                                          "\r\nContent-Type: text/html; charset=utf-8\r\n"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        cr_expect_not_null(strstr(a.all, headers[i]), "%s", a.all);
    free(a.all);
    a = request(&v, "HEAD", "/", "", NULL);
    cr_expect(a.status == 200 && a.size == 0);
    free(a.all);
    free(page);
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

Test(cli_serve, images_are_listed_and_given_as_the_network_sees_them) {
    bench b = make_bench(3);
    server v = START(&b, "--quiet", "--limit", "2");
    answer a = request(&v, "GET", "/images", "", NULL);
    json_t *root = json_loads(a.body, 0, NULL);
    const json_t *list = json_object_get(root, "images"), *second = json_array_get(list, 1);
    cr_expect_eq(json_array_size(list), 2);
    cr_expect_str_eq(json_string_value(json_object_get(second, "name")), "01-x.png");
    cr_expect_eq(number(second, "id"), 2);
    cr_expect_eq(number(root, "points"), 25);
    free(a.all);
    a = request(&v, "GET", "/images/1", "", NULL);
    ist_bitmap got, want;
    cr_assert_eq(ist_bitmap_decode(a.body, a.size, "answer", 1 << 20, &got, NULL), IST_OK);
    cr_assert_eq(ist_bitmap_read(scratch_path(&b.s, "in/01-x.png"), 1 << 20, &want, NULL), IST_OK);
    cr_assert(got.format == IST_RGB8 && got.width == want.width && got.height == want.height);
    for (int i = 0; i < want.width * want.height; i++)
        for (int c = 0; c < 3; c++)
            cr_assert_eq(((uint8_t *)got.pixels)[3 * i + c], ((uint8_t *)want.pixels)[i], "pixel %d", i);
    ist_bitmap_free(&got);
    ist_bitmap_free(&want);
    free(a.all);
    json_decref(root);
    stop(&v, SIGINT);
    scratch_remove(&b.s);
}

/* Values of tests/fake_engine.c: columns i to i + 4 of rows 0 to 39, scores by mask and by the last point's label. */
Test(cli_serve, a_click_gives_masks_with_scores) {
    bench b = make_bench(2);
    server v = START(&b, "--quiet");
    json_decref(post(&v, "/images/1/encode", "{}"));
    json_t *root = post(&v, "/images/1/masks", "{\"points\": [[3, 4, 1]], \"box\": [1, 2, 30, 40]}");
    json_t *masks = masks_of(root, 3), *rle = json_object_get(json_array_get(masks, 2), "segmentation");
    for (size_t i = 0; i < 3; i++) {
        const json_t *m = json_array_get(masks, i), *box = json_object_get(m, "bbox");
        cr_expect_eq(number(m, "score"), 0.5625 + 0.125 * (double)i);
        cr_expect_eq(number(m, "area"), 200);
        const double want[4] = {(double)i, 0, 5, 40};
        for (size_t k = 0; k < 4; k++) cr_expect_eq(json_number_value(json_array_get(box, k)), want[k]);
    }
    ist_rle runs = {0};
    const char *counts = json_string_value(json_object_get(rle, "counts"));
    cr_expect_eq(json_integer_value(json_array_get(json_object_get(rle, "size"), 0)), 60);
    cr_expect_eq(json_integer_value(json_array_get(json_object_get(rle, "size"), 1)), 51);
    cr_assert_eq(ist_rle_parse(counts, strlen(counts), 60 * 51, &runs, NULL), IST_OK);
    const uint32_t want[] = {2 * 60, 40, 20, 40, 20, 40, 20, 40, 20, 40, 20 + 44 * 60};
    cr_assert_eq(runs.count, sizeof want / sizeof *want);
    cr_expect_arr_eq(runs.counts, want, sizeof want);
    ist_rle_free(&runs);
    json_decref(root);
    root = post(&v, "/images/0/mask", "{\"points\": [[3, 4, 1], [5, 6, 0]]}"); /* another engine, opened now */
    cr_expect_eq(number(json_array_get(masks_of(root, 1), 0), "score"), 0.5);
    json_decref(root);
    stop(&v, SIGHUP);
    scratch_remove(&b.s);
}

/* The double has three masks of everything, whatever the parameters. */
Test(cli_serve, everything_by_a_button) {
    bench b = make_bench(2);
    server v = START(&b, "--quiet", "--points-per-side", "4", "--pred-iou-thresh", "0.5");
    json_t *root = post(&v, "/images/1/everything", "{}");
    const json_t *masks = masks_of(root, 3);
    cr_expect_eq(number(json_array_get(masks, 0), "score"), 0.75);
    cr_expect_eq(number(json_array_get(masks, 2), "area"), 200);
    json_decref(root);
    json_decref(post(&v, "/images/0/masks", "{\"points\": [[3, 4, 1]]}"));
    expect_refused(request(&v, "GET", "/images/0/everything", "", NULL), 405, "takes POST alone");
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

/* More images than embeddings may be alive: the double counts them. */
Test(cli_serve, embeddings_make_room_for_others) {
    bench b = make_bench(12);
    server v = START(&b, "--quiet");
    for (int i = 0; i < 30; i++) {
        char path[40];
        snprintf(path, sizeof path, "/images/%d/masks", i * 5 % 12);
        json_t *root = post(&v, path, "{\"points\": [[3, 4, 1]]}");
        const json_t *size =
            json_object_get(json_object_get(json_array_get(masks_of(root, 3), 0), "segmentation"), "size");
        cr_expect_eq(json_integer_value(json_array_get(size, 1)), 50 + i * 5 % 12);
        json_decref(root);
    }
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

Test(cli_serve, bad_requests_get_a_sentence_and_harm_nobody) {
    bench b = make_bench(2);
    server v = START(&b, "--quiet");
    static const struct {
        const char *method, *path, *headers, *body;
        int status;
        const char *sentence;
    } cases[] = {
        {"POST", "/images/0/masks", "", "{\"points\": [[1, 2,", 400, "the prompt: line 1"},
        {"POST", "/images/0/masks", "", "", 400, "the prompt: line 1"},
        {"POST", "/images/0/masks", "", "[1]", 400, "it must be an object"},
        {"POST", "/images/0/masks", "", "{}", 400, "neither points nor a box"},
        {"POST", "/images/0/masks", "", "{\"points\": []}", 400, "neither points nor a box"},
        {"POST", "/images/0/masks", "", "{\"points\": [[NaN, 2, 1]]}", 400, "NaN"},
        {"POST", "/images/0/masks", "", "{\"points\": [[1e39, 2, 1]]}", 400, "is not a number"},
        {"POST", "/images/0/masks", "", "{\"points\": [[1, 2, 3]]}", 400, "label 3 of a point"},
        {"POST", "/images/0/masks", "", "{\"points\": [[1, 2]]}", 400, "array of 3 numbers"},
        {"POST", "/images/0/mask", "", "{\"box\": [9, 9, 1, 1]}", 400, "inside out"},
        {"POST", "/images/0/mask", "", "{\"mask\": \"/etc/passwd\"}", 400, "a mask cannot be given here"},
        {"GET", "/images/0/masks", "", NULL, 405, "takes POST alone"},
        {"POST", "/images/0", "", "{}", 405, "takes GET alone"},
        {"DELETE", "/", "", NULL, 405, "takes GET alone"},
        {"GET", "/images/2", "", NULL, 404, "numbers 0 to 1"},
        {"GET", "/images/-1", "", NULL, 404, "numbers 0 to 1"},
        {"GET", "/images/00", "", NULL, 404, "numbers 0 to 1"},
        {"GET", "/images/99999999999999999999", "", NULL, 404, "numbers 0 to 1"},
        {"GET", "/images/0/../../in/00-x.png", "", NULL, 404, "there is no /images/0/../.."},
        {"GET", "/etc/passwd", "", NULL, 404, "there is no /etc/passwd"},
        {"GET", "/", "Host: evil.example\r\n", NULL, 403, "the name in Host"},
        {"GET", "/", "Host: 127.0.0.1.evil.example\r\n", NULL, 403, "the name in Host"},
        {"POST", "/images/0/encode", "Origin: http://evil.example\r\n", "{}", 403, "other sites"},
        {"POST", "/images/0/encode", "Origin: null\r\n", "{}", 403, "other sites"},
        {"POST", "/images/0/masks", "Content-Length: 99999999\r\n", NULL, 413, "more than 262144 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(request(&v, cases[i].method, cases[i].path, cases[i].headers, cases[i].body), cases[i].status,
                       cases[i].sentence);
    static const char *const own[] = {"Host: localhost:9\r\n", "Host: LOCALHOST\r\n", "Host: [::1]:8000\r\n",
                                      "Host: 127.0.0.1:9\r\nOrigin: http://127.0.0.1:9\r\n"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        answer a = request(&v, "GET", "/images", own[i], NULL);
        cr_expect_eq(a.status, 200, "%s", own[i]);
        free(a.all);
    }
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

Test(cli_serve, points_are_limited) {
    enum { MANY = 10000 };
    static const struct {
        int count, status;
        const char *sentence;
    } cases[] = {{25, 200, ""}, {26, 400, "26 points, at most 25"}, {MANY, 400, "10000 points, at most 256"}};
    bench b = make_bench(1);
    server v = START(&b, "--quiet");
    char *body = malloc(16 * MANY + 32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = (size_t)sprintf(body, "{\"points\": [");
        for (int k = 0; k < cases[i].count; k++) n += (size_t)sprintf(body + n, "%s[%d,2,1]", k ? "," : "", k % 50);
        strcpy(body + n, "]}");
        answer a = request(&v, "POST", "/images/0/masks", "", body);
        if (cases[i].status == 200) {
            cr_expect_eq(a.status, 200, "%s", a.body);
            free(a.all);
        } else {
            expect_refused(a, cases[i].status, cases[i].sentence);
        }
    }
    free(body);
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

/* A body whose length nobody has said. */
Test(cli_serve, bodies_are_limited_as_they_come) {
    enum { CHUNK = 0x4000, CHUNKS = 20 };
    bench b = make_bench(1);
    server v = START(&b, "--quiet");
    static char chunk[CHUNK];
    char head[200];
    int fd = connect_to(&v);
    memset(chunk, ' ', sizeof chunk);
    snprintf(
        head, sizeof head,
        "POST /images/0/masks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    send_all(fd, head, strlen(head));
    for (int i = 0; i < CHUNKS; i++) {
        send_all(fd, "4000\r\n", 6);
        send_all(fd, chunk, CHUNK);
        send_all(fd, "\r\n", 2);
    }
    send_all(fd, "0\r\n\r\n", 5);
    expect_refused(read_answer(fd), 413, "more than 262144 bytes");
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

/* One that sends half a request keeps nobody waiting; more connections than are served at a time wait for their turn.
 */
Test(cli_serve, clients_do_not_disturb_each_other) {
    enum { CLIENTS = 40 };
    static const char half[] = "POST /images/0/masks HTTP/1.1\r\nHost: localhost\r\nContent-Le";
    static const char whole[] =
        "POST /images/0/masks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
        "23\r\n\r\n{\"points\": [[3, 4, 1]]}";
    bench b = make_bench(1);
    server v = START(&b, "--quiet");
    int slow = connect_to(&v), clients[CLIENTS];
    send_all(slow, half, sizeof half - 1);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(&v);
        send_all(clients[i], whole, sizeof whole - 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        answer a = read_answer(clients[i]);
        cr_expect_eq(a.status, 200, "client %d: %s", i, a.body);
        cr_expect_not_null(strstr(a.body, "\"score\":0.5625,"));
        free(a.all);
    }
    close(slow);
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

/* Wherever memory ends, one request fails, and no other; or the program says why it does not start. */
Test(cli_serve, a_failing_allocation_costs_one_request) {
    static const char *const prompts[] = {"/images/0/masks", "/images/0/mask", "/images/0/everything"};
    bench b = make_bench(1);
    long calls = 3; /* the first run's, in which none fails, are counted */
    setenv("ISTHMUS_CACHE_DIR", "off", 1);
    setenv("FAULT_LOG", scratch_path(&b.s, "log"), 1);
    for (long position = 0; position < calls; position += getenv("ISTHMUS_EVERY_FAULT") ? 1 : 13) {
        char fault[32];
        snprintf(fault, sizeof fault, "memory:%ld", position);
        setenv("FAULT", fault, 1);
        server v = try_start(&b.s, IST_BUILD_DIR "/tests/isthmus_faulty_fake",
                             (const char *const[]){b.in, "--serve", "127.0.0.1:0", "--quiet", NULL});
        if (!v.port) {
            spawned r = spawn_finish(&b.s, v.pid);
            cr_expect(r.code > 0 && r.code < 128 && !strncmp(r.err, "isthmus: ", 9), "%s: %d: %s", fault, r.code,
                      r.err);
            spawn_free(&r);
            continue;
        }
        int failed = 0;
        for (int i = 0; i < 4; i++) {
            answer a = i < 3 ? request(&v, "POST", prompts[i], "", "{\"points\": [[3, 4, 1]]}")
                             : request(&v, "GET", "/images/0", "", NULL);
            cr_expect(a.status == 200 || a.status == 500 || a.status == 503 || !a.status, "%s: %s", fault, a.all);
            failed += a.status != 200;
            free(a.all);
        }
        cr_expect_leq(failed, 1, "%s: %d requests failed", fault, failed);
        stop(&v, SIGTERM);
        char *log = scratch_read(scratch_path(&b.s, "log"), NULL);
        if (!position) cr_assert(!failed && sscanf(log, "%ld", &calls) == 1 && calls > 100, "%s", log);
        free(log);
    }
    scratch_remove(&b.s);
}

/* A file that goes, or an image that the device refuses, fails alone. */
Test(cli_serve, an_image_that_cannot_be_used_fails_alone) {
    bench b = make_bench(3);
    setenv("FAKE_ENGINE", "refuse:51", 1);
    server v = START(&b, "--quiet");
    unlink(scratch_path(&b.s, "in/02-x.png"));
    expect_refused(request(&v, "GET", "/images/2", "", NULL), 500, "02-x.png");
    expect_refused(request(&v, "POST", "/images/2/encode", "", "{}"), 500, "02-x.png");
    expect_refused(request(&v, "POST", "/images/1/masks", "", "{\"points\": [[3, 4, 1]]}"), 503, "51 pixels");
    json_decref(post(&v, "/images/0/masks", "{\"points\": [[3, 4, 1]]}"));
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

/* A lost device's engine is opened again: the double loses it at the second batch. */
Test(cli_serve, a_lost_device_is_opened_again) {
    bench b = make_bench(1);
    setenv("FAKE_ENGINE", "lost:1", 1);
    server v = START(&b, "--quiet");
    json_decref(post(&v, "/images/0/masks", "{\"points\": [[3, 4, 1]]}"));
    expect_refused(request(&v, "POST", "/images/0/masks", "", "{\"points\": [[3, 4, 1]]}"), 500, "the device is lost");
    json_decref(post(&v, "/images/0/masks", "{\"points\": [[3, 4, 1]]}"));
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

#define SERVE(b, ...)                                                                                                  \
    spawn_run(&(b)->s, NULL, (const char *const[]){PROGRAM, "segment", (b)->in, "--serve", __VA_ARGS__, NULL})

Test(cli_serve, mistakes_are_said_before_it_serves) {
    bench b = make_bench(1);
    server v = START(&b, "--quiet");
    char taken[40];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", v.port);
    scratch other = scratch_make(); /* the running one writes into the bench's */
    spawned r = spawn_run(&other, NULL, (const char *const[]){PROGRAM, "segment", b.in, "--serve", taken, NULL});
    expect(r, 1, "Address already in use");
    stop(&v, SIGTERM);
    scratch_remove(&other);
    expect(SERVE(&b, "127.0.0.1"), 2, "--serve: '127.0.0.1' is not HOST:PORT");
    expect(SERVE(&b, "::1:80"), 2, "is not HOST:PORT");
    expect(SERVE(&b, "127.0.0.1:65536"), 2, "is not HOST:PORT");
    expect(SERVE(&b, ""), 2, "is not HOST:PORT");
    expect(SERVE(&b, "203.0.113.1:0"), 1, "203.0.113.1:0: Cannot assign");
    expect(SERVE(&b, "0", "-o", b.out), 2, "--serve excludes -o");
    expect(SERVE(&b, "0", "--shard", "1/2"), 2, "--serve excludes -o");
    expect(SERVE(&b, "0", "--multimask"), 2, "--multimask");
    expect(SERVE(&b, "0", "--everything"), 2, "--everything");
    expect(SERVE(&b, "0", "--device", "all"), 2, "one device");
    setenv("FAKE_ENGINE", "closed:0", 1);
    expect(SERVE(&b, "0"), 1, "the device does not open");
    unlink(scratch_path(&b.s, "weights/mobile_sam_demo.safetensors"));
    expect(SERVE(&b, "0"), 4, "name a checkpoint with --segmenter FILE");
    cr_expect(!scratch_exists(b.out));
    scratch_remove(&b.s);
}

Test(cli_serve, other_machines_are_warned_of) {
    bench b = make_bench(1);
    pid_t pid = spawn_start(&b.s, NULL, (const char *const[]){PROGRAM, "segment", b.in, "--serve", "0.0.0.0:0", NULL});
    char *err = NULL;
    for (; !err || !strstr(err, "Ctrl-C ends"); poll(NULL, 0, 5)) {
        free(err);
        err = scratch_read(scratch_path(&b.s, "stderr.txt"), NULL);
        cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it ended");
    }
    cr_expect_not_null(strstr(err, "0.0.0.0 is not this machine alone"), "%s", err);
    free(err);
    server v = {.s = &b.s, .pid = pid};
    stop(&v, SIGTERM);
    scratch_remove(&b.s);
}

/* ---- a real device ---- */

Test(cli_serve, a_click_gives_the_mask_of_segment) {
    if (getenv("ISTHMUS_SMALL")) cr_skip_test("compiling its kernels takes a minute there");
    scratch s = scratch_make();
    const char *frame = IST_SOURCE_DIR "/apps/frames/bone-1.png", *prompt = "{\"points\": [[120, 90, 1], [20, 30, 0]]}";
    char sam[200], out[200], file[200], text[200];
    snprintf(sam, sizeof sam, "%s/sam.safetensors", s.path);
    snprintf(out, sizeof out, "%s/out", s.path);
    snprintf(file, sizeof file, "%s/p.json", s.path);
    snprintf(text, sizeof text, "{\"bone-1.png\": [%s]}", prompt);
    scratch_put(file, text);
    spawned r = spawn_run(&s, NULL,
                          (const char *const[]){IST_BUILD_DIR "/tests/make_checkpoint", "sam", "g:1", "80", sam, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    r = spawn_run(&s, NULL,
                  (const char *const[]){IST_CLI, "segment", frame, "-o", out, "--points", file, "--multimask",
                                        "--segmenter", sam, "--segmenter-size", "256", "--save", "ndjson", NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    json_t *lines = read_lines(scratch_path(&s, "out/frames.ndjson"));
    const json_t *objects = json_object_get(json_array_get(lines, 0), "objects");
    server v = start(&s, IST_CLI,
                     (const char *const[]){frame, "--serve", "0", "--segmenter", sam, "--segmenter-size", "256", NULL});
    json_t *root = post(&v, "/images/0/masks", prompt);
    const json_t *masks = masks_of(root, 3);
    int pixels = 0;
    for (size_t i = 0; i < 3; i++) {
        const json_t *got = json_array_get(masks, i), *want = json_array_get(objects, i);
        cr_expect(json_equal(json_object_get(got, "segmentation"), json_object_get(want, "rle")), "mask %zu", i);
        cr_expect_float_eq(number(got, "score"), number(want, "mask_score"), 1e-5);
        cr_expect_eq(number(got, "area"), number(want, "area"));
        pixels += (int)number(got, "area");
    }
    cr_expect_gt(pixels, 0, "all masks are empty");
    json_decref(root);
    json_decref(lines);
    stop(&v, SIGTERM);
    scratch_remove(&s);
}
