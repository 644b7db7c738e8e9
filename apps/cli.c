/* Options, messages, exit codes: see cli.h. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_option cli_common_options[CLI_COMMON + 1] = {
    {"config", CLI_CONFIG, "FILE",
     "options from a TOML file, [predict] conf = 0.5 for example, that are not on the\n"
     "command line"},
    {"help", 'h', NULL, "print this"},
    {NULL, 0, NULL, NULL},
};

char *cli_printable(char *text) {
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?';
    return text;
}

static void say(const char *fmt, va_list args) {
    char text[1024];
    ist_print_ends_v(text, sizeof text, fmt, args);
    fprintf(stderr, "%s: %s\n", cli_this.name, cli_printable(text)); /* one write: threads do not mix lines */
}

int cli_fail(int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
    return code;
}

void cli_note(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
}

int cli_usage(const char *command, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    ist_print_ends_v(text, sizeof text, fmt, args);
    va_end(args);
    if (!cli_this.has_subcommands) return cli_fail(CLI_USAGE, "%s; see %s --help", text, cli_this.name);
    return cli_fail(CLI_USAGE, "%s: %s; see %s %s --help", command, text, cli_this.name, command);
}

int cli_exit_code(ist_status status) {
    switch (status) {
    case IST_OK:
        return CLI_SUCCESS;
    case IST_E_ARGUMENT:
        return CLI_USAGE;
    case IST_E_NO_DEVICE:
        return CLI_NO_DEVICE;
    case IST_E_WEIGHTS:
        return CLI_BAD_MODEL;
    default:
        return CLI_FAILED;
    }
}

int cli_model_exit_code(ist_status status) {
    return status == IST_E_IO || status == IST_E_INPUT ? CLI_BAD_MODEL : cli_exit_code(status);
}

/* Decimal, as it is written by hand: no hexadecimal, no blanks, none of the words that strtod knows. */
static bool is_plain(const char *text, const char *characters) {
    return text[strspn(text, characters)] == '\0';
}

bool cli_parse_int(const char *text, long low, long high, int *out) {
    char *end;
    if (!is_plain(text, "+-0123456789")) return false;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high) return false;
    *out = (int)value;
    return true;
}

bool cli_parse_bytes(const char *text, size_t *out) {
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || !value) return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && (!unit || end[1])) return false;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (value > SIZE_MAX >> shift) return false;
    *out = (size_t)value << shift;
    return true;
}

bool cli_parse_number(const char *text, double low, double high, double *out) {
    char *end;
    if (!is_plain(text, "+-.0123456789eE")) return false;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < low || value > high) return false;
    *out = value;
    return true;
}

bool cli_parse_float(const char *text, double low, double high, float *out) {
    double value;
    if (!cli_parse_number(text, low, high, &value)) return false;
    *out = (float)value;
    return true;
}

size_t cli_value_length(const cli_option *option) {
    size_t n = strcspn(option->value, " ");
    return n > 3 && !strncmp(option->value + n - 3, "...", 3) ? n - 3 : n;
}

const char *cli_words(const cli_option *option, char *separator) {
    const char *words = option->value ? strchr(option->value, ' ') : NULL;
    if (!words) return NULL;
    *separator = strchr(words, '|') ? '|' : ',';
    return words + 1;
}

/* "a, b or c", or "a, b, c" where any of them may be given. */
static size_t name_words(const cli_option *option, char *out, size_t size) {
    char separator = ',';
    const char *word = cli_words(option, &separator);
    size_t used = 0;
    for (size_t n; word && *word && used < size; word += n + !!word[n]) {
        n = strcspn(word, "|,");
        bool last = !word[n] || !word[n + 1];
        const char *before = !used ? "" : last && separator == '|' ? " or " : ", ";
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", before, (int)n, word);
    }
    return used < size ? used : size - 1;
}

void cli_sentence(const cli_option *option, char *out, size_t size) {
    const char *gap = strstr(option->help, "{}");
    if (!gap) {
        snprintf(out, size, "%s", option->help);
        return;
    }
    size_t n = (size_t)snprintf(out, size, "%.*s", (int)(gap - option->help), option->help);
    n += name_words(option, out + n, size - n);
    snprintf(out + n, size - n, "%s", gap + 2);
}

