/* The count of cores follows the set that a thread may use. */
#define _GNU_SOURCE
#include "base/cores.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <unistd.h>

Test(base_cores, follows_the_affinity) {
    cpu_set_t all, one;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    cr_expect_eq(ist_cores(), CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_expect_eq(ist_cores(), 1);
}
