/* What `isthmus profile` shows: a flame of stages and tables, a JSON object, a trace. */
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAME_WIDTH = 56, NAME_WIDTH = 32, FLAME_KERNELS = 4 /* most kernels shown below a stage */ };

/* ---- text ---- */

/* A bar from `from` to `to` of `whole`, at its place in the line. */
static void print_bar(double from, double to, double whole, char mark) {
    char bar[FLAME_WIDTH + 1];
    int first = whole > 0 ? (int)(from / whole * FLAME_WIDTH) : 0,
        last = whole > 0 ? (int)(to / whole * FLAME_WIDTH) : 0;
    if (first > FLAME_WIDTH - 1) first = FLAME_WIDTH - 1;
    if (last <= first) last = first + 1; /* what is there is seen */
    for (int i = 0; i < FLAME_WIDTH; i++) bar[i] = i < first || i >= last ? ' ' : mark;
    bar[FLAME_WIDTH] = '\0';
    printf("|%s|\n", bar);
}

static void print_flame_row(const profile *p, const char *name, int indent, double from, double ms, char mark) {
    printf("%*s%-*.*s %9.3f ms %5.1f %% ", indent, "", NAME_WIDTH - indent, NAME_WIDTH - indent, name, ms,
           p->total_ms > 0 ? 100 * ms / p->total_ms : 0);
    print_bar(from, from + ms, p->total_ms, mark);
}

/* Time of one entry point within one stage. */
static double kernel_in_stage(const profile *p, const char *stage, const char *op, const char *kernel) {
    double ms = 0;
    for (int i = 0; i < p->launches; i++) {
        const ist_launch_time *l = &p->times[i];
        if (!strcmp(l->stage, stage) && !strcmp(l->op, op) && !strcmp(l->kernel, kernel)) ms += l->ms;
    }
    return ms;
}

/* The slowest entry points of a stage, side by side under its bar; those below 1 % of the frame are left out. */
static void print_stage_kernels(const profile *p, const measure_sum *stage, double from) {
    double below = 1e300;
    for (int n = 0; n < FLAME_KERNELS; n++) {
        const ist_launch_time *best = NULL;
        double most = 0;
        for (int i = 0; i < p->launches; i++) {
            if (strcmp(p->times[i].stage, stage->name)) continue;
            double ms = kernel_in_stage(p, stage->name, p->times[i].op, p->times[i].kernel);
            if (ms < below && ms > most) most = ms, best = &p->times[i];
        }
        if (!best || most < 0.01 * p->total_ms) return;
        char name[160];
        snprintf(name, sizeof name, "%s %s", best->op, best->kernel);
        print_flame_row(p, name, 2, from, most, '-');
        from += most;
        below = most;
    }
}

static void print_flame(const profile *p) {
    double from = 0;
    print_flame_row(p, "frame", 0, 0, p->total_ms, '=');
    for (int i = 0; i < p->stage_count; i++) {
        print_flame_row(p, p->stages[i].name, 0, from, p->stages[i].ms, '#');
        print_stage_kernels(p, &p->stages[i], from);
        from += p->stages[i].ms;
    }
}

static void print_rate(double amount, double ms) {
    if (amount > 0 && ms > 0)
        printf(" %9.1f", amount / ms * 1e-6);
    else
        printf(" %9s", "-");
}

static void print_row(const profile *p, double ms, double flops, double bytes) {
    double share = profile_share(p, ms, flops, bytes);
    printf("%9.3f %6.1f", ms, p->total_ms > 0 ? 100 * ms / p->total_ms : 0);
    print_rate(flops, ms);
    print_rate(bytes, ms);
    if (share > 0)
        printf(" %7.1f", 100 * share);
    else
        printf(" %7s", "-");
}

static void print_columns(const char *count, const char *name) {
    printf("\n%9s %6s %9s %9s %7s%s  %s\n", "ms", "%", "GFLOP/s", "GB/s", "% peak", count, name);
}

void profile_print(const profile *p) {
    measure_print_heading(p->m);
    printf("peak        %.1f GFLOP/s of multiply-adds, %.1f GB/s of copying, measured now\n", p->peak.gflops,
           p->peak.gbytes_per_second);
    printf("frame       %.3f ms; %d launches, %.3f ms together\n\n", p->frame_ms, p->launches,
           p->total_ms);
    print_flame(p);
    print_columns("   count", "kernel");
    for (int i = 0; i < p->kernel_count; i++) {
        const measure_sum *k = &p->kernels[i];
        char name[400];
        profile_kernel_name(k->first, name, sizeof name);
        print_row(p, k->ms, k->flops, k->bytes);
        printf(" %7d  %s\n", k->launches, name);
    }
    print_columns("", "launch");
    for (int i = 0; i < p->launches; i++) {
        const ist_launch_time *l = &p->times[i];
        print_row(p, l->ms, l->flops, l->bytes);
        printf("  %s: %s\n", l->stage, l->label);
    }
}

