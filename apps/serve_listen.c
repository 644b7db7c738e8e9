/* Where the page is served: see serve.h. */
#include "serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Host and port of the text; false when it is nothing of the kind. */
static bool split(const char *text, serve_address *a) {
    const char *colon = strrchr(text, ':'), *end = colon ? colon : text, *host = text;
    if (*host == '[' && end > host && end[-1] == ']') {
        host++, end--;
    } else if (memchr(host, ':', (size_t)(end - host))) {
        return false; /* IPv6 without brackets: the last number could be either */
    }
    size_t n = (size_t)(end - host);
    if (n >= sizeof a->host || !cli_parse_int(colon ? colon + 1 : text, 0, 65535, &a->port)) return false;
    if (!n) host = "127.0.0.1", n = strlen(host);
    snprintf(a->host, sizeof a->host, "%.*s", (int)n, host);
    snprintf(a->shown, sizeof a->shown, strchr(a->host, ':') ? "[%s]" : "%s", a->host);
    return true;
}

static bool is_loopback(const struct sockaddr_storage *where) {
    if (where->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)where)->sin_addr.s_addr) >> 24 == 127;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)where;
    return where->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static int port_of(const struct sockaddr_storage *where) {
    if (where->ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)(const void *)where)->sin_port);
    return ntohs(((const struct sockaddr_in6 *)(const void *)where)->sin6_port);
}

/* A listening socket, or -1 with errno. */
static int open_socket(const struct addrinfo *where) {
    int one = 1, fd = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) && !bind(fd, where->ai_addr, where->ai_addrlen) &&
        !listen(fd, SERVE_CONNECTIONS))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int serve_listen(const char *text, serve_address *a) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char port[8];
    a->socket = -1;
    if (!split(text, a)) return cli_usage("segment", "--serve: '%s' is not HOST:PORT, [IPv6]:PORT or PORT", text);
    snprintf(port, sizeof port, "%d", a->port);
    int failed = getaddrinfo(a->host, port, &hints, &list);
    if (failed) return cli_fail(CLI_FAILED, "--serve: %s: %s", a->host, gai_strerror(failed));
    for (const struct addrinfo *at = list; at && a->socket < 0; at = at->ai_next) a->socket = open_socket(at);
    if (a->socket >= 0 && getsockname(a->socket, (struct sockaddr *)&bound, &size)) {
        close(a->socket);
        a->socket = -1;
    }
    int why = errno;
    freeaddrinfo(list);
    if (a->socket < 0) return cli_fail(CLI_FAILED, "--serve: %s:%d: %s", a->shown, a->port, strerror(why));
    a->port = port_of(&bound);
    a->loopback = is_loopback(&bound);
    return CLI_SUCCESS;
}
