/* Options from a file: see config.h. */
#include "config.h"

#include "base/mem.h"
#include "io/atomic_file.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ISTHMUS_TOML

#include "toml_file.h"

/* ---- names ---- */

static const cli_option *find_option(const cli_command *command, const char *name) {
    for (const cli_option *o = NULL; (o = cli_each_option(command, o));)
        if (!strcmp(o->name, name)) return o;
    return NULL;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Levenshtein's distance, where '_' is as good as '-'; 99 for names that no option is as long as. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 40 };
    int row[LONGEST + 1];
    size_t n = strlen(b);
    if (n > LONGEST || strlen(a) > LONGEST) return 99;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 0; a[i]; i++) {
        int corner = row[0]++;
        char from = a[i] == '_' ? '-' : a[i];
        for (size_t j = 0; j < n; j++) {
            int replaced = corner + (from != b[j]);
            corner = row[j + 1];
            row[j + 1] = least(replaced, 1 + least(row[j], row[j + 1]));
        }
    }
    return row[n];
}

/* Keeps in *best the name that is nearest to a wrong one, if it is near. */
static void consider(const char *wrong, const char *name, int *nearest, const char **best) {
    int d = distance(wrong, name);
    if (d >= *nearest || d > 1 + (int)strlen(name) / 4) return;
    *nearest = d;
    *best = name;
}

/* "; did you mean 'conf'?" or nothing. */
static void suggest(const char *best, char *out, size_t size) {
    snprintf(out, size, best ? "; did you mean '%s'?" : "%s", best ? best : "");
}

static ist_status unknown_table(const config *c, const toml_key *key, ist_error *err) {
    const char *best = NULL;
    char hint[80];
    int nearest = 99;
    for (const cli_command *k = cli_this.commands; k->name; k++) consider(key->table, k->name, &nearest, &best);
    suggest(best, hint, sizeof hint);
    return ist_fail(err, IST_E_ARGUMENT, "%s:%d: [%s] is not a subcommand%s", c->path, key->line, key->table, hint);
}

static ist_status unknown_key(const config *c, const cli_command *command, const toml_key *key, ist_error *err) {
    const char *best = NULL;
    char hint[80];
    int nearest = 99;
    for (const cli_option *o = NULL; (o = cli_each_option(command, o));) consider(key->name, o->name, &nearest, &best);
    suggest(best, hint, sizeof hint);
    return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' is not an option of %s%s", c->path, key->line, key->name,
                    command->name, hint);
}

/* ---- values ---- */

/* Whether `text` is one of an option's words, where it has any. */
static bool is_word(const cli_option *o, const char *text) {
    char separator;
    const char *word = cli_words(o, &separator);
    if (!word) return true;
    for (size_t n; *word; word += n + !!word[n]) {
        n = strcspn(word, "|,");
        if (strlen(text) == n && !memcmp(word, text, n)) return true;
    }
    return false;
}

static ist_status check_value(const config *c, const cli_option *o, const toml_key *key, const toml_value *v,
                              ist_error *err) {
    char separator;
    if (v->kind == TOML_OTHER)
        return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' is a date, a table, a list in a list or has a zero byte",
                        c->path, key->line, key->name);
    if (!o->value && (v->kind != TOML_BOOLEAN || key->list))
        return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' is true or false", c->path, key->line, key->name);
    if (o->value && v->kind == TOML_BOOLEAN)
        return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' takes a value, not true or false", c->path, key->line,
                        key->name);
    bool several = !key->list && cli_value_kind(o) == CLI_LIST; /* "json,masks": the command takes it apart */
    if (o->value && !several && !is_word(o, v->text))
        return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' of '%s' is none of %s", c->path, key->line, v->text,
                        key->name, cli_words(o, &separator));
    return IST_OK;
}

static bool takes_list(const cli_option *o) {
    return o->value && cli_value_length(o) == 4 && !memcmp(o->value, "LIST", 4);
}

static bool takes_several(const cli_option *o) {
    return o->value && o->value[cli_value_length(o)] == '.';
}

