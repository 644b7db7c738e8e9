/* The log: events, the places and names they refer to. */
#include "audit/audit.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_names[] = {
#define X(id, name) name,
    IST_AUDIT_OPS(X)
#undef X
};

typedef struct category_text {
    const char *name, *text, *advice;
} category_text;

static const category_text categories[] = {
#define X(id, name, text, advice) {name, text, advice},
    IST_AUDIT_CATEGORIES(X)
#undef X
};

const char *ist_audit_op_name(int op) {
    return op_names[op];
}

const char *ist_audit_severity_name(int severity) {
    static const char *const names[] = {"critical", "medium", "minor", "necessary"};
    return names[severity];
}

const char *ist_audit_category_name(int category) {
    return categories[category].name;
}

const char *ist_audit_category_text(int category) {
    return categories[category].text;
}

const char *ist_audit_category_advice(int category) {
    return categories[category].advice;
}

const char *ist_audit_step_name(int step) {
    static const char *const names[] = {
#define X(id, name, text) name,
        IST_AUDIT_STEPS(X)
#undef X
    };
    return names[step];
}

const char *ist_audit_step_text(int step) {
    static const char *const texts[] = {
#define X(id, name, text) text,
        IST_AUDIT_STEPS(X)
#undef X
    };
    return texts[step];
}

const char *ist_audit_context_name(int context) {
    static const char *const names[] = {
#define X(id, name) name,
        IST_AUDIT_CONTEXTS(X)
#undef X
    };
    return names[context];
}

/* PyTorch and CuPy have words of their own. */
const char *ist_audit_finding_advice(const ist_audit_finding *f) {
    switch (f->python ? (int)f->category : IST_AUDIT_CATEGORY_COUNT) {
    case IST_AUDIT_CAT_CHAIN:
        return "keep it on the device: pass the tensor on instead of its copy";
    case IST_AUDIT_CAT_ROUND_TRIP:
        return "do the step with tensor operations on the device, so that the host need not wait";
    case IST_AUDIT_CAT_SCALAR_READ:
        return "keep the value on the device, or put all values into one tensor and read it once";
    case IST_AUDIT_CAT_WAIT_LOOP:
    case IST_AUDIT_CAT_WAIT_MID_FRAME:
        return "leave the order to the stream; wait once, at the end";
    case IST_AUDIT_CAT_HOST_POINTER:
        return "create it on the device (device=...), or once, during set-up";
    case IST_AUDIT_CAT_HANDED_ON:
        return "pass the tensor itself where the call takes one; if it uploads the copy again, this is a chain";
    case IST_AUDIT_CAT_BLOCKING:
        return "transfer after the last step, or from pinned memory with non_blocking=True";
    default:
        return ist_audit_category_advice(f->category);
    }
}

ist_status ist_audit_add_event(ist_audit_log *log, const ist_audit_event *event, ist_error *err) {
    if (event->op >= IST_AUDIT_OP_COUNT) return ist_fail(err, IST_E_INPUT, "event of kind %d", event->op);
    if (!ist_grow((void **)&log->events, &log->event_cap, log->event_count + 1, sizeof *log->events))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu events", log->event_count + 1);
    log->events[log->event_count++] = *event;
    return IST_OK;
}

void ist_audit_count_calls(const ist_audit_log *log, uint64_t counts[IST_AUDIT_OP_COUNT]) {
    memset(counts, 0, IST_AUDIT_OP_COUNT * sizeof *counts);
    for (size_t i = 0; i < log->event_count; i++)
        counts[log->events[i].op] += log->events[i].repeat ? log->events[i].repeat : 1;
}

static void free_site(ist_audit_site *site) {
    free(site->module);
    free(site->file);
    free(site->function);
}

ist_status ist_audit_add_site(ist_audit_log *log, const ist_audit_site *site, uint32_t *index, ist_error *err) {
    if (!ist_grow((void **)&log->sites, &log->site_cap, log->site_count + 1, sizeof *log->sites))
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu places", log->site_count + 1);
    ist_audit_site copy = *site;
    copy.module = ist_strdup(site->module);
    copy.file = ist_strdup(site->file);
    copy.function = ist_strdup(site->function);
    if ((site->module && !copy.module) || (site->file && !copy.file) || (site->function && !copy.function)) {
        free_site(&copy);
        return ist_fail(err, IST_E_MEMORY, "out of memory for the name of a place");
    }
    *index = (uint32_t)log->site_count;
    log->sites[log->site_count++] = copy;
    return IST_OK;
}

ist_status ist_audit_add_label(ist_audit_log *log, const char *text, uint32_t *index, ist_error *err) {
    for (size_t i = 0; i < log->label_count; i++)
        if (!strcmp(log->labels[i], text)) {
            *index = (uint32_t)i;
            return IST_OK;
        }
    char *copy = NULL;
    if (ist_grow((void **)&log->labels, &log->label_cap, log->label_count + 1, sizeof *log->labels))
        copy = ist_strdup(text);
    if (!copy) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu names", log->label_count + 1);
    *index = (uint32_t)log->label_count;
    log->labels[log->label_count++] = copy;
    return IST_OK;
}

const char *ist_audit_label(const ist_audit_log *log, uint32_t label) {
    return label < log->label_count ? log->labels[label] : "";
}

void ist_audit_log_free(ist_audit_log *log) {
    for (size_t i = 0; i < log->site_count; i++) free_site(&log->sites[i]);
    for (size_t i = 0; i < log->label_count; i++) free(log->labels[i]);
    free(log->sites);
    free(log->labels);
    free(log->hops);
    free(log->events);
    free(log->program);
    *log = (ist_audit_log){0};
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_place(const ist_audit_site *a, const ist_audit_site *b) {
    if (a->line != b->line || !same_text(a->file, b->file) || !same_text(a->function, b->function)) return false;
    return a->file || (a->offset == b->offset && a->address == b->address && same_text(a->module, b->module));
}

ist_status ist_audit_merge_sites(ist_audit_log *log, ist_error *err) {
    uint32_t *first = malloc((log->site_count + 1) * sizeof *first);
    if (!first) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu places", log->site_count);
    for (uint32_t i = 0; i < log->site_count; i++) {
        first[i] = 0;
        while (!same_place(&log->sites[first[i]], &log->sites[i])) first[i]++;
    }
    for (size_t i = 0; i < log->event_count; i++) {
        ist_audit_event *e = &log->events[i];
        if (e->site < log->site_count) e->site = first[e->site];
    }
    free(first);
    return IST_OK;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *ist_audit_site_text(const ist_audit_log *log, uint32_t site, char *text, size_t size) {
    const ist_audit_site *s = site < log->site_count ? &log->sites[site] : NULL;
    const char *in = s && s->function ? " in " : "", *function = s && s->function ? s->function : "";
    if (s && s->file && s->line > 0 && s->cell > 0)
        snprintf(text, size, "%s:%d:%d%s%s", s->file, s->cell, s->line, in, function);
    else if (s && s->file && s->line > 0)
        snprintf(text, size, "%s:%d%s%s", s->file, s->line, in, function);
    else if (s && s->file)
        snprintf(text, size, "%s", s->file);
    else if (s && s->module)
        snprintf(text, size, "%s+0x%llx%s%s", base_name(s->module), (unsigned long long)s->offset, in, function);
    else if (s && s->address)
        snprintf(text, size, "0x%llx", (unsigned long long)s->address);
    else if (s && s->function)
        snprintf(text, size, "%s", s->function);
    else
        snprintf(text, size, "unknown place");
    return text;
}