/* ---- JSON ---- */

static void put_rates(const profile *p, double ms, double flops, double bytes, ist_text *out) {
    measure_put_number(out, "ms", ms);
    ist_text_put(out, ",");
    measure_put_number(out, "gflops", ms > 0 ? flops / ms * 1e-6 : 0);
    ist_text_put(out, ",");
    measure_put_number(out, "gbytes_per_s", ms > 0 ? bytes / ms * 1e-6 : 0);
    ist_text_put(out, ",");
    measure_put_number(out, "peak_share", profile_share(p, ms, flops, bytes));
}

static void put_kernel(const ist_launch_time *l, ist_text *out) {
    char name[400];
    profile_kernel_name(l, name, sizeof name);
    ist_text_put(out, ",");
    measure_put_name(out, "kernel", name);
}

ist_status profile_json(const profile *p, ist_text *out, ist_error *err) {
    const ist_engine_info *e = &p->m->job.engine_info;
    ist_text_put(out, "{");
    measure_put_name(out, "device", e->device.name);
    ist_text_put(out, ",");
    measure_put_name(out, "driver", e->device.driver);
    ist_text_put(out, ",");
    measure_put_name(out, "precision", measure_precision(p->m));
    ist_text_put(out, ",");
    measure_put_name(out, "detector", e->detector);
    ist_text_put(out, ",");
    measure_put_name(out, "segmenter", e->segmenter);
    ist_text_printf(out, ",\"batch\":%d,\"frames\":%d,\"peak\":{", p->m->options.batch, p->m->frames);
    measure_put_number(out, "gflops", p->peak.gflops);
    ist_text_put(out, ",");
    measure_put_number(out, "gbytes_per_s", p->peak.gbytes_per_second);
    ist_text_put(out, "},");
    measure_put_number(out, "frame_ms", p->frame_ms);
    ist_text_put(out, ",");
    measure_put_stages(out, p->stages, p->stage_count);
    ist_text_put(out, ",\n\"kernels\":[");
    for (int i = 0; i < p->kernel_count; i++) {
        const measure_sum *k = &p->kernels[i];
        ist_text_put(out, i ? ",\n{" : "\n{");
        put_rates(p, k->ms, k->flops, k->bytes, out);
        ist_text_printf(out, ",\"launches\":%d", k->launches);
        put_kernel(k->first, out);
        ist_text_put(out, "}");
    }
    ist_text_put(out, "],\n\"launches\":[");
    for (int i = 0; i < p->launches; i++) {
        const ist_launch_time *l = &p->times[i];
        ist_text_put(out, i ? ",\n{" : "\n{");
        put_rates(p, l->ms, l->flops, l->bytes, out);
        ist_text_put(out, ",");
        measure_put_name(out, "stage", l->stage);
        ist_text_put(out, ",");
        measure_put_name(out, "label", l->label);
        put_kernel(l, out);
        ist_text_put(out, "}");
    }
    ist_text_put(out, "]}\n");
    return ist_text_status(out, err);
}

/* ---- trace ---- */

/* A span from `at` ms; the caller adds arguments and closes two braces. */
static void put_span(ist_text *out, int row, const char *name, double at, double ms) {
    ist_text_printf(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", row, at * 1e3,
                    ms * 1e3);
    ist_text_json_string(out, name);
    ist_text_put(out, ",\"args\":{");
}

static void put_row_name(ist_text *out, int row, const char *name) {
    ist_text_printf(out, "%s{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                    row > 1 ? ",\n" : "\n", row, name);
}

ist_status profile_trace(const profile *p, ist_text *out, ist_error *err) {
    double at = 0, begun = 0;
    ist_text_put(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_row_name(out, 1, "stages");
    put_row_name(out, 2, "launches");
    for (int i = 0; i < p->launches; i++) {
        const ist_launch_time *l = &p->times[i];
        put_span(out, 2, l->label, at, l->ms);
        put_rates(p, l->ms, l->flops, l->bytes, out);
        put_kernel(l, out);
        ist_text_put(out, "}}");
        at += l->ms;
        if (i + 1 < p->launches && !strcmp(l->stage, p->times[i + 1].stage)) continue;
        put_span(out, 1, l->stage, begun, at - begun);
        ist_text_put(out, "}}");
        begun = at;
    }
    ist_text_put(out, "\n]}\n");
    return ist_text_status(out, err);
}
