/* bench_sweep [--device SPEC] [--size N] [--count N] [--decoder] CHECKPOINT: every dense convolution of a network, in
 * half storage, by every kernel variant and split that can do it and is not held for hopeless, the largest first, and
 * how far the heuristic's choice is from the fastest.
 *
 * A blocking kernel keeps the device busy while the launches are enqueued behind it, so that the time of a launch is
 * the device's alone, the gap between two launches included. Lines that begin with "C" are for programs: times,
 * images, height, width, channels in and out, kernel, stride, odd places, activation, variant, splits, microseconds. */
#include "variants/conv.h"
#include "variants/conv_args.h"
#include "support/model_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PROBLEMS = 400, TRIALS = 3, MAX_TIMES = 400 };

/* A convolution as its launch describes it. */
typedef struct problem {
    int n, h, w, ld, c0, cin, kh, kw, stride, top, left, oh, ow, y_ld, y_c0, cout, act, flags, y32, count;
} problem;

typedef struct timed {
    ist_variant_choice choice;
    double us;
} timed;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* The problem of a launch of ist_conv_record: its struct begins with shape and epilogue. */
static bool problem_of(const ist_launch *l, problem *q) {
    static const char *const ops[] = {"nvidia/conv_mma", "nvidia/conv_wgmma", "nvidia/conv_persistent",
                                      "nvidia/conv_resident", "nvidia/conv_direct"};
    bool known = false;
    for (unsigned i = 0; i < sizeof ops / sizeof ops[0]; i++) known = known || !strcmp(l->op, ops[i]);
    const ist_arg *a = &l->args[l->arg_count - 1];
    if (!known || a->kind != IST_ARG_STRUCT || a->v.s.bytes < sizeof(ist_conv_args)) return false;
    const ist_conv_args *arg = a->v.s.data;
    const ist_conv_shape *s = &arg->shape;
    *q = (problem){s->items,
                   s->x_h,
                   s->x_w,
                   s->x_ld,
                   s->x_c0,
                   s->x_c,
                   s->kh,
                   s->kw,
                   s->stride,
                   s->top,
                   s->left,
                   s->y_h,
                   s->y_w,
                   s->y_ld,
                   s->y_c0,
                   s->y_c,
                   arg->epi.act,
                   arg->epi.flags,
                   strstr(l->defines, "Y32") != NULL,
                   0};
    return true;
}

/* Whether two launches are the same problem but for the places of their slices. */
static bool same_problem(problem a, problem b) {
    bool aligned = (a.ld % 8 || a.c0 % 8) == (b.ld % 8 || b.c0 % 8);
    bool dense = (a.y_ld % 8 || a.y_c0 % 8) == (b.y_ld % 8 || b.y_c0 % 8);
    a.ld = b.ld, a.c0 = b.c0, a.y_ld = b.y_ld, a.y_c0 = b.y_c0, a.count = b.count;
    return aligned && dense && !memcmp(&a, &b, sizeof a);
}

static int collect(const ist_plan *p, problem *all) {
    int count = 0, launches = ist_plan_describe(p).launches;
    for (int i = 0; i < launches; i++) {
        problem q;
        if (!problem_of(ist_plan_launch_at(p, i), &q)) continue;
        int k = 0;
        while (k < count && !same_problem(q, all[k])) k++;
        if (k == count && count < MAX_PROBLEMS) all[count++] = q;
        if (k < count) all[k].count++;
    }
    return count;
}

static double flops_of(const problem *q) {
    return 2.0 * q->n * q->oh * q->ow * q->kh * q->kw * q->cin * q->cout;
}

static int largest_first(const void *a, const void *b) {
    const problem *x = a, *y = b;
    double first = flops_of(x) * x->count, second = flops_of(y) * y->count;
    return (first < second) - (first > second);
}

/* ---- the device kept busy ---- */

