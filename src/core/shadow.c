/* Recording by several threads: see plan.h. */
#include "core/plan_internal.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ist_plan_shared {
    pthread_mutex_t lock;
    int shadows;
    bool *taken; /* by part */
    size_t parts;
    ist_pages **pages; /* in order; the plan's as soon as it has as many */
    size_t page_count, page_capacity;
};

static void close_shared(ist_plan *p) {
    ist_plan_shared *s = p->shared;
    for (size_t i = p->page_count; i < s->page_count; i++) ist_pages_close(&s->pages[i]);
    pthread_mutex_destroy(&s->lock);
    free(s->taken);
    free(s->pages);
    free(s);
    p->shared = NULL;
    p->values = !p->options.late;
}

/* The pages that the plan has belong to what is shared, too. */
static ist_plan_shared *open_shared(const ist_plan *p) {
    ist_plan_shared *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (pthread_mutex_init(&s->lock, NULL)) {
        free(s);
        return NULL;
    }
    if (!ist_grow((void **)&s->pages, &s->page_capacity, p->page_count + 1, sizeof(ist_pages *))) {
        pthread_mutex_destroy(&s->lock);
        free(s);
        return NULL;
    }
    for (; s->page_count < p->page_count; s->page_count++) s->pages[s->page_count] = p->pages[s->page_count].host;
    return s;
}

ist_status ist_plan_shadow(ist_plan *p, ist_plan **shadow, ist_error *err) {
    ist_plan_options options = p->options;
    *shadow = NULL;
    options.late = true;
    options.notes = false;
    if (p->options.late) return ist_fail(err, IST_E_STATE, "plan: a shadow of one without values");
    if (!p->shared && !(p->shared = open_shared(p))) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory");
    ist_status status = ist_plan_begin_in(p->device, &options, p->shared, shadow, err);
    if (!status)
        p->shared->shadows++;
    else if (!p->shared->shadows)
        close_shared(p);
    return status;
}

/* Whether the part is this thread's; false without memory to note it, too: then nobody makes its values. */
static bool take(ist_plan_shared *s, size_t part) {
    if (part >= s->parts) {
        size_t parts = 2 * part + 64;
        bool *taken = realloc(s->taken, parts * sizeof *taken);
        if (!taken) return false;
        memset(taken + s->parts, 0, (parts - s->parts) * sizeof *taken);
        s->taken = taken;
        s->parts = parts;
    }
    bool mine = !s->taken[part];
    s->taken[part] = true;
    return mine;
}

void ist_plan_part(ist_plan *p, int part) {
    ist_plan_shared *s = p->shared;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    p->values = take(s, (size_t)part);
    if (!p->values && ((size_t)part >= s->parts)) ist_plan_fail(p, IST_E_MEMORY, "plan: out of host memory");
    pthread_mutex_unlock(&s->lock);
}

ist_pages *ist_plan_new_page(ist_plan *p, size_t bytes) {
    ist_plan_shared *s = p->shared;
    if (!s) return ist_pages_open(p->device, bytes);
    ist_pages *page = NULL;
    pthread_mutex_lock(&s->lock);
    if (p->page_count < s->page_count)
        page = s->pages[p->page_count];
    else if (ist_grow((void **)&s->pages, &s->page_capacity, s->page_count + 1, sizeof(ist_pages *)) &&
             (page = ist_pages_open(p->device, bytes)))
        s->pages[s->page_count++] = page;
    pthread_mutex_unlock(&s->lock);
    return page;
}

/* A shadow that came to the end has the same constants at the same places. */
static void check(ist_plan *p, const ist_plan *shadow) {
    size_t used = p->page_count ? p->pages[p->page_count - 1].used : 0;
    size_t other = shadow->page_count ? shadow->pages[shadow->page_count - 1].used : 0;
    if (shadow->error.code)
        ist_plan_fail(p, shadow->error.code, "%s", shadow->error.text);
    else if (p->page_count != shadow->page_count || used != other || p->buffer_count != shadow->buffer_count)
        ist_plan_fail(p, IST_E_STATE, "plan: a shadow of it has other constants");
}

void ist_plan_shadow_end(ist_plan *p, ist_plan **shadow) {
    if (!*shadow) return;
    check(p, *shadow);
    ist_plan_close(shadow);
    if (!--p->shared->shadows) close_shared(p);
}
