/* The n-th allocation, file call or OpenCL call of the program fails (faulty.c), for every n: it ends with an exit code
 * of its own and a sentence, or with the same files and the same text as without the failure; nothing crashes or hangs,
 * and what has a final name is whole.
 *
 * Half of the program needs no device: it runs over the double of the engine, and where ISTHMUS_EVERY_FAULT is set
 * (tests/run.sh full) every position is walked, else every so many of them. The engine that computes makes thousands of
 * calls. Its runs repeat what the device of the first one computed (repeated_device.h) and so take a fraction of the
 * time; one that goes another way runs again on the driver. ISTHMUS_EVERY_FAULT is
 *
 * 1       every position of `predict`; of other commands the places that it does not have (a place is a call with its
 *         callers), each at its first, second and last call; of OpenCL each place of `predict` on the driver too
 * places  of `predict` too the places only
 * all     every position of each command on the driver, for hours */
#include "gray_png.h"
#include "program.h"
#include "repeated_device.h"

#include "base/cores.h"

#include <ctype.h>
#include <dirent.h>
#include <jansson.h>

#define FAKE IST_BUILD_DIR "/tests/isthmus_faulty_fake"
#define REAL IST_BUILD_DIR "/tests/isthmus_faulty"

/* Of these runs alone: the engine looks through the driver's before it asks it. */
#define CACHES  IST_BUILD_DIR "/fault-caches"

#define PRINTED "stdout"

enum { MOST_PROCESSES = 16, MOST_FILES = 64 };

/* A way to call the program; its results go to the folder out of the folder that it runs in. */
typedef struct faulty_call {
    const char *program, *arguments; /* separated by blanks */
    const char *before;              /* a shell command that fills the folder, or NULL */
    bool measures;                   /* reports with times, of which the findings are compared */
    bool compiles;                   /* kernels, the first time */
    bool numbers;                    /* names files by a count of what it has read */
    const char *admits;              /* a sentence by which a page says what it lacks, or NULL */
} faulty_call;

typedef struct file_list {
    char *name[MOST_FILES], *bytes[MOST_FILES];
    size_t size[MOST_FILES];
    int count;
} file_list;

typedef struct walk {
    scratch s;
    const faulty_call *call;
    const char *kind;
    file_list want; /* the files of a run without failure */
    pid_t running[MOST_PROCESSES];
    char fault[MOST_PROCESSES][60]; /* what FAULT says */
    int processes;
    bool repeats;        /* the device of one run (repeated_device.h) */
    bool has_caches;     /* each run has its own, as they were after one without failure */
    long walked, missed; /* missed: the run ended before that call */
    long driven;         /* of those walked: by the driver, for they asked what was not recorded */
} walk;

/* ---- files ---- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Lines without times, and without the number that a stream gives a frame and the recording's file that follows from
 * it; those that are no JSON stay as they are. */
static void forget_what_varies(char **bytes, size_t *size) {
    static const char *const keys[] = {"ms", "timestamp", "number"};
    char *kept = calloc(1, 2 * *size + 1), *line = *bytes;
    size_t used = 0;
    for (char *end; kept && (end = strchr(line, '\n')); line = end + 1) {
        json_t *root = json_loadb(line, (size_t)(end - line), 0, NULL);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_del(root, keys[i]);
        if (json_object_get(root, "source")) json_object_del(root, "file");
        char *text = root ? json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT) : strndup(line, (size_t)(end - line));
        used += (size_t)sprintf(kept + used, "%s\n", text);
        free(text);
        json_decref(root);
    }
    strcpy(kept + used, line);
    *size = used + strlen(line);
    free(*bytes);
    *bytes = kept;
}

