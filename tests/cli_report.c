/* `isthmus report`: the page says what the run's files say, names in it are text, and it asks nothing of anywhere. Runs
 * are made over a double of the engine. tests/report.py looks at the page in a browser. */
#include "predict_bench.h"

#include "io/rle.h"

#define REPORT(b, ...) spawn_run(&(b)->s, NULL, (const char *const[]){PROGRAM, "report", (b)->out, __VA_ARGS__, NULL})

static size_t count_of(const char *text, const char *part) {
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part)) n++;
    return n;
}

static void expect_part(const char *page, const char *part) {
    cr_expect_not_null(strstr(page, part), "the page lacks '%s'", part);
}

/* Runs report and gives its page. */
static char *make_page(const bench *b, const char *option, const char *value) {
    spawned r = REPORT(b, option, value);
    cr_assert_eq(r.code, 0, "%s", r.err);
    cr_expect_str_empty(r.out);
    cr_expect_not_null(strstr(r.err, "/report.html: "), "%s", r.err);
    spawn_free(&r);
    char *page = scratch_read(scratch_path(&b->s, "out/report.html"), NULL);
    cr_assert_not_null(page);
    expect_no_temporaries(b);
    return page;
}

/* The numbers of the sentence under the title. */
static void expect_lead(const char *page, const char *lead) {
    expect_part(page, lead);
    cr_expect_eq(count_of(page, "<h1>"), 1);
}

/* Pixels within an SVG path of H and V: what its loops enclose, holes taken off. */
static long long area_of(const char *path) {
    long long twice = 0, x0 = 0, y0 = 0, x = 0, y = 0;
    for (const char *p = path; *p != '"';) {
        long long u = x, v = y;
        char *end = NULL;
        switch (*p++) {
        case 'M':
            x = x0 = strtoll(p, &end, 10);
            y = y0 = strtoll(end, &end, 10);
            p = end;
            continue;
        case 'H':
            x = strtoll(p, &end, 10);
            break;
        case 'V':
            y = strtoll(p, &end, 10);
            break;
        default: /* Z */
            x = x0, y = y0;
        }
        twice += u * y - x * v;
        if (end) p = end;
    }
    return twice / 2;
}

Test(cli_report, says_what_the_files_say) {
    enum { N = 5 };
    bench b = make_bench(N);
    scratch_put(scratch_path(&b.s, "in/99-broken.png"), "no image");
    expect(PREDICT(&b, NULL), 7, "5 images, 1 failed");
    char *page = make_page(&b, "--pictures", "24");
    expect_lead(page, "5 images, 15 objects of 3 classes, <b class=\"bad\">1 failure</b>.");
    cr_expect_eq(count_of(page, "<figure>"), N);
    cr_expect_eq(count_of(page, "<li data-c="), 3 * N);
    cr_expect_eq(count_of(page, "<path class=\"m\""), 3 * N);
    cr_expect_eq(count_of(page, "src=\"data:image/jpeg;base64,"), N);
    cr_expect_null(strstr(page, "evenly over the run"));
    expect_part(page, "99-broken.png</bdi>: <bdi>is ");
    expect_part(page, "<bdi>stop sign</bdi> 0.775, mask ");
    expect_part(page, "<td><bdi>zebra</bdi><td>5<td>0.650<td>0.650</tr>"); /* class, objects, mean, best */
    expect_part(page, "<td>wait<td>0.500<td>0.500<td>0.500<td>0.500</tr>");
    expect_part(page, "<td>reads<td>1<td>1<td>1</tr>");
    expect_part(page, "<bdi>max-objects</bdi><td class=\"left\"><bdi>16</bdi>");
    size_t sum = 0, rows = 0;
    for (const char *p = page; (p = strstr(p, " to ")) && (p = strstr(p, "<td>")) && rows < 20; rows++)
        sum += strtoul(p + 4, NULL, 10);
    cr_expect_eq(sum, 3 * N, "the histogram has %zu objects", sum);

    json_t *lines =
        read_lines(scratch_path(&b.s, "out/frames.ndjson")); /* masks of 50 to 54 x 60 pixels are not scaled */
    const char *figure = page;
    for (size_t i = 0; i < N; i++) {
        const json_t *objects = json_object_get(json_array_get(lines, i), "objects");
        const char *path = figure = strstr(figure + 1, "<figure>");
        for (size_t k = json_array_size(objects); k-- > 0;) {
            const json_t *counts = json_object_get(json_object_get(json_array_get(objects, k), "rle"), "counts");
            ist_rle rle = {0};
            cr_assert_eq(
                ist_rle_parse(json_string_value(counts), json_string_length(counts), (50 + i) * 60, &rle, NULL), 0);
            path = strstr(path, " d=\"") + 4;
            cr_expect_eq(area_of(path), (long long)ist_rle_area(&rle), "frame %zu object %zu", i, k);
            ist_rle_free(&rle);
        }
    }
    json_decref(lines);
    free(page);
    scratch_remove(&b.s);
}