static void print_option(const cli_option *o) {
    char head[64], sentence[CLI_SENTENCE];
    int n = o->id < 256 ? snprintf(head, sizeof head, "-%c, --%s", o->id, o->name)
                        : snprintf(head, sizeof head, "    --%s", o->name);
    if (o->value) snprintf(head + n, sizeof head - (size_t)n, " %.*s", (int)strcspn(o->value, " "), o->value);
    if (strlen(head) > 26)
        printf("  %s\n%29s", head, "");
    else
        printf("  %-26s ", head);
    cli_sentence(o, sentence, sizeof sentence);
    for (const char *p = sentence; *p; p++) { /* continuation lines stay in their column */
        putchar(*p);
        if (*p == '\n') printf("%29s", "");
    }
    putchar('\n');
}

static void print_examples(const char *examples) {
    for (size_t n; *examples; examples += n + !!examples[n]) {
        n = strcspn(examples, "\n");
        printf("  %.*s\n", (int)n, examples);
    }
}

static void print_help(const char *command, const cli_option *options) {
    bool sub = cli_this.has_subcommands;
    const cli_command *c = cli_this.commands;
    while (strcmp(c->name, command)) c++;
    printf("usage: %s%s%s %s\n%s\n\noptions:\n", cli_this.name, sub ? " " : "", sub ? command : "", c->usage,
           c->summary);
    const cli_option *o = options;
    for (; o->name; o++) print_option(o);
    for (int i = !sub; i < CLI_COMMON; i++) print_option(&cli_common_options[i]);
    if (sub && o->value) printf("and, for images, those of %s %s\n", cli_this.name, o->value);
    printf("\nexamples:\n");
    print_examples(c->examples);
}

/* Expands the list into getopt's two forms. */
static void expand(const cli_option *options, struct option *longs, char *shorts) {
    size_t n = 0, s = 0;
    shorts[s++] = ':'; /* tells a missing value from an unknown option */
    for (const cli_option *o = options; o->name && n < CLI_MAX_OPTIONS; o++) {
        longs[n++] = (struct option){o->name, o->value ? required_argument : no_argument, NULL, o->id};
        if (o->id < 256) shorts[s++] = (char)o->id;
        if (o->id < 256 && o->value) shorts[s++] = ':';
    }
    longs[n++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[n++] = (struct option){"config", required_argument, NULL, CLI_CONFIG}; /* gone by now, or without its file */
    longs[n] = (struct option){0};
    shorts[s++] = 'h';
    shorts[s] = '\0';
}

/* The option whose value is an empty file name, as an unset variable of a script gives it; NULL: none. */
static const cli_option *find_nameless(const cli_option *options, int id, const char *value) {
    for (const cli_option *o = options; o->name; o++)
        if (o->id == id) return o->value && !strcmp(o->value, "FILE") && !*value ? o : NULL;
    return NULL;
}

int cli_next(const char *command, const cli_option *options, int argc, char **argv, const char **value,
             int *exit_code) {
    struct option longs[CLI_MAX_OPTIONS + CLI_COMMON + 1];
    char shorts[2 * CLI_MAX_OPTIONS + 4];
    expand(options, longs, shorts);
    opterr = 0;
    int at = optind;
    int id = getopt_long(argc, argv, shorts, longs, NULL);
    *value = optarg;
    if (id == -1) return CLI_END;
    if (id == 'h') {
        print_help(command, options);
        *exit_code = CLI_SUCCESS;
        return CLI_STOP;
    }
    if (id == '?' || id == ':' || id == CLI_CONFIG) {
        const char *option = optind > at && optind <= argc ? argv[optind - 1] : argv[at];
        if (id == ':')
            *exit_code = cli_usage(command, "option '%s' needs a value", option);
        else if (optopt && !strncmp(option, "--", 2))
            *exit_code = cli_usage(command, "option '%s' takes no value", option);
        else
            *exit_code = cli_usage(command, "unknown or ambiguous option '%s'", option);
        return CLI_STOP;
    }
    const cli_option *nameless = find_nameless(options, id, optarg);
    if (nameless) {
        *exit_code = cli_usage(command, "--%s: the name of the file is empty", nameless->name);
        return CLI_STOP;
    }
    return id;
}

int cli_finish(int code) {
    if (fflush(stdout) || ferror(stdout)) return code ? code : cli_fail(CLI_FAILED, "cannot write to standard output");
    return code;
}

void cli_hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}
