/* Queues, counts and addresses of streams. */
#include "live/counts.h"
#include "live/net.h"
#include "live/queue.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static int dropped[300], drops;

static void drop(void *item) {
    dropped[drops++] = *(int *)item;
}

Test(live_parts, a_full_queue_drops_the_oldest) {
    ist_live_queue q;
    int items[5] = {0, 1, 2, 3, 4};
    cr_assert(ist_live_queue_open(&q, 2, false, drop));
    cr_expect_null(ist_live_queue_take(&q, false));
    for (int i = 0; i < 5; i++) cr_expect_eq(ist_live_queue_put(&q, &items[i]), i >= 2);
    const int want[3] = {0, 1, 2};
    cr_expect_eq(drops, 3);
    cr_expect_arr_eq(dropped, want, sizeof want);
    cr_expect_eq(ist_live_queue_take(&q, true), &items[3]);
    ist_live_queue_end(&q);
    cr_expect_eq(ist_live_queue_put(&q, &items[0]), 1, "nothing comes in any more");
    cr_expect_eq(ist_live_queue_take(&q, true), &items[4]);
    cr_expect_null(ist_live_queue_take(&q, true));
    ist_live_queue_close(&q);
}

static void *put_all(void *context) {
    static int items[200];
    for (int i = 0; i < 200; i++) {
        items[i] = i;
        ist_live_queue_put(context, &items[i]);
    }
    ist_live_queue_end(context);
    return NULL;
}

Test(live_parts, one_that_waits_loses_nothing) {
    ist_live_queue q;
    pthread_t thread;
    int next = 0;
    cr_assert(ist_live_queue_open(&q, 3, true, drop));
    cr_assert_eq(pthread_create(&thread, NULL, put_all, &q), 0);
    for (int *item; (item = ist_live_queue_take(&q, true));) cr_assert_eq(*item, next++);
    pthread_join(thread, NULL);
    cr_expect_eq(next, 200);
    cr_expect_eq(drops, 0);
    ist_live_queue_close(&q);
}

Test(live_parts, percentiles_are_right_to_two_percent) {
    ist_live_counts c;
    char line[400];
    cr_assert(ist_live_counts_open(&c));
    cr_expect_eq(ist_live_percentile(&c.all, 50), 0);
    for (int i = 1000; i >= 1; i--) ist_live_counts_time(&c, i * 0.01);
    static const double at[4][2] = {{50, 5}, {90, 9}, {99, 9.9}, {100, 10}};
    for (int i = 0; i < 4; i++)
        cr_expect_lt(fabs(ist_live_percentile(&c.all, at[i][0]) / at[i][1] - 1), 0.02, "%g", at[i][0]);
    ist_live_counts_time(&c, 0);
    ist_live_counts_time(&c, 1e12);
    ist_live_add(&c, received, 5);
    ist_live_counts_line(&c, line, sizeof line);
    cr_expect_not_null(strstr(line, "5 received"), "%s", line);
    ist_live_add(&c, received, 2);
    ist_live_counts_line(&c, line, sizeof line);
    cr_expect_not_null(strstr(line, "2 received, 0 processed, 0 dropped, 0 late, p50 0.00,"), "%s", line);
    ist_live_counts_summary(&c, line, sizeof line);
    cr_expect_not_null(strstr(line, "7 received"), "%s", line);
    ist_live_counts_close(&c);
}

static void address(const char *text, ist_status want, const char *host, int port, const char *device) {
    ist_net_address a;
    ist_error err;
    cr_expect_eq(ist_net_parse(text, &a, &err), want, "%s", text);
    if (want) return;
    cr_expect_str_eq(a.host, host, "%s", text);
    cr_expect_eq(a.port, port, "%s", text);
    cr_expect_str_eq(a.device, device, "%s", text);
}

Test(live_parts, addresses) {
    address("localhost:18944", IST_OK, "localhost", 18944, "");
    address(":0", IST_OK, "", 0, "");
    address("1.2.3.4:65535/Image Reference", IST_OK, "1.2.3.4", 65535, "Image Reference");
    address("[::1]:18944/a/b:c", IST_OK, "::1", 18944, "a/b:c");
    address("h:65536", IST_E_ARGUMENT, "", 0, "");
    address("h:99999999999999999999", IST_E_ARGUMENT, "", 0, "");
    address("h:", IST_E_ARGUMENT, "", 0, "");
    address("h:-1", IST_E_ARGUMENT, "", 0, "");
    address("[::1]", IST_E_ARGUMENT, "", 0, "");
    address("", IST_E_ARGUMENT, "", 0, "");
    address("h:1/123456789012345678901", IST_E_ARGUMENT, "", 0, "");
}
