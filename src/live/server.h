/* Sends results to whoever connects. One thread serves all clients; a client that does not read loses frames, newest
 * first, and holds up nobody: of what has been begun all parts are sent, of what waits only the newest frame. What
 * clients say is read and thrown away. */
#ifndef IST_LIVE_SERVER_H
#define IST_LIVE_SERVER_H

#include "live/counts.h"
#include "live/net.h"

enum { IST_LIVE_CLIENTS = 16 };

typedef struct ist_live_server ist_live_server;

/* Bytes that every client is to get, a part of frame `number`; the server's from then on. */
typedef struct ist_live_blob ist_live_blob;

/* Takes over what `text` holds, which is empty afterwards; NULL without memory. */
ist_live_blob *ist_live_blob_new(ist_text *text, uint64_t number, double arrived_ms);

/* Listens and starts the thread; *port becomes the port. With `keeps` not only the newest frame waits for a client, but
 * up to 256 parts. `greeting` is what a new client gets first: the server's. */
ist_status ist_live_server_open(const ist_net_address *address, bool keeps, ist_live_counts *counts,
                                ist_live_blob *greeting, ist_live_server **server, int *port, ist_error *err);

/* Never waits for a client. True when there is one: the time to the frame's first byte is then noted when it leaves. */
bool ist_live_server_send(ist_live_server *server, ist_live_blob *blob);

/* Clients get what is theirs, for at most `ms`; then all connections end. Accepts a pointer to NULL. */
void ist_live_server_close(ist_live_server **server, int ms);

#endif
