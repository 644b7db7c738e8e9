/* --config FILE: options from a TOML file, for every subcommand. A double of the engine is enough. */
#include "program.h"

#include "gray_png.h"

#include <jansson.h>

#define PROGRAM     IST_BUILD_DIR "/tests/isthmus_fake"
#define RUN(s, ...) spawn_run(s, NULL, (const char *const[]){PROGRAM, __VA_ARGS__, NULL})

/* A scratch folder that the program runs in, so that messages name "run.toml" alone. */
static scratch begin(void) {
    scratch s = scratch_make();
    spawned r = RUN(&s, "--version");
    bool there = !strstr(r.out, "toml++ no ");
    cr_assert_not_null(strstr(r.out, "toml++ "));
    spawn_free(&r);
    if (!there) {
        scratch_remove(&s);
        cr_skip_test("built without toml++");
    }
    cr_assert_eq(chdir(s.path), 0);
    setenv("ISTHMUS_WEIGHTS_DIR", IST_SOURCE_DIR "/weights", 1);
    return s;
}

static void end(scratch *s) {
    cr_assert_eq(chdir("/"), 0);
    scratch_remove(s);
}

/* Exit code 2 and a sentence that begins with "run.toml:LINE: ". */
static void refuse(scratch *s, const char *command, const char *toml, const char *sentence) {
    scratch_put("run.toml", toml);
    spawned r = RUN(s, command, "--config", "run.toml");
    cr_expect_eq(r.code, 2, "exit code %d: %s", r.code, r.err);
    cr_expect_not_null(strstr(r.err, sentence), "'%s' lacks '%s'", r.err, sentence);
    cr_expect_eq(strncmp(r.err, "isthmus: run.toml:", 18), 0, "%s", r.err);
    cr_expect_eq(strchr(r.err, '\n'), r.err + strlen(r.err) - 1, "one sentence: %s", r.err);
    spawn_free(&r);
}

/* An option of the run that was, from run.json. */
static void expect_run(const char *folder, const char *key, const char *value) {
    char path[80];
    snprintf(path, sizeof path, "%s/run.json", folder);
    json_error_t err;
    json_t *run = json_load_file(path, 0, &err), *options = json_object_get(run, "options");
    cr_assert_not_null(run, "%s", err.text);
    const char *found = json_string_value(json_object_get(options, key));
    cr_expect_str_eq(found ? found : "(none)", value, "%s", key);
    json_decref(run);
}

Test(cli_config, gives_options_and_the_command_line_wins) {
    scratch s = begin();
    write_png("a.png", 64, 48);
    scratch_put("run.toml", "# a run\n[predict]\nconf = 0.25\nsave = [\"ndjson\", \"csv\"]\noutput = \"out\"\n"
                            "no-masks = true\nresume = false\nmax-objects = 7\n\n[bench]\nframes = 3\n");
    spawned r = RUN(&s, "predict", "a.png", "--config", "run.toml");
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    expect_run("out", "conf", "0.25");
    expect_run("out", "max-objects", "7");
    cr_expect(scratch_exists("out/results.csv") && scratch_exists("out/frames.ndjson"));
    cr_expect(!scratch_exists("out/results.json") && !scratch_exists("out/masks"));

    r = RUN(&s, "predict", "--conf", "0.5", "--config=run.toml", "-o", "other", "--save", "json,ndjson", "a.png");
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    expect_run("other", "conf", "0.5");
    expect_run("other", "max-objects", "7");
    cr_expect(scratch_exists("other/results.json") && !scratch_exists("other/results.csv"));
    end(&s);
}

