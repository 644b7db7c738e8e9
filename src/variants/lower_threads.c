/* Lowering by several threads: each lowers all of the graph, into the plan or into a shadow of it, and makes the values
 * of constants that no other has begun (perf/notes/starting.md). */
#include "variants/lower.h"

#include "base/cores.h"

#include <pthread.h>

enum { THREADS_MOST = 8 }; /* what each does beside values is the same for all, and more of them change little */

typedef struct helper {
    const ist_graph *graph;
    ist_plan *shadow;
    pthread_t thread;
    bool started;
} helper;

static void *help(void *argument) {
    helper *h = argument;
    ist_lowering *lowering = NULL;
    ist_lower(h->shadow, h->graph, NULL, &lowering);
    ist_lowering_close(&lowering);
    return NULL;
}

void ist_lower_shared(ist_plan *plan, const ist_graph *graph) {
    helper helpers[THREADS_MOST - 1];
    ist_lowering *lowering = NULL;
    int count = 0, others = ist_cores() - 1;
    if (others > THREADS_MOST - 1) others = THREADS_MOST - 1;
    if (!ist_plan_has_values(plan)) others = 0;
    for (; count < others; count++) {
        ist_error none;
        helpers[count] = (helper){.graph = graph};
        if (ist_plan_shadow(plan, &helpers[count].shadow, &none)) break; /* fewer do as well */
    }
    for (int i = 0; i < count; i++) {
        helpers[i].started = !pthread_create(&helpers[i].thread, NULL, help, &helpers[i]);
        if (!helpers[i].started) help(&helpers[i]);
    }
    ist_lower(plan, graph, NULL, &lowering);
    ist_lowering_close(&lowering);
    for (int i = 0; i < count; i++)
        if (helpers[i].started) pthread_join(helpers[i].thread, NULL);
    for (int i = 0; i < count; i++) ist_plan_shadow_end(plan, &helpers[i].shadow);
}
