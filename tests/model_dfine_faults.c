/* Host memory runs out while D-FINE is recorded and lowered: at every tried allocation the plan fails with
 * IST_E_MEMORY, the result is empty and nothing stays allocated. */
#include "models/dfine.h"
#include "support/host_memory.h"
#include "synth.h"
#include "variants/lower.h"

#include <criterion/criterion.h>

typedef struct subject {
    ist_device *device;
    ist_weights *weights;
    ist_checkpoint_info info;
} subject;

/* Records and lowers with the given failing allocation; returns the calls it took. */
static long record(const subject *s, int images, long at, ist_status *status) {
    ist_error err = {0};
    ist_plan *plan = NULL;
    ist_graph *g = NULL;
    ist_lowering *lowering = NULL;
    ist_plan_options options = {0};
    cr_assert_eq(ist_plan_begin(s->device, &options, &plan, &err), IST_OK);
    ist_tensor image = ist_plan_input(plan, images, 416, 416, 3, IST_ELEM_T);
    calls = 0;
    fail_at = at;
    *status = ist_graph_open(&g, &err);
    if (!*status) {
        ist_tensor input = ist_graph_input(g, images, 416, 416, 3, IST_ELEM_T);
        ist_dfine_result r = ist_dfine(&(ist_net){g, s->weights}, &s->info, input);
        cr_assert_eq(ist_has(r.logits) && ist_has(r.boxes), !ist_graph_failed(g));
        ist_lower(plan, g, &image, &lowering);
        *status = ist_plan_status(plan);
        cr_assert_eq(ist_has(ist_lowered(lowering, r.logits)) && ist_has(ist_lowered(lowering, r.boxes)),
                     *status == IST_OK);
    }
    fail_at = 0;
    long taken = calls;
    ist_lowering_close(&lowering);
    ist_graph_close(&g);
    ist_plan_close(&plan);
    return taken;
}

/* About `tries` positions spread over the recording. */
static void out_of_memory(ist_model_kind kind, int images, int tries) {
    subject s = {0};
    ist_error err = {0};
    ist_device_options device = {0};
    ist_status status;
    cr_assert_eq(ist_device_open(&device, &s.device, &err), IST_OK, "%s", err.text);
    cr_assert_eq(synth_weights(kind, 1, 7, &s.weights, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_checkpoint_identify(s.weights, &s.info, &err), IST_OK, "%s", err.text);
    long all = record(&s, images, 0, &status);
    cr_assert_eq(status, IST_OK);
    cr_assert_gt(all, 500, "%ld allocations", all);
    long before = blocks;
    for (int i = 0; i < tries; i++) {
        long at = 1 + (all - 1) * i / (tries - 1);
        record(&s, images, at, &status);
        cr_assert_eq(status, IST_E_MEMORY, "allocation %ld of %ld: status %d", at, all, status);
        cr_assert_eq(blocks, before, "allocation %ld of %ld: %ld blocks are left", at, all, blocks - before);
    }
    ist_checkpoint_info_free(&s.info);
    ist_weights_close(&s.weights);
    ist_device_close(&s.device);
}

Test(model_dfine_faults, n) {
    out_of_memory(IST_MODEL_DFINE_N, 1, 150);
}
Test(model_dfine_faults, s_batch_with_invalid_anchors) {
    out_of_memory(IST_MODEL_DFINE_S, 2, 60);
}
