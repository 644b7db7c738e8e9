/* How often a place in a source file runs: in a frame, in a loop of a frame, once; and whether only training runs it.
 */
#include "audit/source_unit.h"

enum { ROUNDS = 8 }; /* depth to which calls within the file are followed */

static void mark_launch(ist_src_unit *u, uint32_t function, uint32_t loop) {
    for (; loop && !u->loops[loop - 1].launches; loop = u->loops[loop - 1].parent) u->loops[loop - 1].launches = true;
    if (function) u->functions[function - 1].launches = true;
}

static void find_launches(ist_src_unit *u) {
    for (size_t i = 0; i < u->hit_count; i++)
        if (u->hits[i].op == IST_SRC_LAUNCH && (u->hits[i].flags & IST_SRC_MODEL))
            mark_launch(u, u->hits[i].function, u->hits[i].loop);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < u->call_count; i++)
            if (u->functions[u->calls[i].callee - 1].launches) mark_launch(u, u->calls[i].caller, u->calls[i].loop);
}

/* The outermost loop that launches, in a function that is not itself the work on one frame, goes over frames. */
static void find_frame_loops(ist_src_unit *u) {
    for (size_t i = 0; i < u->loop_count; i++) { /* parents come before their children */
        ist_src_loop *l = &u->loops[i];
        bool inside = false;
        for (uint32_t p = l->parent, depth = 0; p && !inside && depth < 64; p = u->loops[p - 1].parent, depth++)
            inside = u->loops[p - 1].once;
        const ist_src_function *f = ist_src_function_at(u, l->function);
        bool goes_over_frames = l->launches || (f && f->over_frames && !l->parent);
        l->once = goes_over_frames && !inside && !(f && f->hot);
    }
}

static void find_driven_functions(ist_src_unit *u) {
    for (size_t i = 0; i < u->loop_count; i++)
        if (u->loops[i].launches && u->loops[i].function) u->functions[u->loops[i].function - 1].drives = true;
}

/* "run" without a loop over frames is itself the work on one. */
static bool is_frame_function(const ist_src_unit *u, size_t k) {
    const ist_src_function *f = &u->functions[k];
    const ist_src_name *n = &u->names[f->name];
    if (f->role == IST_SRC_FRAME) return true;
    return f->role == IST_SRC_DRIVER && ist_src_has_word(u->arena + n->text, n->length, " run ") && !f->drives;
}

static void find_hot_functions(ist_src_unit *u) {
    for (size_t k = 0; k < u->function_count; k++) u->functions[k].hot = is_frame_function(u, k);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < u->call_count; i++) {
            const ist_src_call *c = &u->calls[i];
            const ist_src_function *caller = ist_src_function_at(u, c->caller);
            ist_src_function *callee = &u->functions[c->callee - 1];
            bool in_setup = caller && caller->role == IST_SRC_SETUP && !caller->hot;
            if (((caller && caller->hot) || (c->loop && !in_setup)) && !callee->constructor) callee->hot = true;
        }
}

/* What only set-up calls is set-up; the same for training. */
static void find_callers(ist_src_unit *u) {
    for (size_t i = 0; i < u->call_count; i++) {
        const ist_src_function *caller = ist_src_function_at(u, u->calls[i].caller);
        ist_src_function *callee = &u->functions[u->calls[i].callee - 1];
        callee->called = true;
        if (!caller || !caller->training) callee->called_outside_training = true;
        if (!caller || caller->role != IST_SRC_SETUP || caller->hot) callee->called_outside_setup = true;
    }
    for (size_t k = 0; k < u->function_count; k++) {
        ist_src_function *f = &u->functions[k];
        f->training =
            f->training || (u->files[f->file].training && !f->evaluates) || (f->called && !f->called_outside_training);
        if (f->role == IST_SRC_PLAIN && f->called && !f->called_outside_setup) f->role = IST_SRC_SETUP;
    }
}

void ist_src_find_contexts(ist_src_unit *unit) {
    find_launches(unit);
    find_driven_functions(unit);
    find_hot_functions(unit);
    find_frame_loops(unit);
    find_callers(unit);
}

ist_audit_context ist_src_context(const ist_src_unit *u, uint32_t function, uint32_t loop, uint32_t *frame_loop) {
    const ist_src_function *f = function ? &u->functions[function - 1] : NULL;
    bool setup = f && f->role == IST_SRC_SETUP && !f->hot, inner = false;
    *frame_loop = 0;
    for (uint32_t l = loop; l; l = u->loops[l - 1].parent) {
        if (u->loops[l - 1].once) {
            *frame_loop = l;
            return setup ? IST_AUDIT_CONTEXT_SETUP : inner ? IST_AUDIT_CONTEXT_LOOP : IST_AUDIT_CONTEXT_FRAME;
        }
        inner = true;
    }
    if (setup) return IST_AUDIT_CONTEXT_SETUP;
    if (f && f->hot) return loop ? IST_AUDIT_CONTEXT_LOOP : IST_AUDIT_CONTEXT_FRAME;
    return loop ? IST_AUDIT_CONTEXT_REPEATED : IST_AUDIT_CONTEXT_ONCE;
}
