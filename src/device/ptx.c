/* Programs with instructions of sm_90a. NVIDIA's OpenCL compiler writes PTX for sm_90 and takes no option for more, but
 * builds PTX for sm_90a when it is given as a binary. So such instructions stand in the PTX as comments (cl/isa/wgmma.cl);
 * when a program's PTX has any, its target is changed, the comments become instructions, and it is built again. */
#include "device/state.h"

#include <stdlib.h>
#include <string.h>

static const char mark[] = "//@sm_90a ", target[] = ".target sm_90,", better[] = ".target sm_90a,";

/* Replaces every `from` by `to` in text, which has room. */
static void replace(char *text, const char *from, const char *to) {
    size_t old = strlen(from), new = strlen(to);
    for (char *at = strstr(text, from); at; at = strstr(at + new, from)) {
        memmove(at + new, at + old, strlen(at + old) + 1);
        memcpy(at, to, new);
    }
}

/* The program's PTX for sm_90a (malloc'd); NULL when it is no PTX or has no instruction of that. */
static char *retargeted(const ist_device *d, cl_program program) {
    size_t bytes = 0;
    char *text = NULL, *binary = (char *)ist_cache_binary(d, program, &bytes);
    if (binary) text = malloc(bytes + sizeof better);
    if (text) {
        memcpy(text, binary, bytes);
        text[bytes] = '\0';
    }
    free(binary);
    char *first = text ? strstr(text, target) : NULL;
    if (!first || strstr(first + 1, target) || !strstr(text, mark)) {
        free(text);
        return NULL;
    }
    replace(text, target, better);
    replace(text, mark, "");
    return text;
}

void ist_ptx_retarget(ist_device *d, const char *options, cl_program *program) {
    char *text = retargeted(d, *program);
    if (!text) return;
    cl_program other = ist_cache_build(d, (unsigned char *)text, strlen(text), options);
    free(text);
    if (!other) return;
    clReleaseProgram(*program);
    *program = other;
}