static ist_status check_key(const config *c, const cli_option *o, const toml_key *key, ist_error *err) {
    for (size_t i = 0; i < key->count; i++) IST_TRY(check_value(c, o, key, &key->values[i], err));
    if (!key->list) return IST_OK;
    if (!takes_list(o) && !takes_several(o))
        return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' takes one value, not a list", c->path, key->line, key->name);
    if (!key->count)
        return ist_fail(err, IST_E_ARGUMENT, "%s:%d: the list of '%s' is empty", c->path, key->line, key->name);
    for (size_t i = 0; i < key->count && takes_list(o); i++)
        if (strchr(key->values[i].text, ','))
            return ist_fail(err, IST_E_ARGUMENT, "%s:%d: '%s' of '%s' has a comma, which separates its values", c->path,
                            key->line, key->values[i].text, key->name);
    return IST_OK;
}

/* ---- arguments ---- */

/* "--name", or "--name=" and `count` values with commas between them. */
static ist_status add(config *c, const cli_option *o, int line, const toml_value *values, size_t count,
                      ist_error *err) {
    size_t length = strlen(o->name) + 4, room = c->room, rooms = c->room;
    if (c->count == CONFIG_MAX_OPTIONS)
        return ist_fail(err, IST_E_LIMIT, "%s:%d: more than %d options", c->path, line, CONFIG_MAX_OPTIONS);
    for (size_t i = 0; i < count; i++) length += strlen(values[i].text) + 1;
    char *text = malloc(length);
    if (!text || !ist_grow((void **)&c->owned, &room, c->count + 1, sizeof *c->owned) ||
        !ist_grow((void **)&c->lines, &rooms, c->count + 1, sizeof *c->lines)) {
        free(text);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", c->path);
    }
    c->room = room;
    size_t n = (size_t)sprintf(text, "--%s%s", o->name, count ? "=" : "");
    for (size_t i = 0; i < count; i++) n += (size_t)sprintf(text + n, "%s%s", i ? "," : "", values[i].text);
    c->lines[c->count] = line;
    c->owned[c->count++] = text;
    return IST_OK;
}

static ist_status add_key(config *c, const cli_option *o, const toml_key *key, ist_error *err) {
    if (!o->value) return strcmp(key->values[0].text, "true") ? IST_OK : add(c, o, key->line, NULL, 0, err);
    if (!takes_several(o)) return add(c, o, key->line, key->values, key->count, err);
    for (size_t i = 0; i < key->count; i++) IST_TRY(add(c, o, key->line, &key->values[i], 1, err));
    return IST_OK;
}

typedef struct reading {
    config *c;
    const cli_command *command;
    const cli_option *const *given;
} reading;

/* Keys of other commands are checked too: a mistake is found before the run that it spoils. */
static ist_status take_key(void *arg, const toml_key *key, ist_error *err) {
    const reading *r = arg;
    if (!key->table)
        return ist_fail(err, IST_E_ARGUMENT,
                        "%s:%d: '%s' stands outside of a table; options of predict go under [predict]", r->c->path,
                        key->line, key->name);
    const cli_command *command = cli_find_command(key->table);
    if (!command) return unknown_table(r->c, key, err);
    if (!key->name) return IST_OK;
    const cli_option *o = find_option(command, key->name);
    if (!o || o->id == 'h' || o->id == CLI_CONFIG) return unknown_key(r->c, command, key, err);
    IST_TRY(check_key(r->c, o, key, err));
    if (command != r->command) return IST_OK;
    for (const cli_option *const *g = r->given; *g; g++)
        if (*g == o) return IST_OK;
    return add_key(r->c, o, key, err);
}

ist_status config_read(config *c, const cli_command *command, const cli_option *const *given, const char *bytes,
                       size_t count, ist_error *err) {
    reading r = {c, command, given};
    return toml_read(bytes, count, c->path, take_key, &r, err);
}

const char *config_library(void) {
    return toml_version();
}

#else

ist_status config_read(config *c, const cli_command *command, const cli_option *const *given, const char *bytes,
                       size_t count, ist_error *err) {
    (void)command, (void)given, (void)bytes, (void)count;
    return ist_fail(err, IST_E_INPUT, "%s: this isthmus was built without toml++, which reads such files", c->path);
}

const char *config_library(void) {
    return NULL;
}

#endif

/* ---- the command line ---- */

enum { MOST_OPTIONS = 2 * CLI_MAX_OPTIONS };

/* What the command line has: the rows of its options and the value of --config, by getopt on a copy that it may
 * permute. */
typedef struct scan {
    const cli_option *given[MOST_OPTIONS + 1];
    int count;
    const char *path;
    bool again; /* --config is there twice */
} scan;

