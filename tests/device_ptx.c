/* Changes to PTX, as text: arguments that become places in one buffer, and what cannot be changed is left. */
#include "device/ptx.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD ".version 9.0\n.target sm_90, texmode_independent\n.address_size 64\n\n"

/* Two kernels, as NVIDIA's compiler writes them: the first with a struct, a number and two pointers. */
static const char two[] = HEAD "\t// .globl\tfirst\n"
                               ".entry first(\n"
                               "\t.param .u64 .ptr .global .align 4 first_param_0,\n"
                               "\t.param .align 4 .b8 first_param_1[20],\n"
                               "\t.param .u32 first_param_2,\n"
                               "\t.param .u64 .ptr .global .align 16 first_param_3\n"
                               ")\n"
                               ".reqntid 64, 1, 1\n"
                               "{\n"
                               "\t.reg .b64 \t%rd<9>;\n"
                               "\tld.param.u64 \t%rd1, [first_param_0];\n"
                               "\t// begin inline asm\n"
                               "\texit; //@stop\n"
                               "\t// end inline asm\n"
                               "\tld.param.u32 \t%r1, [first_param_1+12];\n"
                               "\tld.param.u64 \t%rd2, [first_param_3];\n"
                               "\tret;\n"
                               "\n"
                               "}\n"
                               "\t// .globl\tsecond\n"
                               ".entry second(\n"
                               "\t.param .u64 .ptr .global .align 1 second_param_0\n"
                               ")\n"
                               "{\n"
                               "\tld.param.u64 \t%rd1, [second_param_0];\n"
                               "\tret;\n"
                               "}\n";

/* What the first work-item of a group asks for. */
#define ASKS(name)                                                                                                     \
    "\t{\n"                                                                                                            \
    "\t.reg .b32 \t%group, %groups, %item, %size;\n"                                                                  \
    "\t.reg .b64 \t%word, %bytes, %place;\n"                                                                          \
    "\t.reg .pred \t%other;\n"                                                                                        \
    "\tmov.u32 \t%item, %tid.x;\n"                                                                                    \
    "\tmov.u32 \t%group, %tid.y;\n"                                                                                   \
    "\tor.b32 \t%item, %item, %group;\n"                                                                              \
    "\tsetp.ne.u32 \t%other, %item, 0;\n"                                                                             \
    "\t@%other bra \t$L_" name "_asked;\n"                                                                            \
    "\tld.param.u64 \t%word, [" name "_ahead];\n"                                                                     \
    "\tshr.u64 \t%bytes, %word, 36;\n"                                                                                \
    "\tshl.b64 \t%bytes, %bytes, 4;\n"                                                                                \
    "\tsetp.eq.u64 \t%other, %bytes, 0;\n"                                                                            \
    "\t@%other bra \t$L_" name "_asked;\n"                                                                            \
    "\tmov.u32 \t%group, %ctaid.y;\n"                                                                                 \
    "\tmov.u32 \t%groups, %nctaid.x;\n"                                                                               \
    "\tmov.u32 \t%item, %ctaid.x;\n"                                                                                  \
    "\tmad.lo.s32 \t%group, %group, %groups, %item;\n"                                                                \
    "\tcvt.u32.u64 \t%size, %bytes;\n"                                                                                \
    "\tmul.wide.u32 \t%bytes, %group, %size;\n"                                                                       \
    "\tld.param.u64 \t%block, [" name "_block];\n"                                                                    \
    "\tadd.s64 \t%bytes, %bytes, %block;\n"                                                                           \
    "\tand.b64 \t%place, %word, 68719476735;\n"                                                                       \
    "\tshl.b64 \t%place, %place, 4;\n"                                                                                \
    "\tadd.s64 \t%place, %place, %bytes;\n"                                                                           \
    "\tcp.async.bulk.prefetch.L2.global \t[%place], %size;\n"                                                         \
    "$L_" name "_asked:\n"                                                                                             \
    "\t}\n"

