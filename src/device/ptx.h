/* Changes to programs as NVIDIA's OpenCL compiler writes them: PTX, as text. */
#ifndef IST_DEVICE_PTX_H
#define IST_DEVICE_PTX_H

/* With `-DBUFFERS=mask` among a program's options, arguments of its kernels that are bits of the mask stay buffers;
 * every other pointer to global memory becomes a ulong, bytes from the beginning of one more buffer, which is argument 0
 * then, in front of all others. A launch costs the host a time for each buffer among its arguments. */
#define IST_PTX_BUFFERS "-DBUFFERS="

/* OpenCL C whose kernels end where they begin once they are PTX, malloc'd; NULL when there is no memory. A program that
 * is to be changed is built twice, and the first time the device's assembler should have nothing to do. */
char *ist_ptx_stopped(const char *source);

/* The PTX of such a source with that change, and whole, malloc'd; NULL when it is no such PTX or uses an argument in a
 * way that is not known, or when there is no memory. */
char *ist_ptx_in_block(const char *text, unsigned buffers);

#endif