Test(cli_config, refuses_with_file_and_line) {
    scratch s = begin();
    refuse(&s, "predict", "[predict]\ncnof = 0.5\n",
           "run.toml:2: 'cnof' is not an option of predict; did you mean 'conf'?");
    refuse(&s, "predict", "[predict]\n\nmax_objects = 5\n",
           "run.toml:3: 'max_objects' is not an option of predict; did you mean 'max-objects'?");
    refuse(&s, "predict", "[predict]\nzzzzzzzzzzzz = 0.5\n",
           "run.toml:2: 'zzzzzzzzzzzz' is not an option of predict\n");
    refuse(&s, "predict", "[predict]\nhelp = true\n", "run.toml:2: 'help' is not an option");
    refuse(&s, "predict", "[predict]\nconfig = 'b.toml'\n", "run.toml:2: 'config' is not an option");
    refuse(&s, "predict", "conf = 0.5\n", "run.toml:1: 'conf' stands outside of a table");
    refuse(&s, "bench", "[bench]\n[predcit]\nconf = 0.5\n",
           "run.toml:2: [predcit] is not a subcommand; did you mean 'predict'?");
    refuse(&s, "bench", "[bench]\nframes = 5\n[predict]\nframes = 5\n",
           "run.toml:4: 'frames' is not an option of predict");
    refuse(&s, "predict", "[predict]\nprecision = 'fp8'\n",
           "run.toml:2: 'fp8' of 'precision' is none of auto|fp32|fp16|bf16");
    refuse(&s, "predict", "[predict]\nsave = ['json', 'mask']\n", "run.toml:2: 'mask' of 'save' is none of");
    refuse(&s, "predict", "[predict]\nresume = 1\n", "run.toml:2: 'resume' is true or false");
    refuse(&s, "predict", "[predict]\nresume = [true]\n", "run.toml:2: 'resume' is true or false");
    refuse(&s, "predict", "[predict]\nconf = true\n", "run.toml:2: 'conf' takes a value");
    refuse(&s, "predict", "[predict]\nconf = [0.5]\n", "run.toml:2: 'conf' takes one value, not a list");
    refuse(&s, "predict", "[predict]\nclasses = []\n", "run.toml:2: the list of 'classes' is empty");
    refuse(&s, "predict", "[predict]\nclasses = ['a,b', 'c']\n", "run.toml:2: 'a,b' of 'classes' has a comma");
    refuse(&s, "predict", "[predict]\nconf = 1979-05-27\n", "run.toml:2: 'conf' is a date");
    refuse(&s, "predict", "[predict.conf]\na = 1\n", "run.toml:1: 'conf' is a date, a table");
    refuse(&s, "predict", "[predict]\nnames = \"a\\u0000b\"\n",
           "run.toml:2: 'names' is a date, a table, a list in a list or has a zero byte");
    refuse(&s, "predict", "[predict]\nconf = \n", "run.toml:2: ");
    refuse(&s, "predict", "[predict]\nconf = 0.5\nconf = 0.6\n", "run.toml:3: ");
    refuse(&s, "predict", "[predict]\n\"conf\\u0000\" = 0.6\n", "run.toml:2: ");
    refuse(&s, "predict", "\xff\xfe", "run.toml:1: ");
    end(&s);
}

Test(cli_config, values_that_the_command_refuses_are_traced_to_their_line) {
    scratch s = begin();
    scratch_put("run.toml", "[predict]\noutput = 'out'\nconf = 7\n");
    spawned r = RUN(&s, "predict", "--config", "run.toml", "a.png");
    cr_expect_eq(r.code, 2);
    cr_expect_str_eq(r.err, "isthmus: predict: --conf: '7' is not a number from 0 to 1; see isthmus predict --help\n"
                            "isthmus: run.toml gave --output (line 2), --conf (line 3)\n");
    cr_expect(!scratch_exists("out"));
    spawn_free(&r);
    r = RUN(&s, "predict", "--config", "none.toml", "a.png");
    cr_expect_eq(r.code, 1);
    cr_expect_not_null(strstr(r.err, "none.toml"), "%s", r.err);
    spawn_free(&r);
    r = RUN(&s, "predict", "--config", "", "a.png");
    cr_expect_eq(r.code, 2);
    cr_expect_not_null(strstr(r.err, "--config: the name of the file is empty"), "%s", r.err);
    spawn_free(&r);
    r = RUN(&s, "predict", "--config", "run.toml", "--config=run.toml");
    cr_expect_eq(r.code, 2);
    cr_expect_not_null(strstr(r.err, "predict: --config is given twice"), "%s", r.err);
    spawn_free(&r);
    r = RUN(&s, "predict", "--config");
    cr_expect_eq(r.code, 2);
    cr_expect_not_null(strstr(r.err, "'--config' needs a value"), "%s", r.err);
    spawn_free(&r);
    end(&s);
}

