/* Texts embedded at build time. */
#ifndef IST_DEVICE_SOURCES_H
#define IST_DEVICE_SOURCES_H

typedef struct ist_source {
    const char *name;
    const char *text;
} ist_source;

/* Kernel sources: name is the path under cl/ without ".cl" ("prelude", "cpu/conv", "cpu/tile"). Ends with {NULL, NULL}.
 */
extern const ist_source ist_sources[];

#endif
