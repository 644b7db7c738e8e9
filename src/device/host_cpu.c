#define _DEFAULT_SOURCE /* syscall */
#include "device/host_cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

bool ist_host_bf16(void) {
#if defined(__x86_64__)
    unsigned leaves = 0, a = 0, b, c, d; /* CPUID leaf 7, subleaf 1: EAX bit 5 (Intel SDM, volume 2A) */
    if (!__get_cpuid_count(7, 0, &leaves, &b, &c, &d) || !leaves || !__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return false;
    return a >> 5 & 1;
#else
    return false;
#endif
}

bool ist_host_amx(void) {
#if defined(__x86_64__) && defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 }; /* asm/prctl.h; Intel SDM, volume 1, chapter 13 */
    unsigned a, b, c, d = 0; /* CPUID leaf 7: EDX bits 22 (AMX-BF16) and 24 (AMX-TILE) */
    if (!ist_host_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}
