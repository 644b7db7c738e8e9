/* isthmus convert: any checkpoint that can be read, as safetensors with the official names. */
#include "cli.h"

#include "base/mem.h"
#include "io/atomic_file.h"
#include "models/checkpoint.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const cli_option cmd_convert_options[] = {
    {"half", 256, NULL, "store floating point tensors as 16 bit"},
    {"set", 257, "KEY=VALUE...",
     "write this into the metadata: image_size=256, a segmenter's input;\n"
     "activation=silu, a D-FINE trained by DEIM; may be given again"},
    {NULL, 0, NULL, NULL},
};

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* An interrupt waits until the file is complete: nothing else would remove the half of it. */
static ist_status save(const ist_weights *weights, const char *out, bool half, ist_error *err) {
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP);
    sigprocmask(SIG_BLOCK, &held, &before);
    ist_status status = ist_weights_save_safetensors(weights, out, half, err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Makes the folder that the file goes to; of a file that cannot be written no folder stays. */
static ist_status save_in_folder(const ist_weights *weights, const char *out, bool half, ist_error *err) {
    const char *slash = strrchr(out, '/');
    if (!slash || slash == out) return save(weights, out, half, err);
    char *folder = ist_strdup(out);
    size_t there;
    if (!folder) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", out);
    folder[slash - out] = '\0';
    ist_status status = ist_make_folders(folder, &there, err);
    if (!status && (status = save(weights, out, half, err))) ist_remove_empty_folders(folder, there);
    free(folder);
    return status;
}

enum { SETS = 16 };

typedef struct settings {
    bool half;
    const char *sets[SETS]; /* "KEY=VALUE" */
    int count;
} settings;

/* The options; the exit code in *code when they are all there is to do. */
static bool parse(int argc, char **argv, settings *s, int *code) {
    int id;
    const char *value;
    *s = (settings){0};
    while ((id = cli_next("convert", cmd_convert_options, argc, argv, &value, code)) != CLI_END) {
        if (id == CLI_STOP) return false;
        if (id == 256) s->half = true;
        if (id != 257) continue;
        const char *equals = strchr(value, '=');
        if (!equals || equals == value || equals - value > 63)
            *code = cli_usage("convert", "--set: '%s' is not KEY=VALUE", value);
        else if (s->count == SETS)
            *code = cli_usage("convert", "--set: more than %d times", SETS);
        else
            s->sets[s->count++] = value;
        if (*code) return false;
    }
    return true;
}

static ist_status set_metadata(ist_weights *weights, const settings *s, ist_error *err) {
    for (int i = 0; i < s->count; i++) {
        char key[64];
        const char *equals = strchr(s->sets[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - s->sets[i]), s->sets[i]);
        IST_TRY(ist_weights_set_metadata(weights, key, equals + 1, err));
    }
    return IST_OK;
}

/* Of a model that is known, the values that it needs. */
static ist_status check_values(const ist_weights *weights, const char *in, ist_error *err) {
    ist_checkpoint_info info = {0};
    ist_status status = IST_OK;
    if (!ist_checkpoint_identify(weights, &info, NULL)) status = ist_checkpoint_check_values(weights, &info, err);
    if (status) ist_fail_context(err, "%s", in);
    ist_checkpoint_info_free(&info);
    return status;
}

int cmd_convert(int argc, char **argv) {
    settings s;
    int code = CLI_SUCCESS;
    if (!parse(argc, argv, &s, &code)) return code;
    if (argc - optind != 2) return cli_usage("convert", "expected two file names, got %d", argc - optind);
    const char *in = argv[optind], *out = argv[optind + 1];
    const char *dot = strrchr(out, '.');
    if (!dot || strcmp(dot, ".safetensors"))
        return cli_usage("convert", "the output '%s' must end in .safetensors", out);
    if (is_same_file(in, out)) return cli_usage("convert", "'%s' is both input and output", in);
    ist_error err;
    if (ist_atomic_try(out, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    ist_weights *weights = NULL;
    if (ist_weights_open(in, &weights, &err)) return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    ist_status status = set_metadata(weights, &s, &err);
    if (!status) status = check_values(weights, in, &err);
    if (!status) status = save_in_folder(weights, out, s.half, &err);
    size_t count = ist_weights_count(weights);
    ist_weights_close(&weights);
    if (status) return cli_fail(status == IST_E_WEIGHTS ? CLI_BAD_MODEL : cli_exit_code(status), "%s", err.text);
    cli_note("%s: %zu %s written", out, count, ist_plural(count, "tensor", "tensors"));
    return CLI_SUCCESS;
}
