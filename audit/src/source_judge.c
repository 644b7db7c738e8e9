/* From hits to findings: what surrounds a hit, what is that called, how bad is it, which hits make a chain. */
#include "audit/source_unit.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = UINT32_MAX };

typedef struct verdict {
    uint8_t category, severity, context;
    bool training;
    bool silent;                        /* no finding */
    bool paired;                        /* uploads: told with the download */
    bool work_follows, enqueue_follows; /* in the same body */
    uint32_t partner;                   /* downloads: the hit where the data goes up again; else NOBODY */
    uint32_t way;                       /* downloads: the last hop of the way that the data takes; 0: not known */
} verdict;

/* What has been seen in one body: a function, or the body of a loop over frames. */
typedef struct body {
    bool launched, downloaded, waited, uploaded;      /* going forwards */
    uint32_t download_branch, wait_branch, up_branch; /* where the last of them was */
    bool work_follows, enqueue_follows;               /* going backwards */
} body;

typedef struct place {
    uint64_t at; /* file << 32 | line */
    uint32_t hit;
} place;

typedef struct judge {
    ist_src_unit *u;
    verdict *verdicts;           /* [hit] */
    body *of_function, *of_loop; /* [number]; function 0: module level */
    place *by_line;              /* [hit], sorted */
    ist_audit_source *source;
    bool python;
} judge;

/* ---- category and severity ---- */

/* What costs each time it runs. */
static uint8_t by_context(uint8_t context) {
    static const uint8_t severities[] = {[IST_AUDIT_CONTEXT_LOOP] = IST_AUDIT_CRITICAL,
                                         [IST_AUDIT_CONTEXT_FRAME] = IST_AUDIT_MEDIUM,
                                         [IST_AUDIT_CONTEXT_REPEATED] = IST_AUDIT_MEDIUM,
                                         [IST_AUDIT_CONTEXT_ONCE] = IST_AUDIT_MINOR,
                                         [IST_AUDIT_CONTEXT_SETUP] = IST_AUDIT_MINOR};
    return severities[context];
}

static void set(verdict *v, ist_audit_category category, ist_audit_severity severity) {
    v->category = (uint8_t)category;
    v->severity = (uint8_t)severity;
}

static bool is_repeated(const verdict *v) {
    return v->context == IST_AUDIT_CONTEXT_LOOP || v->context == IST_AUDIT_CONTEXT_REPEATED;
}

static void judge_download(const ist_src_hit *h, const body *b, verdict *v) {
    bool follows = v->work_follows || (h->flags & IST_SRC_FOLLOWED), blocks = h->flags & IST_SRC_BLOCKING;
    if (v->context == IST_AUDIT_CONTEXT_SETUP)
        set(v, IST_AUDIT_CAT_DOWNLOAD, IST_AUDIT_NECESSARY);
    else if ((h->flags & IST_SRC_SCALAR) &&
             (is_repeated(v) || follows || b->downloaded || v->context != IST_AUDIT_CONTEXT_FRAME))
        set(v, IST_AUDIT_CAT_SCALAR_READ, by_context(v->context));
    else if (is_repeated(v))
        set(v, IST_AUDIT_CAT_TRANSFER_LOOP, blocks ? by_context(v->context) : IST_AUDIT_MEDIUM);
    else if (blocks && follows)
        set(v, IST_AUDIT_CAT_BLOCKING, by_context(v->context));
    else if (b->downloaded && b->download_branch == h->branch && v->context == IST_AUDIT_CONTEXT_FRAME)
        set(v, IST_AUDIT_CAT_SPLIT_TRANSFER, IST_AUDIT_MINOR);
    else
        set(v, IST_AUDIT_CAT_DOWNLOAD, IST_AUDIT_NECESSARY);
}

