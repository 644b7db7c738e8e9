/* isthmus devices: the flat list of OpenCL devices that --device chooses from, each opened and probed, so that what is
 * said about a device has been seen on it, and the kernel variants that a frame would take there. */
#include "predict.h"

#include "device/device.h"
#include "io/text.h"
#include "pipeline/choice.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_JSON = 256 };

#define X(id, letter, name, value, help) {name, OPTION_##id, value, help},
const cli_option cmd_devices_options[] = {{"json", OPTION_JSON, NULL, "print a JSON array instead of a table"},
                                          PREDICT_MODEL_OPTIONS(X)
                                              PREDICT_BATCH_OPTION(X, "frames"){NULL, 0, NULL, NULL}};
#undef X

static const char *type_name(ist_device_type type) {
    return type == IST_DEVICE_CPU ? "cpu" : type == IST_DEVICE_GPU ? "gpu" : "other";
}

static void put_string(ist_text *out, const char *key, const char *value) {
    ist_text_printf(out, ",\"%s\":", key);
    ist_text_json_string(out, value);
}

/* What was seen of a device. */
typedef struct seen {
    unsigned caps;     /* ist_cap bits; choice.caps where there is a choice */
    unsigned deadly;   /* those whose probes its driver did not survive */
    char problem[500]; /* set when the device does not open */
    bool chosen;
    ist_choice choice;
    ist_error no_choice; /* why there is none; code IST_OK when none was asked for */
} seen;

/* `frame` NULL: nothing is known that a frame could be recorded from. */
static void look(const ist_device_info *info, const ist_config *frame, seen *s) {
    char spec[16];
    ist_device *device = NULL;
    ist_error err;
    snprintf(spec, sizeof spec, "%d", info->index);
    if (frame) {
        ist_config config = *frame;
        config.device = spec;
        s->chosen = !ist_choice_make(&config, &s->choice, &s->no_choice);
        s->caps = s->choice.caps;
        s->deadly = s->choice.deadly;
        if (s->chosen) return;
    }
    ist_device_options open = {.spec = spec};
    if (ist_device_open(&open, &device, &err))
        snprintf(s->problem, sizeof s->problem, "%s", err.text);
    else {
        s->caps = ist_device_caps(device);
        s->deadly = ist_device_deadly(device);
    }
    ist_device_close(&device);
}

/* ---- JSON ---- */

static void put_caps(ist_text *out, const char *key, unsigned caps) {
    const char *comma = "";
    ist_text_printf(out, ",\"%s\":[", key);
    for (int bit = 0; bit < IST_CAP_COUNT; bit++) {
        if (!(caps >> bit & 1)) continue;
        ist_text_put(out, comma);
        ist_text_json_string(out, ist_cap_name(bit));
        comma = ",";
    }
    ist_text_put(out, "]");
}

static void put_variant(ist_text *out, const ist_variant_use *u) {
    ist_text_printf(out, "{\"launches\":%d", u->launches);
    put_string(out, "node", u->node);
    put_string(out, "machine", u->machine);
    put_string(out, "row", u->variant);
    put_string(out, "op", u->op);
    put_string(out, "isa", u->isa);
    put_string(out, "defines", u->defines);
    put_caps(out, "because", u->found);
    put_caps(out, "missing", u->missing);
    ist_text_printf(out, ",\"tuned\":%s}", u->tuned ? "true" : "false");
}

static void put_choice(ist_text *out, const ist_choice *c) {
    put_string(out, "precision", predict_precision_name(c->precision));
    put_string(out, "detector", c->detector);
    put_string(out, "segmenter", c->segmenter);
    ist_text_printf(out, ",\"launches\":%d", c->launches);
    put_caps(out, "needed", c->needed);
    ist_text_put(out, ",\"rows\":[");
    for (int i = 0; i < c->count; i++) {
        ist_text_put(out, i ? ",\n  " : "\n  ");
        put_variant(out, &c->uses[i]);
    }
    ist_text_put(out, "]");
}

static void put_device(ist_text *out, const ist_device_info *d, const seen *s) {
    ist_text_printf(out, "{\"index\":%d,\"platform\":%d,\"device\":%d,\"type\":\"%s\",\"default\":%s", d->index,
                    d->platform, d->device, type_name(d->type), d->is_default ? "true" : "false");
    put_string(out, "name", d->name);
    put_string(out, "vendor", d->vendor);
    put_string(out, "platform_name", d->platform_name);
    put_string(out, "driver", d->driver);
    put_string(out, "version", d->version);
    put_string(out, "uuid", d->uuid);
    ist_text_printf(out, ",\"compute_units\":%d,\"global_bytes\":%llu,\"max_alloc_bytes\":%llu", d->compute_units,
                    (unsigned long long)d->global_bytes, (unsigned long long)d->max_alloc_bytes);
    put_caps(out, "capabilities", s->caps);
    put_caps(out, "deadly", s->deadly);
    if (*s->problem) put_string(out, "problem", s->problem);
    if (s->chosen)
        put_choice(out, &s->choice);
    else if (s->no_choice.code && !*s->problem)
        put_string(out, "rows_problem", s->no_choice.text);
    ist_text_put(out, "}");
}

