/* Joined programs: each part keeps its own options and names, computes what it computes alone, and what cannot be
 * joined is built alone without a word. */
#include "device/join.h"
#include "device/sources.h"
#include "support/one_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(device_join, .init = open_one, .fini = close_one);

static ist_status join(const ist_program_part *parts, int count) {
    return ist_programs_join_now(IST_HERE, d, parts, count, &err);
}

/* out[0..128) of a probe kernel over in[i] = i * i. */
static void run(const ist_program_part *part, size_t global, size_t local, uint32_t out[256]) {
    uint32_t in[256];
    cl_mem a, b;
    cl_kernel k;
    for (uint32_t i = 0; i < 256; i++) in[i] = i * i, out[i] = 0;
    cr_assert_eq(ist_kernel_create(d, part->op, part->isa, part->defines, "probe", &k, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, sizeof in, "in", &a, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, sizeof in, "out", &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, a, 0, sizeof in, in, true, "in", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, b, 0, sizeof in, out, true, "out", &err), IST_OK, "%s", err.text);
    cr_assert_eq(clSetKernelArg(k, 0, sizeof b, &b), CL_SUCCESS);
    cr_assert_eq(clSetKernelArg(k, 1, sizeof a, &a), CL_SUCCESS);
    cr_assert_eq(ist_enqueue(d, k, 1, &global, &local, "joined", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, (ist_frame_scope){0}, b, 0, sizeof in, out, NULL, "out", &err), IST_OK, "%s", err.text);
    ist_buffer_release(d, &a);
    ist_buffer_release(d, &b);
    ist_kernel_release(&k);
}

/* Three sources that all call their kernel `probe`, two of which define a WORDS of their own. */
Test(device_join, parts_compute_what_they_compute_alone) {
    static const ist_program_part parts[] = {
        {"probe/local", NULL, ""}, {"probe/atomics", NULL, "-DUNUSED=3 -D OTHER"}, {"probe/group256", NULL, ""}};
    static const size_t global[] = {128, 256, 256}, local[] = {64, 64, 256};
    uint32_t alone[3][256], joined[3][256];
    for (int i = 0; i < 3; i++) run(&parts[i], global[i], local[i], alone[i]);
    ist_programs_release(d);
    int before = ist_device_builds(d).built;
    cr_assert_eq(join(parts, 3), IST_OK, "%s", err.text);
    cr_expect_eq(ist_device_builds(d).built, before + 1);
    for (int i = 0; i < 3; i++) {
        run(&parts[i], global[i], local[i], joined[i]);
        cr_expect_arr_eq(joined[i], alone[i], sizeof alone[i], "%s", parts[i].op);
    }
    cr_expect_eq(ist_device_builds(d).built, before + 1, "no part is built a second time");
    cr_expect(alone[0][0] != 0 && alone[1][0] != 0 && alone[2][0] != 0);
}

/* The same source three times, with macros and functions that differ by its options. */
Test(device_join, variants_of_one_source) {
    static const ist_program_part parts[] = {{"cpu/conv", "portable/vector", "-DMR=6 -DNV=2 -DVL=8 -DCHUNK=64"},
                                             {"cpu/conv", "portable/vector", "-DMR=12 -DNV=1 -DVL=8 -DCHUNK=64"},
                                             {"cpu/conv", "portable/vector", "-DMR=6 -DNV=2 -DVL=8 -DCHUNK=64"},
                                             {"portable/norm", NULL, "-DLANES=1"},
                                             {"portable/mask", "codes/frame+portable/frame+portable/mask_sums", "-DLANES=1 -DGROUPS=32"}};
    int before = ist_device_builds(d).built;
    cr_assert_eq(join(parts, 5), IST_OK, "%s", err.text);
    cl_kernel k[3];
    static const char *const names[] = {"conv", "conv", "layernorm"};
    for (int i = 0; i < 3; i++) {
        const ist_program_part *p = &parts[i == 2 ? 3 : i];
        cr_assert_eq(ist_kernel_create(d, p->op, p->isa, p->defines, names[i], &k[i], &err), IST_OK, "%s", err.text);
    }
    cr_expect_eq(ist_device_builds(d).built, before + 1);
    char name[2][64];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(clGetKernelInfo(k[i], CL_KERNEL_FUNCTION_NAME, sizeof name[i], name[i], NULL), CL_SUCCESS);
    cr_expect_str_neq(name[0], name[1]);
    cl_kernel none;
    cr_expect_eq(ist_kernel_create(d, parts[3].op, NULL, parts[3].defines, "no_such_kernel", &none, &err),
                 IST_E_DEVICE);
    cr_expect(strstr(err.text, "kernel no_such_kernel of portable/norm"), "%s", err.text);
    for (int i = 0; i < 3; i++) ist_kernel_release(&k[i]);
}

/* Variants of sources whose functions are made by macros: each must be found and renamed, or the join has them twice.
 */
