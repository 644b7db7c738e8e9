/* Kernel sources embedded at build time: name is the path under cl/ without ".cl" ("prelude", "op/conv", "isa/cpu"). */
#ifndef IST_DEVICE_SOURCES_H
#define IST_DEVICE_SOURCES_H

typedef struct ist_source {
    const char *name;
    const char *text;
} ist_source;

/* Ends with a {NULL, NULL} entry. */
extern const ist_source ist_sources[];

#endif
