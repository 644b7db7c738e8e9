/* What the subcommands share: exit codes, the list of subcommands, option parsing, messages. isthmus-audit shares it
 * too.
 *
 * Data goes to stdout, everything else to stderr; every message is "isthmus: " and one sentence. */
#ifndef CLI_H
#define CLI_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    CLI_SUCCESS = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NO_DEVICE = 3,
    CLI_BAD_MODEL = 4,
    CLI_OVER_BUDGET = 5,
    CLI_DIFFERENT = 6,
    CLI_PARTIAL = 7,
    CLI_INTERRUPTED = 130 /* 128 + SIGINT, as shells expect */
};

/* Subcommand, what follows it on the command line, what it does, examples, one a line. Help, man pages and completion
 * (commands.h) are printed from these rows and each command's options. */
#define CLI_COMMANDS(X)                                                                                                \
    X(predict, "SOURCE... -o DIR [options]", "find objects in images, match them, cut out their masks",                \
      "isthmus predict photos/ -o out\n"                                                                               \
      "isthmus predict -r scans/ -o out --conf 0.5 --save json,overlay --resume\n"                                     \
      "isthmus predict video/ -o out --track --device gpu")                                                            \
    X(merge, "DIR... -o DIR", "join what predict --shard I/N has written in several runs",                             \
      "isthmus merge out.1 out.2 out.3 -o out")                                                                        \
    X(report, "DIR [-o FILE]", "one HTML file that shows a finished run: pictures, scores, times, failures",           \
      "isthmus report out\n"                                                                                           \
      "isthmus report out -o run.html --pictures 100")                                                                 \
    X(segment, "SOURCE... -o DIR --boxes|--points FILE|--everything, or --serve HOST:PORT",                            \
      "cut out what boxes, points and masks point at, or everything",                                                  \
      "isthmus segment photos/ -o out --boxes boxes.json\n"                                                            \
      "isthmus segment photo.jpg -o out --everything --points-per-side 16\n"                                           \
      "isthmus segment photos/ --serve 127.0.0.1:8000")                                                                \
    X(live, "--from SRC --to DST... [options]", "a stream of frames: results as they come, newest frame first",        \
      "isthmus live --from igtl://scanner:18944 --to igtl-listen://:18945 --deadline 40\n"                             \
      "isthmus live --from frames/ --fps 25 --no-drop --to ndjson:-")                                                  \
    X(eval, "--annotations FILE SOURCE...", "compare with ground truth: AP of boxes and masks, mask IoU",              \
      "isthmus eval --annotations instances.json images/\n"                                                            \
      "isthmus eval --annotations instances.json --results out/results.json")                                          \
    X(bench, "[options]", "latency, throughput, time per stage on a generated frame",                                  \
      "isthmus bench --json >before.json\n"                                                                            \
      "isthmus bench --baseline before.json --max-regression 5%")                                                      \
    X(profile, "[options]", "time of every kernel launch beside what the device can do",                               \
      "isthmus profile --trace launches.json")                                                                         \
    X(audit, "[options] SOURCE...|-- PROGRAM|--source DIR",                                                            \
      "what predict, a program or its sources move and wait for",                                                      \
      "isthmus audit photos/\n"                                                                                        \
      "isthmus audit --budget reads=1,writes=1 --sarif audit.sarif -- ./program input\n"                               \
      "isthmus audit --source src/")                                                                                   \
    X(verify, "[options] [SOURCE...]", "this device and precision against fp32 on a reference device",                 \
      "isthmus verify --device gpu --precision fp16")                                                                  \
    X(tune, "[options]", "measure the kernel variants on this device and keep the fastest",                            \
      "isthmus tune --device gpu --batch 4")                                                                           \
    X(devices, "[--json] [options]", "the OpenCL devices here, what they can do, which kernel variants and why",       \
      "isthmus devices")                                                                                               \
    X(info, "[--graph [--device SPEC]] FILE", "say what a checkpoint is, and what its network becomes",                \
      "isthmus info model.pth\n"                                                                                       \
      "isthmus info --graph --device gpu model.safetensors")                                                           \
    X(convert, "IN OUT.safetensors [--half]", "turn a checkpoint into safetensors",                                    \
      "isthmus convert model.pth model.safetensors")

