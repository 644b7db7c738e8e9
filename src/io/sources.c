/* The list of input images: see sources.h. */
#include "io/sources.h"

#include "io/atomic_file.h"
#include "io/journal.h"
#include "io/name_map.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folders deeper than this are not a data set. */
#define MAX_DEPTH 64

typedef struct walk {
    ist_sources *sources;
    bool recursive;
    bool has_output;
    dev_t output_device; /* the output folder */
    ino_t output_inode;
    bool into_itself; /* it is the argument */
    ist_error *err;
} walk;

static ist_status append(ist_sources *sources, char *path, char *name, ist_error *err) {
    if (!path || !name ||
        !ist_grow((void **)&sources->items, &sources->capacity, sources->count + 1, sizeof *sources->items)) {
        free(path);
        free(name);
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu file names", sources->count + 1);
    }
    sources->items[sources->count++] = (ist_source){.path = path, .name = name};
    return IST_OK;
}

/* The last dot of the last part, or the end when there is none or it begins the part. */
static const char *extension_of(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strrchr(base, '.');
    return dot && dot != base ? dot : name + strlen(name);
}

static bool has_image_extension(const char *name) {
    const char *e = extension_of(name);
    return !strcasecmp(e, ".png") || !strcasecmp(e, ".jpg") || !strcasecmp(e, ".jpeg");
}

static size_t folder_length(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) : 0;
}

/* Folder by folder, so that a sequence stays together; within a folder by name. */
static int compare_sources(const void *a, const void *b) {
    const char *x = ((const ist_source *)a)->name, *y = ((const ist_source *)b)->name;
    size_t m = folder_length(x), n = folder_length(y);
    int order = memcmp(x, y, m < n ? m : n);
    if (!order) order = (m > n) - (m < n);
    return order ? order : strcmp(x, y);
}

static bool is_output(const walk *w, const struct stat *st) {
    return w->has_output && st->st_dev == w->output_device && st->st_ino == w->output_inode;
}

static bool has_file(const char *folder, const char *name) {
    char *path = ist_path_join(folder, name);
    bool has = path && !access(path, F_OK);
    free(path);
    return has;
}

static bool has_results(const char *folder) {
    return has_file(folder, IST_JOURNAL_NAME) || has_file(folder, IST_JOURNAL_PARTIAL);
}

/* Results of earlier runs are no input. */
static bool is_entered(const walk *w, const struct stat *st, const char *folder, const char *entry, int depth) {
    bool pictures = !strcmp(entry, "masks") || !strcmp(entry, "overlays");
    if (!w->recursive || is_output(w, st)) return false;
    return !pictures || !((w->into_itself && depth == 0) || has_results(folder));
}

static ist_status walk_folder(walk *w, const char *path, const char *name, int depth);

static ist_status walk_entry(walk *w, const char *folder, const char *name, const char *entry, int depth) {
    struct stat st, target;
    char *path = ist_path_join(folder, entry), *relative = ist_path_join(name, entry);
    ist_status status = IST_OK;
    if (!path || !relative) {
        status = ist_fail(w->err, IST_E_MEMORY, "%s: out of memory", folder);
    } else if (lstat(path, &st)) {
        if (errno != ENOENT && (w->recursive || has_image_extension(entry))) { /* said when its turn comes, too */
            status = append(w->sources, path, relative, w->err);
            path = relative = NULL;
        }
    } else {
        bool dangling = stat(path, &target) != 0; /* an image that cannot be read, which is said when its turn comes */
        /* a linked folder may lead back up: only real ones are entered */
        if (S_ISDIR(st.st_mode) && is_entered(w, &st, folder, entry, depth))
            status = walk_folder(w, path, relative, depth + 1);
        else if ((dangling || S_ISREG(target.st_mode)) && has_image_extension(entry)) {
            status = append(w->sources, path, relative, w->err);
            path = relative = NULL;
        }
    }
    free(path);
    free(relative);
    return status;
}

static ist_status walk_folder(walk *w, const char *path, const char *name, int depth) {
    if (depth > MAX_DEPTH) return ist_fail(w->err, IST_E_LIMIT, "%s: more than %d folders deep", path, MAX_DEPTH);
    DIR *folder = opendir(path);
    if (!folder && depth) return append(w->sources, ist_strdup(path), ist_strdup(name), w->err);
    if (!folder) return ist_fail(w->err, IST_E_IO, "cannot read the folder %s: %s", path, strerror(errno));
    ist_status status = IST_OK;
    struct dirent *entry;
    while (!status && (entry = readdir(folder)))
        if (entry->d_name[0] != '.') status = walk_entry(w, path, name, entry->d_name, depth);
    closedir(folder);
    return status;
}

ist_status ist_sources_add(ist_sources *sources, const char *argument, bool recursive, const char *output,
                           ist_error *err) {
    struct stat st, out;
    size_t first = sources->count;
    if (stat(argument, &st) || !S_ISDIR(st.st_mode)) {
        const char *slash = strrchr(argument, '/');
        return append(sources, ist_strdup(argument), ist_strdup(slash && slash[1] ? slash + 1 : argument), err);
    }
    walk w = {.sources = sources, .recursive = recursive, .err = err};
    if (output && !stat(output, &out)) {
        w.has_output = true;
        w.output_device = out.st_dev;
        w.output_inode = out.st_ino;
        w.into_itself = is_output(&w, &st);
    }
    IST_TRY(walk_folder(&w, argument, "", 0));
    if (sources->count > first)
        qsort(sources->items + first, sources->count - first, sizeof *sources->items, compare_sources);
    return IST_OK;
}

