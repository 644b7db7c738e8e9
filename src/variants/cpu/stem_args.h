/* What cl/cpu/stem takes by value. */
#ifndef IST_VARIANTS_CPU_STEM_ARGS_H
#define IST_VARIANTS_CPU_STEM_ARGS_H

typedef struct ist_cpu_stem_args {
    int items, x_h, x_w;   /* images, which are dense; multiples of 32 */
    int y_ld, y_c0, y_c;   /* result: elements per pixel, first channel, channels */
    int band_lines, bands; /* lines of a band of the result, bands of an image */
} ist_cpu_stem_args;

#endif