static int print_json(const ist_device_info *list, const seen *s, int count) {
    ist_text out = {0};
    ist_text_put(&out, "[");
    for (int i = 0; i < count; i++) {
        ist_text_put(&out, i ? ",\n" : "\n");
        put_device(&out, &list[i], &s[i]);
    }
    ist_text_put(&out, count ? "\n]\n" : "]\n");
    ist_error err;
    int code = CLI_SUCCESS;
    if (ist_text_status(&out, &err))
        code = cli_fail(CLI_FAILED, "%s", err.text);
    else
        fputs(out.data, stdout);
    ist_text_free(&out);
    return code;
}

/* ---- table ---- */

static void print_caps(const char *before, unsigned caps) {
    for (int bit = 0; bit < IST_CAP_COUNT; bit++)
        if (caps >> bit & 1) printf("%s%s", before, ist_cap_name(bit));
}

/* The kind of node and the variant of its machine: "conv cpu/cpu_6x64". */
static void name_variant(const ist_variant_use *u, char *out, size_t size) {
    snprintf(out, size, "%s %s/%s", u->node, u->machine, u->variant);
}

static bool same_variant(const ist_variant_use *a, const ist_variant_use *b) {
    return !strcmp(a->op, b->op) && !strcmp(a->variant, b->variant) && !strcmp(a->machine, b->machine) &&
           !strcmp(a->node, b->node);
}

/* The programs of a variant, which differ in their build options, as one line; nothing for those behind its first. */
static void print_variant(const ist_choice *c, int first) {
    ist_variant_use sum = c->uses[first];
    char name[96];
    for (int i = 0; i < first; i++)
        if (same_variant(&c->uses[i], &sum)) return;
    for (int i = first + 1; i < c->count; i++) {
        const ist_variant_use *u = &c->uses[i];
        if (!same_variant(u, &sum)) continue;
        sum.launches += u->launches;
        sum.found |= u->found;
        sum.missing |= u->missing;
        sum.tuned |= u->tuned;
    }
    name_variant(&sum, name, sizeof name);
    printf("%14d  %-36s  %-22s", sum.launches, name, sum.op);
    print_caps(" ", sum.found);
    print_caps(" no:", sum.missing);
    puts(sum.tuned ? " tuned" : sum.found | sum.missing ? "" : " -");
}

static void print_choice(const ist_choice *c) {
    printf("%10s %s%s%s in %s, %d launches", "", c->detector, *c->segmenter ? " and " : "", c->segmenter,
           predict_precision_name(c->precision), c->launches);
    if (c->needed) print_caps(" needs:", c->needed);
    printf("\n%14s  %-36s  %-22s %s\n", "LAUNCHES", "VARIANT", "KERNELS", "BECAUSE OF");
    for (int i = 0; i < c->count; i++) print_variant(c, i);
}

static void print_seen(seen *s) {
    printf("%10s", "");
    print_caps(" ", s->caps);
    print_caps(" deadly:", s->deadly);
    if (*s->problem) printf(" unusable: %s", cli_printable(s->problem));
    printf("\n");
    if (s->chosen)
        print_choice(&s->choice);
    else if (s->no_choice.code && !*s->problem)
        printf("%10s no variants: %s\n", "", cli_printable(s->no_choice.text));
}

static void print_table(const ist_device_info *list, seen *s, int count) {
    bool chosen = false, deadly = false;
    printf("  %-5s %-4s %5s %9s  %s\n", "INDEX", "TYPE", "UNITS", "MEMORY", "NAME");
    for (int i = 0; i < count; i++) {
        const ist_device_info *d = &list[i];
        printf("%c %-5d %-4s %5d %5.1f GiB  %s (%s, driver %s)\n", d->is_default ? '*' : ' ', d->index,
               type_name(d->type), d->compute_units, (double)d->global_bytes / (1 << 30), d->name, d->platform_name,
               d->driver);
        print_seen(&s[i]);
        chosen |= s[i].chosen;
        deadly |= s[i].deadly != 0;
    }
    printf("* is used when --device and ISTHMUS_DEVICE say nothing\n");
    if (deadly) printf("deadly: the driver did not survive the probe of this capability, which is not used\n");
    if (chosen)
        printf("BECAUSE OF: capabilities without which (no:X: with which) fewer launches would take the variant;\n"
               "tuned: a tuning record names it; -: none of that changes it\n");
}

