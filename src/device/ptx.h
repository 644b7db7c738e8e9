/* Changes to programs as NVIDIA's OpenCL compiler writes them: PTX, as text. */
#ifndef IST_DEVICE_PTX_H
#define IST_DEVICE_PTX_H

#include <stddef.h>
#include <stdint.h>

/* With `-DBUFFERS=mask` among a program's options, arguments of its kernels that are bits of the mask stay buffers;
 * every other pointer to global memory becomes a ulong, bytes from the beginning of one more buffer, which is argument 0
 * then, in front of all others. A launch costs the host a time for each buffer among its arguments.
 * Behind all others is one more ulong, ist_ptx_ahead's: what in the buffer the launch shall bring into the device's cache
 * for the next one, or 0. */
#define IST_PTX_BUFFERS "-DBUFFERS="

enum { IST_PTX_PLACE_BITS = 36 };

/* For what lies in a buffer of `size` bytes from `at` to `end`: each of a launch's groups, counted in its first two
 * dimensions, brings as many bytes, together a few more than that, though none beyond the buffer. 0 where that is nothing,
 * does not fit a word, or `at` is no multiple of 16. */
static inline uint64_t ist_ptx_ahead(uint64_t at, uint64_t end, uint64_t size, size_t groups) {
    if (!groups || end <= at || end > size || at % 16 || at >> (IST_PTX_PLACE_BITS + 4)) return 0;
    uint64_t units = (end - at + 15) / 16, each = (units + groups - 1) / groups;
    if (each * groups > (size - at) / 16) each = (size - at) / 16 / groups;
    return each >> 24 ? 0 : each << IST_PTX_PLACE_BITS | at / 16;
}

/* OpenCL C whose kernels end where they begin once they are PTX, malloc'd; NULL when there is no memory. A program that
 * is to be changed is built twice, and the first time the device's assembler should have nothing to do. */
char *ist_ptx_stopped(const char *source);

/* The PTX of such a source with that change, and whole, malloc'd; NULL when it is no such PTX or uses an argument in a
 * way that is not known, or when there is no memory. */
char *ist_ptx_in_block(const char *text, unsigned buffers);

#endif
