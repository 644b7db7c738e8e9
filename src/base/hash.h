/* FNV-1a, 64 bit (Fowler, Noll, Vo): tells texts and bytes apart, for keys and checksums; no protection against intent.
 */
#ifndef IST_BASE_HASH_H
#define IST_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define IST_FNV_OFFSET 0xcbf29ce484222325u

/* `hash` of what came before (IST_FNV_OFFSET: nothing) gone on with `bytes` bytes. */
static inline uint64_t ist_fnv(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

#endif
