/* See net.h. */
#include "live/net.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 5000, BACKLOG = 16 };

static ist_status take_host(const char *text, size_t length, ist_net_address *a, ist_error *err) {
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') text++, length -= 2;
    if (length >= sizeof a->host) return ist_fail(err, IST_E_ARGUMENT, "a host name of %zu bytes", length);
    snprintf(a->host, sizeof a->host, "%.*s", (int)length, text);
    return IST_OK;
}

ist_status ist_net_parse(const char *text, ist_net_address *a, ist_error *err) {
    *a = (ist_net_address){.port = -1};
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text), colon = length;
    while (colon && text[colon - 1] != ':' && text[colon - 1] != ']') colon--;
    if (!colon || text[colon - 1] != ':') return ist_fail(err, IST_E_ARGUMENT, "'%s' has no :PORT", text);
    for (size_t i = colon; i < length && a->port < 65536; i++) {
        if (text[i] < '0' || text[i] > '9') return ist_fail(err, IST_E_ARGUMENT, "'%s': the port is no number", text);
        a->port = (a->port < 0 ? 0 : a->port * 10) + (text[i] - '0');
    }
    if (a->port < 0 || a->port > 65535)
        return ist_fail(err, IST_E_ARGUMENT, "'%s': the port is not from 0 to 65535", text);
    if (slash && strlen(slash + 1) >= sizeof a->device)
        return ist_fail(err, IST_E_ARGUMENT, "'%s': a device name has at most %d bytes", text, IST_NET_DEVICE - 1);
    if (slash) snprintf(a->device, sizeof a->device, "%s", slash + 1);
    return take_host(text, colon - 1, a, err);
}

static ist_status look_up(const ist_net_address *a, const char *host, struct addrinfo **list, ist_error *err) {
    char port[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(port, sizeof port, "%d", a->port);
    int rc = getaddrinfo(host, port, &hints, list);
    return rc ? ist_fail(err, IST_E_IO, "%s: %s", host, gai_strerror(rc)) : IST_OK;
}

static int new_socket(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd < 0) return fd;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &size)) return 0;
    if (at.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)(void *)&at)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&at)->sin_port);
}

ist_status ist_net_listen(const ist_net_address *a, int *fd, int *port, ist_error *err) {
    const char *host = *a->host ? a->host : "127.0.0.1";
    struct addrinfo *list;
    int yes = 1, why = 0;
    *fd = -1;
    IST_TRY(look_up(a, host, &list, err));
    for (const struct addrinfo *at = list; at && *fd < 0; at = at->ai_next) {
        *fd = new_socket(at);
        if (*fd >= 0 && !setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
            !bind(*fd, at->ai_addr, at->ai_addrlen) && !listen(*fd, BACKLOG))
            break;
        why = errno;
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
    freeaddrinfo(list);
    if (*fd < 0) return ist_fail(err, IST_E_IO, "cannot listen on %s:%d: %s", host, a->port, strerror(why));
    *port = port_of(*fd);
    return IST_OK;
}

static void send_at_once(int fd) {
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* slower without, no worse */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

/* 0 when connected, else why not. */
static int finish_connecting(int fd, const atomic_bool *stop) {
    double until = ist_clock_ms() + CONNECT_MS;
    while (!atomic_load(stop)) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int rc = poll(&p, 1, IST_NET_STEP_MS), why = 0;
        socklen_t size = sizeof why;
        if (rc < 0 && errno != EINTR) return errno;
        if (rc > 0) return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) ? errno : why;
        if (ist_clock_ms() > until) return ETIMEDOUT;
    }
    return EINTR;
}

ist_status ist_net_connect(const ist_net_address *a, const atomic_bool *stop, int *fd, ist_error *err) {
    const char *host = *a->host ? a->host : "127.0.0.1";
    struct addrinfo *list;
    int why = 0;
    *fd = -1;
    IST_TRY(look_up(a, host, &list, err));
    for (const struct addrinfo *at = list; at && *fd < 0 && !atomic_load(stop); at = at->ai_next) {
        *fd = new_socket(at);
        why = *fd < 0 ? errno : connect(*fd, at->ai_addr, at->ai_addrlen) ? errno : 0;
        if (why == EINPROGRESS) why = finish_connecting(*fd, stop);
        if (!why) break;
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
    freeaddrinfo(list);
    if (*fd >= 0) send_at_once(*fd);
    if (atomic_load(stop) && *fd < 0) return ist_fail(err, IST_E_STATE, "stopped");
    return *fd >= 0 ? IST_OK : ist_fail(err, IST_E_IO, "%s:%d: %s", host, a->port, strerror(why));
}

int ist_net_accept(int listener) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) return -1;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        close(fd);
        return -1;
    }
    send_at_once(fd);
    return fd;
}

bool ist_net_readable(int fd, int ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

long ist_net_read(int fd, void *bytes, size_t count, ist_error *err) {
    ssize_t n = recv(fd, bytes, count, 0);
    if (n > 0) return (long)n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    ist_fail(err, IST_E_IO, "%s", n ? strerror(errno) : "the other side has closed the connection");
    return -1;
}

long ist_net_write(int fd, const void *bytes, size_t count) {
    ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
    if (n >= 0) return (long)n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}
