/* Man pages in mdoc, from the table of commands.h. */
#include "commands.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#ifndef ISTHMUS_DATE
#define ISTHMUS_DATE "$Mdocdate$"
#endif

/* A character as roff prints it unchanged. */
static void put_character(char c) {
    switch (c) {
    case '\\':
        fputs("\\e", stdout);
        break;
    case '-':
        fputs("\\-", stdout);
        break;
    case '\'':
        fputs("\\(aq", stdout);
        break;
    case '`':
        fputs("\\(ga", stdout);
        break;
    case '^':
        fputs("\\(ha", stdout);
        break;
    case '~':
        fputs("\\(ti", stdout);
        break;
    default:
        putchar(c);
    }
}

/* Lines of text of moderate length: none is a request, and a sentence begins on a line of its own. */
static void put_text(const char *text) {
    enum { LONG = 60 };
    int column = 0;
    for (const char *p = text; *p; p++) {
        bool sentence = *p == ' ' && p > text && p[-1] == '.' && isupper((unsigned char)p[1]);
        bool breaks = *p == '\n' || sentence || (*p == ' ' && column > LONG);
        if (!column && *p == '.') fputs("\\&", stdout);
        if (breaks)
            putchar('\n');
        else
            put_character(*p);
        column = breaks ? 0 : column + 1;
    }
    putchar('\n');
}

/* One argument of a macro. */
static void put_argument(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) put_character(text[i]);
}

static void put_option(const cli_option *o) {
    char sentence[CLI_SENTENCE];
    printf(".It");
    if (o->id < 256) printf(" Fl %c ,", o->id);
    printf(" Fl \\-");
    put_argument(o->name, strlen(o->name));
    if (o->value) printf(" Ar ");
    if (o->value) put_argument(o->value, strcspn(o->value, " "));
    putchar('\n');
    cli_sentence(o, sentence, sizeof sentence);
    put_text(sentence);
}

static void begin_list(const char *section) {
    printf(".Sh %s\n.Bl -tag -width Ds\n", section);
}

static void end_list(void) {
    puts(".El");
}

/* Codes that a program without the engine does not end with. */
static bool is_of_engine(int code) {
    return code == CLI_NO_DEVICE || code == CLI_BAD_MODEL || code == CLI_DIFFERENT;
}

static void put_exit_codes(void) {
    begin_list("EXIT STATUS");
#define X(code, text)                                                                                                  \
    if (cli_this.has_subcommands || !is_of_engine(code)) printf(".It %d\n%s\n", code, text);
    CLI_EXIT_CODES(X)
#undef X
    end_list();
}

static void put_environment(void) {
    begin_list("ENVIRONMENT");
#define X(name, text)                                                                                                  \
    printf(".It Ev %s\n", name);                                                                                       \
    put_text(text);
    CLI_ENVIRONMENT(X)
#undef X
    end_list();
}

static void put_examples(const char *examples) {
    puts(".Sh EXAMPLES\n.Bd -literal -offset indent");
    for (const char *p = examples; *p; p++)
        if (*p == '\n')
            putchar(*p);
        else
            put_character(*p);
    puts("\n.Ed");
}

/* Where both are installed, one page is for both. */
static void put_audit_alone(void) {
    puts(".Nm isthmus\\-audit\n[options] \\-\\- PROGRAM|\\-\\-source DIR");
}

static void put_command(const cli_command *c) {
    const bool sub = cli_this.has_subcommands;
    printf(".Sh NAME\n.Nm %s%s%s\n.Nd ", cli_this.name, sub ? "-" : "", sub ? c->name : "");
    put_argument(c->summary, strlen(c->summary)); /* one line: apropos reads no other */
    printf("\n.Sh SYNOPSIS\n.Nm %s%s%s\n", cli_this.name, sub ? " " : "", sub ? c->name : "");
    put_text(c->usage);
    if (sub && !strcmp(c->name, "audit")) put_audit_alone();
    puts(".Sh DESCRIPTION\nThe options are:\n.Bl -tag -width Ds");
    const cli_option *o = c->options;
    for (; o->name; o++) put_option(o);
    for (int i = !sub; i < CLI_COMMON; i++) put_option(&cli_common_options[i]);
    end_list();
    if (sub && o->value) printf(".Pp\nFor images, also those of\n.Xr isthmus-%s 1 .\n", o->value);
    if (sub && !strcmp(c->name, "audit"))
        puts(".Pp\n.Nm isthmus\\-audit\nis a program of its own, for programs and sources only.");
    put_exit_codes();
    put_examples(c->examples);
    if (sub) puts(".Sh SEE ALSO\n.Xr isthmus 1");
}

static void put_program(void) {
    puts(".Sh NAME\n.Nm isthmus\n.Nd find objects in images and cut out their masks on any OpenCL device\n"
         ".Sh SYNOPSIS\n.Nm\n.Ar subcommand\n.Op Ar options\n.Nm\n.Fl \\-help\n.Nm\n.Fl \\-version\n.Nm\n"
         ".Fl \\-completion Cm bash | zsh | fish\n.Nm\n.Fl \\-man Op Ar subcommand");
    printf(".Sh DESCRIPTION\n%s\n.Pp\nThe subcommands are:\n.Bl -tag -width Ds\n", CLI_PROGRAM_SUMMARY);
    for (const cli_command *c = cli_this.commands; c->name; c++) {
        printf(".It Xr isthmus-%s 1\n", c->name);
        put_text(c->summary);
    }
    end_list();
    puts(".Pp\nData goes to standard output, everything else to standard error.\n"
         "Files appear complete or not at all.\n"
         ".Bl -tag -width Ds\n"
         ".It Fl \\-version\nprint the version, and which optional libraries there are\n"
         ".It Fl \\-completion Ar shell\nprint what completes command lines in that shell\n"
         ".It Fl \\-man Op Ar subcommand\nprint this page, or that of a subcommand");
    end_list();
    put_environment();
    put_exit_codes();
}

void man_print(const cli_command *command) {
    const bool named = command && cli_this.has_subcommands;
    printf(".\\\" printed by %s --man; not edited\n.Dd %s\n.Dt ", cli_this.name, ISTHMUS_DATE);
    for (const char *p = cli_this.name; *p; p++) putchar(toupper((unsigned char)*p));
    if (named) putchar('-');
    for (const char *p = named ? command->name : ""; *p; p++) putchar(toupper((unsigned char)*p));
    puts(" 1\n.Os");
    if (command)
        put_command(command);
    else
        put_program();
}
