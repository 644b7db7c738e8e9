/* isthmus verify: whether this device, in this precision, computes what the reference does.
 *
 * The reference is fp32 on the CPU where OpenCL has one that is not what is tested; else fp32 on the tested device with
 * the kernels that any device can run. Both engines see the same images; nothing is written. */
#include "verify.h"

#include "device/device.h"
#include "pipeline/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verification {
    predict_options options;
    predict_job job;
    verify_side tested, reference;
    verify_sums sums;
} verification;

/* ---- engines ---- */

static ist_status open_side(verify_side *side, const ist_config *config, ist_error *err) {
    IST_TRY(ist_engine_open_kept(config, &side->engine, err));
    return ist_engine_describe(side->engine, &side->info, err);
}

/* Index of the first CPU that can be used in *index, or -1. What is short for it now is no reason for another
 * reference. */
static ist_status first_cpu(int *index, ist_error *err) {
    ist_device *device = NULL;
    ist_device_options options = {.spec = "cpu"};
    ist_status status = ist_device_open(&options, &device, err);
    *index = status ? -1 : ist_device_facts(device)->index;
    ist_device_close(&device);
    return status == IST_E_MEMORY ? status : IST_OK;
}

/* What a row of kernels can ask for beyond what every device must have. */
static ist_status hide_special_rows(ist_text *list, ist_error *err) {
    unsigned common = IST_CAP_VEC16 | IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_HALF_STORAGE | IST_CAP_ATOMICS |
                      IST_CAP_INT64 | IST_CAP_FP64 | IST_CAP_LONG_LOOPS | IST_CAP_LOOP_BODIES;
    for (int bit = 0; bit < IST_CAP_COUNT; bit++)
        if (!(common >> bit & 1)) ist_text_printf(list, "%s-%s", list->length ? "," : "", ist_cap_name(bit));
    return ist_text_status(list, err);
}

/* An engine on the tested device that has only the capabilities that portable kernels need. */
static ist_status open_portable(verify_side *side, const ist_config *config, ist_error *err) {
    const char *before = getenv("ISTHMUS_CAPS");
    ist_text hidden = {0};
    if (before && *before) ist_text_printf(&hidden, "%s", before);
    ist_status status = hide_special_rows(&hidden, err);
    char *saved = before ? strdup(before) : NULL;
    if (!status && before && !saved) status = ist_fail(err, IST_E_MEMORY, "out of memory");
    if (!status && setenv("ISTHMUS_CAPS", hidden.data, 1)) status = ist_fail(err, IST_E_MEMORY, "out of memory");
    side->portable = true;
    if (!status) status = open_side(side, config, err);
    if (saved)
        setenv("ISTHMUS_CAPS", saved, 1);
    else
        unsetenv("ISTHMUS_CAPS");
    free(saved);
    ist_text_free(&hidden);
    return status;
}

/* 0 or the exit code. */
static int open_engines(verification *v) {
    ist_config config;
    int *classes = NULL, code = predict_configure(&v->job, &config, &classes);
    ist_error err;
    char spec[16];
    ist_status status = code ? IST_OK : open_side(&v->tested, &config, &err);
    int cpu = -1;
    if (!code && !status) status = first_cpu(&cpu, &err);
    if (!code && !status) {
        bool same = v->tested.info.device.index == cpu && v->tested.info.precision == IST_PRECISION_FP32;
        snprintf(spec, sizeof spec, "%d", cpu < 0 || same ? v->tested.info.device.index : cpu);
        config.device = spec;
        config.precision = IST_PRECISION_FP32;
        config.overlap = IST_OVERLAP_OFF;
        status =
            cpu < 0 || same ? open_portable(&v->reference, &config, &err) : open_side(&v->reference, &config, &err);
    }
    free(classes);
    return status ? cli_fail(cli_model_exit_code(status), "%s", err.text) : code;
}

/* ---- images ---- */

/* The images that the command line names, else the demo's. 0 or the exit code. */
static int list_images(verification *v, int argc, char **argv) {
    char *demo = NULL, *arguments[2] = {NULL, NULL};
    if (v->options.first_source < argc) return predict_list_sources(&v->job, argc, argv);
    int code = predict_find_demo(&demo);
    arguments[0] = demo;
    v->options.first_source = 0;
    if (!code) code = predict_list_sources(&v->job, 1, arguments);
    free(demo);
    return code;
}

/* 0 or the exit code. An image that cannot be read is named and left out: then, where nothing worse is found,
 * "partial". */
static int compare(verification *v, int *partial) {
    for (size_t i = 0; i < v->job.sources.count; i++) {
        ist_bitmap bitmap;
        ist_error err;
        const char *path = v->job.sources.items[i].path;
        if (ist_source_read(&v->job.sources.items[i], IST_MAX_PIXELS, &bitmap, &err)) {
            *partial = cli_fail(CLI_PARTIAL, "%s", err.text);
            continue;
        }
        ist_image image = {.width = bitmap.width,
                           .height = bitmap.height,
                           .format = bitmap.format,
                           .stride = bitmap.stride,
                           .pixels = bitmap.pixels};
        ist_status status = verify_image(&v->tested, &v->reference, &image, path, &v->sums, &err);
        ist_bitmap_free(&bitmap);
        if (status) return cli_fail(cli_exit_code(status), "%s: %s", path, err.text);
    }
    if (!v->sums.images) return cli_fail(CLI_FAILED, "verify: no image could be read, so nothing was compared");
    return CLI_SUCCESS;
}

static int report(const verification *v) {
    char sentence[200];
    ist_text out = {0};
    ist_error err;
    int code = CLI_SUCCESS;
    if (!v->options.print_json)
        verify_print(&v->tested, &v->reference, &v->sums);
    else if (verify_json(&v->tested, &v->reference, &v->sums, &out, &err))
        code = cli_fail(CLI_FAILED, "%s", err.text);
    else
        fputs(out.data, stdout);
    ist_text_free(&out);
    if (code) return code;
    if (!v->sums.reference_objects && !v->sums.objects)
        cli_note("no detection has a score above %g, so boxes and masks were not compared", (double)v->options.conf);
    int failed = verify_judge(&v->sums, v->tested.info.precision, sentence, sizeof sentence);
    if (!failed) return CLI_SUCCESS;
    return cli_fail(CLI_DIFFERENT, "verify: %s (%d of the checks failed)", sentence, failed);
}

int cmd_verify(int argc, char **argv) {
    verification v = {.job = {.options = &v.options}};
    bool stop = false;
    int code = predict_parse(argc, argv, &v.options, &stop), partial = CLI_SUCCESS;
    if (!stop) {
        code = list_images(&v, argc, argv);
        if (!code) code = predict_find_checkpoints(&v.options);
        if (!code) code = open_engines(&v);
        v.sums.conf = v.options.conf;
        if (!code) code = compare(&v, &partial);
        if (!code) code = report(&v);
        if (!code) code = partial;
    }
    ist_close(&v.tested.engine);
    ist_close(&v.reference.engine);
    predict_job_free(&v.job);
    predict_options_free(&v.options);
    return code;
}
