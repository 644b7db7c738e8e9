/* Power failures: what the disk holds after every step of a run, and what --resume makes of it.
 *
 * A run of the program over a double of the engine records what it does to files (fake_disk.c). The recording is
 * replayed up to every line, and the disk is made to hold the least, or the most surprising, that the calls so far
 * promise:
 *     EAGER  every name is there at once, but of a file's bytes only those that were synced
 *     LAZY   of names, too, only those whose folder was synced since
 *     TORN   as EAGER, and of what is being synced just now the first half
 * Whatever has a final name must then be whole, and a resumed run must end as an undisturbed one. */
#include "predict_bench.h"

#include <errno.h>

enum { MOST = 512, EAGER = 0, LAZY, TORN, KINDS };

typedef struct event {
    char what[8], path[300], to[300];
    int copy; /* number of the bytes that are synced */
} event;

typedef struct name {
    char path[300];
    int file; /* -1: a folder; -2: nothing by now */
} name;

/* What the disk and the kernel hold. */
typedef struct disk {
    name names[MOST], kept[MOST]; /* as the program sees them; as the disk has them */
    int count, kept_count;
    int copy[MOST], files; /* synced bytes of each file; 0: none. Below 0: of the old run, file number -copy */
} disk;

typedef struct crash {
    bench b;
    event *events;
    int count;
    char record[160], old[160]; /* old: what was in the folder before, "" for nothing */
} crash;

static name *find(name *names, int count, const char *path) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i].path, path)) return &names[i];
    return NULL;
}

static void put(name *names, int *count, const char *path, int file) {
    name *n = find(names, *count, path);
    if (!n) {
        cr_assert_lt(*count, MOST);
        n = &names[(*count)++];
    }
    snprintf(n->path, sizeof n->path, "%s", path);
    n->file = file;
}

static bool is_in(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return !strncmp(path, folder, n) && path[n] == '/' && !strchr(path + n + 1, '/');
}

/* The folder's names, as the program sees them, are on the disk. */
static void sync_folder(disk *d, const char *folder) {
    for (int i = 0; i < d->count; i++)
        if (is_in(d->names[i].path, folder)) put(d->kept, &d->kept_count, d->names[i].path, d->names[i].file);
}

static void apply(disk *d, const event *e) {
    name *n = find(d->names, d->count, e->path);
    if (!strcmp(e->what, "create")) {
        cr_assert_lt(d->files, MOST);
        put(d->names, &d->count, e->path, d->files++);
    } else if (!strcmp(e->what, "mkdir")) {
        put(d->names, &d->count, e->path, -1);
    } else if (!strcmp(e->what, "sync")) {
        cr_assert(n && n->file >= 0, "%s is synced and was not made", e->path);
        d->copy[n->file] = e->copy;
    } else if (!strcmp(e->what, "folder")) {
        sync_folder(d, e->path);
    } else if (!strcmp(e->what, "remove")) {
        if (n) n->file = -2;
    } else {
        cr_assert(n && n->file >= 0, "%s", e->path);
        int file = n->file;
        n->file = -2;
        put(d->names, &d->count, e->to, file);
    }
}

/* Bytes of a copy, or of the old run's file; "" for 0. */
static char *bytes_of(const crash *c, const disk *d, int file, size_t *size) {
    int copy = d->copy[file];
    *size = 0;
    if (!copy) return calloc(1, 1);
    char *bytes = copy > 0
                      ? scratch_read(scratch_path(&c->b.s, "record/%d", copy), size)
                      : scratch_read(scratch_path(&c->b.s, "old%s", d->names[-copy - 1].path + strlen(c->b.out)), size);
    cr_assert_not_null(bytes);
    return bytes;
}

