/* Programs with instructions of sm_90a. NVIDIA's OpenCL compiler writes PTX for sm_90 and takes no option for more, but
 * builds PTX for sm_90a when it is given as a binary. So such instructions stand in the PTX as comments
 * (cl/nvidia/wgmma.cl); when a program's PTX has any, its target is changed, the comments become instructions, and it is
 * built again. */
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

/* The program's PTX as a string (malloc'd), with room for another target; NULL when the binary is no PTX that has
 * instructions of sm_90a. */
static char *marked_text(const ist_device *d, cl_program program) {
    size_t bytes = 0;
    char *text = NULL, *binary = (char *)ist_cache_binary(d, program, &bytes);
    if (binary) text = malloc(bytes + sizeof better);
    if (text) {
        memcpy(text, binary, bytes);
        text[bytes] = '\0';
    }
    free(binary);
    if (text && strstr(text, mark)) return text;
    free(text);
    return NULL;
}

ist_status ist_ptx_retarget(ist_device *d, const char *options, const char *what, cl_program *program, ist_error *err) {
    char *text = marked_text(d, *program);
    if (!text) return IST_OK;
    char *first = strstr(text, target);
    cl_program other = NULL;
    if (first && !strstr(first + 1, target)) {
        replace(text, target, better);
        replace(text, mark, "");
        other = ist_cache_build(d, (unsigned char *)text, strlen(text), options);
    }
    free(text);
    if (!other) return ist_fail(err, IST_E_BUILD, "%s: %.60s does not build it for sm_90a", what, d->facts.name);
    clReleaseProgram(*program);
    *program = other;
    return IST_OK;
}
