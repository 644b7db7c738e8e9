/* The program: chooses the subcommand. Everything else is in cmd_*.c. */
#include "cli.h"
#include "spare_cache.h"

#include "io/image_format.h"
#include "live/igtl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const cli_command commands[] = {
#define X(name, usage, summary) {#name, usage, summary, cmd_##name},
    CLI_COMMANDS(X)
#undef X
        {NULL, NULL, NULL, NULL},
};

const cli_program cli_this = {"isthmus", commands, true};

static void print_help(FILE *out) {
    fprintf(out, "usage: isthmus SUBCOMMAND [options]\n"
                 "Finds objects in images and cuts out their masks on any OpenCL device.\n\n");
    for (const cli_command *c = commands; c->name; c++) {
        fprintf(out, "  %-8s %-30s", c->name, c->usage);
        if (strlen(c->usage) > 30) fprintf(out, "\n%41s", ""); /* summaries keep their column */
        fprintf(out, " %s\n", c->summary);
    }
    fprintf(out,
            "\n  isthmus SUBCOMMAND --help   explains its options\n"
            "  isthmus --version           prints the version\n\n"
            "environment: ISTHMUS_DEVICE (device to use), ISTHMUS_WEIGHTS_DIR (folder of the default checkpoints),\n"
            "  ISTHMUS_CACHE_DIR (kernel cache; 'off' for none)\n"
            "exit codes: 0 success, 1 failed, 2 usage, 3 no usable device, 4 bad model,\n"
            "  5 audit budget exceeded, 6 verify failed, 7 some inputs failed, 130 interrupted\n");
}

static int run(const cli_command *c, int argc, char **argv) {
    spare_cache spare;
    spare_cache_begin(&spare);
    int code = c->run(argc, argv);
    spare_cache_end(&spare);
    return code;
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

int main(int argc, char **argv) {
    cli_hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the user's limit is a failed write like any other, and is cleaned up */
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return cli_finish(CLI_SUCCESS);
    }
    if (!strcmp(name, "--version")) {
        printf("isthmus %s\nOpenIGTLink %s\n", ist_version(),
               ist_igtl_available() ? ist_igtl_version() : "no (built without it)");
        print_formats();
        return cli_finish(CLI_SUCCESS);
    }
    for (const cli_command *c = commands; c->name; c++)
        if (!strcmp(name, c->name)) return cli_finish(run(c, argc - 1, argv + 1));
    return cli_fail(CLI_USAGE, "'%s' is not a subcommand; isthmus --help lists them", name);
}