/* The bytes of the n-th picture. */
static size_t picture_of(const char *page, unsigned char *out, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = strstr(page, "base64,");
    size_t n = 0;
    unsigned group = 0;
    int bits = 0;
    for (p += 7; *p != '"' && *p != '='; p++) {
        const char *digit = strchr(digits, *p);
        cr_assert_not_null(digit);
        group = group << 6 | (unsigned)(digit - digits);
        if ((bits += 6) < 8) continue;
        bits -= 8;
        cr_assert_lt(n, size);
        out[n++] = (unsigned char)(group >> bits);
    }
    return n;
}

Test(cli_report, pictures_are_small_and_few) {
    enum { N = 9, ROOM = 1 << 20 };
    bench b = make_bench(N);
    write_png(scratch_path(&b.s, "in/00-x.png"), 900, 70);
    expect(PREDICT(&b, NULL), 0, "9 images");
    char *page = make_page(&b, "--pictures", "3");
    cr_expect_eq(count_of(page, "<figure>"), 3);
    expect_part(page, "<p>3 of 9 pictures are here, evenly over the run; --pictures N shows more.</p>");
    cr_expect(strstr(page, "/00-x.png</bdi>") && strstr(page, "/03-x.png</bdi>") && strstr(page, "/06-x.png</bdi>"));
    expect_lead(page, "9 images, 27 objects of 3 classes, 0 failures.");
    unsigned char *bytes = malloc(ROOM);
    ist_bitmap image;
    ist_error err;
    size_t n = picture_of(page, bytes, ROOM);
    cr_assert_eq(ist_bitmap_decode(bytes, n, "picture", 1 << 20, &image, &err), 0, "%s", err.text);
    cr_expect(image.width == 720 && image.height == 56);
    expect_part(page, "<svg width=\"720\" height=\"56\" viewBox=\"0 0 720 56\">");
    expect_part(page, "<br>900 &times; 70 pixels");
    ist_bitmap_free(&image);
    free(bytes);
    free(page);
    page = make_page(&b, "--pictures", "0");
    cr_expect_eq(count_of(page, "<figure>"), 0);
    expect_part(page, "<p>0 of 9 pictures are here");
    free(page);
    scratch_remove(&b.s);
}

/* Black and white of the first picture: the middle of its left half, of its right half. */
static void expect_halves(const bench *b, const char *window, int left, int right) {
    enum { ROOM = 1 << 16 };
    spawned r = PREDICT(b, window ? "--window" : NULL, window);
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    char *page = make_page(b, NULL, NULL);
    unsigned char *bytes = malloc(ROOM);
    ist_bitmap image;
    ist_error err;
    cr_assert_eq(ist_bitmap_decode(bytes, picture_of(page, bytes, ROOM), "picture", 1 << 20, &image, &err), 0);
    const unsigned char *p = (const unsigned char *)image.pixels + 32 * image.stride;
    size_t pixel = image.stride / (size_t)image.width;
    cr_expect_leq(abs(p[16 * pixel] - left), 2, "%s: left %d", window, p[16 * pixel]);
    cr_expect_leq(abs(p[48 * pixel] - right), 2, "%s: right %d", window, p[48 * pixel]);
    ist_bitmap_free(&image);
    free(bytes);
    free(page);
}

Test(cli_report, pictures_are_seen_through_the_window) {
    bench b = make_bench(0);
    FILE *f = fopen(scratch_path(&b.s, "in/a.pgm"), "wb");
    fputs("P5\n64 64\n65535\n", f);
    for (int i = 0; i < 64 * 64; i++) { /* 1000 and 2000, high byte first */
        int v = i % 64 < 32 ? 1000 : 2000;
        fputc(v >> 8, f);
        fputc(v & 255, f);
    }
    fclose(f);
    expect_halves(&b, NULL, 4, 8);
    expect_halves(&b, "1000:2000", 0, 255);
    expect_halves(&b, "0:4000", 64, 128);
    expect_halves(&b, "auto", 0, 255);
    scratch_remove(&b.s);
}