typedef struct blocker {
    cl_program program;
    cl_kernel kernel;
    cl_mem mem;
    double us; /* alone, with its wait */
} blocker;

static ist_status block(ist_device *d, blocker *b, ist_error *err) {
    size_t one = 1;
    IST_TRY(ist_enqueue(d, b->kernel, 1, &one, &one, "blocker", err));
    return ist_flush(d, (ist_frame_scope){0}, err);
}

static ist_status blocker_open(ist_device *d, blocker *b, ist_error *err) {
    static const char *source = "__kernel void spin(__global float *x, int n) {\n"
                                "    float a = x[0];\n"
                                "    for (int i = 0; i < n; i++) a = fma(a, 0.999f, 0.001f);\n"
                                "    x[0] = a;\n"
                                "}\n";
    int n = 90000;
    cl_device_id id;
    cl_context context = ist_device_context(d);
    b->program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    b->mem = clCreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, NULL);
    if (clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof id, &id, NULL) != CL_SUCCESS || !b->program || !b->mem ||
        clBuildProgram(b->program, 0, NULL, "", NULL, NULL) != CL_SUCCESS)
        return ist_fail(err, IST_E_BUILD, "the blocking kernel does not build");
    b->kernel = clCreateKernel(b->program, "spin", NULL);
    if (!b->kernel || clSetKernelArg(b->kernel, 0, sizeof b->mem, &b->mem) != CL_SUCCESS ||
        clSetKernelArg(b->kernel, 1, sizeof n, &n) != CL_SUCCESS)
        return ist_fail(err, IST_E_DEVICE, "the blocking kernel cannot be set up");
    b->us = 1e30;
    for (int i = 0; i < 20; i++) {
        double start = now_us();
        IST_TRY(block(d, b, err));
        IST_TRY(ist_finish(d, (ist_frame_scope){0}, "blocker", err));
        if (i > 2 && now_us() - start < b->us) b->us = now_us() - start;
    }
    return IST_OK;
}

static void blocker_close(blocker *b) {
    if (b->kernel) clReleaseKernel(b->kernel);
    if (b->program) clReleaseProgram(b->program);
    if (b->mem) clReleaseMemObject(b->mem);
}

/* ---- one candidate ---- */

static ist_tensor addend(ist_plan *p, const problem *q, ist_tensor y, int shrink, bool one) {
    return ist_plan_input(p, one ? 1 : q->n, y.h / shrink, y.w / shrink, q->cout, IST_ELEM_T);
}

/* Where `y` is the result and `p` the plan of its addends. */
static ist_conv_opts opts_of(ist_plan *p, const problem *q, ist_tensor y) {
    ist_conv_opts o = {.stride = q->stride, .top = q->top, .left = q->left, .epi.act = (ist_act)q->act};
    o.bottom = (q->oh - 1) * q->stride + q->kh - q->h - q->top;
    o.right = (q->ow - 1) * q->stride + q->kw - q->w - q->left;
    if (o.bottom < 0) o.bottom = 0;
    if (o.right < 0) o.right = 0;
    if (q->flags & 1) o.epi.add_before = addend(p, q, y, q->flags & 2 ? 2 : 1, q->flags & 4), o.epi.up2 = q->flags & 2;
    if (q->flags & 16) o.epi.add_after = addend(p, q, y, 1, q->flags & 32);
    return o;
}

/* The problem as a node without weights, of the tensors x and y. */
static ist_conv node_of(const problem *q, ist_tensor x, ist_tensor y, const ist_conv_opts *o) {
    return (ist_conv){
        .label = "sweep", .x = x, .y = y, .filter = {.out = q->cout, .in = q->cin, .kh = q->kh, .kw = q->kw}, .o = *o};
}

