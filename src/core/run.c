/* Running a finished plan: binding, replay, and the reads and writes that tests and profiles use. */
#include "core/plan_internal.h"

#include "base/half.h"
#include "base/mem.h"
#include "device/timing.h"

#include <stdlib.h>
#include <string.h>

static ist_status must_be_finished(const ist_plan *p, ist_error *err) {
    if (p->error.code) {
        if (err) *err = p->error;
        return p->error.code;
    }
    return p->finished ? IST_OK : ist_fail(err, IST_E_STATE, "plan: not finished");
}

ist_status ist_plan_bind(ist_plan *p, int ext, cl_mem buffer, ist_error *err) {
    IST_TRY(must_be_finished(p, err));
    if (ext < 0 || ext >= IST_MAX_EXTERNALS || !buffer)
        return ist_fail(err, IST_E_ARGUMENT, "external buffer %d: not one of this plan, or no buffer given", ext);
    if (p->bound[ext] == buffer) return IST_OK;
    p->bound[ext] = NULL;
    for (size_t i = 0; i < p->slot_count; i++) {
        const ist_plan_slot *s = &p->slots[i];
        if (s->ext != ext) continue;
        cl_int code = clSetKernelArg(p->nodes[s->node].kernel, (cl_uint)s->arg, sizeof buffer, &buffer);
        if (code != CL_SUCCESS)
            return ist_fail_cl(err, code, "clSetKernelArg", "%s, argument %d", p->nodes[s->node].launch.label, s->arg);
    }
    p->bound[ext] = buffer;
    if (p->external[ext]) p->buffers[p->external[ext] - 1].mem = buffer;
    return IST_OK;
}

void ist_plan_unbind(ist_plan *p, cl_mem buffer) {
    for (int i = 0; i < IST_MAX_EXTERNALS; i++) {
        if (!buffer || p->bound[i] != buffer) continue;
        p->bound[i] = NULL;
        if (p->external[i]) p->buffers[p->external[i] - 1].mem = NULL;
    }
}

static ist_status externals_bound(const ist_plan *p, ist_error *err) {
    for (int i = 0; i < IST_MAX_EXTERNALS; i++)
        if (p->external[i] && !p->bound[i])
            return ist_fail(err, IST_E_STATE, "plan: external buffer %d is not bound", i);
    return IST_OK;
}

static ist_status enqueue(ist_plan *p, ist_lane lane, int from, int to, ist_error *err) {
    for (int i = from; i < to; i++) {
        const ist_launch *l = &p->nodes[i].launch;
        if (p->nodes[i].section && p->left_out >> p->nodes[i].section & 1) continue;
        IST_TRY(ist_enqueue_on(p->device, lane, p->nodes[i].kernel, l->dims, l->global, l->local, l->label, err));
    }
    return IST_OK;
}

/* By turns, in proportion to their lengths: enqueueing takes about as long as running, and neither lane should run dry
 * meanwhile. */
static ist_status enqueue_branches(ist_plan *p, ist_error *err) {
    long long mains = p->side - p->fork + ist_plan_meet(p) - p->join, sides = p->join - p->side;
    for (long long main = 0, side = 0; main < mains || side < sides;) {
        bool turn = main == mains || (side < sides && side * mains <= main * sides);
        int next = turn ? p->side + (int)side : p->fork + (int)main;
        if (!turn && next >= p->side) next += (int)sides;
        IST_TRY(enqueue(p, turn ? IST_LANE_SIDE : IST_LANE_MAIN, next, next + 1, err));
        if (turn)
            side++;
        else
            main++;
    }
    return IST_OK;
}

void ist_plan_leave_out(ist_plan *p, unsigned sections) {
    p->left_out = sections;
}

ist_status ist_plan_replay_for(ist_plan *p, ist_frame_scope scope, ist_error *err) {
    int end = (int)p->node_count;
    IST_TRY(must_be_finished(p, err));
    IST_TRY(externals_bound(p, err));
    if (!ist_plan_branches(p)) return enqueue(p, IST_LANE_MAIN, 0, end, err);
    IST_TRY(enqueue(p, IST_LANE_MAIN, 0, p->fork, err));
    IST_TRY(ist_lane_follow(p->device, scope, IST_LANE_SIDE, IST_LANE_MAIN, err));
    IST_TRY(enqueue_branches(p, err));
    IST_TRY(ist_lane_follow(p->device, scope, IST_LANE_MAIN, IST_LANE_SIDE, err));
    return enqueue(p, IST_LANE_MAIN, ist_plan_meet(p), end, err);
}

ist_status ist_plan_replay(ist_plan *p, ist_error *err) {
    return ist_plan_replay_for(p, (ist_frame_scope){0}, err);
}