static void judge_upload(const ist_src_hit *h, const body *b, bool python, verdict *v) {
    bool hot = is_repeated(v) || v->context == IST_AUDIT_CONTEXT_FRAME, blocks = h->flags & IST_SRC_BLOCKING;
    if (!hot)
        set(v, IST_AUDIT_CAT_UPLOAD, IST_AUDIT_NECESSARY);
    else if (h->flags & IST_SRC_CONSTANT)
        set(v, IST_AUDIT_CAT_REDUNDANT_UPLOAD, by_context(v->context));
    else if (h->flags & IST_SRC_HOST_POINTER)
        set(v, IST_AUDIT_CAT_HOST_POINTER, by_context(v->context));
    else if (is_repeated(v) && (h->flags & IST_SRC_SCALAR))
        set(v, IST_AUDIT_CAT_SCALAR_WRITE, by_context(v->context));
    else if (is_repeated(v))
        set(v, IST_AUDIT_CAT_TRANSFER_LOOP, blocks ? by_context(v->context) : IST_AUDIT_MEDIUM);
    else if (blocks && v->work_follows && (b->launched || !python || (h->flags & IST_SRC_FOLLOWED)))
        set(v, IST_AUDIT_CAT_BLOCKING, python ? IST_AUDIT_MINOR : IST_AUDIT_MEDIUM);
    else if (blocks && (h->flags & IST_SRC_FOLLOWED))
        set(v, IST_AUDIT_CAT_BLOCKING, IST_AUDIT_MINOR);
    else if (b->uploaded && b->up_branch == h->branch && !b->launched)
        set(v, IST_AUDIT_CAT_SPLIT_TRANSFER, IST_AUDIT_MINOR);
    else
        set(v, IST_AUDIT_CAT_UPLOAD, IST_AUDIT_NECESSARY);
}

static void judge_wait(const ist_src_hit *h, const body *b, verdict *v) {
    bool hot = is_repeated(v) || v->context == IST_AUDIT_CONTEXT_FRAME;
    if (v->context == IST_AUDIT_CONTEXT_SETUP)
        set(v, IST_AUDIT_CAT_WAIT, IST_AUDIT_NECESSARY);
    else if (b->waited && b->wait_branch == h->branch)
        set(v, IST_AUDIT_CAT_REDUNDANT_WAIT, hot ? IST_AUDIT_MEDIUM : IST_AUDIT_MINOR);
    else if (is_repeated(v))
        set(v, IST_AUDIT_CAT_WAIT_LOOP, by_context(v->context));
    else if (v->enqueue_follows || (h->flags & IST_SRC_FOLLOWED))
        set(v, IST_AUDIT_CAT_WAIT_MID_FRAME, by_context(v->context));
    else
        set(v, IST_AUDIT_CAT_WAIT, IST_AUDIT_NECESSARY);
}

static void judge_hit(const ist_src_hit *h, const body *b, bool python, verdict *v) {
    bool hot = is_repeated(v) || v->context == IST_AUDIT_CONTEXT_FRAME;
    v->silent = false;
    switch (h->op) {
    case IST_SRC_UP:
        judge_upload(h, b, python, v);
        break;
    case IST_SRC_DOWN:
        judge_download(h, b, v);
        break;
    case IST_SRC_WAIT:
        judge_wait(h, b, v);
        break;
    case IST_SRC_POLL:
        v->silent = !is_repeated(v);
        set(v, IST_AUDIT_CAT_POLL, by_context(v->context));
        break;
    case IST_SRC_IMPLICIT:
        set(v, IST_AUDIT_CAT_IMPLICIT_WAIT, by_context(v->context));
        break;
    case IST_SRC_DYNAMIC:
        set(v, IST_AUDIT_CAT_DYNAMIC_SHAPE, by_context(v->context));
        break;
    case IST_SRC_BUILD:
        v->silent = !hot;
        set(v, IST_AUDIT_CAT_BUILD, IST_AUDIT_CRITICAL);
        break;
    case IST_SRC_CREATE:
        if (h->flags & IST_SRC_HOST_POINTER) {
            judge_upload(h, b, python, v);
            break;
        }
        v->silent = !hot;
        set(v, IST_AUDIT_CAT_CREATE, by_context(v->context));
        break;
    case IST_SRC_PRINT: /* kernels are taken to run in each frame */
        v->context = IST_AUDIT_CONTEXT_FRAME;
        set(v, IST_AUDIT_CAT_KERNEL_PRINTS, h->flags & IST_SRC_OPTIONAL ? IST_AUDIT_MINOR : IST_AUDIT_MEDIUM);
        break;
    case IST_SRC_FLUSH:
        v->silent = !is_repeated(v);
        set(v, IST_AUDIT_CAT_FLUSH, IST_AUDIT_MINOR);
        break;
    case IST_SRC_COPY:
        set(v, IST_AUDIT_CAT_DEVICE_COPY, IST_AUDIT_NECESSARY);
        break;
    default:
        v->silent = true;
    }
}