static void record(ist_plan *p, const problem *q, const float *weights, ist_variant_choice choice) {
    ist_tensor x = ist_plan_input(p, q->n, q->h, q->w, q->ld, IST_ELEM_T);
    ist_tensor y = ist_plan_input(p, q->n, q->oh, q->ow, q->y_ld, q->y32 ? IST_ELEM_F32 : IST_ELEM_T);
    y = ist_slice(y, q->y_c0 % q->y_ld, q->cout);
    ist_conv_opts o = opts_of(p, q, y);
    o.into = y;
    ist_conv node = node_of(q, ist_slice(x, q->c0 % q->ld, q->cin), y, &o);
    node.filter.w = weights;
    ist_emit_by(p, choice.variant, choice.way, &node);
}

/* Least microseconds of one launch; gives up after one trial when that is twice `enough`. */
static ist_status measure(ist_device *d, blocker *b, const problem *q, const float *weights, timed *t, double enough,
                          ist_error *err) {
    ist_plan *plan = NULL;
    ist_plan_options options = {.half = true};
    int repeats = 3;
    t->us = 1e30;
    ist_status st = ist_plan_begin(d, &options, &plan, err);
    if (!st) record(plan, q, weights, t->choice);
    if (!st) st = ist_plan_finish(plan, err);
    for (int i = 0; !st && i < TRIALS + 1; i++) {
        double start = now_us();
        st = block(d, b, err);
        for (int k = 0; !st && k < repeats; k++) st = ist_plan_replay(plan, err);
        if (!st) st = ist_finish(d, (ist_frame_scope){0}, "sweep", err);
        double us = (now_us() - start - b->us) / repeats;
        if (i == 0) {
            repeats = us > 200 ? 3 : 30;
            if (us > 3 * enough + 20) break;
            continue;
        }
        if (us < t->us) t->us = us;
        if (us > 2 * enough) break;
    }
    ist_plan_close(&plan);
    return st;
}

static int by_time(const void *a, const void *b) {
    const timed *x = a, *y = b;
    return (x->us > y->us) - (x->us < y->us);
}

static bool same(ist_variant_choice a, ist_variant_choice b) {
    return a.variant == b.variant && a.way == b.way;
}

static void report(const problem *q, timed *t, int count, timed chosen) {
    double flop = flops_of(q);
    qsort(t, (size_t)count, sizeof *t, by_time);
    printf("%2d x %4dx%-4d %4d/%-4d ->%5d/%-5d %dx%d/%d %8.2f GF  %s/%d %.2f us (%.2f)  best", q->count, q->h, q->w,
           q->cin, q->ld, q->cout, q->y_ld, q->kh, q->kw, q->stride, flop * 1e-9, chosen.choice.variant->name,
           chosen.choice.way, chosen.us, chosen.us / t[0].us);
    for (int i = 0; i < count && i < 4; i++)
        printf("  %s/%d %.2f", t[i].choice.variant->name, t[i].choice.way, t[i].us);
    printf("  %.0f GFLOP/s\n", flop / t[0].us * 1e-3);
    for (int i = 0; i < count; i++)
        printf("C %d %d %d %d %d %d %d %d %d %d %s %d %.2f\n", q->count, q->n, q->oh, q->ow, q->cin, q->cout, q->kh,
               q->stride, q->ld % 8 || q->c0 % 8, q->act, t[i].choice.variant->name, t[i].choice.way, t[i].us);
    fflush(stdout);
}

/* Their configuration is a tile. */
static bool of_matrix_instructions(const ist_variant *v) {
    return v->machine == IST_MACHINE_NVIDIA || v->machine == IST_MACHINE_MATRIX;
}

/* Adds count times the chosen and the fastest candidate's time to sum[0], sum[1]. `scratch` holds addends of the shape.
 */
