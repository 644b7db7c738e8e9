/* libFuzzer: any bytes as a file of --config, for a program whose commands all have one option of each kind. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define X(name, usage, summary, examples)                                                                              \
    const cli_option cmd_##name##_options[] = {{"output", 'o', "DIR", ""},                                             \
                                               {"conf", 256, "P", ""},                                                 \
                                               {"quiet", 257, NULL, ""},                                               \
                                               {"precision", 258, "P auto|fp32", ""},                                  \
                                               {"save", 259, "LIST json,masks", ""},                                   \
                                               {"to", 260, "DST...", ""},                                              \
                                               {0}};                                                                   \
    int cmd_##name(int argc, char **argv) {                                                                            \
        return argc + !argv;                                                                                           \
    }
CLI_COMMANDS(X)
#undef X

static const cli_command commands[] = {
#define X(name, usage, summary, examples) {#name, usage, summary, examples, cmd_##name##_options, cmd_##name},
    CLI_COMMANDS(X)
#undef X
        {0},
};

const cli_program cli_this = {"fuzz", commands, true};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "fuzz";
    config c = {.path = path};
    const cli_command *predict = cli_find_command("predict");
    const cli_option *given[] = {predict->options + 1, NULL};
    ist_error err = {0};
    ist_status status = config_read(&c, predict, given, (const char *)data, size, &err);
    if (status && strncmp(err.text, "fuzz:", 5)) abort();
    if (c.count > CONFIG_MAX_OPTIONS) abort();
    for (size_t i = 0; i < c.count; i++)
        if (strncmp(c.owned[i], "--", 2) || !strncmp(c.owned[i], "--conf=", 7) || c.lines[i] < 1) abort();
    c.path = NULL;
    config_free(&c);
    return 0;
}