/* Each command takes it, refuses what is not its own, and shows that it has the file's values. */
Test(cli_config, every_command_takes_it) {
    static const struct {
        const char *command, *toml, *sentence;
    } wrong[] = {{"predict", "[predict]\nlimit = 0", "--limit: '0'"},
                 {"segment", "[segment]\npoints-per-side = 0", "--points-per-side: '0'"},
                 {"eval", "[eval]\nbatch = 65", "--batch: '65'"},
                 {"live", "[live]\nqueue = 0", "--queue: '0'"},
                 {"merge", "[merge]\noutput = ''", "name the folders"},
                 {"bench", "[bench]\nsize = '1x'", "--size: '1x'"},
                 {"profile", "[profile]\nframes = 0", "--frames: '0'"},
                 {"audit", "[audit]\nbudget = 'x'", "x"},
                 {"verify", "[verify]\nconf = 2", "--conf: '2'"},
                 {"tune", "[tune]\nboxes = 301", "--boxes: '301'"},
                 {"devices", "[devices]\nimgsz = 33", "--imgsz: '33'"},
                 {"info", "[info]\njson = true", "--json needs --graph"},
                 {"convert", "[convert]\nset = ['a=1', 'b']", "--set: 'b' is not KEY=VALUE"}};
    scratch s = begin();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scratch_put("run.toml", wrong[i].toml);
        spawned r = RUN(&s, wrong[i].command, "--config", "run.toml");
        cr_expect_eq(r.code, 2, "%s: %s", wrong[i].command, r.err);
        cr_expect_not_null(strstr(r.err, wrong[i].sentence), "%s: %s", wrong[i].command, r.err);
        cr_expect_not_null(strstr(r.err, "run.toml gave --"), "%s: %s", wrong[i].command, r.err);
        spawn_free(&r);
    }
    scratch_put("run.toml", "[audit]\nno-masks = true\nconf = 3\n"); /* those of predict */
    spawned r = RUN(&s, "audit", "--config", "run.toml", "a.png");
    cr_expect_not_null(strstr(r.err, "--conf: '3'"), "%s", r.err);
    spawn_free(&r);
    scratch_put("run.toml", "[audit]\nreport = 'r.txt'\n");
    r = RUN(&s, "audit", "--config", "run.toml", "--", "/bin/echo", "--config", "x"); /* the program's own */
    cr_expect_neq(r.code, 2, "%s", r.err);
    spawn_free(&r);
    end(&s);
}

Test(cli_config, is_bounded) {
    scratch s = begin();
    FILE *f = fopen("run.toml", "w");
    for (int i = 0; i < 200000; i++) fputs("# 789\n", f);
    fclose(f);
    spawned r = RUN(&s, "predict", "--config", "run.toml", "a.png");
    cr_expect_eq(r.code, 1, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "1048576"), "%s", r.err);
    spawn_free(&r);
    f = fopen("run.toml", "w");
    fputs("[predict]\nclasses = ", f);
    for (int i = 0; i < 100000; i++) fputc('[', f);
    fclose(f);
    r = RUN(&s, "predict", "--config", "run.toml", "a.png");
    cr_expect_eq(r.code, 2, "%s", r.err);
    spawn_free(&r);
    static const char *const begins[] = {"a", "[a", "a = {a"}; /* tables in tables in tables */
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        for (int many = 999; many < 500000; many *= 400) {
            f = fopen("run.toml", "w");
            fputs(begins[i], f);
            for (int k = 0; k < many; k++) fputs(".a", f);
            fputs(i == 0 ? " = 1\n" : i == 1 ? "]\n" : " = 1}\n", f);
            fclose(f);
            r = RUN(&s, "predict", "--config", "run.toml", "a.png");
            cr_expect_eq(r.code, many > 1000 ? 1 : 2, "%s %d: exit code %d: %s", begins[i], many, r.code, r.err);
            cr_expect(many < 1000 || strstr(r.err, "run.toml: more than 1000 dots"), "%s", r.err);
            spawn_free(&r);
        }
    f = fopen("run.toml", "w");
    fputs("[live]\nto = [", f);
    for (int i = 0; i < 1000; i++) fputs("'a',", f);
    fputs("]\n", f);
    fclose(f);
    r = RUN(&s, "live", "--config", "run.toml");
    cr_expect_eq(r.code, 1, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "run.toml:2: more than 256 options"), "%s", r.err);
    spawn_free(&r);
    end(&s);
}