/* ---- what surrounds a hit ---- */

static bool is_upload(const ist_src_hit *h) {
    return h->op == IST_SRC_UP || (h->op == IST_SRC_CREATE && (h->flags & IST_SRC_HOST_POINTER));
}

/* Whether the host stands still until the device has done everything before. */
static bool drains(const ist_src_hit *h) {
    return h->op == IST_SRC_WAIT || (h->op == IST_SRC_DOWN && (h->flags & IST_SRC_BLOCKING));
}

/* A kernel, a model, an operation; or a function that launches one. */
static bool launches(const ist_src_unit *u, const ist_src_hit *h) {
    return h->op == IST_SRC_LAUNCH || (h->op == IST_SRC_CALL && u->functions[h->from - 1].launches);
}

static void note_before(const ist_src_unit *u, body *b, const ist_src_hit *h) {
    if (launches(u, h)) {
        b->launched = true;
        b->downloaded = b->waited = false;
    } else if (drains(h)) {
        b->waited = true;
    } else if (h->op == IST_SRC_UP || h->op == IST_SRC_DOWN || h->op == IST_SRC_COPY) {
        b->waited = false;
    }
    b->downloaded = b->downloaded || h->op == IST_SRC_DOWN;
    b->uploaded = b->uploaded || is_upload(h);
    if (drains(h)) b->wait_branch = h->branch;
    if (h->op == IST_SRC_DOWN) b->download_branch = h->branch;
    if (is_upload(h)) b->up_branch = h->branch;
}

static void note_after(const ist_src_unit *u, body *b, const ist_src_hit *h) {
    bool work = launches(u, h);
    b->work_follows = b->work_follows || work;
    b->enqueue_follows = b->enqueue_follows || work || h->op == IST_SRC_UP || h->op == IST_SRC_DOWN;
}

static body *body_of(judge *j, const ist_src_hit *h, uint8_t *context) {
    uint32_t loop;
    *context = (uint8_t)ist_src_context(j->u, h->function, h->loop, &loop);
    return loop ? &j->of_loop[loop] : &j->of_function[h->function];
}

static void judge_hits(judge *j) {
    ist_src_unit *u = j->u;
    for (size_t i = u->hit_count; i-- > 0;) {
        const ist_src_hit *h = &u->hits[i];
        const ist_src_function *f = ist_src_function_at(u, h->function);
        verdict *v = &j->verdicts[i];
        body *b = body_of(j, h, &v->context);
        v->training = (f ? f->training : u->files[h->file].training) || (h->flags & IST_SRC_TRAINING);
        v->work_follows = b->work_follows;
        v->enqueue_follows = b->enqueue_follows;
        v->partner = NOBODY;
        note_after(u, b, h);
    }
    for (size_t i = 0; i < u->hit_count; i++) {
        const ist_src_hit *h = &u->hits[i];
        verdict *v = &j->verdicts[i];
        body *b = body_of(j, h, &v->context);
        judge_hit(h, b, j->python, v);
        note_before(u, b, h);
        if (v->training && v->severity < IST_AUDIT_MINOR) v->severity++;
    }
}

/* ---- chains ---- */

static uint32_t hit_at(const judge *j, size_t k) {
    return j->by_line[k].hit;
}

static uint64_t place_of(uint32_t file, uint32_t line) {
    return (uint64_t)file << 32 | line;
}

static int by_value(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->hit < y->hit ? -1 : x->hit > y->hit;
}

