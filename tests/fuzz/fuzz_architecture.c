/* libFuzzer: checkpoints of every model, with tensors removed, renamed and misshapen, from recognition to the recorded
 * network. What recognition calls complete must be recorded, or refused with a sentence.
 *
 * Byte 0 chooses the model and, in its upper half, the form of its state dict; each five bytes after it change a
 * tensor. The values lie in one block of zeros: only names and shapes matter until a plan is made. */
#include "models/models.h"
#include "weights/store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 64 << 20, MOST = 2048, CHANGES = 32 };

/* Names are looked up some ten thousand times a run; libFuzzer would note each comparison, and the address sanitizer
 * measure both names. */
int __wrap_strcmp(const char *a, const char *b);
__attribute__((no_sanitize("address", "coverage"))) int __wrap_strcmp(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

typedef struct tensor {
    ist_arch_entry entry;
    char name[IST_WEIGHTS_NAME_MAX];
    bool gone;
} tensor;

typedef struct state_dict {
    tensor items[MOST];
    size_t count;
} state_dict;

static ist_status note(void *user, const ist_arch_entry *e) {
    state_dict *s = user;
    if (s->count == MOST) abort();
    tensor *t = &s->items[s->count++];
    *t = (tensor){.entry = *e};
    snprintf(t->name, sizeof t->name, "%s", e->name);
    return IST_OK;
}

/* The digits of a name count layers, blocks and stages. */
static void change_digit(char *name, unsigned which, unsigned value) {
    unsigned digits = 0;
    for (char *p = name; *p; p++) digits += *p >= '0' && *p <= '9';
    for (char *p = name; *p && digits; p++)
        if (*p >= '0' && *p <= '9' && which-- % digits == 0) {
            *p = (char)('0' + value % 10);
            return;
        }
}

static void change(tensor *t, const uint8_t *by) {
    int64_t *dim = &t->entry.dims[t->entry.rank ? by[3] % t->entry.rank : 0];
    switch (by[0] % 8) {
    case 0:
        t->gone = true;
        return;
    case 1:
        *dim = by[4];
        return;
    case 2:
        *dim += (int8_t)by[4];
        if (*dim < 0) *dim = 0;
        return;
    case 3:
        *dim *= by[4] % 16;
        return;
    case 4:
        t->entry.rank = by[4] % 5;
        for (int i = 0; i < t->entry.rank; i++)
            if (!t->entry.dims[i]) t->entry.dims[i] = 1;
        return;
    case 5:
        t->entry.type = (ist_weight_type)(by[4] % IST_WEIGHT_TYPES);
        return;
    case 6:
        t->name[strlen(t->name) - by[4] % strlen(t->name)] = '\0';
        return;
    default:
        change_digit(t->name, by[3], by[4]);
    }
}

/* NULL where names repeat or a tensor is larger than the block. */
static ist_weights *make_weights(const state_dict *s, const void *block) {
    ist_weights *w;
    size_t count, bytes;
    if (ist_weights_create(&w, NULL)) abort();
    for (size_t i = 0; i < s->count; i++) {
        const ist_arch_entry *e = &s->items[i].entry;
        if (s->items[i].gone) continue;
        if (!ist_shape_size(e->type, e->rank, e->dims, &count, &bytes) || bytes > BLOCK) continue;
        ist_store_tensor(w, s->items[i].name, e->type, e->rank, e->dims, bytes ? block : NULL, bytes, NULL);
    }
    if (ist_store_finish(w, NULL)) ist_weights_close(&w);
    return w;
}

static void record_detector(const ist_net *net, const ist_detector_model *model, const ist_checkpoint_info *info) {
    const int side = 5 * model->multiple;
    ist_tensor image = ist_graph_input(net->graph, 1, side, side, info->channels, IST_ELEM_T);
    ist_detected out = model->record(net, info, image);
    if (ist_graph_failed(net->graph)) return;
    if (out.logits.c != info->classes || out.boxes.c != 4 || out.boxes.w != out.logits.w) abort();
}

static void record_segmenter(const ist_net *net, const ist_segmenter_model *model, int side) {
    ist_tensor image = ist_graph_input(net->graph, 1, side, side, 3, IST_ELEM_T);
    ist_tensor corners = ist_graph_input(net->graph, 1, 1, 2, 2, IST_ELEM_F32);
    ist_prompted in = {.embedding = model->encode(net, image, (ist_tensor){0})};
    in.sparse = model->boxes(net, corners, side, true);
    ist_prompt_masks out = model->decode(net, &in, false);
    if (!ist_graph_failed(net->graph) && (out.masks != 1 || out.low_res.h != side / 4)) abort();
}

static void record(const ist_weights *w, const ist_checkpoint_info *info) {
    ist_graph *graph;
    int side;
    const ist_detector_model *detector = ist_detector_of(info->kind);
    if (ist_graph_open(&graph, NULL)) abort();
    const ist_net net = {graph, w};
    if (detector)
        record_detector(&net, detector, info);
    else if (!ist_segmenter_side(info, 0, &side, NULL))
        record_segmenter(&net, ist_segmenter_of(info->kind), side);
    if (ist_graph_failed(graph) && !graph->error.text[0]) abort();
    ist_graph_close(&graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void *block;
    static state_dict s;
    if (!size || size > 1 + 5 * CHANGES) return 0;
    if (!block) block = calloc(1, BLOCK);
    const ist_arch_form form = {.kind = (ist_model_kind)(1 + data[0] % 16 % (IST_MODEL_KINDS - 1)),
                                .classes = 3,
                                .size = 640,
                                .deployed = data[0] & 16,
                                .silu = data[0] & 32,
                                .channels = data[0] & 64 ? 1 : 3};
    s.count = 0;
    if (ist_arch_walk(&form, note, &s)) abort();
    for (size_t i = 1; i + 5 <= size; i += 5) change(&s.items[(data[i + 1] << 8 | data[i + 2]) % s.count], data + i);
    ist_weights *w = make_weights(&s, block);
    ist_checkpoint_info info;
    ist_error err = {0};
    if (!w) return 0;
    if (ist_checkpoint_identify(w, &info, &err)) {
        if (!err.text[0]) abort();
    } else if (!ist_checkpoint_check(&info, &err)) {
        record(w, &info);
    } else if (!err.text[0]) {
        abort();
    }
    if (size == 1 && info.kind != form.kind) abort(); /* nothing was changed */
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
    return 0;
}
