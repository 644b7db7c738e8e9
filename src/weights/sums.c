/* See sums.h. */
#include "weights/sums.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_digest(const char *text) {
    for (int i = 0; i < 64; i++)
        if (!isxdigit((unsigned char)text[i])) return false; /* also at the end of a short line */
    return true;
}

/* The digest in a line "DIGEST  NAME" or "DIGEST *NAME", or "SHA256 (NAME) = DIGEST" of sha256sum --tag, where NAME,
 * with or without "./" before it, is `name`; else NULL. */
static const char *digest_for(const char *line, const char *name) {
    static const char tag[] = "SHA256 (", equals[] = ") = ";
    size_t n = strlen(name);
    bool tagged = !strncmp(line, tag, sizeof tag - 1);
    if (!tagged && (!is_digest(line) || line[64] != ' ' || (line[65] != ' ' && line[65] != '*'))) return NULL;
    const char *at = line + (tagged ? sizeof tag - 1 : 66), *digest = line;
    if (!strncmp(at, "./", 2)) at += 2;
    if (strncmp(at, name, n)) return NULL;
    if (!tagged) return at[n] ? NULL : line;
    digest = at + n + sizeof equals - 1;
    return !strncmp(at + n, equals, sizeof equals - 1) && is_digest(digest) && !digest[64] ? digest : NULL;
}

/* The list, NULL where there is none (*err is left alone) or it cannot be read. */
static FILE *open_list(const char *list, ist_status *status, ist_error *err) {
    struct stat st;
    int fd = open(list, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe would wait for a writer */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return NULL;
    FILE *f = NULL;
    if (fd >= 0 && !fstat(fd, &st) && !S_ISREG(st.st_mode))
        *status = ist_fail(err, IST_E_IO, "%s: is not a regular file", list);
    else if (fd < 0 || !(f = fdopen(fd, "r")))
        *status = ist_fail(err, IST_E_IO, "%s: %s", list, strerror(errno));
    if (fd >= 0 && !f) close(fd);
    return f;
}

ist_status ist_sums_find(const char *path, char want[IST_SHA256_TEXT], ist_error *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char list[4096], line[1024];
    ist_status status = IST_OK;
    *want = '\0';
    int n = snprintf(list, sizeof list, "%.*sSHA256SUMS", slash ? (int)(slash - path) + 1 : 0, path);
    if (n < 0 || (size_t)n >= sizeof list) return ist_fail(err, IST_E_IO, "%.64s..: %s", path, strerror(ENAMETOOLONG));
    FILE *f = open_list(list, &status, err);
    if (!f) return status;
    while (!*want && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        const char *digest = digest_for(line, name);
        if (digest) snprintf(want, IST_SHA256_TEXT, "%.64s", digest);
    }
    if (ferror(f)) status = ist_fail(err, IST_E_IO, "%s: %s", list, strerror(errno));
    fclose(f);
    return status;
}

ist_status ist_sums_compare(const char *want, const char *have, ist_error *err) {
    if (!*want || !strcasecmp(want, have)) return IST_OK;
    return ist_fail(err, IST_E_WEIGHTS, "its SHA-256 is %s, SHA256SUMS beside it says %s", have, want);
}
