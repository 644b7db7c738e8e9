/* The two-way transformer on matrix instructions. */
#ifndef IST_VARIANTS_NVIDIA_TWO_WAY_H
#define IST_VARIANTS_NVIDIA_TWO_WAY_H

#include <stdbool.h>

/* The configuration of a variant: image steps by warpgroups; the image's keys in the launch of the tokens' attention. */
typedef struct ist_two_way_config {
    bool wgmma, joins;
} ist_two_way_config;
extern const ist_two_way_config ist_two_way_wgmma, ist_two_way_mma, ist_two_way_wgmma_apart, ist_two_way_mma_apart;

#endif
