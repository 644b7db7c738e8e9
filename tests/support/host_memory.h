/* Host memory that runs out at a chosen allocation of the project's objects, and a count of blocks that are held. A
 * test that includes this is linked with --wrap=malloc and so on (cmake/tests.cmake). Where OpenCL calls fail too,
 * faults.h includes it and decides by HOST_MEMORY_FAILS. */
#ifndef IST_TESTS_HOST_MEMORY_H
#define IST_TESTS_HOST_MEMORY_H

#include <stdlib.h>

static _Atomic long blocks; /* held: malloc'd less freed; threads of the project allocate too */

#ifndef HOST_MEMORY_FAILS
/* Allocations since the test set it to zero; the one of them that fails (from 1; 0: none). */
static _Atomic long calls, fail_at;
#define HOST_MEMORY_FAILS(call) (++calls == fail_at)
#endif

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n) {
    void *p = HOST_MEMORY_FAILS("malloc") ? NULL : __real_malloc(n);
    blocks += p != NULL;
    return p;
}
void *__wrap_calloc(size_t n, size_t size) {
    void *p = HOST_MEMORY_FAILS("calloc") ? NULL : __real_calloc(n, size);
    blocks += p != NULL;
    return p;
}
void *__wrap_realloc(void *p, size_t n) {
    void *grown = HOST_MEMORY_FAILS("realloc") ? NULL : __real_realloc(p, n);
    blocks += !p && grown;
    return grown;
}
void __wrap_free(void *p) {
    blocks -= p != NULL;
    __real_free(p);
}

#endif
