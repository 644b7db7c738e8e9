/* bench --scope file_to_file: predict's own run over copies of the generated frame, with the engine open. */
#include "bench.h"

#include "own_folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A folder of our own: in/NNNNNNN.png are names of one file, results go to out. */
typedef struct bench_folder {
    char root[512], in[544], out[544];
} bench_folder;

static int cannot(const char *what, const char *path) {
    return cli_fail(CLI_FAILED, "cannot make %s %s: %s", what, path, strerror(errno));
}

static int make_folder(bench_folder *f) {
    int code = own_folder_make("bench", f->root, sizeof f->root);
    if (code) return code;
    snprintf(f->in, sizeof f->in, "%s/in", f->root);
    snprintf(f->out, sizeof f->out, "%s/out", f->root);
    return mkdir(f->in, 0777) ? cannot("the folder", f->in) : CLI_SUCCESS;
}

static int make_inputs(const measure *m, const bench_folder *f, int count) {
    const char *first = "0000000.png"; /* links lie beside it and name it so: TMPDIR may be a relative path */
    char name[600];
    ist_error err;
    snprintf(name, sizeof name, "%s/%s", f->in, first);
    if (ist_png_write(name, &m->frame, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    for (int i = 1; i < count; i++) {
        snprintf(name, sizeof name, "%s/%07d.png", f->in, i);
        if (symlink(first, name)) return cannot("the file", name);
    }
    return CLI_SUCCESS;
}

/* predict over the first `count` of the inputs; milliseconds. 0 or the exit code. */
static int run(const measure *m, const bench_folder *f, int count, double *ms) {
    predict_options o = m->options;
    predict_job job = {.options = &o,
                       .engine = m->job.engine,
                       .engine_info = m->job.engine_info,
                       .temporary = true,
                       .interrupted = m->job.interrupted};
    char *source = (char *)f->in;
    o.output = f->out;
    o.limit = count;
    o.first_source = 0;
    o.save = PREDICT_SAVE_JSON | PREDICT_SAVE_NDJSON | PREDICT_SAVE_OVERLAY | (o.masks ? PREDICT_SAVE_MASKS : 0u);
    struct timespec start, end;
    int code = predict_list_sources(&job, 1, &source);
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!code) code = predict_execute(&job);
    clock_gettime(CLOCK_MONOTONIC, &end);
    *ms = 1e3 * (double)(end.tv_sec - start.tv_sec) + 1e-6 * (double)(end.tv_nsec - start.tv_nsec);
    job.engine = NULL; /* stays open */
    predict_job_free(&job);
    return code;
}

int bench_files(measure *m, bench_result *r) {
    bench_folder f;
    double ms = 0;
    predict_catch_interrupts(&m->job); /* so that the folder goes away then too */
    int code = make_folder(&f), batch = m->options.batch;
    if (!code) code = make_inputs(m, &f, r->frames);
    for (int i = 0; i < m->warmup && !code; i += batch) code = run(m, &f, batch, &ms);
    for (int i = 0; i < r->count && !code; i++) code = run(m, &f, batch, &r->ms[i]);
    if (!code) code = run(m, &f, r->frames, &ms);
    if (!code) r->fps = ms > 0 ? 1e3 * r->frames / ms : 0;
    own_folder_remove(f.root, 2); /* in, out, and out's own */
    return code;
}
