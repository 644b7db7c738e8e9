/* cpu/amx against sums of products in double, in plain OpenCL everywhere and by its instructions where the processor
 * has them. */
#include "device/device.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, STEP = 32, MOST_STEPS = 20, PANEL = SIDE * STEP };

static float of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest; ties to even where there is but one part, else away from zero. */
static float rounded(float f, int parts) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u += parts == 1 ? 0x7fffu + (u >> 16 & 1u) : 0x8000u;
    return isnan(f) ? f : of_bits(u & 0xffff0000u);
}

static float random_value(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

typedef struct product {
    int parts, steps;
    bool add;
    float *a, *b, *out; /* [32][32 steps], [32 steps][32]; sums [32][32], then parts [parts][32][32 steps] */
} product;

static void begin(product *p, int parts, int steps, bool add) {
    size_t plane = (size_t)(SIDE * STEP * steps);
    uint32_t state = 7u * (uint32_t)steps + (uint32_t)parts;
    *p = (product){parts,
                   steps,
                   add,
                   calloc(plane, sizeof(float)),
                   calloc(plane, sizeof(float)),
                   calloc(PANEL + (size_t)parts * plane, sizeof(float))};
    cr_assert(p->a && p->b && p->out);
    for (size_t i = 0; i < plane; i++) p->a[i] = random_value(&state), p->b[i] = random_value(&state);
    for (int i = 0; i < PANEL; i++) p->out[i] = random_value(&state);
}

static void end(product *p) {
    free(p->a);
    free(p->b);
    free(p->out);
}

/* b as [step][part][half of the columns][pair][16] of pairs of terms k and k + 16. */
static uint16_t *packed(const product *p) {
    uint16_t *to = calloc((size_t)p->steps * (size_t)p->parts * PANEL, sizeof *to);
    cr_assert(to);
    for (int k = 0; k < p->steps * STEP; k++)
        for (int c = 0; c < SIDE; c++) {
            float rest = p->b[k * SIDE + c];
            for (int q = 0; q < p->parts; q++) {
                float h = rounded(rest, p->parts);
                uint32_t u;
                memcpy(&u, &h, sizeof u);
                to[(k / STEP * p->parts + q) * PANEL + c / 16 * 512 + k % 16 * 32 + c % 16 * 2 + k % STEP / 16] =
                    (uint16_t)(u >> 16);
                rest -= h;
            }
        }
    return to;
}

static bool has_instructions(const ist_device *d) {
    return ist_device_probed(d) & IST_CAP_X86_AMX;
}

/* By the kernel of cl/probe/amx_product.cl; false where `instructions` are asked for and the processor has none. */
static bool run(product *p, bool instructions) {
    ist_error err;
    ist_device *d = NULL;
    ist_frame_scope setup = {0};
    cl_mem bufs[4] = {0};
    cl_kernel kernel = NULL;
    cl_int ints[2] = {p->steps, p->add};
    char defines[40];
    size_t one = 1, plane = (size_t)(SIDE * STEP * p->steps), parts = (size_t)p->parts;
    size_t sizes[4] = {(PANEL + parts * plane) * 4, plane * 4, parts * plane * 2, parts * plane * 2};
    snprintf(defines, sizeof defines, "-DPARTS=%d -DASM=%d", p->parts, instructions);
    cr_assert_eq(ist_device_open(&(ist_device_options){0}, &d, &err), IST_OK, "%s", err.text);
    if (ist_device_facts(d)->type != IST_DEVICE_CPU || (instructions && !has_instructions(d))) {
        ist_device_close(&d);
        return false;
    }
    uint16_t *b = packed(p);
    const void *from[3] = {p->out, p->a, b};
    cr_assert_eq(ist_kernel_create(d, "probe/amx_product", "cpu/amx", defines, "product", &kernel, &err), IST_OK, "%s",
                 err.text);
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(ist_buffer_create(d, sizes[i], "operand", &bufs[i], &err), IST_OK, "%s", err.text);
        cr_assert_eq(clSetKernelArg(kernel, i, sizeof bufs[i], &bufs[i]), CL_SUCCESS);
        if (i < 3)
            cr_assert_eq(ist_write(d, setup, bufs[i], 0, sizes[i], from[i], true, "operand", &err), IST_OK, "%s",
                         err.text);
    }
    for (unsigned i = 0; i < 2; i++) cr_assert_eq(clSetKernelArg(kernel, 4 + i, sizeof ints[i], &ints[i]), CL_SUCCESS);
    cr_assert_eq(ist_enqueue(d, kernel, 1, &one, &one, "product", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, setup, bufs[0], 0, sizes[0], p->out, NULL, "sums", &err), IST_OK, "%s", err.text);
    ist_kernel_release(&kernel);
    for (int i = 0; i < 4; i++) ist_buffer_release(d, &bufs[i]);
    ist_device_close(&d);
    free(b);
    return true;
}