static void list_files(const char *folder, const char *inside, file_list *list) {
    char path[600], name[300];
    snprintf(path, sizeof path, "%s/%s", folder, inside);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat st;
        if (e->d_name[0] == '.' && (!e->d_name[1] || !strcmp(e->d_name, ".."))) continue;
        snprintf(name, sizeof name, "%s%s%s", inside, *inside ? "/" : "", e->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (!lstat(path, &st) && S_ISDIR(st.st_mode)) {
            list_files(folder, name, list);
            continue;
        }
        cr_assert_lt(list->count, MOST_FILES);
        list->name[list->count] = strdup(name);
        list->bytes[list->count] = scratch_read(path, &list->size[list->count]);
        if (ends_with(e->d_name, ".ndjson")) forget_what_varies(&list->bytes[list->count], &list->size[list->count]);
        list->count++;
    }
    if (dir) closedir(dir);
}

static void free_files(file_list *list) {
    for (int i = 0; i < list->count; i++) {
        free(list->name[i]);
        free(list->bytes[i]);
    }
    list->count = 0;
}

static int find_file(const file_list *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->name[i], name)) return i;
    return -1;
}

static bool is_json(const char *bytes, size_t size) {
    json_t *root = json_loadb(bytes, size, 0, NULL);
    json_decref(root);
    return root != NULL;
}

/* Whether each line is one of `all`, and the last is not cut off. */
static bool are_lines_of(const char *bytes, const char *all) {
    for (const char *at = bytes, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        bool found = false;
        for (const char *k = all; end && !found && k; k = strchr(k, '\n'), k = k ? k + 1 : NULL)
            found = !strncmp(k, at, (size_t)(end - at) + 1);
        if (!found) return false;
    }
    return true;
}

/* A table of fewer images is whole too; all else is as it would be without the failure, or not there. */
static bool is_whole(const walk *w, const char *name, const char *bytes, size_t size) {
    int k = find_file(&w->want, name);
    if (k >= 0 && size == w->want.size[k] && !memcmp(bytes, w->want.bytes[k], size)) return true;
    if (w->call->admits && strstr(bytes, w->call->admits)) return true;
    for (int i = 0; i < w->want.count && w->call->numbers; i++)
        if (size == w->want.size[i] && !memcmp(bytes, w->want.bytes[i], size)) return true;
    if (!strcmp(name, "failed.ndjson")) return are_lines_of(bytes, bytes);
    if (ends_with(name, ".json") || ends_with(name, ".sarif")) return is_json(bytes, size);
    return k >= 0 && (ends_with(name, ".ndjson") || ends_with(name, ".csv")) && are_lines_of(bytes, w->want.bytes[k]);
}

/* ---- one run ---- */

static const char *slot_path(const walk *w, int slot, const char *name) {
    return scratch_path(&w->s, "%d/%s", slot, name);
}

static void clear_slot(const walk *w, int slot) {
    char command[1200], caches[300] = "";
    const char *before = w->call->before;
    if (w->has_caches) snprintf(caches, sizeof caches, " && cp -a ../%d.caches caches", slot);
    snprintf(command, sizeof command, "cd '%s' && rm -rf %d && mkdir %d && cd %d && mkdir out tmp%s%s%s", w->s.path,
             slot, slot, slot, caches, before ? " && " : "", before ? before : "");
    cr_assert_eq(system(command), 0, "%s", command);
}

/* With what fault[slot] says. `device`: record, repeat, or NULL for the driver as it is. A process that hangs is ended
 * by timeout, with 137; one that finds its device to be another compiles kernels for minutes. */
static void start(walk *w, int slot, const char *device) {
    char command[1500], own[200] = "";
    clear_slot(w, slot);
    setenv("FAULT", w->fault[slot], 1);
    setenv("FAULT_LOG", slot_path(w, slot, "log"), 1);
    snprintf(command, sizeof command, "%s:%s/answers", device ? device : "", w->s.path);
    setenv("FAULT_DEVICE", device ? command : "", 1);
    if (w->has_caches)
        snprintf(own, sizeof own, "ISTHMUS_CACHE_DIR=$PWD/caches/isthmus POCL_CACHE_DIR=$PWD/caches/pocl ");
    snprintf(command, sizeof command,
             "cd '%s/%d' && %sTMPDIR=$PWD/tmp exec timeout -s KILL %d %s %s >stdout 2>stderr </dev/null", w->s.path,
             slot, own, w->call->compiles ? 600 : 120, w->call->program, w->call->arguments);
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    cr_assert_eq(posix_spawn(&w->running[slot], argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ), 0);
}

