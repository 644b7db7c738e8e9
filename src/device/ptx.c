/* Programs whose PTX is changed before it is built. NVIDIA's OpenCL compiler builds PTX when it is given as a binary,
 * and its binaries are PTX.
 *
 * Instructions of sm_90a: the compiler writes PTX for sm_90 and takes no option for more, but builds PTX for sm_90a. So
 * such instructions stand in the PTX as comments (cl/nvidia/wgmma.cl); when a program's PTX has any, its target is
 * changed and the comments become instructions.
 *
 * One buffer for many (ptx.h): the lines that declare an argument and that load it are the only ones that name it.
 *
 * Ahead (ptx.h): a kernel's body begins with what asks for the next launch's constants. */
#define _GNU_SOURCE /* memmem */
#include "device/ptx.h"
#include "device/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "//@sm_90a ", target[] = ".target sm_90,", better[] = ".target sm_90a,";

/* ---- one buffer for many ---- */

#define STOP "//@stop" /* in the PTX, behind the instruction that ends a kernel early */
static const char stop_macro[] = "#ifdef __NV_CL_C_VERSION\n"
                                 "#define IST_STOP __asm__ volatile(\"exit; " STOP "\");\n"
                                 "#else\n"
                                 "#define IST_STOP\n"
                                 "#endif\n";

/* Behind the brace that opens a body, and the pragmas that must come first in it. */
static const char *first_statement(const char *brace) {
    const char *at = brace + 1;
    for (const char *line; !strncmp(line = at + strspn(at, " \t\r\n"), "#pragma", 7);) {
        at = line + strcspn(line, "\n");
        at += *at == '\n';
    }
    return at;
}

char *ist_ptx_stopped(const char *source) {
    char *stopped = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&stopped, &size);
    if (!out) return NULL;
    fputs(stop_macro, out);
    for (const char *kernel; (kernel = strstr(source, "__kernel")) && (kernel = strchr(kernel, '{'));) {
        const char *body = first_statement(kernel);
        fwrite(source, 1, (size_t)(body - source), out);
        fputs(" IST_STOP", out);
        source = body;
    }
    fputs(source, out);
    bool good = !ferror(out);
    if (!fclose(out) && good) return stopped;
    free(stopped);
    return NULL;
}

enum { NAME_SIZE = 128, MOST_ARGUMENTS = 8 * sizeof(unsigned), FIRST_THAT_ASKS = 90 /* sm_90 */ };

typedef struct entry {
    bool asks;            /* for what is ahead: the target knows the instruction */
    char name[NAME_SIZE]; /* of the kernel; "" outside of one */
    int arguments;
    unsigned inside; /* arguments that are places in the block */
    enum { OUTSIDE, ARGUMENTS, BEFORE_BODY, BODY } part;
} entry;

/* Whether the line (without its end) has `word`. */
static const char *within(const char *line, size_t length, const char *word) {
    return memmem(line, length, word, strlen(word));
}

/* The block is the first argument, beside the places: what a kernel reads first should be one line of its constants. */
static bool begin_entry(entry *e, const char *line, size_t length, FILE *out) {
    const char *at = within(line, length, ".entry ");
    if (!at) return true;
    *e = (entry){.asks = e->asks, .part = ARGUMENTS};
    if (line[length - 1] != '(' || sscanf(at, ".entry %127[^( \t\n]", e->name) != 1) return false;
    fprintf(out, "\t.param .u64 .ptr .global .align 16 %s_block,\n", e->name);
    return true;
}

/* An argument's declaration, or the end of them. */
static bool argument(entry *e, unsigned buffers, const char *line, size_t length, FILE *out) {
    if (*line == ')') {
        e->part = BEFORE_BODY;
        fprintf(out, "\t, .param .u64 %s_ahead\n)\n", e->name);
        return e->arguments > 0;
    }
    if (!within(line, length, ".param ") || e->arguments == MOST_ARGUMENTS) return false;
    if (within(line, length, ".ptr .global ") && !(buffers >> e->arguments & 1)) {
        e->inside |= 1u << e->arguments;
        fprintf(out, "\t.param .u64 %s_param_%d%s\n", e->name, e->arguments, line[length - 1] == ',' ? "," : "");
    } else {
        fprintf(out, "%.*s\n", (int)length, line);
    }
    e->arguments++;
    return true;
}

/* The beginning of a body: the first work-item of each group asks for the group's part of what is ahead. */
static void begin_body(const entry *e, FILE *out) {
    fputs("\t.reg .b64 \t%block;\n", out);
    if (!e->asks) return;
    fprintf(out,
            "\t{\n"
            "\t.reg .b32 \t%%group, %%groups, %%item, %%size;\n"
            "\t.reg .b64 \t%%word, %%bytes, %%place;\n"
            "\t.reg .pred \t%%other;\n"
            "\tmov.u32 \t%%item, %%tid.x;\n"
            "\tmov.u32 \t%%group, %%tid.y;\n"
            "\tor.b32 \t%%item, %%item, %%group;\n"
            "\tsetp.ne.u32 \t%%other, %%item, 0;\n"
            "\t@%%other bra \t$L_%s_asked;\n"
            "\tld.param.u64 \t%%word, [%s_ahead];\n"
            "\tshr.u64 \t%%bytes, %%word, %d;\n"
            "\tshl.b64 \t%%bytes, %%bytes, 4;\n"
            "\tsetp.eq.u64 \t%%other, %%bytes, 0;\n"
            "\t@%%other bra \t$L_%s_asked;\n"
            "\tmov.u32 \t%%group, %%ctaid.y;\n"
            "\tmov.u32 \t%%groups, %%nctaid.x;\n"
            "\tmov.u32 \t%%item, %%ctaid.x;\n"
            "\tmad.lo.s32 \t%%group, %%group, %%groups, %%item;\n"
            "\tcvt.u32.u64 \t%%size, %%bytes;\n"
            "\tmul.wide.u32 \t%%bytes, %%group, %%size;\n"
            "\tld.param.u64 \t%%block, [%s_block];\n"
            "\tadd.s64 \t%%bytes, %%bytes, %%block;\n"
            "\tand.b64 \t%%place, %%word, %llu;\n"
            "\tshl.b64 \t%%place, %%place, 4;\n"
            "\tadd.s64 \t%%place, %%place, %%bytes;\n"
            "\tcp.async.bulk.prefetch.L2.global \t[%%place], %%size;\n"
            "$L_%s_asked:\n"
            "\t}\n",
            e->name, e->name, IST_PTX_PLACE_BITS, e->name, e->name, (1ull << IST_PTX_PLACE_BITS) - 1, e->name);
}

