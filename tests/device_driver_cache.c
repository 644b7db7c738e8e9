/* Files of PoCL's kernel cache that are not whole are removed, and no others. */
#include "device/state.h"
#include "support/folder.h"

#include <criterion/criterion.h>
#include <fcntl.h>

static char dir[256], deep[600];

static void begin(void) {
    folder_make(dir, sizeof dir);
    snprintf(deep, sizeof deep, "%s/AB", dir);
    for (const char *name = "/CDEF"; name; name = strcmp(name, "/CDEF") ? NULL : "/kernel") {
        mkdir(deep, 0700);
        strcat(deep, name);
    }
    mkdir(deep, 0700);
}

static void end(void) {
    folder_remove(dir);
}

TestSuite(device_driver_cache, .init = begin, .fini = end);

/* Writes a file of the innermost folder; its path. */
static const char *put(const char *name, const void *bytes, size_t count) {
    static char path[4][700];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", deep, name);
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && !close(fd), "%s", to);
    return to;
}

static bool is_there(const char *path) {
    return !access(path, F_OK);
}

/* Two blocks of LLVM's bitstream: one of a word, and one of none whose kind takes two groups of bits. */
static const unsigned char bitcode[] = {'B', 'C', 0xC0, 0xDE, 0x35, 0x14, 0, 0, 1, 0, 0, 0,
                                        9,   9,   9,    9,    0x05, 0x16, 0, 0, 0, 0, 0, 0};

Test(device_driver_cache, bitcode_is_whole_or_goes) {
    for (size_t size = 0; size <= sizeof bitcode; size++) {
        const char *path = put("program.bc", bitcode, size);
        bool whole = size == sizeof bitcode || size == 16; /* behind a block, another need not come */
        cr_expect_eq(ist_driver_cache_mend(dir), !whole, "%zu bytes", size);
        cr_expect_eq(is_there(path), whole, "%zu bytes", size);
    }
    unsigned char longer[sizeof bitcode + 1] = {0};
    memcpy(longer, bitcode, sizeof bitcode);
    put("program.bc", longer, sizeof longer);
    cr_expect_eq(ist_driver_cache_mend(dir), 1, "a byte too many");
}

/* This test itself is as good a shared object as any. */
Test(device_driver_cache, objects_are_whole_or_go) {
    static unsigned char bytes[1 << 24];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t size = read(fd, bytes, sizeof bytes);
    close(fd);
    cr_assert(size > 1000 && size < (ssize_t)sizeof bytes);
    const size_t cuts[] = {0, 1, 63, 64, 3000, (size_t)size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const char *path = put("kernel.so", bytes, cuts[i]);
        cr_expect_eq(ist_driver_cache_mend(dir), 1, "%zu bytes of %zd", cuts[i], size);
        cr_expect(!is_there(path));
    }
    const char *path = put("kernel.so", bytes, (size_t)size);
    cr_expect_eq(ist_driver_cache_mend(dir), 0);
    cr_expect(is_there(path));
    memset(bytes, 0, 4096); /* a block that never reached the disk */
    put("kernel.so", bytes, (size_t)size);
    cr_expect_eq(ist_driver_cache_mend(dir), 1);
}

Test(device_driver_cache, what_is_not_known_stays) {
    static const char archive[] = "!<arch>: longer than the head of an ELF file is, and of another format than that.";
    char link[300];
    const char *program = put("program.bc", archive, sizeof archive), *object = put("a.so", archive, sizeof archive);
    const char *empty = put("last_accessed", "", 0);
    snprintf(link, sizeof link, "%s/b.so", dir);
    cr_assert_eq(symlink(empty, link), 0);
    cr_expect_eq(ist_driver_cache_mend(dir), 0);
    cr_expect(is_there(program) && is_there(object) && is_there(empty) && is_there(link));
    cr_expect_eq(ist_driver_cache_mend("/nonexistent"), 0);
}
