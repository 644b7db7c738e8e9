/* isthmus convert: any checkpoint that can be read, as safetensors with the official names. */
#include "cli.h"

#include "weights/weights.h"

#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

static const cli_option options[] = {
    {"half", 256, NULL, "store floating point tensors as 16 bit"},
    {NULL, 0, NULL, NULL},
};

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int cmd_convert(int argc, char **argv) {
    bool half = false;
    int id, code = CLI_SUCCESS;
    const char *value;
    while ((id = cli_next("convert", options, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) return code;
        half = true;
    }
    if (argc - optind != 2) return cli_usage("convert", "expected two file names, got %d", argc - optind);
    const char *in = argv[optind], *out = argv[optind + 1];
    const char *dot = strrchr(out, '.');
    if (!dot || strcmp(dot, ".safetensors"))
        return cli_usage("convert", "the output '%s' must end in .safetensors", out);
    if (is_same_file(in, out)) return cli_usage("convert", "'%s' is both input and output", in);
    ist_error err;
    ist_weights *weights = NULL;
    if (ist_weights_open(in, &weights, &err)) return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    ist_status status = ist_weights_save_safetensors(weights, out, half, &err);
    size_t count = ist_weights_count(weights);
    ist_weights_close(&weights);
    if (status) return cli_fail(status == IST_E_WEIGHTS ? CLI_BAD_MODEL : cli_exit_code(status), "%s", err.text);
    cli_note("%s: %zu %s written", out, count, ist_plural(count, "tensor", "tensors"));
    return CLI_SUCCESS;
}