/* A line of the body: what names an argument inside the block must be a load of it. */
static bool statement(entry *e, const char *line, size_t length, FILE *out) {
    char name[NAME_SIZE], reg[32];
    int number, digits = 0, end = 0;
    if (within(line, length, STOP)) return true;
    fprintf(out, "%.*s\n", (int)length, line);
    if (*line == '}') e->part = OUTSIDE;
    size_t prefix = (size_t)snprintf(name, sizeof name, "%s_param_", e->name);
    const char *at = prefix < sizeof name ? within(line, length, name) : NULL;
    if (!at) return prefix < sizeof name;
    if (sscanf(at + prefix, "%d%n", &number, &digits) != 1 || number < 0 || number >= e->arguments) return false;
    if (!(e->inside >> number & 1)) return true;
    if (sscanf(line, " ld.param.u64 %31[^, \t], [%n", reg, &end) != 1 || line + end != at) return false;
    if (at[prefix + (size_t)digits] != ']') return false;
    fprintf(out, "\tld.param.u64 \t%%block, [%s_block];\n\tadd.s64 \t%s, %s, %%block;\n", e->name, reg, reg);
    return true;
}

static bool change(const char *text, unsigned buffers, FILE *out) {
    entry e = {.part = OUTSIDE};
    int kernels = 0, number = 0;
    const char *at = strstr(text, "\n.target sm_");
    e.asks = at && sscanf(at, "\n.target sm_%d", &number) == 1 && number >= FIRST_THAT_ASKS;
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        bool good = true;
        if (e.part == ARGUMENTS) {
            good = argument(&e, buffers, line, length, out);
        } else if (e.part == BODY) {
            good = statement(&e, line, length, out);
        } else {
            fprintf(out, "%.*s\n", (int)length, line);
            if (e.part == BEFORE_BODY && *line == '{') {
                begin_body(&e, out);
                e.part = BODY;
            } else if (e.part == OUTSIDE) {
                good = begin_entry(&e, line, length, out);
                kernels += e.part == ARGUMENTS;
            }
        }
        if (!good) return false;
        line += length + (line[length] == '\n');
    }
    return kernels > 0 && e.part == OUTSIDE;
}

char *ist_ptx_in_block(const char *text, unsigned buffers) {
    char *changed = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&changed, &size);
    if (!out) return NULL;
    bool good = change(text, buffers, out) && !ferror(out);
    if (!fclose(out) && good) return changed;
    free(changed);
    return NULL;
}

/* ---- building ---- */

/* Replaces every `from` by `to` in text, which has room. */
static void replace(char *text, const char *from, const char *to) {
    size_t old = strlen(from), new = strlen(to);
    for (char *at = strstr(text, from); at; at = strstr(at + new, from)) {
        memmove(at + new, at + old, strlen(at + old) + 1);
        memcpy(at, to, new);
    }
}

/* The program's binary as a string (malloc'd), with room for another target; NULL when there is none. */
static char *text_of(const ist_device *d, cl_program program) {
    size_t bytes = 0;
    char *text = NULL, *binary = (char *)ist_cache_binary(d, program, &bytes);
    if (binary) text = malloc(bytes + sizeof better);
    if (text) {
        memcpy(text, binary, bytes);
        text[bytes] = '\0';
    }
    free(binary);
    return text;
}

/* Takes `text`; NULL: it cannot be changed. */
static char *with_better_target(char *text) {
    char *first = strstr(text, target);
    if (first && !strstr(first + 1, target)) {
        replace(text, target, better);
        replace(text, mark, "");
        return text;
    }
    free(text);
    return NULL;
}

/* Takes `text`. */
static char *in_block(char *text, const char *buffers) {
    char *changed = ist_ptx_in_block(text, (unsigned)strtoul(buffers, NULL, 0));
    free(text);
    return changed;
}

ist_status ist_ptx_change(ist_device *d, const char *options, const char *what, cl_program *program, ist_error *err) {
    const char *buffers = strstr(options, IST_PTX_BUFFERS);
    char *text = text_of(d, *program);
    bool marked = text && strstr(text, mark);
    if (!marked && !buffers) {
        free(text);
        return IST_OK;
    }
    if (marked) text = with_better_target(text);
    if (text && buffers) text = in_block(text, buffers + strlen(IST_PTX_BUFFERS));
    cl_program other = text ? ist_cache_build(d, (unsigned char *)text, strlen(text), options) : NULL;
    free(text);
    if (!other)
        return ist_fail(err, IST_E_BUILD, "%s: %.60s does not build its PTX%s", what, d->facts.name,
                        buffers ? " with one buffer for many; ISTHMUS_CAPS=-PTX_BLOCK does without" : "");
    clReleaseProgram(*program);
    *program = other;
    return IST_OK;
}
