/* Man pages and completion say what --help says, which is printed from the options that the parser is given. A double
 * of the engine is enough. Shells and man are asked where they are. */
#include "program.h"

#include <ctype.h>

#define PROGRAM     IST_BUILD_DIR "/tests/isthmus_fake"
#define RUN(s, ...) spawn_run(s, NULL, (const char *const[]){PROGRAM, __VA_ARGS__, NULL})

enum { MOST = 128, NAME = 48 };

typedef struct names {
    int count;
    char list[MOST][NAME];
} names;

static bool has(const names *set, const char *name) {
    for (int i = 0; i < set->count; i++)
        if (!strcmp(set->list[i], name)) return true;
    return false;
}

static void add(names *set, const char *name, size_t length) {
    char text[NAME];
    cr_assert(length && length < NAME, "%.*s", (int)length, name);
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    if (has(set, text)) return;
    cr_assert_lt(set->count, MOST);
    memcpy(set->list[set->count++], text, sizeof text);
}

/* The option names behind each `mark` of the text up to `end` (NULL: its end). */
static void add_options(names *set, const char *text, const char *end, const char *mark) {
    for (const char *p = text; (p = strstr(p, mark)) && (!end || p < end);) {
        p += strlen(mark);
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-\\");
        char name[NAME];
        size_t k = 0;
        for (size_t i = 0; i < n && k < NAME - 1; i++)
            if (p[i] != '\\') name[k++] = p[i];
        if (k) add(set, name, k);
    }
}

static void expect_same(const names *a, const names *b, const char *command, const char *where) {
    for (int i = 0; i < a->count; i++)
        cr_expect(has(b, a->list[i]), "%s: --%s is in --help and not in %s", command, a->list[i], where);
    for (int i = 0; i < b->count; i++)
        cr_expect(has(a, b->list[i]), "%s: --%s is in %s and not in --help", command, b->list[i], where);
}

static char *print(const scratch *s, const char *a, const char *b) {
    spawned r = RUN(s, a, b);
    cr_assert_eq(r.code, 0, "%s %s: %s", a, b ? b : "", r.err);
    cr_expect_str_empty(r.err);
    free(r.err);
    return r.out;
}

/* The subcommands, as isthmus --help lists them. */
static names commands_of(const scratch *s) {
    names set = {0};
    char *help = print(s, "--help", NULL);
    char *end = strstr(help, "\n  isthmus SUBCOMMAND");
    cr_assert_not_null(end);
    for (char *line = help; line < end; line = strchr(line, '\n') + 1)
        if (!strncmp(line, "  ", 2) && islower((unsigned char)line[2])) add(&set, line + 2, strcspn(line + 2, " "));
    free(help);
    cr_assert_geq(set.count, 13);
    return set;
}

/* The options that --help of a command lists. */
static names options_of(const scratch *s, const char *command) {
    names set = {0};
    char *help = print(s, command, "--help");
    for (char *line = strstr(help, "\noptions:\n"); line; line = strchr(line + 1, '\n'))
        if (!strncmp(line + 1, "  -", 3) || !strncmp(line + 1, "      --", 8))
            add(&set, strstr(line, "--") + 2, strcspn(strstr(line, "--") + 2, " \n"));
    cr_expect(has(&set, "help"));
    cr_expect_not_null(strstr(help, "\nexamples:\n  isthmus "), "%s", command);
    free(help);
    return set;
}

/* The part of a completion script that is about a command. */
static const char *part_of(const char *script, const char *begin, const char *command, const char *end,
                           const char **to) {
    char head[80];
    snprintf(head, sizeof head, begin, command);
    const char *at = strstr(script, head);
    cr_assert_not_null(at, "%s", head);
    *to = strstr(at, end);
    cr_assert_not_null(*to);
    return at;
}

