/* The table of subcommands and what else help, man pages and completion say of the program: all three are printed from
 * here and from each command's cli_option rows. Used by isthmus.c, man_pages.c, completion.c and config.c. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "cli.h"

/* NULL: there is none of that name. */
const cli_command *cli_find_command(const char *name);

/* The options that a command takes, its own first, cli_common_options last, one after another: NULL begins, NULL ends.
 */
const cli_option *cli_each_option(const cli_command *command, const cli_option *previous);

/* What a value is, for completion. */
typedef enum cli_kind {
    CLI_NO_VALUE,
    CLI_TEXT,
    CLI_FILE,
    CLI_FOLDER,
    CLI_DEVICE,
    CLI_WORD, /* one of cli_words */
    CLI_LIST  /* any of them */
} cli_kind;
cli_kind cli_value_kind(const cli_option *option);

/* What stands beside the options: CLI_FILE, CLI_FOLDER or CLI_NO_VALUE (nothing). */
cli_kind cli_argument_kind(const cli_command *command);

#define CLI_PROGRAM_SUMMARY "Finds objects in images and cuts out their masks on any OpenCL device."

#define CLI_ENVIRONMENT(X)                                                                                             \
    X("ISTHMUS_DEVICE", "device to use where --device names none")                                                     \
    X("ISTHMUS_WEIGHTS_DIR", "folder of the default checkpoints")                                                      \
    X("ISTHMUS_CACHE_DIR", "folder of built kernels and tuning records; 'off' for none")

#define CLI_EXIT_CODES(X)                                                                                              \
    X(CLI_SUCCESS, "success")                                                                                          \
    X(CLI_FAILED, "failed")                                                                                            \
    X(CLI_USAGE, "usage")                                                                                              \
    X(CLI_NO_DEVICE, "no usable device")                                                                               \
    X(CLI_BAD_MODEL, "bad model")                                                                                      \
    X(CLI_OVER_BUDGET, "audit budget exceeded")                                                                        \
    X(CLI_DIFFERENT, "verify failed")                                                                                  \
    X(CLI_PARTIAL, "some inputs failed")                                                                               \
    X(CLI_INTERRUPTED, "interrupted")

/* Prints the man page (mdoc) of a command, or of the program for NULL. */
void man_print(const cli_command *command);

/* Prints what completes command lines in "bash", "zsh" or "fish"; false for any other shell. */
bool completion_print(const char *shell);

#endif
