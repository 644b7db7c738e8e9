/* isa/amx against sums of products in double, in plain OpenCL everywhere and by its instructions where the processor
 * has them. */
#include "device/device.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, STEP = 32, MOST_STEPS = 20, PANEL = SIDE * STEP };

static float of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest, ties to even. */
static float rounded(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return isnan(f) ? f : of_bits((u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u);
}

static float random_value(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

typedef struct product {
    int steps;
    bool add;
    float *a, *b, *out; /* [32][32 steps], [32 steps][32]; sums [32][32], then a as rounded */
} product;

static void begin(product *p, int steps, bool add) {
    size_t count = (size_t)(SIDE * STEP * steps);
    uint32_t state = 7u * (uint32_t)steps + 1u;
    *p = (product){steps, add, calloc(count, sizeof(float)), calloc(count, sizeof(float)),
                   calloc(PANEL + count, sizeof(float))};
    cr_assert(p->a && p->b && p->out);
    for (size_t i = 0; i < count; i++) p->a[i] = random_value(&state), p->b[i] = random_value(&state);
    for (int i = 0; i < PANEL; i++) p->out[i] = random_value(&state);
}

static void end(product *p) {
    free(p->a);
    free(p->b);
    free(p->out);
}

/* b as [step][half of the columns][pair][16] of pairs. */
static uint16_t *packed(const product *p) {
    uint16_t *to = calloc((size_t)p->steps * PANEL, sizeof *to);
    cr_assert(to);
    for (int k = 0; k < p->steps * STEP; k++)
        for (int c = 0; c < SIDE; c++) {
            float h = rounded(p->b[k * SIDE + c]);
            uint32_t u;
            memcpy(&u, &h, sizeof u);
            to[k / STEP * PANEL + c / 16 * 512 + k % STEP / 2 * 32 + c % 16 * 2 + k % 2] = (uint16_t)(u >> 16);
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
    size_t one = 1, count = (size_t)(SIDE * STEP * p->steps);
    size_t sizes[4] = {(PANEL + count) * 4, count * 4, count * 2, count * 2};
    const char *defines = instructions ? "-DASM=1" : "-DASM=0";
    cr_assert_eq(ist_device_open(&(ist_device_options){0}, &d, &err), IST_OK, "%s", err.text);
    if (ist_device_facts(d)->type != IST_DEVICE_CPU || (instructions && !has_instructions(d))) {
        ist_device_close(&d);
        return false;
    }
    uint16_t *b = packed(p);
    const void *from[3] = {p->out, p->a, b};
    cr_assert_eq(ist_kernel_create(d, "probe/amx_product", "isa/bf16+isa/amx", defines, "product", &kernel, &err),
                 IST_OK, "%s", err.text);
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

static void check_rounding(const product *p) {
    for (int i = 0; i < SIDE * STEP * p->steps; i++)
        cr_assert_eq(p->out[PANEL + i], rounded(p->a[i]), "%.9g becomes %.9g", p->a[i], p->out[PANEL + i]);
}

/* As exact as a chain of float products and sums: the worst error, in 2^-24 of the sum of magnitudes, is at most that
 * of the chain and one. */
static void check_sums(const product *p, const float *before) {
    double worst = 0, chains = 0;
    for (int i = 0; i < PANEL; i++) {
        float chain = p->add ? before[i] : 0;
        double sum = chain, size = fabs(sum);
        for (int k = 0; k < p->steps * STEP; k++) {
            float x = rounded(p->a[i / SIDE * p->steps * STEP + k]), y = rounded(p->b[k * SIDE + i % SIDE]);
            sum += (double)x * y;
            size += fabs((double)x * y);
            chain = fmaf(x, y, chain);
        }
        double off = fabs(p->out[i] - sum) / size * 16777216, its = fabs(chain - sum) / size * 16777216;
        if (!(off <= worst)) worst = off;
        if (its > chains) chains = its;
    }
    cr_log_info("%d steps: off by %.2f units, a chain of floats by %.2f", p->steps, worst, chains);
    cr_expect(worst <= chains + 1, "%d steps: off by %.2f units, a chain of floats by %.2f", p->steps, worst, chains);
}

static void sums_and_rounding(bool instructions) {
    static const struct {
        int steps;
        bool add;
    } cases[] = {{1, false}, {1, true}, {3, true}, {5, false}, {MOST_STEPS, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        product p;
        float before[PANEL];
        begin(&p, cases[i].steps, cases[i].add);
        memcpy(before, p.out, sizeof before);
        if (!run(&p, instructions)) {
            end(&p);
            cr_skip_test("not on this device");
        }
        check_rounding(&p);
        check_sums(&p, before);
        end(&p);
    }
}

/* Infinite and undefined operands give what they give in float, in their row or column and nowhere else. Values down to
 * 2^-100 are like others; the instructions take subnormal numbers for zeros, so that less than 2^-126 is lost. */
static void special_values(bool instructions) {
    product p;
    begin(&p, 1, false);
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
        double sum = 0, size = 0;
        for (int k = 0; k < STEP; k++) {
            double term = (double)rounded(p.a[r * STEP + k]) * rounded(p.b[k * SIDE + c]);
            sum += term;
            size += fabs(term);
        }
        bool near = fabs(p.out[i] - sum) <= size * ldexp(1, -21) + ldexp(STEP, -126);
        bool same = isnan(sum) ? isnan(p.out[i]) : isinf(sum) ? p.out[i] == sum : near;
        cr_expect(same, "[%d][%d] is %g, want %g", r, c, p.out[i], sum);
    }
    end(&p);
}

Test(device_amx, plain_form) {
    sums_and_rounding(false);
}
Test(device_amx, instructions) {
    sums_and_rounding(true);
}
Test(device_amx, special_values_in_plain_form) {
    special_values(false);
}
Test(device_amx, special_values_by_instructions) {
    special_values(true);
}