/* Makes the output folder what the disk holds; `now` is what is happening. */
static void restore(const crash *c, const disk *d, int kind, const event *now) {
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'; mkdir '%s'", c->b.out, c->b.out);
    cr_assert_eq(system(command), 0);
    const name *names = kind == LAZY ? d->kept : d->names;
    int count = kind == LAZY ? d->kept_count : d->count;
    for (int i = 0; i < count; i++)
        if (names[i].file == -1 && strncmp(names[i].path, c->b.out, strlen(c->b.out)) == 0) mkdir(names[i].path, 0777);
    for (int i = 0; i < count; i++) {
        if (names[i].file < 0) continue;
        size_t size, more;
        char *bytes = bytes_of(c, d, names[i].file, &size);
        if (kind == TORN && !strcmp(now->what, "sync") && !strcmp(now->path, names[i].path)) {
            free(bytes);
            bytes = scratch_read(scratch_path(&c->b.s, "record/%d", now->copy), &more);
            size = more / 2 > size ? more / 2 : size;
        }
        FILE *f = fopen(names[i].path, "wb");
        if (f) { /* else its folder is not there yet, and so the file is not */
            fwrite(bytes, 1, size, f);
            fclose(f);
        }
        free(bytes);
    }
}

static bool same_file(const char *a, const char *b) {
    size_t m = 0, n = 0;
    char *x = scratch_read(a, &m), *y = scratch_read(b, &n);
    bool same = x && y && m == n && !memcmp(x, y, m);
    free(x);
    free(y);
    return same;
}

static const char *const finals[] = {"frames.ndjson",     "results.json",      "images.json",
                                     "masks/00-x.png",    "masks/01-x.png",    "masks/02-x.png",
                                     "overlays/00-x.png", "overlays/01-x.png", "overlays/02-x.png"};
enum { FINALS = sizeof finals / sizeof *finals, TABLES = 3, IMAGES = 3 };

/* What has a final name is the new run's, whole, or the old run's; images with a line have the new run's files. */
static void check_disk(const crash *c, int step, int kind) {
    for (int i = 0; i < FINALS; i++) {
        const char *path = scratch_path(&c->b.s, "out/%s", finals[i]);
        if (!scratch_exists(path)) continue;
        bool whole = same_file(path, scratch_path(&c->b.s, "new/%s", finals[i])) ||
                     (*c->old && same_file(path, scratch_path(&c->b.s, "old/%s", finals[i])));
        cr_expect(whole, "step %d, kind %d: %s is not whole", step, kind, finals[i]);
    }
    char *lines = scratch_read(scratch_path(&c->b.s, "out/frames.ndjson.partial"), NULL);
    for (int i = 0; lines && i < IMAGES; i++) {
        char file[20];
        snprintf(file, sizeof file, "%02d-x.png", i);
        char *line = strstr(lines, file);
        if (!line || !strchr(line, '\n')) continue;
        for (int k = TABLES + i; k < FINALS; k += IMAGES)
            cr_expect(same_file(scratch_path(&c->b.s, "out/%s", finals[k]), scratch_path(&c->b.s, "new/%s", finals[k])),
                      "step %d, kind %d: a line stands for %s, which is not there", step, kind, finals[k]);
    }
    free(lines);
}

/* A resumed run ends as the undisturbed one, or says that the old run's results are there. */
static void check_resume(const crash *c, const char *objects, int step, int kind) {
    spawned r = PREDICT(&c->b, "--max-objects", objects, "--resume");
    bool refused = *c->old && r.code == 2 && strstr(r.err, "--max-objects");
    cr_expect(r.code == 0 || refused, "step %d, kind %d: %d: %s", step, kind, r.code, r.err);
    for (int i = TABLES; i < FINALS && !refused; i++)
        cr_expect(same_file(scratch_path(&c->b.s, "out/%s", finals[i]), scratch_path(&c->b.s, "new/%s", finals[i])),
                  "step %d, kind %d: %s after --resume: %s", step, kind, finals[i], r.err);
    cr_expect(refused ||
                  same_file(scratch_path(&c->b.s, "out/results.json"), scratch_path(&c->b.s, "new/results.json")),
              "step %d, kind %d: results.json", step, kind);
    spawn_free(&r);
}