static void note(scan *s, const cli_option *o) {
    for (int i = 0; i < s->count; i++)
        if (s->given[i] == o) return;
    if (s->count < MOST_OPTIONS) s->given[s->count++] = o;
}

static void scan_options(scan *s, const cli_command *command, int argc, char **copy) {
    const cli_option *rows[MOST_OPTIONS];
    struct option longs[MOST_OPTIONS + 1];
    char shorts[3 * MOST_OPTIONS + 2] = ":", *end = shorts + 1;
    int n = 0, index, id;
    for (const cli_option *o = NULL; n < MOST_OPTIONS && (o = cli_each_option(command, o)); n++) {
        rows[n] = o;
        longs[n] = (struct option){o->name, o->value ? required_argument : no_argument, NULL, 256 + n};
        if (o->id < 256) *end++ = (char)o->id;
        if (o->id < 256 && o->value) *end++ = ':';
    }
    *end = '\0';
    longs[n] = (struct option){0};
    opterr = 0;
    optind = 0; /* begins anew, in glibc and musl */
    while ((id = getopt_long(argc, copy, shorts, longs, &index)) != -1) {
        for (int i = 0; i < n && id < 256; i++)
            if (rows[i]->id == id) id = 256 + i;
        if (id < 256) continue; /* a mistake: the command will say so */
        note(s, rows[id - 256]);
        if (rows[id - 256]->id != CLI_CONFIG) continue;
        s->again |= s->path != NULL;
        s->path = optarg;
    }
    optind = 0;
    getopt_long(1, copy, "", longs, NULL); /* whoever comes next begins anew, too, and finds optind at 1 */
}

/* argv without --config and its value, behind the file's options. */
static bool join(config *c, int argc, char **argv, const char *value) {
    int n = 0;
    c->argv = calloc((size_t)argc + c->count + 1, sizeof *c->argv);
    if (!c->argv) return false;
    c->argv[n++] = argv[0];
    for (size_t i = 0; i < c->count; i++) c->argv[n++] = c->owned[i];
    for (int i = 1; i < argc; i++) {
        bool within = value > argv[i] && value <= argv[i] + strlen(argv[i]); /* --config=FILE */
        if (within) continue;
        if (i + 1 < argc && argv[i + 1] == value)
            i++;
        else
            c->argv[n++] = argv[i];
    }
    c->argc = n;
    return true;
}

static int read_file(config *c, const cli_command *command, const scan *s) {
    char *bytes = NULL;
    size_t count = 0;
    ist_error err;
    ist_status status = ist_read_file(c->path, CONFIG_MAX_BYTES, &bytes, &count, &err);
    if (!status) status = config_read(c, command, s->given, bytes, count, &err);
    free(bytes);
    if (!status) return CLI_SUCCESS;
    return cli_fail(status == IST_E_ARGUMENT || status == IST_E_INPUT ? CLI_USAGE : CLI_FAILED, "%s", err.text);
}

int config_apply(config *c, const cli_command *command, int argc, char **argv) {
    scan s = {0};
    *c = (config){.argc = argc, .argv = argv};
    char **copy = malloc(((size_t)argc + 1) * sizeof *copy);
    if (!copy) return cli_fail(CLI_FAILED, "out of memory");
    memcpy(copy, argv, ((size_t)argc + 1) * sizeof *copy);
    scan_options(&s, command, argc, copy);
    free(copy);
    if (!s.path) return CLI_SUCCESS;
    c->argv = NULL;
    if (s.again) return cli_usage(command->name, "--config is given twice");
    if (!*s.path) return cli_usage(command->name, "--config: the name of the file is empty");
    c->path = ist_strdup(s.path);
    int code = c->path ? read_file(c, command, &s) : cli_fail(CLI_FAILED, "out of memory");
    return code || join(c, argc, argv, s.path) ? code : cli_fail(CLI_FAILED, "out of memory");
}

void config_explain(const config *c) {
    char text[600];
    size_t n = 0;
    if (!c->count) return;
    for (size_t i = 0; i < c->count && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s (line %d)", i ? ", " : "",
                              (int)strcspn(c->owned[i], "="), c->owned[i], c->lines[i]);
    cli_note("%s gave %s", c->path, text);
}

void config_free(config *c) {
    for (size_t i = 0; i < c->count; i++) free(c->owned[i]);
    free(c->owned);
    free(c->lines);
    if (c->path) free(c->argv);
    free(c->path);
    *c = (config){0};
}
