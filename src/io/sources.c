/* The list of input images: see sources.h. */
#include "io/sources.h"

#include "io/atomic_file.h"
#include "io/exif.h"
#include "io/image_format.h"
#include "io/journal.h"
#include "io/name_map.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    sources->items[sources->count++] = (ist_source){
        .path = path, .name = name, .turned = sources->turned, .values = {sources->values[0], sources->values[1]}};
    return IST_OK;
}

static void drop_file(ist_source_file *file) {
    if (!file || --file->references) return;
    ist_frames_close(&file->open);
    free(file->path);
    free(file->bytes);
    free(file);
}

static void free_source(ist_source *s) {
    free(s->path);
    free(s->name);
    free(s->stem);
    free(s->bytes);
    drop_file(s->file);
}

/* The last dot of the last part, or the end when there is none or it begins the part. */
static const char *extension_of(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strrchr(base, '.');
    return dot && dot != base ? dot : name + strlen(name);
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
        if (errno != ENOENT && (w->recursive || ist_is_image_name(entry))) { /* said when its turn comes, too */
            status = append(w->sources, path, relative, w->err);
            path = relative = NULL;
        }
    } else {
        bool dangling = stat(path, &target) != 0; /* an image that cannot be read, which is said when its turn comes */
        /* a linked folder may lead back up: only real ones are entered */
        if (S_ISDIR(st.st_mode) && is_entered(w, &st, folder, entry, depth))
            status = walk_folder(w, path, relative, depth + 1);
        else if ((dangling || S_ISREG(target.st_mode)) && ist_is_image_name(entry)) {
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

/* ---- files of several frames ---- */

/* "NAME#3" */
static char *mark(const char *name, size_t frame) {
    char *marked = malloc(strlen(name) + 24);
    if (marked) sprintf(marked, "%s#%zu", name, frame + 1);
    return marked;
}

/* Opens it to count its frames; `source` keeps none that is no container, or is a bad one: reading it says why. */
static ist_status look_into(ist_source *source, ist_error *err) {
    ist_frames *frames = NULL;
    ist_error ignored;
    if (source->streamed)
        ist_frames_open_bytes(source->bytes, source->bytes ? source->size : 0, "", IST_MAX_PIXELS, &frames, &ignored);
    else
        ist_frames_open(source->path, IST_MAX_PIXELS, &frames, &ignored);
    if (!frames) return IST_OK;
    ist_source_file *file = calloc(1, sizeof *file);
    char *path = ist_strdup(source->path);
    if (!file || !path) {
        ist_frames_close(&frames);
        free(file);
        free(path);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", source->path);
    }
    *file = (ist_source_file){.path = path,
                              .bytes = source->bytes,
                              .size = source->size,
                              .frames = ist_frames_count(frames),
                              .largest = ist_frames_size(frames),
                              .has_windows = ist_frames_have_windows(frames),
                              .references = 1};
    ist_frames_close(&frames);
    source->file = file;
    source->bytes = NULL;
    return IST_OK;
}

/* Appends the frames of an image's file, which is the caller's to drop. */
static ist_status append_frames(ist_sources *sources, ist_source *from, ist_error *err) {
    ist_source_file *file = from->file;
    bool many = file->frames > 1;
    for (size_t i = 0; i < file->frames; i++) {
        char *path = many ? mark(from->path, i) : ist_strdup(from->path);
        char *name = many ? mark(from->name, i) : ist_strdup(from->name);
        IST_TRY(append(sources, path, name, err));
        ist_source *s = &sources->items[sources->count - 1];
        s->streamed = from->streamed;
        s->size = from->size;
        s->file = file;
        s->frame = i;
        s->frames = file->frames;
        file->references++;
    }
    return IST_OK;
}

/* Puts in place of each container from `first` on the images that it gives. A folder's are found by their extensions,
 * so that nothing else is opened. */
static ist_status expand(ist_sources *sources, size_t first, bool by_name, ist_error *err) {
    bool any = false;
    for (size_t i = first; i < sources->count; i++) {
        ist_source *s = &sources->items[i];
        if (!by_name || ist_is_container_name(s->name)) IST_TRY(look_into(s, err));
        any = any || s->file;
    }
    if (!any) return IST_OK;
    size_t count = sources->count - first;
    ist_source *plain = malloc(count * sizeof *plain);
    if (!plain) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu file names", count);
    memcpy(plain, sources->items + first, count * sizeof *plain);
    sources->count = first;
    ist_status status = IST_OK;
    for (size_t i = 0; i < count; i++) {
        ist_source *s = &plain[i];
        if (!status && !s->file) {
            status = append(sources, s->path, s->name, err);
            if (status) {
                s->path = s->name = NULL;
            } else {
                sources->items[sources->count - 1] = *s;
                continue;
            }
        }
        if (!status) status = append_frames(sources, s, err);
        free_source(s);
    }
    free(plain);
    return status;
}

size_t ist_source_mark(const ist_source *source) {
    const char *mark = source->frames > 1 ? strrchr(source->path, '#') : NULL;
    return mark ? strlen(mark) : 0;
}

bool ist_source_follows(const ist_source *source, const ist_source *before) {
    size_t mark = ist_source_mark(source), m, n;
    if (mark || ist_source_mark(before)) {
        m = strlen(before->path) - ist_source_mark(before);
        n = strlen(source->path) - mark;
    } else {
        m = folder_length(before->path);
        n = folder_length(source->path);
    }
    return m == n && !memcmp(source->path, before->path, m);
}

/* What was said of the file is said of the frame. */
static ist_status fail_frame(const ist_source *source, ist_status status, ist_error *err) {
    size_t mark = ist_source_mark(source), n = strlen(source->path) - mark;
    if (!status || !err || !mark || strncmp(err->text, source->path, n) || err->text[n] != ':') return status;
    char text[sizeof err->text];
    snprintf(text, sizeof text, "%s%s", source->path, err->text + n);
    memcpy(err->text, text, sizeof text);
    return status;
}

ist_image_size ist_source_measure(const ist_source *source, size_t max_pixels) {
    ist_image_size size;
    if (source->file)
        size = source->file->largest;
    else if (source->streamed)
        size = ist_image_measure_bytes(source->bytes, source->bytes ? source->size : 0, max_pixels);
    else
        size = ist_image_measure(source->path, max_pixels);
    if (source->turned && size.passing < size.decoded) size.passing = size.decoded; /* a second one, after decoding */
    return size;
}

static ist_status open_file(const ist_source_file *file, size_t max_pixels, ist_frames **frames, ist_error *err) {
    ist_status status = file->bytes
                            ? ist_frames_open_bytes(file->bytes, file->size, file->path, max_pixels, frames, err)
                            : ist_frames_open(file->path, max_pixels, frames, err);
    if (!status && !*frames) status = ist_fail(err, IST_E_INPUT, "%s: cannot be opened again", file->path);
    return status;
}

static ist_status read_plain(const ist_source *source, size_t max_pixels, ist_bitmap *out, ist_error *err) {
    if (!source->streamed) return ist_bitmap_read(source->path, max_pixels, out, err);
    if (!source->bytes)
        return ist_fail(err, IST_E_LIMIT, "%s: %zu bytes, more than is read", source->path, source->size);
    return ist_bitmap_decode(source->bytes, source->size, source->path, max_pixels, out, err);
}

/* What has become of reading it: said of the frame, and turned. */
static ist_status finish_reading(const ist_source *source, ist_status status, ist_bitmap *out, ist_error *err) {
    if (!status && source->turned) status = ist_bitmap_turn(out, err);
    if (!status) return IST_OK;
    ist_bitmap_free(out);
    return fail_frame(source, status, err);
}

static ist_status read_frame(ist_frames *frames, const ist_source *source, ist_bitmap *out, ist_error *err) {
    ist_frames_show(frames, source->values);
    return ist_frames_read(frames, source->frame, out, err);
}

ist_status ist_source_read(const ist_source *source, size_t max_pixels, ist_bitmap *out, ist_error *err) {
    ist_frames *frames = NULL;
    *out = (ist_bitmap){0};
    if (!source->file) return finish_reading(source, read_plain(source, max_pixels, out, err), out, err);
    ist_status status = open_file(source->file, max_pixels, &frames, err);
    if (!status) status = read_frame(frames, source, out, err);
    ist_frames_close(&frames);
    return finish_reading(source, status, out, err);
}

ist_status ist_source_read_next(const ist_source *source, const ist_source *next, size_t max_pixels, ist_bitmap *out,
                                ist_error *err) {
    ist_source_file *file = source->file;
    if (!file) return ist_source_read(source, max_pixels, out, err);
    *out = (ist_bitmap){0};
    ist_status status = file->open ? IST_OK : open_file(file, max_pixels, &file->open, err);
    if (!status) status = read_frame(file->open, source, out, err);
    if (!next || next->file != file) ist_frames_close(&file->open);
    return finish_reading(source, status, out, err);
}

/* ---- adding ---- */

ist_status ist_sources_add(ist_sources *sources, const char *argument, bool recursive, const char *output,
                           ist_error *err) {
    struct stat st, out;
    size_t first = sources->count;
    if (stat(argument, &st) || !S_ISDIR(st.st_mode)) {
        const char *slash = strrchr(argument, '/');
        IST_TRY(append(sources, ist_strdup(argument), ist_strdup(slash && slash[1] ? slash + 1 : argument), err));
        return expand(sources, first, false, err);
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
    return expand(sources, first, true, err);
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
    return expand(sources, sources->count - 1, false, err);
}

void ist_sources_drop_bytes(ist_sources *sources, size_t first) {
    for (size_t i = first; i < sources->count; i++) {
        ist_source *s = &sources->items[i];
        free(s->bytes);
        s->bytes = NULL;
        if (!s->file || !s->streamed) continue;
        ist_frames_close(&s->file->open);
        free(s->file->bytes);
        s->file->bytes = NULL;
    }
}

/* The first of NAME without extension, NAME, NAME-2, NAME-3 ... that no earlier image has; with the number of a frame
 * behind the name, in as many digits as the file's last one, and four at least. The value of a taken stem is the next
 * number to try behind it: the same image a hundred thousand times is no hundred thousand tries. */
static ist_status choose_stem(ist_source *source, ist_name_map *taken, ist_error *err) {
    const char *base = source->name;
    while (*base == '/') base++; /* a stem is always below the output folder */
    if (!strncmp(base, "../", 3) || strstr(base, "/../") || !*base) base = "image";
    size_t tail = ist_source_mark(source);
    if (tail >= strlen(base)) tail = 0;
    size_t whole = strlen(base) - tail, bare = (size_t)(extension_of(base) - base);
    if (bare > whole) bare = whole;
    int digits = tail ? snprintf(NULL, 0, "%zu", source->frames) : 0;
    char *stem = malloc(whole + 48), number[24] = "";
    if (tail) snprintf(number, sizeof number, ".%0*zu", digits < 4 ? 4 : digits, source->frame + 1);
    bool inserted = false, fits = stem != NULL;
    for (size_t attempt = 0; fits && !inserted; attempt++) {
        size_t n = attempt ? whole : bare;
        memcpy(stem, base, n);
        strcpy(stem + n, number);
        if (attempt > 1) snprintf(stem + strlen(stem), 24, "-%zu", (*ist_name_map_find(taken, stem))++);
        fits = ist_name_map_insert(taken, stem, 2, &inserted);
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
        ist_source *s = &sources->items[i];
        s->sequence = s[-1].sequence + !ist_source_follows(s, s - 1);
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
    for (; sources->count > count; sources->count--) free_source(&sources->items[sources->count - 1]);
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
