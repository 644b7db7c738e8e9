/* Groups of mask.cl and pack.cl for all objects together, and how many of them one object gets at most: objects are few
 * or many, so that their number, which only the device knows, decides. CPUs have one work-item a group. */
#ifndef IST_VARIANTS_PORTABLE_MASK_GROUPS_H
#define IST_VARIANTS_PORTABLE_MASK_GROUPS_H

#include "variants/lanes.h"

typedef struct ist_mask_groups {
    int all, most;
} ist_mask_groups;

static inline ist_mask_groups ist_mask_groups_of(const ist_lanes *l, int objects) {
    enum { CPU_ALL = 2048, CPU_MOST = 32, ALL = 8192, MOST = 512 };
    bool cpu = l->lanes == 1;
    ist_mask_groups g = {cpu ? CPU_ALL : ALL, cpu ? CPU_MOST : MOST};
    if (g.all > objects * g.most) g.all = objects * g.most;
    if (g.all < objects) g.all = objects;
    return g;
}

#endif
