/* See info_graph.h. */
#include "info_graph.h"

#include "pipeline/describe.h"

#include <jansson.h>
#include <stdio.h>

enum { VARIANTS_TEXT = 400 };

/* ---- text ---- */

static void remark(void *user, int node, int region, FILE *out) {
    char text[VARIANTS_TEXT];
    int launches = ist_description_of(user, node, region, text, sizeof text);
    if (launches > 0) fprintf(out, "  %s%s%d launch%s", text, *text ? ", " : "", launches, launches == 1 ? "" : "es");
}

static void print_text(ist_description *d, ist_precision precision) {
    const ist_graph *g = ist_description_graph(d);
    const int launches = ist_description_launches(d);
    ist_graph_print(g, stdout, launches < 0 ? NULL : remark, d);
    printf("total  %s, %zu nodes, %.0f multiply-adds", ist_description_model(d), g->node_count,
           ist_description_multiply_adds(d));
    if (launches >= 0) printf(", %d launches in %s", launches, predict_precision_name(precision));
    printf("\n");
}

/* ---- JSON ---- */

/* What a device makes of a node or region, where one was asked for. */
static void set_lowered(json_t *o, const ist_description *d, int node, int region) {
    char text[VARIANTS_TEXT];
    int launches = ist_description_of(d, node, region, text, sizeof text);
    if (launches < 0) return;
    json_object_set_new(o, "variants", json_string(text));
    json_object_set_new(o, "launches", json_integer(launches));
}

static json_t *node_object(const ist_description *d, int i) {
    const ist_node *n = &ist_description_graph(d)->nodes[i];
    const ist_tensor y = ist_graph_result(n);
    const char *label = *(const char *const *)n->of;
    json_t *o = json_object();
    json_object_set_new(o, "label", json_string(label ? label : ""));
    json_object_set_new(o, "kind", json_string(ist_kind_of(n->kind)->name));
    json_object_set_new(o, "shape", ist_has(y) ? json_pack("[i,i,i,i]", y.n, y.h, y.w, y.c) : json_null());
    json_object_set_new(o, "multiply_adds", json_integer((json_int_t)ist_multiply_adds(n->kind, n->of)));
    set_lowered(o, d, i, -1);
    return o;
}

/* A region is nodes [first, end). */
static json_t *region_object(const ist_description *d, int i) {
    const ist_graph_region *r = &ist_description_graph(d)->regions[i];
    json_t *o = json_object();
    json_object_set_new(o, "label", json_string(r->label));
    json_object_set_new(o, "kind", json_string(ist_kind_of(r->kind)->name));
    json_object_set_new(o, "first", json_integer(r->first));
    json_object_set_new(o, "end", json_integer(r->end));
    set_lowered(o, d, -1, i);
    return o;
}

static int print_json(const ist_description *d, ist_precision precision) {
    const ist_graph *g = ist_description_graph(d);
    json_t *all = json_object(), *nodes = json_array(), *regions = json_array();
    for (size_t i = 0; i < g->node_count; i++) json_array_append_new(nodes, node_object(d, (int)i));
    for (size_t i = 0; i < g->region_count; i++) json_array_append_new(regions, region_object(d, (int)i));
    json_object_set_new(all, "model", json_string(ist_description_model(d)));
    json_object_set_new(all, "nodes", nodes);
    json_object_set_new(all, "regions", regions);
    json_object_set_new(all, "multiply_adds", json_integer((json_int_t)ist_description_multiply_adds(d)));
    if (ist_description_launches(d) >= 0) {
        json_object_set_new(all, "precision", json_string(predict_precision_name(precision)));
        json_object_set_new(all, "launches", json_integer(ist_description_launches(d)));
    }
    bool complete = json_array_size(nodes) == g->node_count && json_array_size(regions) == g->region_count;
    int failed = !complete || json_dumpf(all, stdout, JSON_COMPACT);
    json_decref(all);
    if (failed) return cli_fail(CLI_FAILED, "info: the JSON object could not be written");
    printf("\n");
    return CLI_SUCCESS;
}

int info_print_graph(const char *path, const info_graph_options *o) {
    ist_description *d = NULL;
    ist_error err;
    ist_precision precision = o->precision;
    int code = CLI_SUCCESS;
    if (ist_description_open(path, &d, &err)) return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    if (o->device && ist_description_lower(d, o->device, &precision, &err))
        code = cli_fail(cli_exit_code(err.code), "%s", err.text);
    else if (o->json)
        code = print_json(d, precision);
    else
        print_text(d, precision);
    ist_description_close(&d);
    return code;
}