static void read_record(crash *c) {
    char *text = scratch_read(scratch_path(&c->b.s, "record/log"), NULL);
    cr_assert_not_null(text);
    c->events = calloc(MOST, sizeof *c->events);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        event *e = &c->events[c->count];
        cr_assert_lt(c->count, MOST - 1);
        char *space = strchr(line, ' '), *tab = strchr(line, '\t'), *last = strrchr(line, ' ');
        cr_assert_not_null(space);
        *space = '\0';
        snprintf(e->what, sizeof e->what, "%s", line);
        if (tab) *tab = '\0';
        if (!strcmp(e->what, "sync")) {
            e->copy = (int)strtol(last + 1, NULL, 10);
            *last = '\0';
        }
        if (tab) snprintf(e->to, sizeof e->to, "%s", tab + 1);
        snprintf(e->path, sizeof e->path, "%s", space + 1);
        if (!strncmp(e->path, c->b.out, strlen(c->b.out))) c->count++; /* not what the program does elsewhere */
    }
    free(text);
}

/* Names and bytes that were there before. */
static void begin_with_old(const crash *c, disk *d) {
    const char *const more[] = {"", "/masks", "/overlays", "/run.json"};
    for (int i = 0; i < 3; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s%s", c->b.out, more[i]);
        put(d->names, &d->count, path, -1);
        put(d->kept, &d->kept_count, path, -1);
    }
    for (int i = 0; *c->old && i <= FINALS; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", c->b.out, i < FINALS ? finals[i] : more[3] + 1);
        d->copy[d->files] = -(d->count + 1);
        put(d->names, &d->count, path, d->files);
        put(d->kept, &d->kept_count, path, d->files++);
    }
}

static void shell(const crash *c, const char *what) {
    char command[600];
    snprintf(command, sizeof command, "cd '%s' && %s", c->b.s.path, what);
    cr_assert_eq(system(command), 0, "%s", what);
}

static void replay(crash *c, const char *objects) {
    shell(c, "mkdir record");
    setenv("FAKE_DISK", c->record, 1);
    expect(PREDICT(&c->b, "--max-objects", objects), 0, "3 images, 0 failed");
    unsetenv("FAKE_DISK");
    shell(c, "cp -r out new");
    read_record(c);
    cr_assert_gt(c->count, 20);
    disk d = {.count = 0};
    begin_with_old(c, &d);
    if (!*c->old) d.count = d.kept_count = 1; /* "out" alone */
    for (int i = 0; i < c->count; i++) {
        const event *now = &c->events[i];
        for (int kind = EAGER; kind < KINDS; kind++) {
            if (kind == TORN && strcmp(now->what, "sync")) continue;
            restore(c, &d, kind, now);
            check_disk(c, i, kind);
            check_resume(c, objects, i, kind);
        }
        apply(&d, now);
    }
    restore(c, &d, LAZY, &c->events[0]); /* in the end nothing is missing */
    for (int i = 0; i < FINALS; i++)
        cr_expect(same_file(scratch_path(&c->b.s, "out/%s", finals[i]), scratch_path(&c->b.s, "new/%s", finals[i])),
                  "%s", finals[i]);
    free(c->events);
}

static crash make_crash(void) {
    crash c = {.b = make_bench(IMAGES)};
    snprintf(c.record, sizeof c.record, "%s/record", c.b.s.path);
    return c;
}

Test(cli_crash, a_fresh_run) {
    crash c = make_crash();
    replay(&c, "3");
    scratch_remove(&c.b.s);
}

Test(cli_crash, a_run_over_the_results_of_another) {
    crash c = make_crash();
    expect(PREDICT(&c.b, "--max-objects", "2"), 0, "3 images, 0 failed");
    shell(&c, "cp -r out old");
    snprintf(c.old, sizeof c.old, "old");
    replay(&c, "3");
    scratch_remove(&c.b.s);
}
