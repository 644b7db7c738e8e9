/* Frames: where the work on one input begins and ends, from marks, from a kernel's name or from repetition.
 *
 * Repetition: each call becomes a token (what and where), neighbours that are equal become one. A token that occurs
 * three times or more cuts its thread into segments; its score is the number of tokens in segments equal to the most
 * common one. The token with the best score, and of those the one that comes first, begins a frame. What came before
 * those segments and begins alike is a frame too, with what it has besides: the first ones make what later ones find
 * there. */
#include "audit/audit.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct token {
    uint64_t value;
    size_t event, last; /* of equal neighbours */
    bool launch;
} token;

typedef struct tokens {
    token *items;
    uint64_t *prefix; /* polynomial hash of items[0, i) */
    uint64_t *power;
    uint32_t *launches; /* in items[0, i) */
    size_t count;
} tokens;

typedef struct pattern {
    size_t first, length, score; /* tokens: where it begins, how long it is */
    uint64_t value;
} pattern;

static const uint64_t HASH_BASE = 0x9E3779B97F4A7C15u;

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 29;
}

static bool counts_for_frames(const ist_audit_event *e) {
    return e->op != IST_AUDIT_FLUSH && e->op != IST_AUDIT_KERNEL && e->op != IST_AUDIT_RELEASE &&
           e->op != IST_AUDIT_FRAME && e->op != IST_AUDIT_CONTEXT;
}

enum { THREADS = 64 }; /* threads with launches; more go with the busiest */

typedef struct launcher {
    uint32_t thread;
    uint64_t launches;
} launcher;

static int by_launches(const void *a, const void *b) {
    const launcher *x = a, *y = b;
    if (x->launches != y->launches) return x->launches > y->launches ? -1 : 1;
    return x->thread < y->thread ? -1 : x->thread > y->thread;
}

/* Threads that launch kernels, the busiest first; returns how many. */
static size_t find_launchers(const ist_audit_log *log, launcher *list) {
    size_t count = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        size_t k = 0;
        if (e->op != IST_AUDIT_LAUNCH) continue;
        while (k < count && list[k].thread != e->thread) k++;
        if (k == THREADS) continue;
        if (k == count) list[count++] = (launcher){e->thread, 0};
        list[k].launches++;
    }
    qsort(list, count, sizeof *list, by_launches);
    return count;
}

static bool is_launcher(const launcher *list, size_t count, uint32_t thread) {
    for (size_t k = 0; k < count; k++)
        if (list[k].thread == thread) return true;
    return false;
}

static bool make_tokens(const ist_audit_log *log, uint32_t thread, tokens *t) {
    t->items = malloc((log->event_count + 1) * sizeof *t->items);
    t->prefix = malloc((log->event_count + 1) * sizeof *t->prefix);
    t->power = malloc((log->event_count + 1) * sizeof *t->power);
    t->launches = malloc((log->event_count + 1) * sizeof *t->launches);
    if (!t->items || !t->prefix || !t->power || !t->launches) return false;
    t->prefix[0] = 0;
    t->power[0] = 1;
    t->launches[0] = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        if (e->thread != thread || !counts_for_frames(e)) continue;
        uint64_t value = mix(((uint64_t)e->site << 8 | e->op) + 1);
        if (e->op == IST_AUDIT_LAUNCH) value = mix(value + e->label);
        size_t n = t->count;
        if (n && t->items[n - 1].value == value) {
            t->items[n - 1].last = i;
            continue;
        }
        t->items[n] = (token){value, i, i, e->op == IST_AUDIT_LAUNCH};
        t->prefix[n + 1] = t->prefix[n] * HASH_BASE + value;
        t->power[n + 1] = t->power[n] * HASH_BASE;
        t->launches[n + 1] = t->launches[n] + (t->items[n].launch ? 1u : 0u);
        t->count++;
    }
    return true;
}

static uint64_t segment_hash(const tokens *t, size_t from, size_t to) {
    return t->prefix[to] - t->prefix[from] * t->power[to - from];
}

typedef struct segment {
    uint64_t hash;
    size_t from, length;
} segment;