Test(cli_documents, every_option_is_in_man_pages_and_completion) {
    scratch s = scratch_make();
    char *bash = print(&s, "--completion", "bash"), *zsh = print(&s, "--completion", "zsh"),
         *fish = print(&s, "--completion", "fish"), *program = print(&s, "--man", NULL);
    names commands = commands_of(&s), predict = options_of(&s, "predict");
    for (int i = 0; i < commands.count; i++) {
        const char *c = commands.list[i], *from, *to;
        names help = options_of(&s, c), found = {0};
        char *man = print(&s, "--man", c), text[120];
        add_options(&found, man, NULL, " Fl \\-");
        expect_same(&help, &found, c, "the man page");
        free(man);
        snprintf(text, sizeof text, ".It Xr isthmus-%s 1\n", c);
        cr_expect_not_null(strstr(program, text), "isthmus(1) lacks %s", c);
        if (!strcmp(c, "audit")) /* and takes the options of predict, for images */
            for (int k = 0; k < predict.count; k++) add(&help, predict.list[k], strlen(predict.list[k]));
        found.count = 0;
        from = part_of(bash, "\n    %s)\n", c, " ;;\n    ", &to);
        from = strstr(from, "options='");
        add_options(&found, from, strchr(from, '\n'), "--");
        expect_same(&help, &found, c, "completion of bash");
        names valued = {0};
        add_options(&valued, strchr(from, '\n'), strstr(from, "esac"), "--");
        found.count = 0;
        from = part_of(zsh, "\n        %s)\n", c, " ;;\n", &to);
        add_options(&found, from, to, "'--");
        add_options(&found, from, to, "'*--");
        add_options(&found, from, to, ",--");
        expect_same(&help, &found, c, "completion of zsh");
        found.count = 0;
        snprintf(text, sizeof text, "\ncomplete -c isthmus -n '__fish_seen_subcommand_from %s' -l ", c);
        add_options(&found, fish, NULL, text);
        for (char letter = 'a'; letter <= 'z'; letter++) {
            snprintf(text, sizeof text, "\ncomplete -c isthmus -n '__fish_seen_subcommand_from %s' -s %c -l ", c,
                     letter);
            add_options(&found, fish, NULL, text);
        }
        expect_same(&help, &found, c, "completion of fish");
        /* the parser knows the last of them too, and whether it takes a value */
        const char *last = help.list[help.count - 2];
        snprintf(text, sizeof text, "--%s", last);
        spawned r = RUN(&s, c, text, "--help");
        cr_expect_null(strstr(r.err, "unknown"), "%s", r.err);
        spawn_free(&r);
        snprintf(text, sizeof text, "--%s=", help.list[0]);
        r = RUN(&s, c, text);
        cr_expect_eq(!has(&valued, help.list[0]), !!strstr(r.err, "takes no value"), "%s %s: %s", c, text, r.err);
        spawn_free(&r);
    }
    free(bash);
    free(zsh);
    free(fish);
    free(program);
    scratch_remove(&s);
}

/* What a sentence says of a wrong word, "none of a, b", as completion has it, " a b". */
static void expect_words(const scratch *s, const char *script, const char *command, const char *option) {
    char text[80], want[200];
    const char *to, *from = part_of(script, "\n    %s)\n", command, " ;;\n    ", &to);
    snprintf(text, sizeof text, "--%s) kind=", option);
    from = strstr(from, text);
    cr_assert_not_null(from);
    from = strchr(from, '\'') + 2;
    size_t n = strcspn(from, "'"), k = 0;
    for (size_t i = 0; i < n; i++)
        k += (size_t)snprintf(want + k, sizeof want - k, from[i] == ' ' ? ", " : "%c", from[i]);
    snprintf(text, sizeof text, "--%s=nonsense", option);
    spawned r = RUN(s, command, text);
    const char *said = strstr(r.err, "none of ");
    cr_assert_not_null(said, "%s", r.err);
    cr_expect_eq(strncmp(said + 8, want, strlen(want)), 0, "'%s', completion has '%s'", r.err, want);
    cr_expect_eq(said[8 + strlen(want)], ';', "%s", r.err);
    spawn_free(&r);
    r = RUN(s, command, "--help"); /* and help names each */
    for (char *word = strtok(want, ", "); word; word = strtok(NULL, ", "))
        cr_expect_not_null(strstr(r.out, word), "%s --%s: %s", command, option, word);
    spawn_free(&r);
}

Test(cli_documents, words_are_the_parsers) {
    scratch s = scratch_make();
    char *bash = print(&s, "--completion", "bash");
    expect_words(&s, bash, "predict", "precision");
    expect_words(&s, bash, "info", "precision");
    expect_words(&s, bash, "predict", "save");
    expect_words(&s, bash, "predict", "resize-order");
    expect_words(&s, bash, "eval", "save");
    expect_words(&s, bash, "live", "send");
    expect_words(&s, bash, "bench", "scope");
    int found = 0; /* no other has words */
    names options = {0};
    for (const char *p = bash; (p = strstr(p, ") kind=")); p += 7)
        if (!strncmp(p + 7, "word words", 10) || !strncmp(p + 7, "list words", 10)) {
            const char *name = p;
            while (name[-1] != ' ') name--;
            add(&options, name + 2, (size_t)(p - name - 2));
            found++;
        }
    cr_expect_gt(found, 10);
    cr_expect_eq(options.count, 5, "an option with words that this test does not know");
    free(bash);
    scratch_remove(&s);
}

/* What bash offers for a command line; options of compopt in front. */
static void expect_bash(const scratch *s, const char *line, const char *want) {
    char command[1200];
    snprintf(
        command, sizeof command,
        "source '%s'; compopt() { printf '%%s ' \"$@\"; }; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
        "_isthmus; echo \"${COMPREPLY[*]}\"",
        scratch_path(s, "isthmus.bash"), line);
    spawned r = spawn_run(s, NULL, (const char *const[]){"/bin/bash", "-c", command, NULL});
    cr_expect_str_eq(r.out, want, "%s\nstderr: %s", line, r.err);
    spawn_free(&r);
}