/* Parts add up to the float, exactly where there are three; each is the rest, rounded. */
static void check_parts(const product *p) {
    size_t plane = (size_t)(SIDE * STEP * p->steps);
    for (size_t i = 0; i < plane; i++) {
        float rest = p->a[i];
        size_t k = i % STEP, place = i - k + k % 16 * 2 + k / 16;
        for (int q = 0; q < p->parts; q++) {
            float part = p->out[PANEL + (size_t)q * plane + place];
            cr_assert_eq(part, rounded(rest, p->parts), "part %d of %.9g is %.9g", q, p->a[i], part);
            rest -= part;
        }
        if (p->parts == 3) cr_assert_eq(rest, 0, "%.9g leaves %.9g", p->a[i], rest);
    }
}

/* As exact as a chain of float products and sums: the worst error, in 2^-24 of the sum of magnitudes, is at most that
 * of the chain and one; in plain form, which rounds six times as often, three times that. */
static void check_sums(const product *p, const float *before, double times) {
    double worst = 0, chains = 0;
    for (int i = 0; i < PANEL; i++) {
        float chain = p->add ? before[i] : 0;
        double sum = chain, size = fabs(sum);
        for (int k = 0; k < p->steps * STEP; k++) {
            float x = p->a[i / SIDE * p->steps * STEP + k], y = p->b[k * SIDE + i % SIDE];
            if (p->parts == 1) x = rounded(x, 1), y = rounded(y, 1);
            sum += (double)x * y;
            size += fabs((double)x * y);
            chain = fmaf(x, y, chain);
        }
        double off = fabs(p->out[i] - sum) / size * 16777216, its = fabs(chain - sum) / size * 16777216;
        if (!(off <= worst)) worst = off;
        if (its > chains) chains = its;
    }
    cr_log_info("%d parts, %d steps: off by %.2f units, a chain of floats by %.2f", p->parts, p->steps, worst, chains);
    cr_expect(worst <= times * chains + 1, "%d parts, %d steps: off by %.2f units, a chain of floats by %.2f", p->parts,
              p->steps, worst, chains);
}

static void sums_and_parts(bool instructions) {
    static const struct {
        int parts, steps;
        bool add;
    } cases[] = {{3, 1, false}, {3, 3, true}, {3, MOST_STEPS, false}, {1, 1, true}, {1, 5, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        product p;
        float before[PANEL];
        begin(&p, cases[i].parts, cases[i].steps, cases[i].add);
        memcpy(before, p.out, sizeof before);
        if (!run(&p, instructions)) {
            end(&p);
            cr_skip_test("not on this device");
        }
        check_parts(&p);
        check_sums(&p, before, instructions ? 1 : 3);
        end(&p);
    }
}

/* Infinite and undefined operands give undefined sums in their row or column and nowhere else. Values down to 2^-100
 * keep their parts; the instructions take subnormal numbers and parts for zeros, so that less than 2^-126 is lost. */
static void special_values(bool instructions) {
    product p;
    begin(&p, 3, 1, false);
    p.a[3 * STEP + 5] = INFINITY;
    p.a[7 * STEP + 1] = NAN;
    p.b[9 * SIDE + 11] = -INFINITY;
    for (int k = 0; k < STEP; k++) {
        p.a[20 * STEP + k] = ldexpf(p.a[20 * STEP + k], -100);
        p.a[21 * STEP + k] = k ? 0 : FLT_MIN / 8;
    }
    if (!run(&p, instructions)) {
        end(&p);
        cr_skip_test("not on this device");
    }
    for (int i = 0; i < PANEL; i++) {
        int r = i / SIDE, c = i % SIDE;
        if (r == 3 || r == 7 || c == 11) {
            cr_expect(!isfinite(p.out[i]), "[%d][%d] is %g", r, c, p.out[i]);
            continue;
        }
        double sum = 0, size = 0;
        for (int k = 0; k < STEP; k++) {
            double term = (double)p.a[r * STEP + k] * p.b[k * SIDE + c];
            sum += term;
            size += fabs(term);
        }
        cr_expect(fabs(p.out[i] - sum) <= size * ldexp(1, -21) + ldexp(STEP, -126), "[%d][%d] is %g, want %g", r, c,
                  p.out[i], sum);
    }
    end(&p);
}

Test(device_amx, plain_form) {
    sums_and_parts(false);
}
Test(device_amx, instructions) {
    sums_and_parts(true);
}
Test(device_amx, special_values_in_plain_form) {
    special_values(false);
}
Test(device_amx, special_values_by_instructions) {
    special_values(true);
}