/* ---- the command ---- */

static int parse(int argc, char **argv, predict_options *o, bool *json, bool *stop) {
    const char *value;
    int id, code = CLI_SUCCESS;
    *o = (predict_options){.command = "devices", .masks = true, .max_objects = 16, .batch = 1};
    while (!code && (id = cli_next("devices", cmd_devices_options, argc, argv, &value, &code)) != CLI_END) {
        bool taken;
        *stop = id == CLI_STOP;
        if (*stop) return code;
        code = predict_take_model_option(id, value, o, &taken);
        if (id == OPTION_JSON) *json = true;
    }
    if (!code && optind < argc) code = cli_usage("devices", "unexpected argument '%s'", argv[optind]);
    if (!code && !o->masks && o->segmenter)
        code = cli_usage("devices", "--no-masks and --segmenter exclude each other");
    *stop = code != CLI_SUCCESS;
    return code;
}

/* A frame of the options, for *config; false when there is none, and *code when that ends the program: a list of
 * devices needs no checkpoint, unless one was named. */
static bool find_frame(predict_options *o, ist_config *config, int *code) {
    bool named = o->detector || o->segmenter;
    int *classes;
    int missing = predict_find_checkpoints(o);
    if (missing && named) *code = missing;
    if (missing && !named) cli_note("without a checkpoint the devices are listed without their kernel variants");
    if (missing) return false;
    predict_job job = {.options = o};
    return !predict_configure(&job, config, &classes);
}

/* Looks at all devices; 0 or the exit code: what is wrong with a checkpoint that was named is no device's fault. */
static int look_at_all(const ist_device_info *list, seen *s, int count, predict_options *o) {
    bool named = o->detector || o->segmenter;
    ist_config config;
    int code = CLI_SUCCESS;
    bool frame = count && find_frame(o, &config, &code);
    for (int i = 0; i < count && !code; i++) {
        look(&list[i], frame ? &config : NULL, &s[i]);
        int model = cli_model_exit_code(s[i].no_choice.code);
        if (named && !s[i].chosen && model == CLI_BAD_MODEL) code = cli_fail(model, "%s", s[i].no_choice.text);
    }
    return code;
}

static int fail_without_device(void) {
    char why[320];
    if (ist_driver_problem(why, sizeof why))
        return cli_fail(CLI_NO_DEVICE, "there is no OpenCL device: a driver does not load: %s", why);
    return cli_fail(CLI_NO_DEVICE, "there is no OpenCL device; a CPU becomes one with PoCL "
                                   "(Debian, Ubuntu: apt install pocl-opencl-icd), a GPU with its vendor's driver");
}

/* Which device opens by default, where that is not the one that the list, which opens none, says. */
static void correct_default(ist_device_info *list, const seen *s, int count) {
    ist_device *device = NULL;
    ist_error err;
    int i = 0;
    while (i < count && !list[i].is_default) i++;
    if (i == count || !*s[i].problem || ist_device_open(NULL, &device, &err)) return;
    int opened = ist_device_facts(device)->index;
    ist_device_close(&device);
    for (int k = 0; k < count; k++) list[k].is_default = list[k].index == opened;
}

static int list_devices(predict_options *o, bool json) {
    ist_error err;
    int count = 0, code;
    if (ist_devices(NULL, 0, &count, &err)) return cli_fail(cli_exit_code(err.code), "%s", err.text);
    ist_device_info *list = calloc(count > 0 ? (size_t)count : 1, sizeof *list);
    seen *s = calloc(count > 0 ? (size_t)count : 1, sizeof *s);
    int capacity = count;
    if (!list || !s)
        code = cli_fail(CLI_FAILED, "out of memory for %d devices", count);
    else if (ist_devices(list, capacity, &count, &err))
        code = cli_fail(cli_exit_code(err.code), "%s", err.text);
    else {
        if (count > capacity) count = capacity;
        code = look_at_all(list, s, count, o);
        correct_default(list, s, count);
        if (!code && json) code = print_json(list, s, count);
        if (!code && !json && count) print_table(list, s, count);
        for (int i = 0; i < count; i++) ist_choice_free(&s[i].choice);
        if (!code && !count) code = fail_without_device();
    }
    free(s);
    free(list);
    return code;
}

int cmd_devices(int argc, char **argv) {
    predict_options options;
    bool json = false, stop = false;
    int code = parse(argc, argv, &options, &json, &stop);
    if (!stop) code = list_devices(&options, json);
    predict_options_free(&options);
    return code;
}