Test(cli_documents, bash_completes) {
    scratch s = scratch_make();
    if (access("/bin/bash", X_OK)) cr_skip_test("no bash");
    char *bash = print(&s, "--completion", "bash");
    scratch_put(scratch_path(&s, "isthmus.bash"), bash);
    free(bash);
    expect_bash(&s, "isthmus pr", "+o default predict profile\n");
    expect_bash(&s, "isthmus predict --pre", "+o default --precision\n");
    expect_bash(&s, "isthmus predict --precision f", "+o default fp32 fp16\n");
    expect_bash(&s, "isthmus predict --precision = b", "+o default bf16\n");
    expect_bash(&s, "isthmus predict --precision =", "+o default auto fp32 fp16 bf16\n");
    expect_bash(&s, "isthmus predict --save m", "+o default -o nospace masks mot\n");
    expect_bash(&s, "isthmus predict --save masks,m", "+o default -o nospace masks,mot\n");
    expect_bash(&s, "isthmus predict --conf ''", "+o default \n");
    expect_bash(&s, "isthmus predict -o ''", "-o dirnames +o default \n");
    expect_bash(&s, "isthmus predict --detector ''", "\n"); /* bash's own names of files */
    expect_bash(&s, "isthmus predict ''", "\n");
    expect_bash(&s, "isthmus merge ''", "-o dirnames +o default \n");
    expect_bash(&s, "isthmus bench ''", "+o default \n");
    expect_bash(&s, "isthmus audit --budget x --track-",
                "+o default --track-iou --track-age --track-motion --track-high\n");
    expect_bash(&s, "isthmus audit -- ./program --pre", "\n");
    expect_bash(&s, "isthmus nothing --", "+o default \n");
    expect_bash(&s, "isthmus --completion ''", "+o default bash zsh fish\n");
    expect_bash(&s, "'" PROGRAM "' predict --device ''", "+o default 0 cpu gpu\n");
    scratch_remove(&s);
}

static bool there_is(const char *program) {
    char command[80];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return !system(command);
}

static void expect_silent(const scratch *s, const char *command) {
    spawned r = spawn_run(s, NULL, (const char *const[]){"/bin/sh", "-c", command, NULL});
    cr_expect_eq(r.code, 0, "%s: %s%s", command, r.out, r.err);
    cr_expect_str_empty(r.out, "%s: %s", command, r.out);
    cr_expect_str_empty(r.err, "%s: %s", command, r.err);
    spawn_free(&r);
}

Test(cli_documents, man_and_shells_find_nothing_wrong) {
    scratch s = scratch_make();
    names commands = commands_of(&s);
    char command[1000];
    for (int i = -1; i < commands.count; i++) {
        char *page = print(&s, "--man", i < 0 ? NULL : commands.list[i]);
        const char *path = scratch_path(&s, "page.1");
        scratch_put(path, page);
        free(page);
        snprintf(command, sizeof command, "mandoc -T lint -W warning '%s'", path);
        if (there_is("mandoc")) expect_silent(&s, command);
        snprintf(command, sizeof command, "groff -mandoc -T utf8 -ww -z '%s'", path);
        if (there_is("groff")) expect_silent(&s, command);
    }
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (int i = 0; i < 3; i++) {
        char *script = print(&s, "--completion", shells[i]);
        const char *path = scratch_path(&s, "script");
        scratch_put(path, script);
        free(script);
        snprintf(command, sizeof command, "%s -n '%s'", shells[i], path);
        if (there_is(shells[i])) expect_silent(&s, command);
        if (i != 2 || !there_is("fish")) continue;
        snprintf(command, sizeof command,
                 "HOME='%s' fish -c \"source '%s'; complete -C 'isthmus predict --save json,m'\" | cut -f 1 | "
                 "diff - '%s'",
                 s.path, path, scratch_path(&s, "want"));
        scratch_put(scratch_path(&s, "want"), "json,masks\njson,mot\n");
        expect_silent(&s, command);
    }
    scratch_remove(&s);
}

Test(cli_documents, mistakes_are_usage_errors) {
    scratch s = scratch_make();
    spawned r = RUN(&s, "--man", "nothing");
    cr_expect_eq(r.code, 2);
    cr_expect_not_null(strstr(r.err, "'nothing' is not a subcommand"), "%s", r.err);
    spawn_free(&r);
    r = RUN(&s, "--completion", "csh");
    cr_expect_eq(r.code, 2);
    cr_expect_not_null(strstr(r.err, "'csh' is none of bash, zsh, fish"), "%s", r.err);
    cr_expect_str_empty(r.out);
    spawn_free(&r);
    r = RUN(&s, "--completion");
    cr_expect_eq(r.code, 2);
    spawn_free(&r);
    r = RUN(&s, "--list-devices");
    cr_expect_str_eq(r.out, "0\tFake \"device\"\ncpu\tthe first CPU\ngpu\tthe first GPU\n");
    spawn_free(&r);
    scratch_remove(&s);
}