static ist_status sweep(model_plan *m, ist_plan *scratch, blocker *b, const problem *q, double *sum, ist_error *err) {
    const double hopeless = 1.6; /* estimates this many times the choice's are not tried */
    timed t[MAX_TIMES], chosen = {0};
    int count = 0, taps = q->kh * q->kw;
    float *weights = calloc((size_t)q->cout * (size_t)q->cin * (size_t)taps, sizeof *weights);
    if (!weights) return ist_fail(err, IST_E_MEMORY, "out of memory for weights");
    for (size_t i = 0; i < (size_t)q->cout * (size_t)q->cin * (size_t)taps; i++)
        weights[i] = (float)(i * 2654435761u % 1000) / 10000 - 0.05f;
    ist_tensor y = {1, q->n, q->oh, q->ow, q->cout, q->y_ld, q->y_c0, q->y32 ? IST_ELEM_F32 : IST_ELEM_T};
    ist_conv_opts opts = opts_of(scratch, q, y);
    ist_conv whole = node_of(q, (ist_tensor){1, q->n, q->h, q->w, q->cin, q->ld, q->c0, IST_ELEM_T}, y, &opts);
    double best = 1e30;
    int units = ist_device_facts(m->device)->compute_units;
    ist_status st = IST_OK;
    ist_variant_choice choice = ist_variant_choose(m->plan, IST_NODE_CONV, &whole);
    double estimate = ist_variant_cost(m->plan, choice.variant, &whole, choice.way);
    int variants;
    const ist_variant *all = ist_variants_of(IST_NODE_CONV, &variants);
    for (int i = 0; i < variants && !st; i++) {
        const ist_variant *v = &all[i];
        if (!of_matrix_instructions(v) || !ist_variant_takes(m->plan, v, &whole)) continue;
        const ist_conv_tile *r = v->config;
        int bn = r->nv * r->vl, most = ist_variant_ways(m->plan, v, &whole);
        int groups = ((q->n * q->oh * q->ow + r->mr - 1) / r->mr) * ((q->cout + bn - 1) / bn);
        for (int s = 1; s <= most && !st && count < MAX_TIMES; s++) {
            bool sensible = (s == 1 || groups * s <= 3 * units) && s < 5;
            timed *one = &t[count];
            one->choice = (ist_variant_choice){v, s};
            sensible = sensible && ist_variant_cost(m->plan, v, &whole, s) <= hopeless * estimate;
            if (!sensible && !same(one->choice, choice)) continue;
            st = measure(m->device, b, q, weights, one, best, err);
            if (st || one->us > 1e29) continue;
            if (one->us < best) best = one->us;
            if (same(one->choice, choice)) chosen = *one;
            count++;
        }
    }
    if (!st && !chosen.choice.variant) {
        chosen.choice = choice;
        st = measure(m->device, b, q, weights, &chosen, 1e30, err);
    }
    if (!st && count) report(q, t, count, chosen);
    sum[0] += q->count * chosen.us;
    sum[1] += q->count * best;
    free(weights);
    return st;
}

int main(int argc, char **argv) {
    static problem problems[MAX_PROBLEMS];
    model_plan_options options;
    model_plan m = {0};
    blocker b = {0};
    ist_error err = {0};
    double sum[2] = {0};
    ist_plan *scratch = NULL;
    if (!model_plan_arguments(argc, argv, &options)) return 2;
    options.half = true;
    ist_status st = model_plan_open(&options, &m, &err);
    if (!st) st = blocker_open(m.device, &b, &err);
    if (!st) st = ist_plan_begin(m.device, &(ist_plan_options){.half = true}, &scratch, &err);
    int count = st ? 0 : collect(m.plan, problems);
    qsort(problems, (size_t)count, sizeof *problems, largest_first);
    if (!st) printf("%s: %d different convolutions; blocker %.1f us\n", m.what, count, b.us);
    for (int i = 0; i < count && !st; i++) st = sweep(&m, scratch, &b, &problems[i], sum, &err);
    if (!st) printf("all: chosen %.1f us, fastest %.1f us\n", sum[0], sum[1]);
    if (st) fprintf(stderr, "%s\n", err.text);
    blocker_close(&b);
    ist_plan_close(&scratch);
    model_plan_close(&m);
    return st ? 1 : 0;
}