/* First place in by_line of a line, or of what comes after it. */
static size_t find_line(const judge *j, uint64_t at) {
    size_t low = 0, high = j->u->hit_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (j->by_line[mid].at < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The first download, or upload, of the line where a hop is; NOBODY: none. */
static uint32_t find_hit(const judge *j, const ist_src_hop *hop, bool upload) {
    uint64_t at = place_of(hop->file, hop->line);
    for (size_t k = find_line(j, at); k < j->u->hit_count && j->by_line[k].at == at; k++) {
        const ist_src_hit *h = &j->u->hits[hit_at(j, k)];
        if (upload ? is_upload(h) : h->op == IST_SRC_DOWN) return hit_at(j, k);
    }
    return NOBODY;
}

static uint8_t severity_of_chain(const verdict *v) {
    static const uint8_t severities[] = {[IST_AUDIT_CONTEXT_LOOP] = IST_AUDIT_CRITICAL,
                                         [IST_AUDIT_CONTEXT_FRAME] = IST_AUDIT_CRITICAL,
                                         [IST_AUDIT_CONTEXT_REPEATED] = IST_AUDIT_MEDIUM,
                                         [IST_AUDIT_CONTEXT_ONCE] = IST_AUDIT_MEDIUM,
                                         [IST_AUDIT_CONTEXT_SETUP] = IST_AUDIT_MINOR};
    uint8_t severity = severities[v->context];
    return v->training && severity < IST_AUDIT_MINOR ? severity + 1 : severity;
}

/* The data of a download goes up again; one download is told with its first upload. What set-up reads back and another
 * function writes stays set-up. */
static void find_chain(judge *j, uint32_t way) {
    const ist_src_hop *last = ist_src_hop_at(j->u, way), *root = ist_src_hop_root(j->u, way);
    uint32_t down = find_hit(j, root, false), to = find_hit(j, last, true);
    if (down == NOBODY || to == NOBODY || j->verdicts[down].partner != NOBODY) return;
    verdict *up = &j->verdicts[to], *v = &j->verdicts[down];
    bool apart = j->u->hits[down].function != j->u->hits[to].function;
    if (apart && last->derived && (j->u->hits[down].flags & IST_SRC_SCALAR)) return; /* a size or a choice, not data */
    v->partner = to;
    v->way = way;
    up->paired = true;
    if (up->context < v->context && !(apart && v->context == IST_AUDIT_CONTEXT_SETUP)) v->context = up->context;
    v->training = v->training || up->training;
    set(v, last->derived ? IST_AUDIT_CAT_ROUND_TRIP : IST_AUDIT_CAT_CHAIN, severity_of_chain(v));
}

/* The data of a download goes to a call that nobody knows: in a frame, that is where a chain would begin. */
static void find_handed_on(judge *j, uint32_t way) {
    uint32_t down = find_hit(j, ist_src_hop_root(j->u, way), false);
    verdict *v = down == NOBODY ? NULL : &j->verdicts[down];
    if (!v || v->way || (v->context != IST_AUDIT_CONTEXT_FRAME && !is_repeated(v))) return;
    v->way = way;
    if (v->severity > IST_AUDIT_MEDIUM)
        set(v, IST_AUDIT_CAT_HANDED_ON, v->training ? IST_AUDIT_MINOR : IST_AUDIT_MEDIUM);
}

static void find_chains(judge *j) {
    const ist_src_unit *u = j->u;
    for (size_t i = 0; i < u->chain_count; i++)
        if (ist_src_hop_at(u, u->chains[i])->kind == IST_SRC_HOP_UP) find_chain(j, u->chains[i]);
    for (size_t i = 0; i < u->chain_count; i++)
        if (ist_src_hop_at(u, u->chains[i])->kind == IST_SRC_HOP_CALL) find_handed_on(j, u->chains[i]);
}

/* ---- findings ---- */

/* "Class.name" */
static void function_text(const ist_src_unit *u, const ist_src_function *f, char *text, size_t size) {
    snprintf(text, size, "%s%s%s", ist_src_text(u, f->owner), f->owner ? "." : "", ist_src_text(u, f->name));
}

static ist_status add_site(judge *j, uint32_t file, uint32_t line, uint32_t function, uint32_t *site, ist_error *err) {
    char name[512] = "", path[4096];
    const ist_src_function *f = ist_src_function_at(j->u, function);
    const ist_src_file *in = &j->u->files[file];
    if (f) function_text(j->u, f, name, sizeof name);
    snprintf(path, sizeof path, "%s", in->path);
    ist_audit_site s = {.file = path, .function = f ? name : NULL, .line = (int)line, .outer = IST_AUDIT_NONE};
    if (in->cells) {
        s.cell = (int)in->cells[2 * (size_t)(line - 1)];
        s.line = (int)in->cells[2 * (size_t)(line - 1) + 1];
    }
    return ist_audit_add_site(&j->source->log, &s, site, err);
}

static ist_status add_hit_site(judge *j, const ist_src_hit *h, uint32_t *site, ist_error *err) {
    return add_site(j, h->file, h->line, h->function, site, err);
}

/* Not ist_audit_add_label: that looks for the name among all others. */
static ist_status add_label(ist_audit_log *log, const char *text, uint32_t *index, ist_error *err) {
    char *copy = ist_strdup(text);
    if (!copy || !ist_grow((void **)&log->labels, &log->label_cap, log->label_count + 1, sizeof *log->labels)) {
        free(copy);
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu names", log->label_count + 1);
    }
    *index = (uint32_t)log->label_count;
    log->labels[log->label_count++] = copy;
    return IST_OK;
}

/* Appends ", more" unless it is there or does not fit. */
static void append_call(char *text, size_t size, const char *more) {
    size_t n = strlen(text);
    if (strstr(text, more)) return;
    if (n + strlen(more) + 3 < size) snprintf(text + n, size - n, "%s%s", n ? ", " : "", more);
}

static bool is_worse(const verdict *a, const verdict *b) {
    if (a->severity != b->severity) return a->severity < b->severity;
    return a->category < b->category;
}

/* What a hop calls, keeps or moves, in words of the source. */
static void hop_text(const judge *j, const ist_src_hop *hop, char *text, size_t size) {
    const ist_src_unit *u = j->u;
    const ist_src_function *f = ist_src_function_at(j->u, hop->function);
    uint32_t hit = hop->kind == IST_SRC_HOP_DOWN || hop->kind == IST_SRC_HOP_UP
                       ? find_hit(j, hop, hop->kind == IST_SRC_HOP_UP)
                       : NOBODY;
    char name[400] = "";
    if (f) function_text(u, f, name, sizeof name);
    if (hit != NOBODY)
        snprintf(text, size, "%s", u->hits[hit].label);
    else if (hop->kind == IST_SRC_HOP_PASS)
        snprintf(text, size, "%s(%s)", name, ist_src_text(u, f->params[hop->param]));
    else if (hop->kind == IST_SRC_HOP_RETURN)
        snprintf(text, size, "%s()", name);
    else if (hop->kind == IST_SRC_HOP_CALL)
        snprintf(text, size, "%.200s()", *ist_src_text(u, hop->name) ? ist_src_text(u, hop->name) : "(...)");
    else
        snprintf(text, size, "%.200s", ist_src_text(u, hop->name));
}

static ist_status add_hop(judge *j, const ist_src_hop *hop, ist_error *err) {
    static const uint8_t steps[] = {
        [IST_SRC_HOP_DOWN] = IST_AUDIT_STEP_DOWN,     [IST_SRC_HOP_PASS] = IST_AUDIT_STEP_PASS,
        [IST_SRC_HOP_RETURN] = IST_AUDIT_STEP_RETURN, [IST_SRC_HOP_KEEP] = IST_AUDIT_STEP_KEEP,
        [IST_SRC_HOP_UP] = IST_AUDIT_STEP_UP,         [IST_SRC_HOP_CALL] = IST_AUDIT_STEP_CALL};
    ist_audit_log *log = &j->source->log;
    ist_audit_hop to = {.step = (ist_audit_step)steps[hop->kind]};
    char text[600];
    bool ends = hop->kind == IST_SRC_HOP_DOWN || hop->kind == IST_SRC_HOP_UP;
    uint32_t hit = ends ? find_hit(j, hop, hop->kind == IST_SRC_HOP_UP) : NOBODY;
    hop_text(j, hop, text, sizeof text);
    IST_TRY(add_site(j, hop->file, hop->line, hit == NOBODY ? 0 : j->u->hits[hit].function, &to.site, err));
    IST_TRY(add_label(log, text, &to.entry, err));
    if (!ist_grow((void **)&log->hops, &log->hop_cap, log->hop_count + 1, sizeof *log->hops))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu hops", log->hop_count + 1);
    log->hops[log->hop_count++] = to;
    return IST_OK;
}

/* The way that ends with the hop `last`, from its download on. */
static ist_status add_way(judge *j, uint32_t last, ist_audit_finding *f, ist_error *err) {
    uint32_t hops[IST_SRC_HOPS + 2], count = 0;
    for (uint32_t k = last; k && count < IST_SRC_HOPS + 2; k = ist_src_hop_at(j->u, k)->before) hops[count++] = k;
    f->first_hop = j->source->log.hop_count;
    f->hop_count = count;
    while (count) IST_TRY(add_hop(j, ist_src_hop_at(j->u, hops[--count]), err));
    return IST_OK;
}

/* Hits [first, end) of by_line, all of one line, are one finding. */
static ist_status add_finding(judge *j, size_t first, size_t end, ist_error *err) {
    ist_audit_source *s = j->source;
    ist_audit_report *r = &s->report;
    const verdict *worst = NULL, *chain = NULL, *way = NULL;
    char calls[400] = "";
    ist_audit_finding f = {.partner_site = IST_AUDIT_NONE, .partner_entry = IST_AUDIT_NONE, .python = j->python};
    for (size_t k = first; k < end; k++) {
        const verdict *v = &j->verdicts[hit_at(j, k)];
        if (v->silent || v->paired) continue;
        append_call(calls, sizeof calls, j->u->hits[hit_at(j, k)].label);
        f.count += j->u->hits[hit_at(j, k)].calls;
        if (!worst || is_worse(v, worst)) worst = v;
        if (v->partner != NOBODY && !chain) chain = v;
        if (v->way && (!way || v == chain)) way = v;
    }
    if (!worst) return IST_OK;
    if (r->finding_count >= IST_AUDIT_SOURCE_FINDINGS) {
        s->log.dropped++;
        return IST_OK;
    }
    if (!ist_grow((void **)&r->findings, &s->finding_cap, r->finding_count + 1, sizeof *r->findings))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu findings", r->finding_count + 1);
    f.severity = (ist_audit_severity)worst->severity;
    f.category = (ist_audit_category)(chain ? chain : worst)->category; /* tells most */
    f.context = (ist_audit_context)worst->context;
    f.training = worst->training;
    IST_TRY(add_hit_site(j, &j->u->hits[hit_at(j, first)], &f.site, err));
    IST_TRY(add_label(&s->log, calls, &f.entry, err));
    if (chain) {
        const ist_src_hit *up = &j->u->hits[chain->partner];
        f.count += up->calls;
        IST_TRY(add_hit_site(j, up, &f.partner_site, err));
        IST_TRY(add_label(&s->log, up->label, &f.partner_entry, err));
    }
    if (way) IST_TRY(add_way(j, way->way, &f, err));
    r->findings[r->finding_count++] = f;
    return IST_OK;
}

static ist_status add_findings(judge *j, ist_error *err) {
    size_t n = j->u->hit_count;
    for (size_t k = 0, end; k < n; k = end) {
        for (end = k; end < n && j->by_line[end].at == j->by_line[k].at;) end++;
        IST_TRY(add_finding(j, k, end, err));
    }
    return IST_OK;
}

ist_status ist_src_judge(ist_src_unit *unit, ist_audit_source *source, bool python, ist_error *err) {
    size_t n = unit->hit_count;
    judge j = {.u = unit, .source = source, .python = python};
    if (!n) return IST_OK;
    j.verdicts = calloc(n, sizeof *j.verdicts);
    j.by_line = calloc(n, sizeof *j.by_line);
    j.of_function = calloc(unit->function_count + 1, sizeof *j.of_function);
    j.of_loop = calloc(unit->loop_count + 1, sizeof *j.of_loop);
    ist_status status = IST_OK;
    if (j.verdicts && j.by_line && j.of_function && j.of_loop) {
        for (size_t i = 0; i < n; i++)
            j.by_line[i] = (place){place_of(unit->hits[i].file, unit->hits[i].line), (uint32_t)i};
        qsort(j.by_line, n, sizeof *j.by_line, by_value);
        ist_src_find_contexts(unit);
        judge_hits(&j);
        find_chains(&j);
        status = add_findings(&j, err);
    } else {
        status = ist_fail(err, IST_E_MEMORY, "out of memory for %zu calls", n);
    }
    free(j.verdicts);
    free(j.by_line);
    free(j.of_function);
    free(j.of_loop);
    return status;
}