/* The same with argument 0 of either a buffer. */
static const char but_the_first[] = HEAD "\t// .globl\tfirst\n"
                                         ".entry first(\n"
                                         "\t.param .u64 .ptr .global .align 16 first_block,\n"
                                         "\t.param .u64 .ptr .global .align 4 first_param_0,\n"
                                         "\t.param .align 4 .b8 first_param_1[20],\n"
                                         "\t.param .u32 first_param_2,\n"
                                         "\t.param .u64 first_param_3\n"
                                         "\t, .param .u64 first_ahead\n"
                                         ")\n"
                                         ".reqntid 64, 1, 1\n"
                                         "{\n"
                                         "\t.reg .b64 \t%block;\n" ASKS("first")
                                         "\t.reg .b64 \t%rd<9>;\n"
                                         "\tld.param.u64 \t%rd1, [first_param_0];\n"
                                         "\t// begin inline asm\n"
                                         "\t// end inline asm\n"
                                         "\tld.param.u32 \t%r1, [first_param_1+12];\n"
                                         "\tld.param.u64 \t%rd2, [first_param_3];\n"
                                         "\tld.param.u64 \t%block, [first_block];\n"
                                         "\tadd.s64 \t%rd2, %rd2, %block;\n"
                                         "\tret;\n"
                                         "\n"
                                         "}\n"
                                         "\t// .globl\tsecond\n"
                                         ".entry second(\n"
                                         "\t.param .u64 .ptr .global .align 16 second_block,\n"
                                         "\t.param .u64 .ptr .global .align 1 second_param_0\n"
                                         "\t, .param .u64 second_ahead\n"
                                         ")\n"
                                         "{\n"
                                         "\t.reg .b64 \t%block;\n" ASKS("second")
                                         "\tld.param.u64 \t%rd1, [second_param_0];\n"
                                         "\tret;\n"
                                         "}\n";

Test(device_ptx, pointers_become_places_but_for_buffers) {
    char *changed = ist_ptx_in_block(two, 1);
    cr_assert_not_null(changed);
    cr_expect_str_eq(changed, but_the_first);
    free(changed);
}

/* How often `word` is in `text`. */
static int count(const char *text, const char *word) {
    int n = 0;
    while ((text = strstr(text, word))) n++, text += strlen(word);
    return n;
}

Test(device_ptx, without_buffers_the_block_is_the_only_pointer) {
    char *changed = ist_ptx_in_block(two, 0);
    cr_assert_not_null(changed);
    cr_expect_eq(count(changed, ".ptr .global"), 2);
    cr_expect_eq(count(changed, "_block];\n\tadd.s64 \t%rd"), 3);
    cr_expect_not_null(strstr(changed, "\t.param .u64 second_param_0\n\t, .param .u64 second_ahead\n)\n"));
    free(changed);
}

/* Together the groups bring all that was asked for, and nothing beyond the buffer. */
Test(device_ptx, groups_share_what_is_ahead) {
    static const struct {
        uint64_t at, end, size;
        size_t groups;
    } whole[] = {{0, 16, 4096, 1}, {256, 1000, 1 << 20, 7}, {1 << 20, 9 << 20, 1 << 26, 132}, {4096, 4097, 8192, 16}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        uint64_t word = ist_ptx_ahead(whole[i].at, whole[i].end, whole[i].size, whole[i].groups);
        uint64_t at = word % (1ull << IST_PTX_PLACE_BITS) * 16,
                 beyond = at + (word >> IST_PTX_PLACE_BITS) * 16 * whole[i].groups;
        cr_expect_eq(at, whole[i].at, "%zu", i);
        cr_expect(beyond >= whole[i].end && beyond <= whole[i].size, "%zu", i);
    }
    uint64_t last = ist_ptx_ahead(1024, 1600, 1600, 10); /* 36 units by 10 groups: three each are within, four not */
    cr_expect_eq(last >> IST_PTX_PLACE_BITS, 3);
    cr_expect_eq(ist_ptx_ahead(0, 0, 100, 4), 0, "nothing");
    cr_expect_eq(ist_ptx_ahead(0, 64, 32, 4), 0, "beyond the buffer");
    cr_expect_eq(ist_ptx_ahead(8, 64, 64, 4), 0, "not a multiple of 16");
    cr_expect_eq(ist_ptx_ahead(0, 64, 64, 0), 0, "no groups");
    cr_expect_eq(ist_ptx_ahead(1ull << 40, (1ull << 40) + 64, 1ull << 41, 1), 0, "a place that no word has room for");
    cr_expect_eq(ist_ptx_ahead(0, 1ull << 29, 1ull << 30, 1), 0, "more than a word has room for");
}

/* `two` with its first `from` replaced. */
static char *with(const char *from, const char *to) {
    static char text[sizeof two + 256];
    const char *at = strstr(two, from);
    cr_assert_not_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - two), two, to, at + strlen(from));
    return text;
}

