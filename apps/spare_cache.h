/* Where PoCL cannot write to the folder in which it keeps kernels, a folder for this run: it ends the process
 * otherwise. */
#ifndef SPARE_CACHE_H
#define SPARE_CACHE_H

typedef struct spare_cache {
    char folder[1024]; /* "": the usual one is used */
    char why[320];
} spare_cache;

/* Before the first OpenCL call and any thread: sets POCL_CACHE_DIR where that is needed and helps. */
void spare_cache_begin(spare_cache *spare);

/* Removes the folder, and says that it was used if kernels were compiled into it. */
void spare_cache_end(spare_cache *spare);

#endif