Test(cli_report, names_are_text) {
    bench b = make_bench(0);
    write_png(scratch_path(&b.s, "in/\"><img src=x onerror=alert(1)>&amp;'.png"), 50, 60);
    write_png(scratch_path(&b.s, "in/\xE2\x80\xAEgnp.\x1b[31m.png"), 50, 60); /* U+202E turns what follows; an escape */
    scratch_put(scratch_path(&b.s, "in/<script>alert(2)<b>.png"), "no image");
    json_t *names = json_array();
    for (int i = 0; i < 80; i++)
        json_array_append_new(names, json_string("</option></select><script>alert('3')</script>"));
    json_array_set_new(names, 11, json_string("--><style>@import 'x'</style>"));
    cr_assert_eq(json_dump_file(names, scratch_path(&b.s, "names.json"), 0), 0);
    json_decref(names);
    expect(PREDICT(&b, "--names", scratch_path(&b.s, "names.json")), 7, "2 images, 1 failed");
    char *page = make_page(&b, NULL, NULL);
    cr_expect_eq(count_of(page, "<script"), 1, "the page's own and no other");
    cr_expect_eq(count_of(page, "<style"), 1);
    cr_expect_eq(count_of(page, "<img"), 2);
    cr_expect_eq(count_of(page, "<select"), 1);
    cr_expect_eq(count_of(page, "<option"), 3, "all, and two classes");
    cr_expect_null(strstr(page, "\xE2\x80\xAE"));
    cr_expect_null(strchr(page, 0x1b));
    expect_part(page, "/&quot;&gt;&lt;img src=x onerror=alert(1)&gt;&amp;amp;&#39;.png</bdi>");
    expect_part(page, "/&lt;script&gt;alert(2)&lt;b&gt;.png</bdi>: <bdi>");
    expect_part(page, "&lt;/option&gt;&lt;/select&gt;&lt;script&gt;alert(&#39;3&#39;)&lt;/script&gt;");
    expect_part(page, "content=\"default-src 'none'; script-src 'sha256-");
    static const char *const outside[] = {"http:", "https:", "url(", "<link rel=\"stylesheet", "<iframe", "<object"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        cr_expect_null(strstr(page, outside[i]), "%s", outside[i]);
    cr_expect_eq(count_of(page, "src=\""), count_of(page, "src=\"data:"));
    free(page);
    scratch_remove(&b.s);
}

Test(cli_report, what_is_missing_is_said) {
    bench b = make_bench(3);
    expect(PREDICT(&b, "--save", "ndjson,overlay"), 0, "3 images");
    unlink(scratch_path(&b.s, "in/01-x.png"));
    unlink(scratch_path(&b.s, "in/02-x.png"));
    unlink(scratch_path(&b.s, "out/overlays/02-x.png"));
    write_png(scratch_path(&b.s, "in/02-x.png"), 10, 10); /* another image than the run's */
    char *page = make_page(&b, NULL, NULL);
    cr_expect_eq(count_of(page, "<img"), 2);
    cr_expect_eq(count_of(page, "this is its overlay"), 1);
    cr_expect_eq(count_of(page, "The image is not where the run read it.</p>"), 1);
    cr_expect_eq(count_of(page, "<g class=\"o\""), 6,
                 "outlines over the image and over nothing, none over the overlay");
    cr_expect_eq(count_of(page, "<li data-c="), 9);
    free(page);
    expect(PREDICT(&b, "--no-masks"), 0, "2 images");
    page = make_page(&b, NULL, NULL);
    expect_part(page, "<p>The run made no masks.</p>");
    cr_expect_eq(count_of(page, " d=\"\""), count_of(page, "<path class=\"m\""));
    free(page);
    expect(PREDICT(&b, "--no-masks", "--max-objects", "1"), 0, "2 images");
    page = make_page(&b, NULL, NULL);
    expect_lead(page, "2 images, 2 objects of 1 class, 0 failures.");
    free(page);
    scratch_put(scratch_path(&b.s, "out/frames.ndjson"), "");
    unlink(scratch_path(&b.s, "out/run.json"));
    page = make_page(&b, NULL, NULL);
    expect_lead(page, "0 images, 0 objects of 0 classes, 0 failures.");
    expect_part(page, "<p>There are no objects.</p>");
    free(page);
    scratch_remove(&b.s);
}

Test(cli_report, mistakes_leave_nothing) {
    bench b = make_bench(1);
    expect(REPORT(&b, NULL), 1, "out: No such file or directory");
    mkdir(b.out, 0777);
    expect(REPORT(&b, NULL), 1, "there is no frames.ndjson; a report needs ndjson among --save");
    scratch_put(scratch_path(&b.s, "out/frames.ndjson.partial"), "");
    expect(REPORT(&b, NULL), 1, "the run is not finished; --resume goes on with it");
    static const char *const wrong[] = {
        "{",
        "[]",
        "{\"file\":\"a\",\"width\":1,\"height\":1}",
        "{\"file\":1,\"width\":1,\"height\":1,\"objects\":[]}",
        "{\"file\":\"a\",\"width\":0,\"height\":1,\"objects\":[]}",
        "{\"file\":\"a\",\"width\":1,\"height\":1,\"objects\":[{\"name\":\"b\",\"score\":2,\"box\":[0,0,1,1]}]}",
        "{\"file\":\"a\",\"width\":1,\"height\":1,\"objects\":[{\"name\":\"b\",\"score\":0.5,\"box\":[0,0,1]}]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"file\":\"a\",\"width\":1,\"height\":1,\"objects\":[]}\n%s\n", wrong[i]);
        scratch_put(scratch_path(&b.s, "out/frames.ndjson"), text);
        expect(REPORT(&b, NULL), 1, "frames.ndjson:2: is not a line that isthmus writes");
    }
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/report.html")));
    /* damaged or enormous values in lines of the right form are shown as far as they go */
    scratch_put(
        scratch_path(&b.s, "out/frames.ndjson"),
        "{\"file\":\"../../"
        "a.png\",\"width\":2147483647,\"height\":2147483647,\"ms\":{\"wait\":1e300},\"objects\":[{\"name\":"
        "\"b\",\"label\":-5,\"score\":1,\"box\":[-1e300,0,1e300,5],\"rle\":{\"size\":[1,1],\"counts\":\"~~~\"}}]}\n");
    scratch_put(scratch_path(&b.s, "out/run.json"), "{\"options\":[1");
    char *page = make_page(&b, NULL, NULL);
    expect_lead(page, "1 image, 1 object of 1 class, 0 failures.");
    expect_part(page, "x=\"0.0\" y=\"0.0\" width=\"720.0\"");
    free(page);
    spawned r = REPORT(&b, "-o", scratch_path(&b.s, "none/page.html"));
    cr_expect_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    cr_expect(scratch_exists(scratch_path(&b.s, "none/page.html")));
    unlink(scratch_path(&b.s, "out/report.html")); /* a link is not written through */
    cr_assert_eq(symlink(scratch_path(&b.s, "in/00-x.png"), scratch_path(&b.s, "out/report.html")), 0);
    expect(REPORT(&b, NULL), 1, "report.html");
    expect(REPORT(&b, "-o", ""), 2, "--output: the name of the file is empty");
    expect(REPORT(&b, "--pictures", "-1"), 2, "--pictures: '-1' is not a whole number from 0 to");
    expect(REPORT(&b, "another"), 2, "name one folder");
    scratch_remove(&b.s);
}

/* A folder from somebody else: a pipe is not waited for, a link shows nothing of what it leads to. */
Test(cli_report, pipes_and_links_are_no_results, .timeout = 60) {
    static const char *const names[] = {"frames.ndjson", "failed.ndjson"};
    bench b = make_bench(1);
    expect(PREDICT(&b, "--save", "ndjson"), 0, "1 image");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[300], kept[300];
        snprintf(path, sizeof path, "%s/out/%s", b.s.path, names[i]);
        snprintf(kept, sizeof kept, "%s/kept", b.s.path);
        cr_assert(!rename(path, kept) || i == 1);
        cr_assert_eq(mkfifo(path, 0600), 0);
        expect(REPORT(&b, NULL), 1, "ndjson: is not a regular file");
        unlink(path);
        cr_assert_eq(symlink(kept, path), 0);
        expect(REPORT(&b, NULL), 1, "ndjson: is a symbolic link");
        unlink(path);
        cr_assert(i == 1 || !rename(kept, path));
    }
    free(make_page(&b, NULL, NULL));
    scratch_remove(&b.s);
}