/* GPUs before sm_90 do not know the instruction. */
Test(device_ptx, older_targets_bring_nothing_into_the_cache) {
    char *changed = ist_ptx_in_block(with(".target sm_90,", ".target sm_86,"), 0);
    cr_assert_not_null(changed);
    cr_expect_eq(count(changed, "_ahead\n)\n"), 2);
    cr_expect_eq(count(changed, "prefetch"), 0);
    free(changed);
}

Test(device_ptx, what_is_not_understood_is_refused) {
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"ld.param.u64 \t%rd2, [first_param_3];", "mov.b64 \t%rd2, first_param_3;"}, /* its address */
        {"ld.param.u64 \t%rd2, [first_param_3];", "ld.param.u64 \t%rd2, [first_param_3+8];"},
        {"ld.param.u64 \t%rd2, [first_param_3];", "ld.param.v2.u64 \t{%rd2, %rd3}, [first_param_3];"},
        {"ld.param.u64 \t%rd2, [first_param_3];", "@%p1 ld.param.u64 \t%rd2, [first_param_3];"},
        {"[first_param_3]", "[first_param_9]"},            /* not declared */
        {".entry first(\n", ".entry first()\n"},           /* arguments where there are none */
        {"\t.param .u32 first_param_2,\n", "\tnothing\n"}, /* no argument */
        {"\tret;\n}\n", "\tret;\n"},                       /* no end */
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        cr_expect_null(ist_ptx_in_block(with(changes[i].from, changes[i].to), 0), "change %zu", i);
    cr_expect_null(ist_ptx_in_block("", 0));
    cr_expect_null(ist_ptx_in_block("\177ELF\n.entry", 0));
    cr_expect_null(ist_ptx_in_block(HEAD, 0), "no kernel");
}

/* Whatever a driver returns is read to its end and no further. */
Test(device_ptx, cut_short_or_damaged_it_is_changed_or_refused) {
    char text[sizeof two];
    unsigned state = 1;
    for (size_t length = 0; length < sizeof two; length++) {
        char *exact = malloc(length + 1); /* so that a read beyond it shows */
        cr_assert_not_null(exact);
        memcpy(exact, two, length);
        exact[length] = '\0';
        char *changed = ist_ptx_in_block(exact, 0);
        if (changed) cr_expect_eq(count(exact, ".entry "), count(exact, "\n}"), "within a kernel at %zu bytes", length);
        if (length == sizeof two - 1) cr_expect_not_null(changed);
        free(changed);
        free(exact);
    }
    for (int round = 0; round < 4000; round++) {
        memcpy(text, two, sizeof two);
        for (int k = 0; k < 3; k++) {
            state = state * 1664525u + 1013904223u;
            text[(state >> 8) % (sizeof two - 1)] = (char)(1 + (state >> 24) % 127);
        }
        free(ist_ptx_in_block(text, (unsigned)round));
    }
}

Test(device_ptx, stopped_kernels_end_where_they_begin) {
    static const char source[] =
        "#line 1 \"a.cl\"\nstatic int twice(int x) { return 2 * x; }\n"
        "__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void\n"
        "first(__global int *y,\n#ifdef MORE\n int more,\n#endif\n int4 sizes) {\n    y[0] = 1;\n}\n"
        "__kernel void second(__global int *y) {\n    if (y) { y[1] = twice(2); }\n}\n"
        "__kernel void third(__global int *y) {\n#pragma OPENCL FP_CONTRACT OFF\n    y[2] = 3;\n}\n";
    char *stopped = ist_ptx_stopped(source);
    cr_assert_not_null(stopped);
    cr_expect_eq(count(stopped, " IST_STOP"), 3 + 2); /* and the macro's two definitions */
    cr_expect_not_null(strstr(stopped, " int4 sizes) { IST_STOP\n    y[0] = 1;"));
    cr_expect_not_null(strstr(stopped, "second(__global int *y) { IST_STOP\n    if (y) { y[1] = twice(2); }"));
    cr_expect_not_null(strstr(stopped, "third(__global int *y) {\n#pragma OPENCL FP_CONTRACT OFF\n IST_STOP    y[2]"));
    cr_expect_not_null(strstr(stopped, "#line 1 \"a.cl\"\nstatic int twice(int x) { return"));
    free(stopped);
}