/* One option; arrays of them end with a NULL name. `id` is the short letter, or a number from 256. */
typedef struct cli_option {
    const char *name;
    int id;
    /* NULL: it has no value; else what its value is called, "..." behind that when it may be given again, and behind a
     * blank the words that it may be: "P auto|fp32" one of them, "LIST json,masks" any of them. At the end of an array:
     * the command whose options this one takes too, or NULL. */
    const char *value;
    const char *help; /* a sentence; {} in it stands for those words */
} cli_option;

/* Each runs with argv[0] = its name and returns the exit code; its options. */
#define X(name, usage, summary, examples)                                                                              \
    int cmd_##name(int argc, char **argv);                                                                             \
    extern const cli_option cmd_##name##_options[];
CLI_COMMANDS(X)
#undef X

/* A row of CLI_COMMANDS, the options of that command, and what runs it. */
typedef struct cli_command {
    const char *name, *usage, *summary, *examples;
    const cli_option *options;
    int (*run)(int argc, char **argv);
} cli_command;

/* The program that runs, which each program says of itself: its name, which begins every message, and its commands, a
 * NULL name at the end. Without subcommands it is its one command. */
typedef struct cli_program {
    const char *name;
    const cli_command *commands;
    bool has_subcommands;
} cli_program;

extern const cli_program cli_this;

/* What every command takes beside its own: --config (config.h), of isthmus only, and --help. */
enum { CLI_CONFIG = 0x7FFF, CLI_COMMON = 2 };
extern const cli_option cli_common_options[CLI_COMMON + 1];

/* The words that an option's value may be, as one of `separators` stands between them; NULL: it may be anything. */
const char *cli_words(const cli_option *option, char *separator);

/* Length of the name of an option's value, without "..." and words. */
size_t cli_value_length(const cli_option *option);

/* The help of an option with {} filled in, lines as in the source. */
void cli_sentence(const cli_option *option, char *out, size_t size);

enum { CLI_SENTENCE = 1024 /* room for the longest */ };

enum { CLI_END = -1, CLI_STOP = -2, CLI_MAX_OPTIONS = 64 };

/* Next option of `command`: its id with *value set, CLI_END when only arguments are left (from the global optind on,
 * getopt's), CLI_STOP when the program must end with *exit_code: help was printed or a mistake was named. The value of
 * an option that takes a FILE is never empty. */
int cli_next(const char *command, const cli_option *options, int argc, char **argv, const char **value, int *exit_code);

/* "isthmus: " sentence on stderr, or what the program is called; returns code. */
int cli_fail(int code, const char *fmt, ...) IST_PRINTF(2, 3);

/* The same with a pointer to the command's help; returns CLI_USAGE. */
int cli_usage(const char *command, const char *fmt, ...) IST_PRINTF(2, 3);

/* A remark on stderr. */
void cli_note(const char *fmt, ...) IST_PRINTF(1, 2);

/* At the start of a program: a stream that the caller has closed must not become the first file that is opened, or
 * messages would be written into it. Each is opened the wrong way round, so that using it fails as before. */
void cli_hold_standard_streams(void);

/* At its end, the exit code: written data that did not arrive (a full disk, a closed pipe) is a failure. */
int cli_finish(int code);

/* Replaces control characters by '?': names from files must not steer the terminal. Returns text. */
char *cli_printable(char *text);

/* The exit code that a failure of the library stands for. */
int cli_exit_code(ist_status status);

/* The same for a failure to open a checkpoint: one that cannot be read is a bad model too. */
int cli_model_exit_code(ist_status status);

/* Whole number in [low, high]; false when `text` is anything else. */
bool cli_parse_int(const char *text, long low, long high, int *out);

/* Bytes above 0: digits, and K, M or G (of 1024) or nothing behind them. */
bool cli_parse_bytes(const char *text, size_t *out);

/* Finite number in [low, high]. */
bool cli_parse_number(const char *text, double low, double high, double *out);
bool cli_parse_float(const char *text, double low, double high, float *out);

#endif
