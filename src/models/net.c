/* See net.h. */
#include "models/net.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static ist_name vname(const char *fmt, va_list ap) {
    ist_name name;
    vsnprintf(name.text, sizeof name.text, fmt, ap);
    return name;
}

/* Formats the variable arguments behind `fmt` into an ist_name called `name`. */
#define FORMAT_NAME(name, fmt)                                                                                         \
    ist_name name;                                                                                                     \
    do {                                                                                                               \
        va_list ap_;                                                                                                   \
        va_start(ap_, fmt);                                                                                            \
        name = vname(fmt, ap_);                                                                                        \
        va_end(ap_);                                                                                                   \
    } while (0)

ist_name ist_name_of(const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return name;
}

/* ---- recipes ---- */

static const char *keep(const ist_net *net, const char *text) {
    return text ? ist_graph_text(net->graph, "%s", text) : NULL;
}

static const ist_recipe *keep_recipe(const ist_net *net, const ist_recipe *recipe) {
    ist_recipe *r = ist_graph_room(net->graph, sizeof *r);
    if (!r) return NULL;
    *r = *recipe;
    r->weights = net->weights;
    for (int i = 0; i < 3; i++) r->names[i] = keep(net, recipe->names[i]);
    return r;
}

/* The filter of a recipe, which is kept; without numbers. */
static ist_filter filter_of(const ist_net *net, const ist_recipe *recipe) {
    ist_filter none = {0};
    ist_recipe_shape s;
    ist_error err = {0};
    const ist_recipe *r = keep_recipe(net, recipe);
    if (!r) return none;
    ist_status status = ist_recipe_describe(r, &s, &err);
    if (status) ist_graph_fail(net->graph, status, "%s", err.text);
    return status ? none : (ist_filter){.out = s.out, .in = s.in, .kh = s.kh, .kw = s.kw, .recipe = r};
}

static ist_filter conv(const ist_net *net, const char *weight, const char *bn, const char *lab) {
    return filter_of(net, &(ist_recipe){.kind = IST_RECIPE_CONV, .names = {weight, bn, lab}});
}

ist_filter ist_take_conv(const ist_net *net, const char *weight, const char *bn) {
    return conv(net, weight, bn, NULL);
}

ist_filter ist_take_conv_bn(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    ist_name weight = ist_name_of("%s.conv.weight", name.text), bn = ist_name_of("%s.bn", name.text);
    ist_name scale = ist_name_of("%s.lab.scale", name.text), lab = ist_name_of("%s.lab", name.text);
    return conv(net, weight.text, bn.text, ist_weights_find(net->weights, scale.text) ? lab.text : NULL);
}

ist_filter ist_take_conv_norm(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return conv(net, ist_name_of("%s.conv.weight", name.text).text, ist_name_of("%s.norm", name.text).text, NULL);
}

ist_filter ist_take_linear(const ist_net *net, const char *weight, const char *bias) {
    return filter_of(net, &(ist_recipe){.kind = IST_RECIPE_LINEAR, .names = {weight, bias}});
}

ist_filter ist_take_dense(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    ist_name weight = ist_name_of("%s.weight", name.text), bias = ist_name_of("%s.bias", name.text);
    const ist_weight *found = ist_weights_find(net->weights, weight.text);
    if (found && found->rank == 4) return ist_take_conv(net, weight.text, NULL);
    return ist_take_linear(net, weight.text, ist_weights_find(net->weights, bias.text) ? bias.text : NULL);
}

ist_filter ist_take_repvgg(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return filter_of(net, &(ist_recipe){.kind = IST_RECIPE_REPVGG, .names = {name.text}});
}

/* Elements of a tensor that must be there. */
static size_t count_of(const ist_net *net, const char *name) {
    ist_error err = {0};
    const ist_weight *w = ist_weights_find(net->weights, name);
    if (w || ist_graph_failed(net->graph)) return w ? w->count : 0;
    ist_status status = ist_weights_need(net->weights, name, 0, NULL, &w, &err);
    ist_graph_fail(net->graph, status, "%s", err.text);
    return 0;
}