ist_status ist_sources_add_bytes(ist_sources *sources, const char *name, void *bytes, size_t size, ist_error *err) {
    ist_status status = append(sources, ist_strdup(name), ist_strdup(name), err);
    if (status) {
        free(bytes);
        return status;
    }
    ist_source *s = &sources->items[sources->count - 1];
    s->streamed = true;
    s->bytes = bytes;
    s->size = size;
    return IST_OK;
}

void ist_sources_drop_bytes(ist_sources *sources, size_t first) {
    for (size_t i = first; i < sources->count; i++) {
        free(sources->items[i].bytes);
        sources->items[i].bytes = NULL;
    }
}

/* The first of NAME without extension, NAME, NAME-2, NAME-3 ... that no earlier image has. */
static ist_status choose_stem(ist_source *source, ist_name_map *taken, ist_error *err) {
    const char *base = source->name;
    while (*base == '/') base++; /* a stem is always below the output folder */
    if (!strncmp(base, "../", 3) || strstr(base, "/../") || !*base) base = "image";
    size_t whole = strlen(base), bare = (size_t)(extension_of(base) - base);
    char *stem = malloc(whole + 24);
    bool inserted = false, fits = stem != NULL;
    for (size_t attempt = 0; fits && !inserted; attempt++) {
        size_t n = attempt ? whole : bare;
        memcpy(stem, base, n);
        stem[n] = '\0';
        if (attempt > 1) snprintf(stem + n, 24, "-%zu", attempt);
        fits = ist_name_map_insert(taken, stem, 0, &inserted);
    }
    source->stem = stem;
    if (!fits) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", source->path);
    return IST_OK;
}

struct ist_sources_growth {
    size_t known; /* images that have stems and sequences */
    ist_name_map names, stems;
};

static void end_growth(ist_sources *sources) {
    struct ist_sources_growth *g = sources->growth;
    if (!g) return;
    ist_name_map_free(&g->names);
    ist_name_map_free(&g->stems);
    free(g);
    sources->growth = NULL;
}

static ist_status choose_names(ist_sources *sources, struct ist_sources_growth *g, ist_error *err) {
    for (size_t i = g->known; i < sources->count; i++) {
        ist_source *s = &sources->items[i];
        bool inserted;
        IST_TRY(choose_stem(s, &g->stems, err)); /* from the short name: a path may leave the output folder */
        if (!ist_name_map_insert(&g->names, s->name, i, &inserted))
            return ist_fail(err, IST_E_MEMORY, "%s: out of memory", s->path);
        if (inserted) continue;
        char *path = ist_strdup(s->path);
        if (!path) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", s->path);
        free(s->name);
        s->name = path;
    }
    return IST_OK;
}

/* The number that a name is, as COCO's 000000000139.jpg; -1 when it is none. */
static int64_t name_number(const ist_source *source) {
    const char *slash = strrchr(source->name, '/'), *p = slash ? slash + 1 : source->name, *end = extension_of(p);
    int64_t value = 0;
    if (p == end || end - p > 18) return -1;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') return -1;
        value = value * 10 + (*p - '0');
    }
    return value;
}

static int compare_numbers(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static ist_status choose_ids(ist_sources *sources, ist_error *err) {
    int64_t *numbers = malloc((sources->count ? sources->count : 1) * sizeof *numbers);
    bool all = true;
    if (!numbers) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu image ids", sources->count);
    for (size_t i = 0; i < sources->count && all; i++) all = (numbers[i] = name_number(&sources->items[i])) >= 0;
    if (all) qsort(numbers, sources->count, sizeof *numbers, compare_numbers);
    for (size_t i = 1; i < sources->count && all; i++) all = numbers[i] != numbers[i - 1];
    free(numbers);
    for (size_t i = 0; i < sources->count; i++)
        sources->items[i].id = all ? name_number(&sources->items[i]) : (int64_t)i + 1;
    return IST_OK;
}

ist_status ist_sources_extend(ist_sources *sources, ist_error *err) {
    struct ist_sources_growth *g = sources->growth;
    if (!g) g = sources->growth = calloc(1, sizeof *g);
    if (!g) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu file names", sources->count);
    IST_TRY(choose_names(sources, g, err));
    for (size_t i = g->known ? g->known : 1; i < sources->count; i++) {
        const char *a = sources->items[i - 1].path, *b = sources->items[i].path;
        size_t m = folder_length(a), n = folder_length(b);
        sources->items[i].sequence = sources->items[i - 1].sequence + (m != n || memcmp(a, b, m) != 0);
    }
    g->known = sources->count;
    return IST_OK;
}

ist_status ist_sources_finish(ist_sources *sources, ist_error *err) {
    ist_status status = ist_sources_extend(sources, err);
    end_growth(sources);
    return status ? status : choose_ids(sources, err);
}

void ist_sources_truncate(ist_sources *sources, size_t count) {
    for (; sources->count > count; sources->count--) {
        ist_source *last = &sources->items[sources->count - 1];
        free(last->path);
        free(last->name);
        free(last->stem);
        free(last->bytes);
    }
}

void ist_sources_filter(ist_sources *sources, bool (*keep)(void *context, ist_source *source), void *context) {
    size_t kept = 0;
    for (size_t i = 0; i < sources->count; i++) {
        ist_source source = sources->items[i];
        bool stays = keep(context, &source);
        sources->items[i] = sources->items[kept]; /* those that go gather behind those that stay */
        sources->items[kept] = source;
        kept += stays;
    }
    ist_sources_truncate(sources, kept);
}

void ist_sources_free(ist_sources *sources) {
    ist_sources_truncate(sources, 0);
    end_growth(sources);
    free(sources->items);
    *sources = (ist_sources){0};
}
