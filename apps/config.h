/* `--config FILE`: options from a TOML file, a table per subcommand, keys the long options without dashes.
 *
 * They become arguments in front of those of the command line, so that a command parses and refuses them as if they had
 * been typed; an option that the command line has is left out of the file's. A value means what it would mean there: a
 * relative path starts in the current folder. Used by isthmus.c. */
#ifndef CONFIG_H
#define CONFIG_H

#include "commands.h"

typedef struct config {
    char *path; /* of the file; NULL: the command line names none */
    char **argv;
    int argc;     /* the command line with the file's options in it */
    char **owned; /* those of argv that came from the file */
    int *lines;   /* where from */
    size_t count, room;
} config;

enum { CONFIG_MAX_BYTES = 1 << 20, CONFIG_MAX_OPTIONS = 256 };

/* The command line of a command (argv[0] is its name); 0 or the exit code after a sentence with FILE:LINE in it. */
int config_apply(config *c, const cli_command *command, int argc, char **argv);

/* After a usage error: which options the file gave. */
void config_explain(const config *c);

void config_free(config *c);

/* Adds the file's options of `command` that are not among `given` (rows of its table, ended by NULL); for config_apply
 * and tests of hostile files. */
ist_status config_read(config *c, const cli_command *command, const cli_option *const *given, const char *bytes,
                       size_t count, ist_error *err);

/* Version of the library that reads TOML; NULL: built without it. */
const char *config_library(void);

#endif