/* Calls counted, and the name of the one that failed. */
static long read_log(const walk *w, int slot, char name[64]) {
    char *log = scratch_read(slot_path(w, slot, "log"), NULL);
    long count = 0;
    snprintf(name, 64, "?");
    if (log) cr_assert_eq(sscanf(log, "%ld %63s", &count, name), 2);
    free(log);
    return count;
}

/* Lines that begin with the program's name; others are those of libraries. */
static int sentences(const char *err) {
    int count = 0;
    for (const char *at = err; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (!strncmp(at, "isthmus: ", 9)) {
            size_t length = strcspn(at, "\n");
            cr_expect(at[length] == '\n' && length > 20, "a sentence is cut off: %s", at);
            count++;
        }
    return count;
}

/* Whether what the failed call was to remove may be left. */
static bool removes(const char *name) {
    static const char *const calls[] = {"unlink", "unlinkat", "rmdir", "opendir"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(name, calls[i])) return true;
    return false;
}

/* Its files, and last what it printed. */
static void list_results(const walk *w, int slot, file_list *list) {
    list_files(slot_path(w, slot, "out"), "", list);
    cr_assert_lt(list->count, MOST_FILES);
    list->name[list->count] = strdup(PRINTED);
    list->bytes[list->count] = scratch_read(slot_path(w, slot, PRINTED), &list->size[list->count]);
    list->count++;
}

static void check_temporary(const walk *w, int slot, const char *where, const char *name) {
    file_list left = {.count = 0};
    list_files(slot_path(w, slot, "tmp"), "", &left);
    cr_expect(!left.count || removes(name), "%s: %s is left in TMPDIR", where, left.count ? left.name[0] : "");
    free_files(&left);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether two reports of the audit have the same findings, in any order: they are ordered by measured times. */
static bool have_same_findings(const char *a, const char *b) {
    enum { MOST = 200 };
    const char *ids[2][MOST], *const texts[2] = {a, b};
    json_t *roots[2];
    size_t counts[2];
    for (int i = 0; i < 2; i++) {
        roots[i] = json_loads(texts[i], 0, NULL);
        const json_t *findings = json_object_get(roots[i], "findings");
        counts[i] = json_array_size(findings);
        cr_assert_lt(counts[i], MOST);
        for (size_t k = 0; k < counts[i]; k++)
            ids[i][k] = json_string_value(json_object_get(json_array_get(findings, k), "id"));
        qsort(ids[i], counts[i], sizeof *ids[i], by_text);
    }
    bool same = counts[0] > 0 && counts[0] == counts[1];
    for (size_t k = 0; same && k < counts[0]; k++) same = !strcmp(ids[0][k], ids[1][k]);
    json_decref(roots[0]);
    json_decref(roots[1]);
    return same;
}

/* Whether file i of a run without failure is file k of this one. */
static bool is_same(const walk *w, int i, const file_list *got, int k) {
    if (k < 0) return false;
    if (w->call->measures && ends_with(got->name[k], ".json"))
        return have_same_findings(w->want.bytes[i], got->bytes[k]);
    if (w->call->measures || w->call->admits) return true; /* is_whole has seen it */
    return got->size[k] == w->want.size[i] && !memcmp(got->bytes[k], w->want.bytes[i], got->size[k]);
}

static void check(walk *w, int slot, int status) {
    static const int codes[] = {0, 1, 2, 3, 4, 7};
    char where[400], name[64];
    bool known = false;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    char *err = scratch_read(slot_path(w, slot, "stderr"), NULL);
    read_log(w, slot, name);
    w->walked++;
    w->missed += !strcmp(name, "none");
    snprintf(where, sizeof where, "%s, %s (%s)", w->call->arguments, w->fault[slot], name);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) known |= code == codes[i];
    cr_expect(known, "%s: exit code %d: %s", where, code, err);
    cr_expect(!code || sentences(err), "%s: exit code %d without a sentence: %s", where, code, err);
    file_list got = {.count = 0};
    list_results(w, slot, &got);
    for (int i = 0; i < got.count - 1; i++) { /* what is printed may be cut off where it failed */
        bool temporary = ends_with(got.name[i], ".tmp") || ends_with(got.name[i], ".partial") || got.name[i][0] == '.';
        cr_expect(temporary || is_whole(w, got.name[i], got.bytes[i], got.size[i]), "%s: %s is not whole", where,
                  got.name[i]);
        cr_expect(!ends_with(got.name[i], ".tmp") || removes(name), "%s: %s is left", where, got.name[i]);
    }
    for (int i = 0; i < w->want.count && !code; i++) { /* it did without: a cache, a folder that is there already */
        bool same = is_same(w, i, &got, find_file(&got, w->want.name[i]));
        cr_expect(same, "%s: exit code 0, and %s is another: %s", where, w->want.name[i], err);
    }
    check_temporary(w, slot, where, name);
    free_files(&got);
    free(err);
}

static void finish_one(walk *w) {
    int status = 0, slot = 0;
    pid_t pid = wait(&status);
    cr_assert_gt(pid, 0);
    while (slot < w->processes && w->running[slot] != pid) slot++;
    cr_assert_lt(slot, w->processes);
    w->running[slot] = 0;
    if (w->repeats && WIFEXITED(status) && WEXITSTATUS(status) == DEVICE_UNKNOWN) {
        w->driven++;
        start(w, slot, NULL);
    } else {
        check(w, slot, status);
    }
}

/* ---- all of them ---- */

/* Files and calls of a run without failure. */
static long count_calls(walk *w, const char *device) {
    int status;
    char name[64];
    snprintf(w->fault[0], sizeof w->fault[0], "%s:0", w->kind);
    free_files(&w->want);
    start(w, 0, device);
    cr_assert_eq(waitpid(w->running[0], &status, 0), w->running[0]);
    w->running[0] = 0;
    char *err = scratch_read(slot_path(w, 0, "stderr"), NULL);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %d: %s", w->call->arguments, status, err);
    free(err);
    list_results(w, 0, &w->want);
    return read_log(w, 0, name);
}

/* The recording of one run, and that what repeats it makes the same files. */
static void record(walk *w) {
    walk first = *w;
    first.want.count = 0;
    count_calls(&first, "record");
    count_calls(w, "repeat");
    cr_assert_eq(first.want.count, w->want.count);
    for (int i = 0; i < w->want.count; i++)
        cr_assert(is_same(&first, i, &w->want, find_file(&w->want, first.want.name[i])), "%s: %s is another",
                  w->call->arguments, first.want.name[i]);
    free_files(&first.want);
}

/* Caches for each slot: what cannot be read is removed from them, and they know their folder. */
static void keep_caches(walk *w) {
    char command[900];
    w->has_caches = true;
    for (int slot = w->processes - 1; slot >= 0; slot--) {
        snprintf(command, sizeof command, "rm -rf '%s/%d.caches' && cp -a '%s' '%s/%d.caches'", w->s.path, slot, CACHES,
                 w->s.path, slot);
        cr_assert_eq(system(command), 0);
        snprintf(w->fault[slot], sizeof w->fault[slot], "%s:0", w->kind);
        start(w, slot, NULL);
        finish_one(w);
        snprintf(command, sizeof command, "cd '%s' && rm -rf %d.caches && mv %d/caches %d.caches", w->s.path, slot,
                 slot, slot);
        cr_assert_eq(system(command), 0);
    }
    w->walked = w->missed = 0;
}

/* A walk that has had its runs without failure; *count calls. */
static walk begin_walk(const scratch *s, const faulty_call *call, const char *kind, bool repeats, long *count) {
    walk w = {.s = *s, .call = call, .kind = kind, .processes = ist_cores(), .repeats = repeats};
    if (w.processes > MOST_PROCESSES) w.processes = MOST_PROCESSES;
    if (call->compiles) count_calls(&w, NULL);
    if (repeats && !strcmp(kind, "file")) keep_caches(&w);
    if (repeats) record(&w);
    *count = count_calls(&w, repeats ? "repeat" : NULL);
    cr_assert_gt(*count, 10, "%s: only %ld calls of %s are seen", call->arguments, *count, kind);
    return w;
}

/* `place`: where the call comes from, "" for anywhere. */
static void add_run(walk *w, long position, const char *place) {
    int slot = 0;
    for (bool full = true; full;) {
        for (slot = 0; slot < w->processes && w->running[slot];) slot++;
        full = slot == w->processes;
        if (full) finish_one(w);
    }
    snprintf(w->fault[slot], sizeof w->fault[slot], "%s:%ld%s%s", w->kind, position, *place ? "@" : "", place);
    start(w, slot, w->repeats ? "repeat" : NULL);
}

static void end_walk(walk *w) {
    for (int i = 0; i < w->processes; i++)
        if (w->running[i]) {
            finish_one(w);
            i = -1;
        }
    /* which thread is first decides how many there are */
    cr_expect_leq(w->missed, 1 + w->walked / 20, "%s: %ld of %ld calls of %s did not come to be", w->call->arguments,
                  w->missed, w->walked, w->kind);
    cr_log_info("%s: %ld runs with a failure of %s, %ld of them asked the driver after all\n", w->call->arguments,
                w->walked, w->kind, w->driven);
    free_files(&w->want);
}

/* `most`: about how many positions are walked where not all are. */
static void walk_kind(const scratch *s, const faulty_call *call, const char *kind, bool repeats, long most) {
    long count;
    walk w = begin_walk(s, call, kind, repeats, &count);
    long step = getenv("ISTHMUS_EVERY_FAULT") || count <= most ? 1 : (count + most - 1) / most;
    for (long position = 1 + count % step; position <= count; position += step) add_run(&w, position, "");
    end_walk(&w);
}

/* ---- places ---- */

typedef struct place {
    long calls;
    char name[17];
} place;

/* The places of a run without failure in *list, malloc'd; with no more callers than `depth`. */
static int list_places(walk *w, int depth, place **list) {
    const char *path = scratch_path(&w->s, "places"), *line;
    char number[16];
    int count = 0;
    snprintf(number, sizeof number, "%d", depth);
    setenv("FAULT_SITES", path, 1);
    setenv("FAULT_DEPTH", number, 1);
    count_calls(w, w->repeats ? "repeat" : NULL);
    unsetenv("FAULT_SITES");
    char *text = scratch_read(path, NULL);
    cr_assert_not_null(text);
    *list = calloc(strlen(text), sizeof **list);
    cr_assert_not_null(*list);
    for (line = text; *line; line = strchr(line, '\n') + 1, count++)
        cr_assert_eq(sscanf(line, "%ld %16s", &(*list)[count].calls, (*list)[count].name), 2);
    free(text);
    return count;
}

static bool is_among(const place *p, const place *list, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(p->name, list[i].name)) return true;
    return false;
}

