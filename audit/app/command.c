/* Options and forms of the command: see command.h. */
#include "parts.h"

#include <getopt.h>
#include <string.h>

#define OPTIONS(X)                                                                                                     \
    X(BUDGET, budget, "budget", "B",                                                                                   \
      "per frame, such as reads=1,writes=1,waits=1,bytes=4M; also builds=0.\n"                                         \
      "Going over it gives exit code 5")                                                                               \
    X(JSON, json, "json", "FILE", "write the report as JSON; '-': standard output")                                    \
    X(SARIF, sarif, "sarif", "FILE", "write the findings as SARIF 2.1.0")                                              \
    X(TRACE, trace, "trace", "FILE", "write all calls as a trace for chrome://tracing or Perfetto")                    \
    X(BASELINE, baseline, "baseline", "FILE", "say what is new and what is gone since that JSON report")               \
    X(REPORT, report, "report", "FILE", "write the text report there ('-': standard output)")                          \
    X(FRAME_KERNEL, frame_kernel, "frame-kernel", "NAME", "a frame begins with the launch of this kernel")             \
    X(SOURCE, source, "source", "DIR",                                                                                 \
      "audit the C, C++, OpenCL C and Python sources and notebooks there as one\n"                                     \
      "project, without running them")

enum {
    OPTION_FIRST = 255,
#define X(id, field, name, value, help) OPTION_##id,
    OPTIONS(X)
#undef X
};

const cli_option cmd_audit_options[] = {
#define X(id, field, name, value, help) {name, OPTION_##id, value, help},
    OPTIONS(X)
#undef X
        {NULL, 0, "predict", NULL},
};

static void take_option(int id, const char *value, audit_options *o) {
    switch (id) {
#define X(id, field, name, kind, help)                                                                                 \
    case OPTION_##id:                                                                                                  \
        o->field = value;                                                                                              \
        break;
        OPTIONS(X)
#undef X
    default:
        break;
    }
}

static int parse_budget(audit_options *o) {
    ist_error err;
    if (o->budget && ist_audit_parse_budget(o->budget, &o->limits, &err)) return cli_usage("audit", "%s", err.text);
    return CLI_SUCCESS;
}

/* The program's own failure goes before a broken budget. */
static int audit_program(char **argv, const audit_options *o) {
    ist_audit_log log = {0};
    int theirs = 0;
    int code = audit_run_program(argv, &log, &theirs);
    if (!code) code = audit_conclude(&log, o, "");
    ist_audit_log_free(&log);
    return theirs ? theirs : code;
}

/* The option of ours that argv[i] is, its value in *value and the last argument it takes in *last; NULL: none. */
static const cli_option *own_option(int argc, char **argv, int i, const char **value, int *last) {
    for (const cli_option *o = cmd_audit_options; o->name; o++) {
        size_t n = strlen(o->name);
        if (strncmp(argv[i], "--", 2) || strncmp(argv[i] + 2, o->name, n)) continue;
        const char *rest = argv[i] + 2 + n;
        if (*rest != '=' && *rest) continue;
        *last = *rest ? i : i + 1;
        *value = *rest ? rest + 1 : i + 1 < argc ? argv[i + 1] : NULL;
        return o;
    }
    return NULL;
}

/* Takes our options out of the command line; what is left belongs to predict. 0 or the exit code. */
static int split(int *argc, char **argv, audit_options *o) {
    int kept = 1;
    for (int i = 1, last; i < *argc; i = last + 1) {
        const char *value = NULL;
        const cli_option *option = own_option(*argc, argv, i, &value, &last);
        if (option && !value) return cli_usage("audit", "option '%s' needs a value", argv[i]);
        if (option && !*value && !strcmp(option->value, "FILE"))
            return cli_usage("audit", "--%s: the name of the file is empty", option->name);
        if (option)
            take_option(option->id, value, o);
        else
            argv[kept++] = argv[last = i];
    }
    argv[ *argc = kept] = NULL;
    return CLI_SUCCESS;
}

/* What counts calls of a run means nothing to source code. */
static int audit_sources(int argc, char **argv, const audit_options *o) {
    const char *wrong = o->budget ? "budget" : o->trace ? "trace" : o->frame_kernel ? "frame-kernel" : NULL;
    if (wrong) return cli_usage("audit", "--%s is for programs that run, not for --source", wrong);
    if (!*o->source) return cli_usage("audit", "--source needs a folder or a file");
    if (argc > 1) return cli_usage("audit", "unexpected argument '%s' beside --source", argv[1]);
    int code = audit_check_files(o);
    return code ? code : audit_source(o);
}

static int audit_other(int argc, char **argv, audit_options *o, audit_own *own) {
    int code = split(&argc, argv, o);
    if (!code && o->source) return audit_sources(argc, argv, o);
    if (!code) code = parse_budget(o);
    if (code) return code;
    if (!own && argc > 1 && *argv[1] == '-') return cli_usage("audit", "unknown option '%s'", argv[1]);
    if (!own && argc > 1) return cli_usage("audit", "unexpected argument '%s': a program comes after --", argv[1]);
    if (!own) return cli_usage("audit", "name a program after --, or sources with --source");
    if (o->frame_kernel) return cli_usage("audit", "--frame-kernel is for programs: our own frames are known");
    if (argc < 2) return cli_usage("audit", "name images, or a program after --");
    code = audit_check_files(o);
    return code ? code : own(argc, argv, o);
}

int audit_command(int argc, char **argv, audit_own *own) {
    audit_options o = {0};
    const char *value;
    int id, code = CLI_SUCCESS, end = 1;
    bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    while (end < argc && strcmp(argv[end], "--")) end++;
    if (end == argc && !help) return audit_other(argc, argv, &o, own);
    while ((id = cli_next("audit", cmd_audit_options, end, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) return code;
        take_option(id, value, &o);
    }
    if (o.source) return cli_usage("audit", "--source takes no program");
    if ((code = parse_budget(&o))) return code;
    if (optind < end) return cli_usage("audit", "unexpected argument '%s'", argv[optind]);
    if (end + 1 >= argc) return cli_usage("audit", "name a program after --");
    code = audit_check_files(&o);
    return code ? code : audit_program(argv + end + 1, &o);
}