static int by_hash(const void *a, const void *b) {
    const segment *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

typedef struct occurrence {
    uint64_t value;
    size_t at;
} occurrence;

static int by_value(const void *a, const void *b) {
    const occurrence *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Judges the token at occurrences o[0, n); `segments` has room for n. What follows the last occurrence counts when it
 * is as long as the pattern and equal to it. */
static void try_token(const tokens *t, const occurrence *o, size_t n, segment *segments, pattern *best) {
    for (size_t i = 0; i + 1 < n; i++)
        segments[i] = (segment){segment_hash(t, o[i].at, o[i + 1].at), o[i].at, o[i + 1].at - o[i].at};
    qsort(segments, n - 1, sizeof *segments, by_hash);
    for (size_t i = 0, j; i < n - 1; i = j) {
        for (j = i + 1; j < n - 1 && segments[j].hash == segments[i].hash;) j++;
        size_t length = segments[i].length, score = (j - i) * length, last = o[n - 1].at;
        if (j - i < 2 || t->launches[segments[i].from + length] == t->launches[segments[i].from]) continue;
        if (score * 2 < last - segments[i].from) continue;
        if (last + length <= t->count && segment_hash(t, last, last + length) == segments[i].hash) score += length;
        if (score > best->score || (score == best->score && segments[i].from < best->first))
            *best = (pattern){segments[i].from, length, score, o[0].value};
    }
}

static bool find_pattern(const tokens *t, pattern *best) {
    occurrence *o = malloc((t->count + 1) * sizeof *o);
    segment *segments = malloc((t->count + 1) * sizeof *segments);
    bool enough = o && segments;
    for (size_t i = 0; enough && i < t->count; i++) o[i] = (occurrence){t->items[i].value, i};
    if (enough) qsort(o, t->count, sizeof *o, by_value);
    for (size_t i = 0, j; enough && i < t->count; i = j) {
        for (j = i + 1; j < t->count && o[j].value == o[i].value;) j++;
        if (j - i >= 3) try_token(t, o + i, j - i, segments, best);
    }
    free(o);
    free(segments);
    return enough;
}

/* How many tokens before the first occurrence of its token the repetition begins: a loop may start with a call that it
 * makes more than once. */
static size_t lead_of_pattern(const tokens *t, const pattern *p) {
    size_t lead = 0;
    while (lead + 1 < p->length && lead < p->first &&
           t->items[p->first - lead - 1].value == t->items[p->first - lead - 1 + p->length].value)
        lead++;
    return lead;
}

/* A frame as a sequence of tokens. */
typedef struct sequence {
    uint64_t hash;
    size_t length; /* 0: none */
} sequence;

static bool is_at(const tokens *t, const sequence *s, size_t k) {
    return k + s->length <= t->count && segment_hash(t, k, k + s->length) == s->hash;
}

static sequence sequence_of(const tokens *t, const pattern *p) {
    size_t begin = p->first - lead_of_pattern(t, p);
    return (sequence){segment_hash(t, begin, begin + p->length), p->length};
}

/* Where the first frame begins: at `begin`, or before, where the same sequence stands with less than a frame behind it.
 */
static size_t first_alike(const tokens *t, const sequence *s, size_t begin) {
    for (size_t k = begin; k-- > 0 && begin - k < 2 * s->length;)
        if (k + s->length <= begin && is_at(t, s, k)) begin = k;
    return begin;
}

/* Frames begin at the pattern's token, or its lead before; the last is as long as the pattern, and none when the log
 * ends before that: half a frame cannot be judged. The events of list[at]'s thread are numbered on from frames->count;
 * those of threads without launches go with the busiest. */
static void number_pattern(ist_audit_log *log, const tokens *t, const pattern *p, const launcher *list, size_t count,
                           size_t at, ist_audit_frames *frames) {
    const sequence whole = sequence_of(t, p);
    size_t lead = lead_of_pattern(t, p), begin = first_alike(t, &whole, p->first - lead), last = begin;
    for (size_t k = p->first; k < t->count; k++)
        if (t->items[k].value == p->value) last = k - lead;
    size_t stop = last + p->length <= t->count ? last + p->length : last;
    for (size_t k = begin; k < stop; k++) {
        frames->count += k + lead < t->count && t->items[k + lead].value == p->value;
        size_t end = k + 1 < stop ? t->items[k + 1].event : t->items[k].last + 1;
        for (size_t i = t->items[k].event; i < end; i++) {
            ist_audit_event *e = &log->events[i];
            if (e->thread == list[at].thread || (!at && !is_launcher(list, count, e->thread))) e->frame = frames->count;
        }
    }
    frames->source = IST_AUDIT_FRAMES_PATTERN;
}

/* Frames of a thread that makes few of them, such as one to warm up: where it does what a busier one does in each.
 * False: nowhere. */
static bool number_alike(ist_audit_log *log, const tokens *t, const sequence *s, uint32_t thread,
                         ist_audit_frames *frames) {
    bool found = false;
    for (size_t k = 0; k < t->count; k++) {
        if (!is_at(t, s, k)) continue;
        found = true;
        frames->count++;
        for (size_t i = t->items[k].event; i <= t->items[k + s->length - 1].last; i++)
            if (log->events[i].thread == thread) log->events[i].frame = frames->count;
        k += s->length - 1;
    }
    return found;
}

static ist_status by_pattern(ist_audit_log *log, ist_audit_frames *frames, ist_error *err) {
    launcher list[THREADS];
    sequence busiest = {0};
    size_t count = find_launchers(log, list);
    bool enough = true;
    for (size_t k = 0; k < count && enough; k++) {
        tokens t = {0};
        pattern best = {0};
        enough = make_tokens(log, list[k].thread, &t) && find_pattern(&t, &best);
        bool alike = enough && busiest.length > best.length && number_alike(log, &t, &busiest, list[k].thread, frames);
        if (enough && !alike && best.score) number_pattern(log, &t, &best, list, count, k, frames);
        if (enough && best.score && !busiest.length) busiest = sequence_of(&t, &best);
        free(t.items);
        free(t.prefix);
        free(t.power);
        free(t.launches);
    }
    if (!enough) return ist_fail(err, IST_E_MEMORY, "out of memory for the patterns of %zu events", log->event_count);
    return IST_OK;
}

/* How many events in front of the launch at `k` belong to its frame: those after the last wait or download. */
static size_t lead_in(const ist_audit_log *log, size_t previous, size_t k) {
    for (size_t i = k; i-- > previous + 1;)
        if (ist_audit_is_wait(&log->events[i]) || ist_audit_is_download(&log->events[i])) return k - i - 1;
    return 0;
}

static void by_kernel(ist_audit_log *log, const char *kernel, ist_audit_frames *frames) {
    size_t previous = SIZE_MAX, first_lead = SIZE_MAX;
    uint32_t count = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        ist_audit_event *e = &log->events[i];
        e->frame = count;
        if (e->op != IST_AUDIT_LAUNCH || strcmp(ist_audit_label(log, e->label), kernel)) continue;
        count++;
        size_t lead = previous == SIZE_MAX ? 0 : lead_in(log, previous, i);
        if (count == 2) first_lead = lead;
        for (size_t j = i - lead; j <= i; j++) log->events[j].frame = count;
        previous = i;
    }
    /* what leads into the second frame tells how much led into the first */
    for (size_t i = 0; count > 1 && i < log->event_count; i++) {
        if (log->events[i].frame != 1) continue;
        for (size_t j = i; j > 0 && i - j < first_lead; j--) log->events[j - 1].frame = 1;
        break;
    }
    frames->source = IST_AUDIT_FRAMES_KERNEL;
    frames->count = count;
}

typedef struct result_frame {
    uint64_t result;
    uint32_t frame;
} result_frame;

static int by_result(const void *a, const void *b) {
    const result_frame *x = a, *y = b;
    return x->result < y->result ? -1 : x->result > y->result;
}

/* Waits go to the frames of the results that they are for. */
static ist_status follow_results(ist_audit_log *log, ist_error *err) {
    size_t count = 0;
    result_frame *list = malloc((log->event_count + 1) * sizeof *list);
    if (!list) return ist_fail(err, IST_E_MEMORY, "out of memory for the results of %zu events", log->event_count);
    for (size_t i = 0; i < log->event_count; i++) {
        const ist_audit_event *e = &log->events[i];
        if (e->result && e->op != IST_AUDIT_WAIT) list[count++] = (result_frame){e->result, e->frame};
    }
    qsort(list, count, sizeof *list, by_result);
    for (size_t i = 0; count && i < log->event_count; i++) {
        ist_audit_event *e = &log->events[i];
        if (!e->result || e->op != IST_AUDIT_WAIT) continue;
        const result_frame *found = bsearch(&(result_frame){e->result, 0}, list, count, sizeof *list, by_result);
        if (found) e->frame = found->frame;
    }
    free(list);
    return IST_OK;
}

static ist_status number_frames(ist_audit_log *log, const char *kernel, ist_audit_frames *frames, ist_error *err) {
    uint32_t marks = 0;
    *frames = (ist_audit_frames){IST_AUDIT_FRAMES_NONE, 0};
    for (size_t i = 0; i < log->event_count; i++) {
        if (log->events[i].frame > frames->count) frames->count = log->events[i].frame;
        marks += log->events[i].op == IST_AUDIT_FRAME;
    }
    if (frames->count) {
        frames->source = IST_AUDIT_FRAMES_GIVEN;
        return IST_OK;
    }
    if (marks && !kernel) {
        for (size_t i = 0; i < log->event_count; i++) {
            frames->count += log->events[i].op == IST_AUDIT_FRAME;
            log->events[i].frame = frames->count;
        }
        frames->source = IST_AUDIT_FRAMES_MARKER;
        return IST_OK;
    }
    if (!kernel) return by_pattern(log, frames, err);
    by_kernel(log, kernel, frames);
    if (!frames->count) return ist_fail(err, IST_E_INPUT, "no kernel named %s was launched", kernel);
    return IST_OK;
}

ist_status ist_audit_find_frames(ist_audit_log *log, const char *kernel, ist_audit_frames *frames, ist_error *err) {
    IST_TRY(number_frames(log, kernel, frames, err));
    return frames->source == IST_AUDIT_FRAMES_GIVEN ? IST_OK : follow_results(log, err);
}
