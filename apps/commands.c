/* The table of subcommands: see commands.h. */
#include "commands.h"

#include <string.h>

const cli_command *cli_find_command(const char *name) {
    for (const cli_command *c = cli_this.commands; c->name; c++)
        if (!strcmp(c->name, name)) return c;
    return NULL;
}

const cli_option *cli_each_option(const cli_command *command, const cli_option *previous) {
    const cli_option *o = previous ? previous + 1 : command->options;
    const cli_command *more = !o->name && o->value ? cli_find_command(o->value) : NULL;
    if (more) o = more->options;
    if (!o->name && o != &cli_common_options[CLI_COMMON]) o = cli_common_options + !cli_this.has_subcommands;
    return o->name ? o : NULL;
}

static bool is_named(const cli_option *option, const char *name) {
    size_t n = strlen(name);
    return cli_value_length(option) == n && !memcmp(option->value, name, n);
}

cli_kind cli_value_kind(const cli_option *option) {
    char separator;
    if (!option->value) return CLI_NO_VALUE;
    if (cli_words(option, &separator)) return separator == '|' ? CLI_WORD : CLI_LIST;
    if (is_named(option, "DIR")) return CLI_FOLDER;
    if (is_named(option, "SPEC")) return CLI_DEVICE;
    return is_named(option, "FILE") || is_named(option, "SRC") || is_named(option, "DST") ? CLI_FILE : CLI_TEXT;
}

cli_kind cli_argument_kind(const cli_command *command) {
    if (!strncmp(command->usage, "DIR", 3)) return CLI_FOLDER;
    bool files = strstr(command->usage, "SOURCE") || strstr(command->usage, " FILE") || strstr(command->usage, "IN ");
    return files && strncmp(command->usage, "--from", 6) ? CLI_FILE : CLI_NO_VALUE;
}
