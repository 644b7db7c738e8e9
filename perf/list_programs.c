/* list_programs [--half] [--segmenter CHECKPOINT] DETECTOR FOLDER: the source of every program of a whole frame.
 *
 * FOLDER gets one NUMBER.cl per program, the text as it is compiled, and programs.txt, a line for each: file, op, isa,
 * options, kernels and number of launches, separated by tabs. ISTHMUS_CAPS claims and hides what another device has:
 * which kernel variants are chosen is then what that device would run, for as many compute units as the device at hand
 * has. On CPUs launches that would be one (core/series.c) are listed apart. */
#include "pipeline/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program {
    const ist_launch *first;
    char kernels[240]; /* separated by commas */
    int launches;
} program;

static bool same(const ist_launch *a, const ist_launch *b) {
    const char *isa_a = a->isa ? a->isa : "", *isa_b = b->isa ? b->isa : "";
    return !strcmp(a->op, b->op) && !strcmp(isa_a, isa_b) && !strcmp(a->defines, b->defines);
}

/* Whether the list, separated by commas, has the name. */
static bool listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, name, length)) return true;
    return false;
}

static int gather(const ist_plan *plan, program *programs) {
    int count = 0;
    for (int i = 0; i < ist_plan_describe(plan).launches; i++) {
        const ist_launch *l = ist_plan_launch_at(plan, i);
        int k = 0;
        while (k < count && !same(programs[k].first, l)) k++;
        if (k == count) programs[count++] = (program){.first = l};
        program *p = &programs[k];
        size_t used = strlen(p->kernels);
        if (!listed(p->kernels, l->kernel))
            snprintf(p->kernels + used, sizeof p->kernels - used, "%s%s", used ? "," : "", l->kernel);
        p->launches++;
    }
    return count;
}

static ist_status write_file(const char *folder, const char *name, const char *text, ist_error *err) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    if (file && fclose(file)) good = false;
    return good ? IST_OK : ist_fail(err, IST_E_IO, "cannot write %s", path);
}

static ist_status write_program(const char *folder, int number, const program *p, FILE *list, ist_error *err) {
    const ist_launch *l = p->first;
    ist_program_part part = {l->op, l->isa, l->defines};
    char name[32], *text = NULL;
    snprintf(name, sizeof name, "%03d.cl", number);
    IST_TRY(ist_program_text(&part, &text, err));
    ist_status status = write_file(folder, name, text, err);
    free(text);
    fprintf(list, "%s\t%s\t%s\t%s\t%s\t%d\n", name, l->op, l->isa ? l->isa : "", l->defines, p->kernels, p->launches);
    return status;
}

static ist_status write_all(const ist_plan *plan, const char *folder, ist_error *err) {
    char path[1200];
    snprintf(path, sizeof path, "%s/programs.txt", folder);
    program *programs = calloc((size_t)ist_plan_describe(plan).launches + 1, sizeof *programs);
    if (!programs) return ist_fail(err, IST_E_MEMORY, "out of memory");
    FILE *list = fopen(path, "w");
    ist_status status = list ? IST_OK : ist_fail(err, IST_E_IO, "cannot write %s", path);
    int count = gather(plan, programs);
    for (int i = 0; i < count && !status; i++) status = write_program(folder, i, &programs[i], list, err);
    if (list && fclose(list) && !status) status = ist_fail(err, IST_E_IO, "cannot write %s", path);
    free(programs);
    return status;
}

int main(int argc, char **argv) {
    ist_config config = {.input_size = 640,
                         .batch = 1,
                         .max_objects = 16,
                         .conf = 0.4f,
                         .frames_in_flight = 1,
                         .max_targets = 100,
                         .max_pixels = 1920 * 1080,
                         .match = IST_MATCH_TRACKS,
                         .precision = IST_PRECISION_FP32,
                         .cache_dir = "off"};
    const char *folder = NULL;
    ist_engine *engine = NULL;
    ist_error err = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--half"))
            config.precision = IST_PRECISION_FP16;
        else if (!strcmp(argv[i], "--segmenter") && i + 1 < argc)
            config.segmenter = argv[++i];
        else if (!config.detector)
            config.detector = argv[i];
        else
            folder = argv[i];
    }
    if (!config.detector || !folder) {
        fprintf(stderr, "usage: %s [--half] [--segmenter CHECKPOINT] DETECTOR FOLDER\n", argv[0]);
        return 2;
    }
    ist_status status = ist_engine_open_as(&config, IST_OPEN_APART, NULL, &engine, &err);
    if (!status) status = write_all(engine->plan, folder, &err);
    if (status) fprintf(stderr, "%s\n", err.text);
    ist_engine_close(&engine);
    return status ? 1 : 0;
}
