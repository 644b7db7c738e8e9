/* See byte_source.h. */
#include "io/byte_source.h"

#include "io/inflated.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ist_status ist_byte_source_open(const char *path, ist_byte_source *source, ist_error *err) {
    struct stat st;
    *source = (ist_byte_source){.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (source->fd < 0) return ist_fail(err, IST_E_IO, "cannot read %s: %s", path, strerror(errno));
    ist_status status = IST_OK;
    if (fstat(source->fd, &st))
        status = ist_fail(err, IST_E_IO, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = ist_fail(err, IST_E_IO, "%s: is no regular file", path);
    else
        source->size = (uint64_t)st.st_size;
    if (status) ist_byte_source_close(source);
    return status;
}

ist_byte_source ist_byte_source_of(const void *bytes, size_t count) {
    return (ist_byte_source){.fd = -1, .bytes = bytes, .size = count};
}

size_t ist_byte_source_read(const ist_byte_source *source, uint64_t at, void *to, size_t count) {
    if (at >= source->size) return 0;
    if (count > source->size - at) count = (size_t)(source->size - at);
    if (source->inflated) return ist_inflated_read(source->inflated, at, to, count);
    if (source->fd < 0) {
        memcpy(to, source->bytes + at, count);
        return count;
    }
    size_t done = 0;
    while (done < count) {
        ssize_t n = pread(source->fd, (char *)to + done, count - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    return done;
}

void ist_byte_source_close(ist_byte_source *source) {
    if (source->fd >= 0) close(source->fd);
    ist_inflated_free(source->inflated);
    *source = (ist_byte_source){.fd = -1};
}
