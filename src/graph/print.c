/* A graph as text: see graph.h. */
#include "graph/graph.h"

ist_tensor ist_graph_result(const ist_node *n) {
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        if (f->kind == IST_FIELD_OUT || f->kind == IST_FIELD_MADE)
            return *(const ist_tensor *)ist_field_of(n->of, f, 0);
    return (ist_tensor){0};
}

static void print_node(const ist_graph *g, int i, int depth, FILE *out, ist_graph_remark more, void *user) {
    const ist_node *n = &g->nodes[i];
    const ist_tensor y = ist_graph_result(n);
    const double work = ist_multiply_adds(n->kind, n->of);
    const char *label = *(const char *const *)n->of;
    fprintf(out, "%*s%s  %s", 2 * depth, "", label ? label : "", ist_kind_of(n->kind)->name);
    if (ist_has(y)) fprintf(out, "  [%d,%d,%d,%d]", y.n, y.h, y.w, y.c);
    if (work > 0) fprintf(out, "  %.0f multiply-adds", work);
    if (more) more(user, i, -1, out);
    fputc('\n', out);
}

static void print_region(const ist_graph *g, int region, int depth, FILE *out, ist_graph_remark more, void *user) {
    const ist_graph_region *r = &g->regions[region];
    fprintf(out, "%*s%s  %s", 2 * depth, "", r->label, ist_kind_of(r->kind)->name);
    if (more) more(user, -1, region, out);
    fputc('\n', out);
}

/* How many regions are open around node i. Of what a failed recording left, an end is missing: it is the graph's. */
static int depth_at(const ist_graph *g, size_t regions, int i) {
    int depth = 0;
    for (size_t k = 0; k < regions; k++) depth += g->regions[k].end < 0 || g->regions[k].end > i;
    return depth;
}

void ist_graph_print(const ist_graph *g, FILE *out, ist_graph_remark more, void *user) {
    size_t region = 0;
    for (int i = 0; i < (int)g->node_count; i++) {
        for (; region < g->region_count && g->regions[region].first <= i; region++)
            print_region(g, (int)region, depth_at(g, region, i), out, more, user);
        print_node(g, i, depth_at(g, region, i), out, more, user);
    }
}
