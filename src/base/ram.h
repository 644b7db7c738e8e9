/* How much memory this process may hope for: the host's, or its container's share of it. */
#ifndef IST_BASE_RAM_H
#define IST_BASE_RAM_H

#include <stddef.h>

/* Bytes, free or not; 0 when nothing is known. */
size_t ist_ram(void);

#endif
