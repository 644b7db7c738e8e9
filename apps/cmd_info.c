/* isthmus info: what a checkpoint is, as `key  value` lines. */
#include "info_graph.h"

#include "base/sha256.h"
#include "models/checkpoint.h"
#include "weights/sums.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_GRAPH = 256, OPTION_JSON, OPTION_SHA256 };

const cli_option cmd_info_options[] = {
    {"graph", OPTION_GRAPH, NULL, "print its network: label, kind, result and multiply-adds of each node"},
    {"device", OPTION_DEVICE, "SPEC", "with --graph: the kernel variants that this device takes, and its launches"},
    {"precision", OPTION_PRECISION, PREDICT_PRECISION_VALUE, "with --device: {} (auto)"},
    {"json", OPTION_JSON, NULL, "with --graph: print one JSON object"},
    {"sha256", OPTION_SHA256, NULL, "print the file's SHA-256 and nothing else of it, as sha256sum does"},
    {NULL, 0, NULL, NULL},
};

/* A string of the file, cut to a readable length. */
static void print_string(const char *text) {
    char shown[240];
    if (snprintf(shown, sizeof shown, "%s", text) >= (int)sizeof shown) memcpy(shown + sizeof shown - 4, "...", 4);
    printf("%s", cli_printable(shown));
}

static void print_names(const char *title, const ist_name_list *list) {
    printf("%-12s %zu\n", title, list->count);
    for (size_t i = 0; i < list->count; i++) {
        printf("  ");
        print_string(list->items[i]);
        printf("\n");
    }
}

static void print_classes(const ist_weights *weights, const ist_checkpoint_info *info) {
    printf("%-12s %d\n", "classes", info->classes);
    int named = ist_weights_class_count(weights);
    if (!named) return;
    printf("%-12s", "class names");
    for (int i = 0; i < named; i++) {
        const char *name = ist_weights_class_name(weights, i);
        printf("%s ", i ? "," : "");
        print_string(name ? name : "?");
    }
    printf("\n");
}

static void print_info(const char *path, const ist_weights *weights, const ist_checkpoint_info *info) {
    char types[256];
    printf("%-12s %s\n", "file", path);
    printf("%-12s %s\n", "format", info->format);
    printf("%-12s %s\n", "naming", info->naming);
    printf("%-12s %s%s\n", "model", ist_model_name(info->kind), info->deployed ? " (deployed)" : "");
    if (ist_model_is(info->kind, IST_SLOT_DETECTOR)) print_classes(weights, info);
    if (info->side) printf("%-12s %d x %d\n", "input", info->side, info->side);
    if (info->silu) printf("%-12s %s\n", "activation", "silu");
    if (info->channels != 3) printf("%-12s %d\n", "channels", info->channels);
    printf("%-12s %zu\n", "tensors", info->tensors);
    printf("%-12s %llu\n", "parameters", (unsigned long long)info->parameters);
    printf("%-12s %llu\n", "bytes", (unsigned long long)info->bytes);
    printf("%-12s %s\n", "types", ist_checkpoint_types_text(info, types, sizeof types));
    for (size_t i = 0; i < ist_weights_metadata_count(weights); i++) {
        const char *key, *value;
        ist_weights_metadata_at(weights, i, &key, &value);
        printf("%-12s ", "metadata");
        print_string(key);
        printf(" = ");
        print_string(value);
        printf("\n");
    }
    print_names("missing", &info->missing);
    print_names("mismatched", &info->mismatched);
    print_names("unused", &info->unused);
}

/* For sha256sum -c, and checked already where a SHA256SUMS beside the file names it. */
static int print_sum(const char *path) {
    char sum[IST_SHA256_TEXT], want[IST_SHA256_TEXT];
    ist_error err;
    if (ist_sha256_file(path, sum, &err)) return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    printf("%s  %s\n", sum, path);
    ist_status status = ist_sums_find(path, want, &err);
    if (!status && ist_sums_compare(want, sum, &err)) status = ist_fail_context(&err, "%s", path);
    return status ? cli_fail(cli_model_exit_code(err.code), "%s", err.text) : CLI_SUCCESS;
}

static int print_checkpoint(const char *path) {
    ist_error err;
    ist_weights *weights = NULL;
    if (ist_weights_open(path, &weights, &err)) return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    ist_checkpoint_info info = {0};
    ist_status status = ist_checkpoint_identify(weights, &info, &err);
    if (!status) {
        print_info(path, weights, &info);
        if (ist_weights_listed(weights)) printf("%-12s as in SHA256SUMS\n", "sha256");
        status = ist_checkpoint_check(&info, &err);
        if (!status) status = ist_checkpoint_check_values(weights, &info, &err);
    }
    int code = status ? cli_fail(cli_model_exit_code(status), "%s: %s", path, err.text) : CLI_SUCCESS;
    ist_checkpoint_info_free(&info);
    ist_weights_close(&weights);
    return code;
}

int cmd_info(int argc, char **argv) {
    int id, code = CLI_SUCCESS;
    const char *value;
    bool graph = false, sum = false, precise = false;
    info_graph_options o = {.precision = IST_PRECISION_AUTO};
    while (!code && (id = cli_next("info", cmd_info_options, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) return code;
        if (id == OPTION_GRAPH) graph = true;
        if (id == OPTION_SHA256) sum = true;
        if (id == OPTION_JSON) o.json = true;
        if (id == OPTION_DEVICE) o.device = value;
        if (id == OPTION_PRECISION) precise = true, code = predict_parse_precision("info", value, &o.precision);
    }
    if (code) return code;
    if (!graph && (o.json || o.device || precise))
        return cli_usage("info", "--%s needs --graph", o.json ? "json" : o.device ? "device" : "precision");
    if (precise && !o.device) return cli_usage("info", "--precision needs --device");
    if (graph && sum) return cli_usage("info", "--graph and --sha256 print different things");
    if (argc - optind != 1) return cli_usage("info", "expected one file name, got %d", argc - optind);
    if (sum) return print_sum(argv[optind]);
    return graph ? info_print_graph(argv[optind], &o) : print_checkpoint(argv[optind]);
}
