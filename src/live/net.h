/* TCP for streams: addresses, listening on loopback unless told otherwise, connecting and waiting in steps that notice
 * a stop. Sockets do not block and are closed on exec. */
#ifndef IST_LIVE_NET_H
#define IST_LIVE_NET_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { IST_NET_HOST = 256, IST_NET_DEVICE = 21, IST_NET_STEP_MS = 50 /* a stop is noticed within this */ };

typedef struct ist_net_address {
    char host[IST_NET_HOST];     /* "" when none is given */
    int port;                    /* 0..65535 */
    char device[IST_NET_DEVICE]; /* what stands behind the port, "" */
} ist_net_address;

/* "HOST:PORT[/DEVICE]", "[ADDRESS]:PORT" for IPv6; HOST may be missing. IST_E_ARGUMENT with what is wrong. */
ist_status ist_net_parse(const char *text, ist_net_address *address, ist_error *err);

/* Listens; without a host on 127.0.0.1. *port becomes the port, which the system chooses for 0. */
ist_status ist_net_listen(const ist_net_address *address, int *fd, int *port, ist_error *err);

/* Connects, or gives up after five seconds, or when *stop is set (IST_E_STATE). */
ist_status ist_net_connect(const ist_net_address *address, const atomic_bool *stop, int *fd, ist_error *err);

/* The next connection of a listening socket, -1 when there is none. Small writes leave at once. */
int ist_net_accept(int listener);

/* Waits for at most `ms` until fd can be read; false when it cannot. */
bool ist_net_readable(int fd, int ms);

/* Bytes read; 0 when there are none now, -1 when the connection has ended, with the reason in `err`. */
long ist_net_read(int fd, void *bytes, size_t count, ist_error *err);

/* Bytes written; 0 when there is no room now, -1 when the connection has ended. */
long ist_net_write(int fd, const void *bytes, size_t count);

#endif