ist_status ist_plan_profile(ist_plan *p, double *ms, ist_error *err) {
    IST_TRY(must_be_finished(p, err));
    IST_TRY(externals_bound(p, err));
    ist_timed_kernel *list = calloc(p->node_count + 1, sizeof *list);
    if (!list) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for %zu launches", p->node_count);
    for (size_t i = 0; i < p->node_count; i++) {
        const ist_launch *l = &p->nodes[i].launch;
        list[i] = (ist_timed_kernel){p->nodes[i].kernel, l->dims, l->global, l->local, l->label};
    }
    ist_status status = ist_time_kernels(p->device, list, (int)p->node_count, ms, err);
    free(list);
    return status;
}

const ist_launch *ist_plan_launch_at(const ist_plan *p, int i) {
    return i >= 0 && (size_t)i < p->node_count ? &p->nodes[i].launch : NULL;
}

/* ---- tensors to and from the host ---- */

/* Bytes of the view's buffer from element 0 to its last element. */
static ist_status span_of(ist_plan *p, ist_tensor t, size_t *elems, ist_error *err) {
    IST_TRY(must_be_finished(p, err));
    if (!ist_has(t)) return ist_fail(err, IST_E_ARGUMENT, "plan: no such tensor");
    *elems = (size_t)(ist_pixels(t) - 1) * (size_t)t.ld + (size_t)t.c0 + (size_t)t.c;
    const ist_plan_buffer *b = ist_plan_buffer_of(p, t);
    if (!b->mem) return ist_fail(err, IST_E_STATE, "plan: tensor %d is not part of the frame", t.buffer);
    return IST_OK;
}

typedef enum { TO_HOST, TO_DEVICE } direction;

/* Converts one element between buffer storage and the caller's 4-byte float or int. */
static void convert(const ist_plan *p, ist_elem elem, unsigned char *storage, void *value, direction d) {
    if (elem != IST_ELEM_T || !p->options.half) {
        if (d == TO_HOST)
            memcpy(value, storage, 4);
        else
            memcpy(storage, value, 4);
        return;
    }
    uint16_t h;
    float f;
    if (d == TO_HOST) {
        memcpy(&h, storage, 2);
        f = ist_half_to_float(h);
        memcpy(value, &f, 4);
    } else {
        memcpy(&f, value, 4);
        h = ist_float_to_half(f);
        memcpy(storage, &h, 2);
    }
}

static ist_status transfer(ist_plan *p, ist_tensor t, void *values, direction d, ist_error *err) {
    size_t elems = 0, size = ist_plan_elem_bytes(p, t.elem);
    IST_TRY(span_of(p, t, &elems, err));
    if (size == 1)
        return ist_fail(err, IST_E_ARGUMENT, "plan: this tensor's storage type is not transferred element by element");
    unsigned char *storage = malloc(elems * size);
    if (!storage) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for %zu elements", elems);
    const ist_plan_buffer *b = ist_plan_buffer_of(p, t);
    ist_status st =
        ist_read(p->device, (ist_frame_scope){0}, b->mem, b->at, elems * size, storage, NULL, "tensor", err);
    for (size_t i = 0; !st && i < (size_t)ist_pixels(t); i++)
        for (size_t c = 0; c < (size_t)t.c; c++)
            convert(p, t.elem, storage + size * (i * (size_t)t.ld + (size_t)t.c0 + c),
                    (unsigned char *)values + 4 * (i * (size_t)t.c + c), d);
    if (!st && d == TO_DEVICE)
        st = ist_write(p->device, (ist_frame_scope){0}, b->mem, b->at, elems * size, storage, true, "tensor", err);
    free(storage);
    return st;
}

ist_status ist_plan_write_f32(ist_plan *p, ist_tensor t, const float *values, ist_error *err) {
    if (t.elem == IST_ELEM_I32) return ist_fail(err, IST_E_ARGUMENT, "plan: floats written to an int tensor");
    return transfer(p, t, (void *)values, TO_DEVICE, err);
}

ist_status ist_plan_read_f32(ist_plan *p, ist_tensor t, float *values, ist_error *err) {
    if (t.elem == IST_ELEM_I32) return ist_fail(err, IST_E_ARGUMENT, "plan: floats read from an int tensor");
    return transfer(p, t, values, TO_HOST, err);
}

ist_status ist_plan_write_i32(ist_plan *p, ist_tensor t, const int *values, ist_error *err) {
    if (t.elem != IST_ELEM_I32) return ist_fail(err, IST_E_ARGUMENT, "plan: ints written to a float tensor");
    return transfer(p, t, (void *)values, TO_DEVICE, err);
}

ist_status ist_plan_read_i32(ist_plan *p, ist_tensor t, int *values, ist_error *err) {
    if (t.elem != IST_ELEM_I32) return ist_fail(err, IST_E_ARGUMENT, "plan: ints read from a float tensor");
    return transfer(p, t, values, TO_HOST, err);
}