/* Each place that `known` does not have, at its first, second and last call; known is NULL, or a call that is walked
 * elsewhere, with which callers further away make no difference. */
static void walk_places(const scratch *s, const faulty_call *call, const char *kind, bool repeats,
                        const faulty_call *known) {
    enum { ALL = 60, NEAR = 7 };
    place *list, *seen = NULL;
    long calls;
    int seen_count = 0;
    if (known) {
        walk k = begin_walk(s, known, kind, repeats, &calls);
        seen_count = list_places(&k, NEAR, &seen);
        free_files(&k.want);
    }
    walk w = begin_walk(s, call, kind, repeats, &calls);
    int count = list_places(&w, known ? NEAR : ALL, &list);
    for (int i = 0; i < count; i++) {
        if (is_among(&list[i], seen, seen_count)) continue;
        for (long n = 1; n <= 2 && n <= list[i].calls; n++) add_run(&w, n, list[i].name);
        if (list[i].calls > 2) add_run(&w, list[i].calls, list[i].name);
    }
    end_walk(&w);
    free(list);
    free(seen);
}

static scratch make_input(void) {
    scratch s = scratch_make();
    mkdir(scratch_path(&s, "in"), 0777);
    mkdir(scratch_path(&s, "weights"), 0777);
    scratch_put(scratch_path(&s, "weights/dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "weights/mobile_sam_demo.safetensors"), "");
    for (int i = 0; i < 2; i++) write_png(scratch_path(&s, "in/%02d.png", i), 50 + i, 60);
    scratch_put(scratch_path(&s, "truth.json"),
                "{\"images\":[{\"id\":1,\"file_name\":\"00.png\",\"width\":50,\"height\":60}],"
                "\"categories\":[{\"id\":13,\"name\":\"stop sign\"}],\"annotations\":[{\"id\":1,\"image_id\":1,"
                "\"category_id\":13,\"bbox\":[1,1,20,30],\"area\":600,\"iscrowd\":0,"
                "\"segmentation\":[[1,1,21,1,21,31]]}]}");
    scratch_put(
        scratch_path(&s, "prompts.json"),
        "{\"00.png\": [{\"points\": [[3, 4, 1], [9, 9, 0]], \"box\": [1, 2, 30, 40]}, {\"points\": [[5, 5, 1]]}]}");
    setenv("ISTHMUS_WEIGHTS_DIR", scratch_path(&s, "weights"), 1);
    setenv("ISTHMUS_CACHE_DIR", "off", 1);
    return s;
}

static void walk_files_and_memory(const faulty_call *call) {
    scratch s = make_input();
    walk_kind(&s, call, "memory", false, 25);
    walk_kind(&s, call, "file", false, 25);
    scratch_remove(&s);
}

Test(cli_faults, predict) {
    walk_files_and_memory(
        &(faulty_call){FAKE, "predict ../in -o out --quiet --save json,ndjson,masks,overlay,yolo,csv", NULL});
}

Test(cli_faults, predict_resumed) {
    walk_files_and_memory(&(faulty_call){FAKE, "predict ../in -o out --quiet --resume",
                                         "FAULT= FAULT_LOG= " FAKE " predict ../in -o out --quiet --limit 1"});
}

Test(cli_faults, predict_given_boxes) {
    walk_files_and_memory(&(faulty_call){
        FAKE, "predict ../in -o out --quiet --targets ../truth.json --no-detector --save json,ndjson", NULL});
}

Test(cli_faults, segment) {
    walk_files_and_memory(
        &(faulty_call){FAKE, "segment ../in -o out --quiet --points ../prompts.json --save json,masks,overlay", NULL});
}

Test(cli_faults, eval) {
    walk_files_and_memory(&(faulty_call){FAKE, "eval --annotations ../truth.json ../in --json out/scores.json", NULL});
}

Test(cli_faults, audit_of_a_run) {
    walk_files_and_memory(&(faulty_call){
        FAKE, "audit --budget reads=9,writes=9,waits=9 ../in --json out/a.json --sarif out/a.sarif", NULL});
}

/* Two files, for a report calls more often than all the rest. */
Test(cli_faults, audit_of_sources) {
    walk_files_and_memory(&(faulty_call){FAKE, "audit --source src --json out/a.json --sarif out/a.sarif",
                                         "mkdir src && cd " IST_SOURCE_DIR
                                         "/tests/audit/source && cp clean.py runtime.cu \"$OLDPWD/src\""});
}

Test(cli_faults, convert) {
    const char *const from = IST_SOURCE_DIR "/tests/fuzz/corpus/zip/training.pth", *const again =
                                                                                       "in.safetensors --half";
    for (int i = 0; i < 2; i++) {
        char arguments[300], before[500];
        snprintf(arguments, sizeof arguments, "convert %s out/a.safetensors", i ? again : from);
        snprintf(before, sizeof before, "FAULT= FAULT_LOG= " FAKE " convert %s in.safetensors 2>/dev/null", from);
        walk_files_and_memory(&(faulty_call){FAKE, arguments, before});
    }
}

/* A program of ours under the audit's layer: what it calls itself is not counted. */
Test(cli_faults, audit_of_a_program) {
    walk_files_and_memory(
        &(faulty_call){FAKE, "audit --json out/a.json --sarif out/a.sarif -- " IST_BUILD_DIR "/tests/audit/audit_clean",
                       .measures = true});
}

/* The folder is of a run that was finished before. A picture that cannot be read is said to be. */
Test(cli_faults, report) {
    walk_files_and_memory(&(faulty_call){FAKE, "report ../run -o out/report.html",
                                         "test -d ../run || FAULT= FAULT_LOG= " FAKE
                                         " predict ../in ../none.png -o ../run --quiet 2>/dev/null || test $? = 7",
                                         .admits = "The image cannot be read: "});
}

Test(cli_faults, merge) {
    walk_files_and_memory(&(faulty_call){FAKE, "merge ../half1 ../half2 -o out",
                                         "test -d ../half2 || for i in 1 2; do FAULT= FAULT_LOG= " FAKE
                                         " predict ../in -o ../half$i --shard $i/2 --quiet || exit; done"});
}

/* A failure is neither a device that computes something else, which would be exit code 6, nor, of memory, a reason to
 * take another reference than the CPU; one whose driver cannot write to its folder is not used. That CPU is the
 * driver's, so that fewer fail. */
Test(cli_faults, verify) {
    const faulty_call strict = {FAKE, "verify --precision fp16 ../in", NULL},
                      admits = {FAKE, "verify --precision fp16 ../in", .admits = "reference"};
    scratch s = make_input();
    walk_kind(&s, &strict, "memory", false, 12);
    walk_kind(&s, &admits, "file", false, 6);
    scratch_remove(&s);
}

Test(cli_faults, info) {
    walk_files_and_memory(&(faulty_call){FAKE, "info " IST_SOURCE_DIR "/weights/dfine_n_demo.safetensors", NULL});
}

/* A frame that cannot be read makes exit code 7, and the others are complete. */
Test(cli_faults, live_on_a_folder) {
    walk_files_and_memory(&(faulty_call){
        FAKE, "live --from ../in --to out/results --record out/frames --no-drop --quiet", NULL, .numbers = true});
}

/* ---- the engine that computes, on the default device, with the demo's weights at its least size ---- */

#define SIZES "--imgsz 256 --segmenter-size 256"
static const faulty_call real_masks = {
    REAL, "predict ../in/00.png -o out --quiet --conf 0 --max-objects 2 --save json,ndjson,masks,overlay " SIZES,
    .compiles = true};
static const faulty_call real_eval = {
    REAL, "eval --annotations ../bones.json ../in/00.png --conf 0 --json out/scores.json " SIZES, .compiles = true};
static const faulty_call real_audit = {
    REAL, "audit --budget reads=9,writes=9,waits=9 ../in/00.png --json out/a.json --sarif out/a.sarif " SIZES,
    .measures = true, .compiles = true};

static const faulty_call real_segment = {
    REAL, "segment ../in/00.png -o out --quiet --points ../prompts.json --save json,masks --segmenter-size 256",
    .compiles = true};
static const faulty_call real_live = {
    REAL, "live --from ../one --to out/results --record out/frames --no-drop --quiet --conf 0 --max-objects 2 " SIZES,
    .compiles = true, .numbers = true};

static scratch make_real_input(void) {
    scratch s = make_input();
    scratch_put(scratch_path(&s, "bones.json"),
                "{\"images\":[{\"id\":1,\"file_name\":\"00.png\",\"width\":50,\"height\":60}],"
                "\"categories\":[{\"id\":1,\"name\":\"bone\"}],\"annotations\":[{\"id\":1,\"image_id\":1,"
                "\"category_id\":1,\"bbox\":[16,16,11,29],\"area\":300,\"iscrowd\":0,"
                "\"segmentation\":[[16,16,27,16,27,45]]}]}");
    mkdir(scratch_path(&s, "one"), 0777);
    write_png(scratch_path(&s, "one/00.png"), 50, 60);
    setenv("ISTHMUS_WEIGHTS_DIR", IST_SOURCE_DIR "/weights", 1);
    setenv("ISTHMUS_CACHE_DIR", IST_BUILD_DIR "/kernel-cache", 1);
    return s;
}

/* `most`: about how many positions where no walk is asked for; none of them: this is left out then. What `predict` does
 * not do is walked in others. The driver itself also meets a failure of its own calls at every place of `predict`. */
static void walk_engine(const faulty_call *call, const char *kind, long most) {
    const char *every = getenv("ISTHMUS_EVERY_FAULT");
    if (!every && !most) cr_skip_test("only where every call fails (ISTHMUS_EVERY_FAULT)");
    bool first = call == &real_masks;
    scratch s = make_real_input();
    if (every) {
        mkdir(CACHES, 0777);
        setenv("POCL_CACHE_DIR", CACHES "/pocl", 1);
        setenv("ISTHMUS_CACHE_DIR", CACHES "/isthmus", 1);
    }
    if (!every || !strcmp(every, "all"))
        walk_kind(&s, call, kind, false, most);
    else if (first && strcmp(every, "places") != 0)
        walk_kind(&s, call, kind, true, most);
    else
        walk_places(&s, call, kind, true, first ? NULL : &real_masks);
    if (every && first && !strcmp(kind, "opencl")) walk_places(&s, call, kind, false, NULL);
    scratch_remove(&s);
}

Test(cli_faults, opencl_of_masks) {
    walk_engine(&real_masks, "opencl", 5);
}
Test(cli_faults, opencl_of_eval) {
    walk_engine(&real_eval, "opencl", 2);
}
Test(cli_faults, opencl_of_an_audit) {
    walk_engine(&real_audit, "opencl", 2);
}
Test(cli_faults, opencl_of_segment) {
    walk_engine(&real_segment, "opencl", 0);
}
Test(cli_faults, opencl_of_live) {
    walk_engine(&real_live, "opencl", 0);
}
Test(cli_faults, memory_of_the_engine) {
    walk_engine(&real_masks, "memory", 5);
}
Test(cli_faults, memory_of_the_engine_in_eval) {
    walk_engine(&real_eval, "memory", 0);
}
Test(cli_faults, memory_of_the_engine_in_an_audit) {
    walk_engine(&real_audit, "memory", 0);
}
Test(cli_faults, memory_of_the_engine_in_segment) {
    walk_engine(&real_segment, "memory", 0);
}
Test(cli_faults, memory_of_the_engine_in_live) {
    walk_engine(&real_live, "memory", 0);
}

/* Its files beside the double's are those of caches. */
Test(cli_faults, files_of_the_engine) {
    walk_engine(&real_masks, "file", 0);
}
Test(cli_faults, files_of_the_engine_in_eval) {
    walk_engine(&real_eval, "file", 0);
}
Test(cli_faults, files_of_the_engine_in_an_audit) {
    walk_engine(&real_audit, "file", 0);
}
Test(cli_faults, files_of_the_engine_in_segment) {
    walk_engine(&real_segment, "file", 0);
}
Test(cli_faults, files_of_the_engine_in_live) {
    walk_engine(&real_live, "file", 0);
}