ist_affine ist_take_norm(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    int n = (int)count_of(net, ist_name_of("%s.weight", name.text).text);
    return (ist_affine){.n = n,
                        .recipe = keep_recipe(net, &(ist_recipe){.kind = IST_RECIPE_NORM, .names = {name.text}})};
}

ist_array ist_take_array(const ist_net *net, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    size_t count = count_of(net, name.text);
    return (ist_array){.count = count,
                       .recipe = keep_recipe(net, &(ist_recipe){.kind = IST_RECIPE_ARRAY, .names = {name.text}})};
}

float ist_take_scalar(const ist_net *net, const char *name) {
    float value = 0;
    ist_error err = {0};
    if (ist_graph_failed(net->graph)) return value;
    ist_status status = ist_weights_scalar(net->weights, name, &value, &err);
    if (status) ist_graph_fail(net->graph, status, "%s", err.text);
    return value;
}

ist_filter ist_take_stack(const ist_net *net, ist_filter a, ist_filter b) {
    return filter_of(net, &(ist_recipe){.kind = IST_RECIPE_STACK, .parts = {a.recipe, b.recipe}});
}

ist_filter ist_take_outputs(const ist_net *net, ist_filter f, int first, int count) {
    return filter_of(net, &(ist_recipe){.kind = IST_RECIPE_PART,
                                        .parts = {f.recipe},
                                        .part = {.out0 = first, .outs = count, .ins = f.in, .bias = true}});
}

ist_filter ist_take_scaled(const ist_net *net, ist_filter f, float scale) {
    if (!f.recipe) return f;
    ist_recipe r = *f.recipe;
    r.scale = scale;
    return filter_of(net, &r);
}

/* ---- nodes ---- */

ist_tensor ist_net_node(const ist_net *net, ist_node_kind kind, void *node) {
    ist_graph_add(net->graph, kind, node);
    for (const ist_field *f = ist_kind_of(kind)->fields; f->kind != IST_FIELD_END; f++)
        if (f->kind == IST_FIELD_OUT || f->kind == IST_FIELD_MADE) return *(ist_tensor *)ist_field_at(node, f, 0);
    return (ist_tensor){0};
}

ist_tensor ist_net_apply(const ist_net *net, ist_tensor x, ist_filter f, const ist_conv_opts *opts,
                         const char *label) {
    ist_conv node = {.label = label, .x = x, .filter = f};
    bool depthwise = f.in == 1 && f.out == x.c && x.c > 1;
    if (opts) node.o = *opts;
    node.o.epi.has_lab = f.recipe && f.recipe->kind == IST_RECIPE_CONV && f.recipe->names[2];
    return ist_net_node(net, depthwise ? IST_NODE_DWCONV : IST_NODE_CONV, &node);
}

ist_tensor ist_net_conv_bn(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return ist_net_apply(net, x, ist_take_conv_bn(net, "%s", name.text), opts, name.text);
}

ist_tensor ist_net_conv_norm(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return ist_net_apply(net, x, ist_take_conv_norm(net, "%s", name.text), opts, name.text);
}

ist_tensor ist_net_dense(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    return ist_net_apply(net, x, ist_take_dense(net, "%s", name.text), opts, name.text);
}

ist_tensor ist_net_layer_norm(const ist_net *net, ist_layer_norm node, const char *fmt, ...) {
    FORMAT_NAME(name, fmt);
    node.label = name.text;
    node.norm = ist_take_norm(net, "%s", name.text);
    return ist_net_node(net, IST_NODE_LAYER_NORM, &node);
}

ist_tensor ist_net_add(const ist_net *net, ist_tensor a, ist_tensor b, const char *label) {
    return IST_NODE(net, ADD, add, .label = label, .a = a, .b = b);
}
