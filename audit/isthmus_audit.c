/* isthmus-audit: the audit of programs and of sources without the engine. What `isthmus audit` has beside it is its own
 * run. */
#include "app/command.h"
#include "commands.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int run(int argc, char **argv) {
    return audit_command(argc, argv, NULL);
}

static const cli_command commands[] = {
    {"audit", "[options] -- PROGRAM ARGS|--source DIR",
     "what a program or its sources move between host and device and wait for",
     "isthmus-audit --budget reads=1,writes=1 -- ./program input\nisthmus-audit --source src/", cmd_audit_options, run},
    {0},
};

const cli_program cli_this = {"isthmus-audit", commands, false};

int main(int argc, char **argv) {
    cli_hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the user's limit is a failed write like any other, and is cleaned up */
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("isthmus-audit %s\n", ISTHMUS_AUDIT_VERSION);
        return cli_finish(CLI_SUCCESS);
    }
    if (argc == 2 && !strcmp(argv[1], "--man")) { /* for the build, which installs the page */
        man_print(commands);
        return cli_finish(CLI_SUCCESS);
    }
    return cli_finish(run(argc, argv));
}
