/* `isthmus predict --memory`: images in flight share a budget, and all of them still come out. */
#include "predict_bench.h"

#include <sys/resource.h>

enum { IMAGES = 24, SIDE = 300 };

/* Images of SIDE x SIDE pixels, some twice and one four times as wide. */
static bench make_images(void) {
    bench b = make_bench(0);
    for (int i = 0; i < IMAGES; i++) {
        ist_bitmap image;
        ist_error err;
        size_t width = (size_t)SIDE * (i == 11 ? 4 : i % 5 ? 1 : 2);
        cr_assert_eq(ist_bitmap_allocate("t", width, SIDE, IST_RGB8, 1 << 24, &image, &err), IST_OK);
        memset(image.pixels, 10 * i, image.stride * SIDE);
        cr_assert_eq(ist_png_write(scratch_path(&b.s, "in/%02d.png", i), &image, &err), IST_OK, "%s", err.text);
        ist_bitmap_free(&image);
    }
    return b;
}

/* Bytes that the summary says; the program has printed them in megabytes to one digit. */
static double taken(const spawned *r) {
    const char *at = strstr(r->err, "images took ");
    cr_assert_not_null(at, "%s", r->err);
    return 1e6 * strtod(at + strlen("images took "), NULL);
}

static void same_masks(const bench *b, const char *out) {
    for (int i = 0; i < IMAGES; i++) {
        size_t m = 0, n = 0;
        char *want = scratch_read(scratch_path(&b->s, "out/masks/%02d.png", i), &m);
        char *text = scratch_read(scratch_path(&b->s, "%s/masks/%02d.png", out, i), &n);
        cr_assert(want && text, "%s: image %d is missing", out, i);
        cr_expect(m == n && !memcmp(want, text, n), "%s: image %d", out, i);
        free(want);
        free(text);
    }
}

Test(cli_memory, small_budgets_give_all_images) {
    enum { PIXELS = 4 * SIDE * SIDE, SPARE = 60000 }; /* of the largest; the file, and what rounding hides */
    const double least = 7 * PIXELS,
                 largest = 8 * PIXELS; /* pixels, overlay, map; before it is decoded, an alpha channel */
    static const struct {
        const char *memory;
        double bytes;
    } budgets[] = {{"1", 1}, {"64K", 65536}, {"900000", 900000}, {"3M", 3 << 20}, {"6M", 6 << 20}, {"1G", 1 << 30}};
    bench b = make_images();
    char out[180];
    expect(PREDICT(&b, NULL), 0, "24 images, 0 failed");
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        for (int batch = 1; batch <= 7; batch += 3) {
            char size[8];
            snprintf(size, sizeof size, "%d", batch);
            snprintf(out, sizeof out, "%s", scratch_path(&b.s, "out-%s-%d", budgets[i].memory, batch));
            setenv("FAKE_CORES", batch == 4 ? "12" : "2", 1); /* workers for both, or for each */
            spawned r = spawn_run(&b.s, NULL,
                                  (const char *const[]){PROGRAM, "predict", b.in, "-o", out, "--memory",
                                                        budgets[i].memory, "--batch", size, NULL});
            cr_assert_eq(r.code, 0, "%s", r.err);
            cr_expect_not_null(strstr(r.err, "24 images, 0 failed"), "%s", r.err);
            double bytes = taken(&r), most = budgets[i].bytes > largest ? budgets[i].bytes : largest;
            cr_expect(bytes <= most + SPARE, "%s in batches of %d: %.0f bytes", budgets[i].memory, batch, bytes);
            cr_expect_geq(bytes, least - SPARE, "the largest is not counted: %.0f bytes", bytes);
            same_masks(&b, strrchr(out, '/') + 1);
            spawn_free(&r);
        }
    scratch_remove(&b.s);
}

/* Small files that unpack to much. */
Test(cli_memory, bombs_take_no_more_than_the_budget) {
    enum { BOMBS = 8, WIDE = 4000 };
    bench b = make_bench(0);
    ist_bitmap image;
    ist_error err;
    cr_assert_eq(ist_bitmap_allocate("t", WIDE, WIDE, IST_GRAY8, 1 << 26, &image, &err), IST_OK);
    memset(image.pixels, 0, image.stride * WIDE);
    for (int i = 0; i < BOMBS; i++)
        cr_assert_eq(ist_png_write(scratch_path(&b.s, "in/%d.png", i), &image, &err), IST_OK, "%s", err.text);
    ist_bitmap_free(&image);
    setenv("FAKE_CORES", "16", 1);
    spawned r = PREDICT(&b, "--memory", "40M", "--save", "json,ndjson", "--batch", "8");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "8 images, 0 failed"), "%s", r.err);
    cr_expect(taken(&r) <= 40 << 20, "%.0f bytes", taken(&r));
    cr_expect_geq(taken(&r), WIDE * WIDE);
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_memory, values) {
    static const char *const wrong[] = {
        "0", "", "x", "-1", "4X", "4GB", "1.5G", "99999999999999999999", "18446744073709551615K"};
    bench b = make_bench(1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect(PREDICT(&b, "--memory", wrong[i]), 2, "--memory: '");
    static const char *const right[] = {"1", "1K", "20M", "4G", "500000000"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) expect(PREDICT(&b, "--memory", right[i]), 0, "1 image");
    scratch_remove(&b.s);
}