#define SEQUENCE_PARTS "codes/step+codes/sequence_cpu+portable/distribution+cpu/tile"
Test(device_join, variants_of_functions_that_macros_define) {
    static const ist_program_part parts[] = {{"cpu/attention", "cpu/tile+cpu/attention_parts", "-DD=32"},
                                             {"cpu/attention", "cpu/tile+cpu/attention_parts", "-DD=64"},
                                             {"cpu/window", "cpu/tile+cpu/attention_parts", "-DTOKENS=256"},
                                             {"cpu/sequence", SEQUENCE_PARTS, ""},
                                             {"cpu/sequence", SEQUENCE_PARTS, "-DOTHER"},
                                             {"cpu/dwconv", "portable/vector", "-DVL=16 -DRING=4096"},
                                             {"cpu/dwconv", "portable/vector", "-DVL=16 -DRING=8192"},
                                             {"portable/pool", NULL, ""},
                                             {"portable/pool", NULL, "-DRUN=4"}};
    static const char *const names[] = {"attention", "attention", "window",     "sequence",  "sequence",
                                        "dwconv",    "dwconv",    "maxpool2x2", "maxpool2x2"};
    const int count = sizeof parts / sizeof *parts;
    if (!(ist_device_caps(d) & IST_CAP_CPU)) cr_skip_test("sources for CPUs");
    int before = ist_device_builds(d).built;
    cr_assert_eq(join(parts, count), IST_OK, "%s", err.text);
    for (int i = 0; i < count; i++) {
        cl_kernel k;
        cr_expect_eq(ist_kernel_create(d, parts[i].op, parts[i].isa, parts[i].defines, names[i], &k, &err), IST_OK,
                     "%s", err.text);
        ist_kernel_release(&k);
    }
    cr_expect_eq(ist_device_builds(d).built, before + 1, "the join failed and parts were built alone");
}

/* The kernels of one source that options choose between. */
Test(device_join, kernels_of_one_source) {
    static const ist_program_part parts[] = {
        {"cpu/attention", "cpu/tile+cpu/attention_parts", "-DD=64"},
        {"cpu/attention", "cpu/tile+cpu/attention_parts", "-DRELATIVE -DD=64 -DKT=8 -DWH=16 -DWW=16"},
        {"cpu/attention", "cpu/tile+cpu/attention_parts", "-DRELATIVE -DD=64 -DKT=8 -DWH=14 -DWW=14"},
        {"portable/attention", NULL, "-DD=64 -DWH=14 -DWW=14"},
        {"portable/attention", "portable/left_out", "-DD=32 -DWS=7"},
        {"portable/attention", "portable/left_out", "-DD=32 -DWS=7 -DLEFT_OUT=7"}};
    static const char *const names[] = {"attention", "relative", "relative", "relative", "window", "window"};
    const int count = sizeof parts / sizeof *parts;
    if (!(ist_device_caps(d) & IST_CAP_CPU)) cr_skip_test("sources for CPUs");
    int before = ist_device_builds(d).built;
    cr_assert_eq(join(parts, count), IST_OK, "%s", err.text);
    for (int i = 0; i < count; i++) {
        cl_kernel k;
        cr_expect_eq(ist_kernel_create(d, parts[i].op, parts[i].isa, parts[i].defines, names[i], &k, &err), IST_OK,
                     "%s", err.text);
        ist_kernel_release(&k);
    }
    cr_expect_eq(ist_device_builds(d).built, before + 1, "the join failed and parts were built alone");
}

/* The text of a join does not depend on the order in which a frame uses its programs, so that a cache finds it again.
 */
Test(device_join, order_does_not_matter) {
    ist_program_part parts[] = {{"probe/local", NULL, ""}, {"probe/atomics", NULL, ""}, {"probe/local", NULL, ""}};
    cr_assert_eq(join(parts, 2), IST_OK, "%s", err.text);
    int before = ist_device_builds(d).built;
    ist_programs_release(d);
    ist_program_part other[] = {parts[1], parts[2], parts[0]};
    char folder[] = "/tmp/isthmus-join-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(ist_cache_use(d, folder, &err), IST_OK, "%s", err.text);
    cr_assert_eq(join(parts, 2), IST_OK, "%s", err.text);
    ist_programs_release(d);
    cr_assert_eq(join(other, 3), IST_OK, "%s", err.text);
    cr_expect_eq(ist_device_builds(d).built, before + 1);
    cr_expect_eq(ist_device_builds(d).from_cache, 1);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

Test(device_join, a_part_that_does_not_build_leaves_the_others) {
    static const ist_program_part parts[] = {{"probe/local", NULL, ""}, {"probe/atomics", NULL, "-Dprobe=+"}};
    cr_assert_eq(join(parts, 2), IST_OK, "not this call's failure");
    cl_kernel k;
    cr_expect_eq(ist_kernel_create(d, "probe/atomics", NULL, "-Dprobe=+", "probe", &k, &err), IST_E_BUILD);
    cr_expect(strstr(err.text, "probe/atomics does not build on "), "%s", err.text);
    uint32_t out[256];
    run(&parts[0], 128, 64, out);
    cr_expect_neq(out[0], 0);
}

Test(device_join, what_cannot_be_joined) {
    const ist_program_part option[] = {{"probe/local", NULL, "-cl-opt-disable"}, {"probe/atomics", NULL, ""}};
    const ist_program_part halves[] = {{"probe/local", NULL, "-DIST_HALF"}, {"probe/atomics", NULL, ""}};
    const ist_program_part missing[] = {{"probe/local", NULL, ""}, {"op/no_such_op", NULL, ""}};
    cr_expect_null(ist_join_text(option, 2));
    cr_expect_null(ist_join_text(halves, 2));
    cr_expect_null(ist_join_text(missing, 2));
    char *text = ist_join_text(&halves[1], 1);
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "#define probe probe_0"));
    cr_expect_not_null(strstr(text, "#undef probe"));
    free(text);
}

/* Renaming what a source declares would rename the member of a struct that is called alike. */
Test(device_join, no_source_declares_a_name_that_structs_of_arguments_have) {
    int count = 0;
    for (const ist_source *s = ist_sources; s->name; s++) {
        if (!strncmp(s->name, "codes/", 6) || !strcmp(s->name, "prelude")) continue;
        char *text = ist_join_text(&(ist_program_part){s->name, NULL, ""}, 1);
        cr_expect_not_null(text, "%s", s->name);
        free(text);
        count++;
    }
    cr_expect(count > 20);
}
