/* The plan: sticky failures while recording, lifetimes, guards, externals, constants, replay. The kernel used is
 * portable/fill_rows, which writes a vector to chosen pixels. */
#include "core/plan.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static ist_device *device;
static ist_plan *plan;
static ist_error err;

static void begin(const ist_plan_options *options) {
    ist_device_options d = {0};
    cr_assert_eq(ist_device_open(&d, &device, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_plan_begin(device, options, &plan, &err), IST_OK, "%s", err.text);
}

static void end(void) {
    ist_plan_close(&plan);
    ist_device_close(&device);
    cr_assert_null(plan);
}

/* Writes the values to pixel `row` of x; `kind` says how the launch touches x. */
static void fill_in(ist_plan *p, const char *defines, ist_tensor x, int row, const float values[8], ist_arg_kind kind) {
    ist_tensor rows = ist_plan_const(p, &row, 1, 1, 1, 1, IST_ELEM_I32, "row");
    ist_tensor v = ist_plan_const(p, values, 1, 1, 1, 8, IST_ELEM_F32, "value");
    ist_launch l = {.label = "fill",
                    .op = "portable/fill_rows",
                    .defines = defines,
                    .kernel = "fill_rows",
                    .dims = 2,
                    .global = {1, (size_t)(x.n ? x.n : 1)},
                    .local = {1, 1},
                    .args = {{.kind = kind, .tensor = x},
                             IST_IN(rows),
                             IST_IN(v),
                             IST_IN(ist_plan_current_limit(p)),
                             IST_INT4(x.ld, x.c0, x.c, x.h * x.w)},
                    .arg_count = 5};
    ist_plan_launch(p, &l);
}

static void fill_by(const char *defines, ist_tensor x, int row, float value, ist_arg_kind kind) {
    float values[8];
    for (int i = 0; i < 8; i++) values[i] = value + (float)i;
    fill_in(plan, defines, x, row, values, kind);
}

static void fill(ist_tensor x, int row, float value, ist_arg_kind kind) {
    fill_by("", x, row, value, kind);
}

static void run(void) {
    cr_assert_eq(ist_plan_replay(plan, &err), IST_OK, "%s", err.text);
}

static void finish(void) {
    cr_assert_eq(ist_plan_finish(plan, &err), IST_OK, "%s", err.text);
}

Test(core_plan, writes_what_was_recorded) {
    begin(NULL);
    ist_tensor x = ist_plan_input(plan, 2, 1, 3, 4, IST_ELEM_T);
    fill(ist_slice(x, 1, 2), 1, 5.0f, IST_ARG_INOUT);
    finish();
    float got[24], start[24];
    for (int i = 0; i < 24; i++) start[i] = (float)-i;
    cr_assert_eq(ist_plan_write_f32(plan, x, start, &err), IST_OK);
    run();
    cr_assert_eq(ist_plan_read_f32(plan, x, got, &err), IST_OK);
    for (int i = 0; i < 24; i++) {
        bool hit = i % 12 / 4 == 1 && i % 4 >= 1 && i % 4 <= 2;
        cr_assert_eq(got[i], hit ? 5.0f + (float)(i % 4 - 1) : start[i], "element %d is %g", i, got[i]);
    }
    float slice[12];
    cr_assert_eq(ist_plan_read_f32(plan, ist_slice(x, 1, 2), slice, &err), IST_OK);
    cr_assert_eq(slice[2], 5.0f);
    cr_assert_eq(slice[3], 6.0f);
    end();
}

Test(core_plan, the_limit_leaves_later_items_alone) {
    begin(NULL);
    ist_tensor x = ist_plan_input(plan, 3, 1, 1, 1, IST_ELEM_T), count = ist_plan_input(plan, 1, 1, 1, 1, IST_ELEM_I32);
    ist_plan_limit(plan, count);
    fill(x, 0, 7.0f, IST_ARG_INOUT);
    ist_plan_limit(plan, (ist_tensor){0});
    finish();
    for (int n = 0; n <= 3; n++) {
        float values[3] = {1, 1, 1};
        cr_assert_eq(ist_plan_write_f32(plan, x, values, &err), IST_OK);
        cr_assert_eq(ist_plan_write_i32(plan, count, &n, &err), IST_OK);
        run();
        cr_assert_eq(ist_plan_read_f32(plan, x, values, &err), IST_OK);
        for (int i = 0; i < 3; i++) cr_assert_eq(values[i], i < n ? 7.0f : 1.0f, "count %d, item %d", n, i);
    }
    end();
}

Test(core_plan, sections_are_left_out) {
    begin(NULL);
    ist_tensor x = ist_plan_input(plan, 1, 1, 3, 1, IST_ELEM_T);
    for (int i = 0; i < 3; i++) {
        ist_plan_section(plan, i);
        fill(x, i, 7.0f + (float)i, IST_ARG_INOUT);
    }
    ist_plan_section(plan, 0);
    finish();
    for (unsigned out = 0; out < 8; out++) { /* bit 0 is nobody's */
        float values[3] = {1, 1, 1};
        cr_assert_eq(ist_plan_write_f32(plan, x, values, &err), IST_OK);
        ist_plan_leave_out(plan, out);
        run();
        cr_assert_eq(ist_plan_read_f32(plan, x, values, &err), IST_OK);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(values[i], i && out >> i & 1 ? 1.0f : 7.0f + (float)i, "%u left out, launch %d", out, i);
    }
    end();

    begin(NULL);
    ist_plan_section(plan, 32);
    cr_assert_eq(ist_plan_status(plan), IST_E_ARGUMENT);
    end();
}

Test(core_plan, dead_tensors_share_memory_and_kept_ones_do_not) {
    begin(NULL);
    for (int i = 0; i < 10; i++) fill(ist_plan_tensor(plan, 1, 1, 1, 1024, IST_ELEM_T), 0, 1, IST_ARG_OUT);
    finish();
    ist_plan_facts f = ist_plan_describe(plan);
    cr_assert_eq(f.launches, 10);
    cr_assert_eq(f.arena_bytes, 4096);
    cr_assert_eq(f.arena_lower_bound, 4096);
    end();

    begin(&(ist_plan_options){.taps = true});
    for (int i = 0; i < 10; i++) {
        ist_tensor t = ist_plan_tensor(plan, 1, 1, 1, 8, IST_ELEM_T);
        char name[8] = {'t', (char)('0' + i), 0};
        fill(t, 0, (float)(10 * i), IST_ARG_OUT);
        ist_plan_tap(plan, name, t);
    }
    finish();
    run();
    for (int i = 0; i < 10; i++) {
        char name[8] = {'t', (char)('0' + i), 0};
        float got[8];
        cr_assert_eq(ist_plan_read_f32(plan, ist_plan_tapped(plan, name), got, &err), IST_OK);
        for (int k = 0; k < 8; k++) cr_assert_eq(got[k], (float)(10 * i + k));
    }
    cr_assert(!ist_has(ist_plan_tapped(plan, "absent")));
    end();
}

Test(core_plan, guards_see_a_write_outside) {
    for (int row = -1; row <= 2; row++) {
        begin(&(ist_plan_options){.guard_bytes = 64});
        fill(ist_plan_tensor(plan, 1, 1, 2, 4, IST_ELEM_T), row, 3.0f, IST_ARG_OUT);
        finish();
        run();
        ist_status st = ist_plan_check_guards(plan, &err);
        cr_assert_eq(st, row == 0 || row == 1 ? IST_OK : IST_E_STATE, "pixel %d of 2", row);
        end();
    }
}

Test(core_plan, persistent_state_starts_as_zeros_and_stays) {
    begin(NULL);
    ist_tensor x = ist_plan_persistent(plan, 1, 1, 2, 4, IST_ELEM_T);
    fill(x, 1, 2.0f, IST_ARG_INOUT);
    finish();
    float got[8], mine[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    cr_assert_eq(ist_plan_read_f32(plan, x, got, &err), IST_OK);
    for (int i = 0; i < 8; i++) cr_assert_eq(got[i], 0.0f);
    cr_assert_eq(ist_plan_write_f32(plan, x, mine, &err), IST_OK);
    run();
    cr_assert_eq(ist_plan_read_f32(plan, x, got, &err), IST_OK);
    for (int i = 0; i < 8; i++) cr_assert_eq(got[i], i < 4 ? 9.0f : 2.0f + (float)(i - 4));
    end();
}

Test(core_plan, external_buffers_are_bound_before_replay) {
    begin(NULL);
    ist_tensor x = ist_plan_external(plan, 3, IST_ELEM_T);
    x.c = x.ld = 8;
    fill(x, 0, 4.0f, IST_ARG_INOUT);
    finish();
    cr_assert_eq(ist_plan_replay(plan, &err), IST_E_STATE);
    cl_mem a, b;
    cr_assert_eq(ist_buffer_create(device, 32, "a", &a, &err), IST_OK);
    cr_assert_eq(ist_buffer_create(device, 32, "b", &b, &err), IST_OK);
    cl_mem order[3] = {a, b, a};
    for (int i = 0; i < 3; i++) {
        float zeros[8] = {0}, got[8];
        cr_assert_eq(ist_write(device, (ist_frame_scope){0}, order[i], 0, 32, zeros, true, "zeros", &err), IST_OK);
        cr_assert_eq(ist_plan_bind(plan, 3, order[i], &err), IST_OK, "%s", err.text);
        run();
        cr_assert_eq(ist_read(device, (ist_frame_scope){0}, order[i], 0, 32, got, NULL, "got", &err), IST_OK);
        for (int k = 0; k < 8; k++) cr_assert_eq(got[k], 4.0f + (float)k);
    }
    cr_assert_eq(ist_plan_bind(plan, 16, a, &err), IST_E_ARGUMENT);
    ist_buffer_release(device, &a);
    ist_buffer_release(device, &b);
    end();
}

Test(core_plan, the_first_failure_sticks) {
    begin(NULL);
    ist_tensor never = ist_plan_tensor(plan, 1, 1, 1, 8, IST_ELEM_T);
    fill(never, 0, 1, IST_ARG_IN);
    cr_assert_eq(ist_plan_status(plan), IST_E_STATE);
    cr_assert(!ist_has(ist_plan_tensor(plan, 1, 1, 1, 8, IST_ELEM_T)));
    ist_plan_fail(plan, IST_E_WEIGHTS, "later");
    cr_assert_eq(ist_plan_finish(plan, &err), IST_E_STATE);
    cr_assert(strstr(err.text, "nothing has written"), "%s", err.text);
    cr_assert_eq(ist_plan_replay(plan, NULL), IST_E_STATE);
    end();
}

Test(core_plan, impossible_requests_are_refused) {
    static const struct {
        int n, h, w, c;
        const char *says;
    } bad[] = {{0, 1, 1, 1, "tensor: [0,1,1,1] is no tensor"},
               {1, -1, 1, 1, "tensor: [1,-1,1,1] is no tensor"},
               {1, 1, 1, 0, "tensor: [1,1,1,0] is no tensor"},
               {1 << 20, 1 << 20, 1, 1, "tensor: 1099511627776 values, at most 2147483647 are possible"},
               {1 << 15, 1 << 10, 1 << 5, 64, "tensor: 68719476736 values, at most 2147483647 are possible"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(NULL);
        cr_assert(!ist_has(ist_plan_tensor(plan, bad[i].n, bad[i].h, bad[i].w, bad[i].c, IST_ELEM_T)));
        cr_assert_eq(ist_plan_status(plan), IST_E_LIMIT);
        cr_expect_str_eq(ist_plan_error(plan)->text, bad[i].says);
        end();
    }
    begin(NULL);
    ist_tensor t = ist_plan_tensor(plan, 1, 2, 2, 8, IST_ELEM_T);
    ist_plan_into(plan, t, 1, 2, 3, 8, IST_ELEM_T, "layer.weight");
    cr_assert_eq(ist_plan_finish(plan, &err), IST_E_ARGUMENT);
    cr_assert(strstr(err.text, "layer.weight"), "%s", err.text);
    end();
    begin(NULL);
    ist_tensor constant = ist_plan_const(plan, &(float){1}, 1, 1, 1, 1, IST_ELEM_F32, "constant");
    fill(constant, 0, 1, IST_ARG_OUT);
    cr_assert_eq(ist_plan_status(plan), IST_E_STATE);
    end();
}

Test(core_plan, an_unknown_kernel_names_the_layer) {
    begin(NULL);
    ist_launch l = {
        .label = "conv 3x3 stem", .op = "op/absent", .kernel = "none", .dims = 1, .global = {1}, .local = {1}};
    ist_plan_launch(plan, &l);
    cr_assert_neq(ist_plan_finish(plan, &err), IST_OK);
    cr_assert(strstr(err.text, "conv 3x3 stem"), "%s", err.text);
    end();
}

Test(core_plan, half_constants_round_to_nearest_even) {
    static const struct {
        float value, want;
    } cases[] = {{1.0f, 1.0f},
                 {-2.5f, -2.5f},
                 {1.00048828125f, 1.0f}, /* a tie goes to even */
                 {1.00146484375f, 1.001953125f},
                 {65504.0f, 65504.0f},
                 {6e-8f, 0x1p-24f},
                 {0x1p-14f, 0x1p-14f},
                 {0x1.ff8p-15f, 0x1.ff8p-15f},
                 {0.0f, 0.0f}};
    begin(&(ist_plan_options){.half = true});
    ist_tensor out = ist_plan_input(plan, 1, 1, 1, 8, IST_ELEM_T), t[9];
    for (int i = 0; i < 9; i++) t[i] = ist_plan_const(plan, &cases[i].value, 1, 1, 1, 1, IST_ELEM_T, "c");
    for (int i = 0; i < 9; i++) { /* a launch that takes it keeps a constant in the frame */
        ist_launch l = {.label = "keep",
                        .op = "portable/fill_rows",
                        .defines = "-DIST_HALF",
                        .kernel = "fill_rows",
                        .dims = 2,
                        .global = {1, 1},
                        .local = {1, 1},
                        .args = {IST_INOUT(out), IST_IN(ist_plan_current_limit(plan)), IST_IN(t[i]),
                                 IST_IN(ist_plan_current_limit(plan)), IST_INT4(0, 0, 0, 0)},
                        .arg_count = 5};
        ist_plan_launch(plan, &l);
    }
    finish();
    for (int i = 0; i < 9; i++) {
        float got;
        cr_assert_eq(ist_plan_read_f32(plan, t[i], &got, &err), IST_OK, "%s", err.text);
        cr_assert_eq(got, cases[i].want, "%a became %a", cases[i].value, got);
    }
    end();
}

/* 65519 still rounds to 65504, 65520 would round to infinity; infinities and NaN are what they are. */
Test(core_plan, constants_beyond_half_are_named) {
    static const float fine[] = {65519.0f, -65504.0f, INFINITY, -INFINITY, NAN, 1e-30f},
                       wrong[] = {0.5f, -65520.0f, 1.0f};
    begin(&(ist_plan_options){.half = true});
    cr_assert(ist_plan_representable(plan, fine, 6, "fine"));
    ist_plan_const(plan, wrong, 1, 1, 1, 3, IST_ELEM_F32, "floats stay floats");
    cr_assert_eq(ist_plan_status(plan), IST_OK);
    cr_assert_not(ist_has(ist_plan_const(plan, wrong, 1, 1, 1, 3, IST_ELEM_T, "a.weight")));
    cr_assert_eq(ist_plan_finish(plan, &err), IST_E_WEIGHTS);
    cr_assert_not_null(strstr(err.text, "a.weight: element 1 is -65520, half precision ends at 65504"), "%s", err.text);
    end();
    begin(NULL);
    cr_assert(ist_plan_representable(plan, wrong, 3, "floats hold more"));
    end();
}

Test(core_plan, products_are_rounded_where_the_option_and_the_model_say_so) {
    for (int option = 0; option < 2; option++) {
        begin(&(ist_plan_options){.bf16 = option});
        cr_expect_not(ist_plan_bf16(plan));
        ist_plan_reduced(plan, true);
        cr_expect_eq(ist_plan_bf16(plan), option);
        ist_plan_reduced(plan, false);
        cr_expect_not(ist_plan_bf16(plan));
        end();
    }
}

Test(core_plan, a_profile_has_one_time_per_launch) {
    begin(NULL);
    for (int i = 0; i < 3; i++) {
        fill(ist_plan_tensor(plan, 1, 1, 1, 8, IST_ELEM_T), 0, 1, IST_ARG_OUT);
        ist_plan_stage(plan, i ? "second" : "first");
    }
    finish();
    const char *stages[3] = {"", "first", "second"};
    for (int i = 0; i < 3; i++) cr_assert_str_eq(ist_plan_launch_at(plan, i)->stage, stages[i]);
    double ms[3] = {-1, -1, -1};
    cr_assert_eq(ist_plan_profile(plan, ms, &err), IST_OK);
    for (int i = 0; i < 3; i++) cr_assert_geq(ms[i], 0.0);
    cr_assert_str_eq(ist_plan_launch_at(plan, 2)->label, "fill");
    cr_assert_null(ist_plan_launch_at(plan, 3));
    end();
}

static void open_device(bool two_lanes) {
    cr_assert_eq(ist_device_open(NULL, &device, &err), IST_OK, "%s", err.text);
    if (two_lanes) cr_assert_eq(ist_lane_open(device, &err), IST_OK, "%s", err.text);
}

/* Three steps of each branch and one behind them for what the second has made. */
static size_t branched(bool overlap, bool fork) {
    open_device(overlap);
    cr_assert_eq(ist_plan_begin(device, &(ist_plan_options){.overlap = overlap}, &plan, &err), IST_OK, "%s", err.text);
    ist_tensor kept[2];
    if (fork) ist_plan_fork(plan);
    for (int side = 0; side < 2; side++) {
        if (side) ist_plan_side(plan);
        for (int i = 0; i < 3; i++) {
            kept[side] = ist_plan_tensor(plan, 1, 1, 1, 1024, IST_ELEM_T);
            for (int k = 0; k < 2; k++) fill(ist_slice(kept[side], 8 * k, 8), 0, (float)(10 * side + i), IST_ARG_OUT);
        }
    }
    ist_plan_join(plan);
    fill(ist_slice(kept[1], 0, 8), 0, 100, IST_ARG_INOUT);
    finish();
    for (int i = 0; i < 20; i++) run();
    for (int side = overlap && fork ? 0 : 1; side < 2; side++) { /* in turn the first is gone */
        float got[16];
        cr_assert_eq(ist_plan_read_f32(plan, ist_slice(kept[side], 0, 16), got, &err), IST_OK, "%s", err.text);
        for (int i = 0; i < 8; i++) cr_assert_eq(got[i], (float)((side ? 100 : 2) + i));
        for (int i = 0; i < 8; i++) cr_assert_eq(got[8 + i], (float)(10 * side + 2 + i));
    }
    size_t bytes = ist_plan_describe(plan).arena_bytes;
    end();
    return bytes;
}

Test(core_plan, branches_run_beside_each_other_in_memory_of_their_own) {
    cr_expect_eq(branched(false, true), 4096);
    cr_expect_eq(branched(true, true), 2 * 4096);
    cr_expect_eq(branched(true, false), 4096); /* no fork, no branches */
}

Test(core_plan, branches_share_nothing_that_is_written) {
    for (int way = 0; way < 3; way++) {
        open_device(true);
        cr_assert_eq(ist_plan_begin(device, &(ist_plan_options){.overlap = true}, &plan, &err), IST_OK);
        ist_tensor before = ist_plan_tensor(plan, 1, 1, 1, 8, IST_ELEM_T), other;
        fill(before, 0, 1, IST_ARG_OUT);
        ist_plan_fork(plan);
        other = ist_plan_tensor(plan, 1, 1, 1, 8, IST_ELEM_T);
        fill(other, 0, 2, IST_ARG_OUT);
        fill(before, 0, 3, IST_ARG_IN);
        ist_plan_side(plan);
        if (way == 0) fill(before, 0, 4, IST_ARG_IN);
        if (way == 1) fill(before, 0, 4, IST_ARG_INOUT);
        if (way == 2) fill(other, 0, 4, IST_ARG_IN);
        cr_expect_eq(ist_plan_status(plan), way ? IST_E_STATE : IST_OK, "way %d", way);
        if (way) cr_expect_not_null(strstr(ist_plan_error(plan)->text, "the branch beside it"));
        ist_plan_join(plan);
        end();
    }
}

/* A tensor made behind the join by a launch that does not wait for the second branch keeps clear of that branch. */
Test(core_plan, the_first_branch_goes_on_behind_the_join) {
    for (int overlap = 0; overlap < 2; overlap++) {
        open_device(overlap);
        cr_assert_eq(ist_plan_begin(device, &(ist_plan_options){.overlap = overlap}, &plan, &err), IST_OK);
        ist_tensor t[4];
        for (int i = 0; i < 4; i++) t[i] = ist_plan_tensor(plan, 1, 1, 1, 1024, IST_ELEM_T);
        ist_plan_fork(plan);
        fill(ist_slice(t[0], 0, 8), 0, 0, IST_ARG_OUT);
        ist_plan_side(plan);
        fill(ist_slice(t[1], 0, 8), 0, 10, IST_ARG_OUT);
        fill(ist_slice(t[2], 0, 8), 0, 20, IST_ARG_OUT);
        fill(ist_slice(t[1], 8, 8), 0, 10, IST_ARG_INOUT); /* dead from here on, in turn */
        ist_plan_join(plan);
        fill(ist_slice(t[3], 0, 8), 0, 30, IST_ARG_OUT); /* still beside the second branch */
        for (int i = 2; i < 5; i++) fill(ist_slice(t[i % 4], 8, 8), 0, (float)(10 * (i % 4)), IST_ARG_INOUT);
        finish();
        for (int i = 0; i < 20; i++) run();
        for (int i = 0; i < 4; i++) {
            float got[16];
            if (i == 1) continue;
            cr_assert_eq(ist_plan_read_f32(plan, ist_slice(t[i], 0, 16), got, &err), IST_OK, "%s", err.text);
            for (int k = 0; k < 16; k++) cr_assert_eq(got[k], (float)(10 * i + k % 8), "tensor %d, %d", i, k);
        }
        cr_expect_eq(ist_plan_describe(plan).arena_bytes, overlap ? 4 * 4096 : 3 * 4096);
        end();
    }
}

Test(core_plan, what_is_recorded_has_a_part_of_the_units) {
    begin(&(ist_plan_options){0});
    const int units = ist_plan_units(plan);
    cr_expect_eq(units, ist_device_facts(device)->compute_units);
    cr_expect_not(ist_plan_overlaps(plan));
    ist_plan_share(plan, 0.5);
    cr_expect_eq(ist_plan_units(plan), units > 1 ? units / 2 : 1);
    ist_plan_share(plan, 1e-6);
    cr_expect_eq(ist_plan_units(plan), 1);
    ist_plan_share(plan, 1);
    cr_expect_eq(ist_plan_units(plan), units);
    end();
}

Test(core_plan, each_branch_has_a_work_queue) {
    begin(&(ist_plan_options){.overlap = true});
    ist_plan_fork(plan);
    ist_tensor main = ist_plan_work_queue(plan);
    ist_plan_side(plan);
    ist_tensor side = ist_plan_work_queue(plan);
    cr_expect_neq(main.buffer, side.buffer);
    ist_plan_join(plan);
    cr_expect_eq(ist_plan_work_queue(plan).buffer, main.buffer);
    end();
}

/* ---- shadows ---- */

/* Parts of one fill each; values are right only where the plan says that it makes them. */
static void record_parts(ist_plan *p, ist_tensor x, int parts, int fail_at) {
    for (int part = 0; part < parts; part++) {
        float values[8];
        ist_plan_part(p, part);
        for (int i = 0; i < 8; i++) values[i] = ist_plan_has_values(p) ? (float)(10 * part + i) : NAN;
        if (part == fail_at && ist_plan_has_values(p)) ist_plan_fail(p, IST_E_WEIGHTS, "part %d is bad", part);
        fill_in(p, "", x, part, values, IST_ARG_OUT);
    }
}

enum { PARTS = 200, SHADOWS = 3 };

typedef struct shadow_run {
    ist_plan *plan;
    int fail_at;
    pthread_t thread;
} shadow_run;

static void *record_shadow(void *argument) {
    shadow_run *s = argument;
    record_parts(s->plan, ist_plan_tensor(s->plan, 1, 1, PARTS, 8, IST_ELEM_F32), PARTS, s->fail_at);
    return NULL;
}

/* The plan and its shadows, recorded at the same time; returns the plan's tensor. */
static ist_tensor record_together(int fail_at) {
    shadow_run s[SHADOWS];
    for (int i = 0; i < SHADOWS; i++) {
        s[i] = (shadow_run){.fail_at = fail_at};
        cr_assert_eq(ist_plan_shadow(plan, &s[i].plan, &err), IST_OK, "%s", err.text);
    }
    for (int i = 0; i < SHADOWS; i++) cr_assert(!pthread_create(&s[i].thread, NULL, record_shadow, &s[i]));
    ist_tensor x = ist_plan_tensor(plan, 1, 1, PARTS, 8, IST_ELEM_F32);
    record_parts(plan, x, PARTS, fail_at);
    for (int i = 0; i < SHADOWS; i++) pthread_join(s[i].thread, NULL);
    for (int i = 0; i < SHADOWS; i++) ist_plan_shadow_end(plan, &s[i].plan);
    return x;
}

Test(core_plan, each_part_has_the_values_of_one_thread) {
    begin(&(ist_plan_options){.taps = true});
    ist_tensor x = record_together(-1);
    cr_assert(ist_plan_has_values(plan));
    ist_plan_tap(plan, "x", x);
    finish();
    run();
    float *got = malloc(sizeof *got * PARTS * 8);
    cr_assert_not_null(got);
    cr_assert_eq(ist_plan_read_f32(plan, x, got, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < PARTS * 8; i++) cr_assert_eq(got[i], (float)(10 * (i / 8) + i % 8), "%d: %g", i, got[i]);
    free(got);
    end();
}

Test(core_plan, what_a_shadow_fails_with_the_plan_fails_with) {
    begin(NULL);
    record_together(77);
    cr_assert_eq(ist_plan_status(plan), IST_E_WEIGHTS);
    cr_assert_str_eq(ist_plan_error(plan)->text, "part 77 is bad");
    end();
}

Test(core_plan, a_shadow_with_other_constants_is_an_error) {
    begin(NULL);
    ist_plan *shadow = NULL;
    cr_assert_eq(ist_plan_shadow(plan, &shadow, &err), IST_OK, "%s", err.text);
    record_parts(shadow, ist_plan_tensor(shadow, 1, 1, PARTS, 8, IST_ELEM_F32), 3, -1);
    record_parts(plan, ist_plan_tensor(plan, 1, 1, PARTS, 8, IST_ELEM_F32), 4, -1);
    ist_plan_shadow_end(plan, &shadow);
    cr_assert_eq(ist_plan_status(plan), IST_E_STATE);
    cr_assert_not_null(strstr(ist_plan_error(plan)->text, "other constants"));
    end();
}

Test(core_plan, no_shadow_of_a_plan_without_values) {
    begin(&(ist_plan_options){.late = true});
    ist_plan *shadow = NULL;
    cr_assert_eq(ist_plan_shadow(plan, &shadow, &err), IST_E_STATE);
    cr_assert_null(shadow);
    end();
}
