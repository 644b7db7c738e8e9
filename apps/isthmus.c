/* The program: chooses the subcommand. Everything else is in cmd_*.c. */
#include "config.h"
#include "spare_cache.h"

#include "io/image_format.h"
#include "live/igtl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const cli_command commands[] = {
#define X(name, usage, summary, examples) {#name, usage, summary, examples, cmd_##name##_options, cmd_##name},
    CLI_COMMANDS(X)
#undef X
        {0},
};

const cli_program cli_this = {"isthmus", commands, true};

static void print_help(FILE *out) {
    fprintf(out, "usage: isthmus SUBCOMMAND [options]\n%s\n\n", CLI_PROGRAM_SUMMARY);
    for (const cli_command *c = commands; c->name; c++) {
        fprintf(out, "  %-8s %-30s", c->name, c->usage);
        if (strlen(c->usage) > 30) fprintf(out, "\n%41s", ""); /* summaries keep their column */
        fprintf(out, " %s\n", c->summary);
    }
    fprintf(out, "\n  isthmus SUBCOMMAND --help             explains its options\n"
                 "  isthmus --version                     prints the version\n"
                 "  isthmus --man [SUBCOMMAND]            prints the man page\n"
                 "  isthmus --completion bash|zsh|fish    prints what completes command lines there\n"
                 "\nenvironment:\n");
#define X(name, text) fprintf(out, "  %-20s %s\n", name, text);
    CLI_ENVIRONMENT(X)
#undef X
    fprintf(out, "exit codes:\n");
#define X(code, text) fprintf(out, "  %3d %s\n", code, text);
    CLI_EXIT_CODES(X)
#undef X
}

/* For completion: what --device takes here, a blank, a name; devices are listed, not opened. */
static int list_devices(void) {
    enum { MOST = 64 };
    ist_device_info list[MOST];
    ist_error err;
    int count = 0;
    if (ist_devices(list, MOST, &count, &err)) return cli_fail(cli_exit_code(err.code), "%s", err.text);
    for (int i = 0; i < count && i < MOST; i++) printf("%d\t%s\n", list[i].index, cli_printable(list[i].name));
    printf("cpu\tthe first CPU\ngpu\tthe first GPU\n");
    return CLI_SUCCESS;
}

/* Those of optional libraries with the version of the library, and those that are missing. */
static void print_formats(void) {
    const ist_image_format *f;
    for (size_t i = 0; (f = ist_image_format_at(i)); i++) {
        printf("%s%s", i ? ", " : "images: ", f->name);
        if (!ist_image_format_is_read(f))
            printf(" no (built without %s)", f->package);
        else if (f->version)
            printf(" %s", f->version);
    }
    printf("\n");
}

/* The program's own options, which print something; -1: it is none of them. */
static int print(int argc, char **argv) {
    const char *name = argv[1], *what = argc > 2 ? argv[2] : NULL;
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
    } else if (!strcmp(name, "--version")) {
        static const char without[] = "no (built without it)";
        printf("isthmus %s\nOpenIGTLink %s\n", ist_version(), ist_igtl_available() ? ist_igtl_version() : without);
        printf("toml++ %s\n", config_library() ? config_library() : without);
        print_formats();
    } else if (!strcmp(name, "--man")) {
        const cli_command *c = what ? cli_find_command(what) : NULL;
        if (what && !c) return cli_fail(CLI_USAGE, "--man: '%s' is not a subcommand", what);
        man_print(c);
    } else if (!strcmp(name, "--completion")) {
        if (!what || !completion_print(what))
            return cli_fail(CLI_USAGE, "--completion: '%s' is none of bash, zsh, fish", what ? what : "");
    } else if (!strcmp(name, "--list-devices")) {
        return list_devices();
    } else {
        return -1;
    }
    return CLI_SUCCESS;
}

static int run(const cli_command *c, int argc, char **argv) {
    spare_cache spare;
    spare_cache_begin(&spare);
    int code = c->run(argc, argv);
    spare_cache_end(&spare);
    return code;
}

static int run_with_config(const cli_command *c, int argc, char **argv) {
    config file;
    int code = config_apply(&file, c, argc, argv);
    if (!code) {
        code = run(c, file.argc, file.argv);
        if (code == CLI_USAGE) config_explain(&file);
    }
    config_free(&file);
    return code;
}

int main(int argc, char **argv) {
    cli_hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the user's limit is a failed write like any other, and is cleaned up */
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        print_help(stderr);
        return CLI_USAGE;
    }
    int code = print(argc, argv);
    if (code >= 0) return cli_finish(code);
    const cli_command *c = cli_find_command(name);
    if (c) return cli_finish(run_with_config(c, argc - 1, argv + 1));
    return cli_fail(CLI_USAGE, "'%s' is not a subcommand; isthmus --help lists them", name);
}
