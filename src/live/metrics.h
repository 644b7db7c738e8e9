/* The counts of a stream for Prometheus: GET /metrics over HTTP (libmicrohttpd, on a thread of its own), on loopback unless
 * told otherwise. */
#ifndef IST_LIVE_METRICS_H
#define IST_LIVE_METRICS_H

#include "live/counts.h"
#include "live/net.h"

typedef struct ist_live_metrics ist_live_metrics;

ist_status ist_live_metrics_open(const ist_net_address *address, ist_live_counts *counts, ist_live_metrics **metrics,
                                 int *port, ist_error *err);
void ist_live_metrics_close(ist_live_metrics **metrics);

#endif
