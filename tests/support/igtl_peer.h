/* A program at the other end of an OpenIGTLink connection, made of the library's own C functions. Header only. */
#ifndef IST_TESTS_IGTL_PEER_H
#define IST_TESTS_IGTL_PEER_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <igtl_header.h>
#include <igtl_image.h>
#include <igtl_point.h>
#include <igtl_string.h>
#include <igtl_types.h>
#include <igtl_util.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEER_MS = 60000 /* gives up, failing, after this: no test passes by it */ };

static inline struct sockaddr_in peer_address(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline int peer_connect(int port) {
    struct sockaddr_in at = peer_address(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0, "cannot connect to port %d", port);
    return fd;
}

/* Listens on a port of the system's choice. */
static inline int peer_listen(int *port) {
    struct sockaddr_in at = peer_address(0);
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(!bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, 4));
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static inline int peer_accept(int listener) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    cr_assert_eq(poll(&p, 1, PEER_MS), 1, "nobody connects");
    return accept(listener, NULL, NULL);
}

static inline void peer_write(int fd, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count) {
        ssize_t n = send(fd, at, count, MSG_NOSIGNAL);
        cr_assert_gt(n, 0, "the other side is gone");
        at += n, count -= (size_t)n;
    }
}

static inline void peer_read(int fd, void *bytes, size_t count) {
    char *at = bytes;
    while (count) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        cr_assert_eq(poll(&p, 1, PEER_MS), 1, "nothing comes");
        ssize_t n = recv(fd, at, count, 0);
        cr_assert_gt(n, 0, "the connection has ended");
        at += n, count -= (size_t)n;
    }
}

/* ---- messages out ---- */

typedef struct peer_message {
    unsigned char *bytes;
    size_t count;
} peer_message;

/* Any body under a header, with its checksum; `version` 2 and 3 expect that the body has an extended header. */
static inline peer_message peer_wrap(int version, const char *type, const char *device, uint64_t timestamp,
                                     const void *body, size_t count) {
    igtl_header h;
    peer_message m = {.bytes = malloc(sizeof h + count), .count = sizeof h + count};
    memset(&h, 0, sizeof h);
    h.version = (igtl_uint16)version;
    memcpy(h.name, type, strnlen(type, sizeof h.name));
    memcpy(h.device_name, device, strnlen(device, sizeof h.device_name));
    h.timestamp = timestamp;
    h.body_size = count;
    memcpy(m.bytes + sizeof h, body, count);
    h.crc = crc64(m.bytes + sizeof h, count, 0);
    igtl_header_convert_byte_order(&h);
    memcpy(m.bytes, &h, sizeof h);
    return m;
}

/* A header as most scanners send it: a slice of width x height, scaled and moved, RAS. */
static inline igtl_image_header peer_image_header(int width, int height) {
    igtl_image_header h;
    memset(&h, 0, sizeof h);
    h.version = IGTL_IMAGE_HEADER_VERSION;
    h.num_components = 1;
    h.scalar_type = IGTL_IMAGE_STYPE_TYPE_UINT8;
    h.endian = IGTL_IMAGE_ENDIAN_LITTLE;
    h.coord = IGTL_IMAGE_COORD_RAS;
    h.size[0] = h.subvol_size[0] = (igtl_uint16)width;
    h.size[1] = h.subvol_size[1] = (igtl_uint16)height;
    h.size[2] = h.subvol_size[2] = 1;
    static const float matrix[12] = {0.5f, 0, 0, 0, 0.25f, 0, 0, 0, 1, 10, 20, 30};
    memcpy(h.matrix, matrix, sizeof matrix);
    return h;
}

/* `before` and `after` are what versions 2 and 3 put around the image. */
static inline peer_message peer_image(int version, const char *device, uint64_t timestamp, igtl_image_header h,
                                      const void *pixels, size_t count, const char *before, size_t before_count,
                                      const char *after, size_t after_count) {
    size_t all = before_count + sizeof h + count + after_count;
    unsigned char *body = malloc(all), *at = body;
    igtl_image_convert_byte_order(&h);
    if (before_count) memcpy(at, before, before_count);
    at += before_count;
    memcpy(at, &h, sizeof h);
    at += sizeof h;
    memcpy(at, pixels, count);
    if (after_count) memcpy(at + count, after, after_count);
    peer_message m = peer_wrap(version, "IMAGE", device, timestamp, body, all);
    free(body);
    return m;
}

static inline void peer_send(int fd, peer_message m) {
    peer_write(fd, m.bytes, m.count);
    free(m.bytes);
}

/* A gray slice whose pixels count up from `first`. */
static inline peer_message peer_gray(int width, int height, uint64_t timestamp, int first) {
    size_t n = (size_t)width * (size_t)height;
    unsigned char *pixels = malloc(n);
    for (size_t i = 0; i < n; i++) pixels[i] = (unsigned char)((size_t)first + i);
    peer_message m = peer_image(1, "Probe", timestamp, peer_image_header(width, height), pixels, n, NULL, 0, NULL, 0);
    free(pixels);
    return m;
}

/* ---- messages in ---- */

typedef struct peer_received {
    igtl_header h;
    char type[13], device[21];
    unsigned char *body; /* owned */
} peer_received;

/* The next message; its checksum must be right. */
static inline peer_received peer_receive(int fd) {
    peer_received r = {.body = NULL};
    peer_read(fd, &r.h, sizeof r.h);
    igtl_header_convert_byte_order(&r.h);
    memcpy(r.type, r.h.name, sizeof r.h.name);
    memcpy(r.device, r.h.device_name, sizeof r.h.device_name);
    cr_assert_lt(r.h.body_size, 1u << 28);
    r.body = calloc(1, r.h.body_size + 1);
    peer_read(fd, r.body, r.h.body_size);
    cr_assert_eq(r.h.crc, crc64(r.body, r.h.body_size, 0), "a wrong checksum of %s", r.type);
    return r;
}

/* The next message, which must be of that type and device. */
static inline peer_received peer_expect(int fd, const char *type, const char *device) {
    peer_received r = peer_receive(fd);
    cr_assert_str_eq(r.type, type);
    cr_assert_str_eq(r.device, device);
    return r;
}

static inline igtl_image_header peer_header_of(const peer_received *r) {
    igtl_image_header h;
    cr_assert_geq(r->h.body_size, sizeof h);
    memcpy(&h, r->body, sizeof h);
    igtl_image_convert_byte_order(&h);
    return h;
}

#endif
