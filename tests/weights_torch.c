/* PyTorch files, zips and those before 1.6, as torch.save writes them (tests/official/make_weights.py): values, views,
 * wrappers, hostile ones.
 */
#include "weights/weights.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES IST_GOLDEN_DIR "/weights/"

static ist_weights *open_good(const char *path) {
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(ist_weights_open(path, &w, &err), IST_OK, "%s", err.text);
    return w;
}

static void refused(const char *path, const char *part) {
    ist_weights *w = NULL;
    ist_error err;
    cr_expect_eq(ist_weights_open(path, &w, &err), IST_E_WEIGHTS, "%s", path);
    cr_expect(!strncmp(err.text, path, strlen(path)), "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "%s", err.text);
    cr_expect_null(w);
}

static void expect_values(const ist_weights *w, const char *name, int rank, const int64_t *dims, const float *want) {
    ist_error err;
    float *v = NULL;
    cr_assert_eq(ist_weights_f32(w, name, rank, dims, &v, &err), IST_OK, "%s", err.text);
    size_t n = ist_weights_find(w, name)->count;
    for (size_t i = 0; i < n; i++) cr_expect_eq(v[i], want[i], "%s[%zu] = %g", name, i, v[i]);
    free(v);
}

static void expect_plain(const char *path, const char *format) {
    ist_weights *w = open_good(path);
    cr_expect_eq(ist_weights_count(w), 12);
    cr_expect_str_eq(ist_weights_format(w), format);
    expect_values(w, "a.weight", 2, (int64_t[]){2, 3}, (float[]){0, 0.25f, 0.5f, 0.75f, 1, 1.25f});
    expect_values(w, "b.f16", 1, (int64_t[]){3}, (float[]){1, -0.5f, 65504});
    expect_values(w, "c.bf16", 1, (int64_t[]){3}, (float[]){1, -3, 0.15625f});
    expect_values(w, "d.i64", 1, (int64_t[]){2}, (float[]){4, -0x1p40f});
    expect_values(w, "e.bool", 1, (int64_t[]){3}, (float[]){1, 0, 1});
    expect_values(w, "f.scalar", 0, NULL, (float[]){7});
    expect_values(w, "g.f64", 1, (int64_t[]){1}, (float[]){0.1f});
    expect_values(w, "h.i32", 1, (int64_t[]){1}, (float[]){-5});
    expect_values(w, "i.u8", 1, (int64_t[]){2}, (float[]){200, 3});
    expect_values(w, "j.empty", 2, (int64_t[]){0, 3}, NULL);
    expect_values(w, "k.i16", 1, (int64_t[]){1}, (float[]){-300});
    expect_values(w, "l.i8", 1, (int64_t[]){1}, (float[]){-7});
    cr_expect_eq(ist_weights_find(w, "c.bf16")->type, IST_WEIGHT_BF16);
    ist_weights_close(&w);
}

Test(weights_torch, every_type) {
    expect_plain(FILES "plain.pth", "torch zip");
}
Test(weights_torch, protocol_4) {
    expect_plain(FILES "protocol4.pth", "torch zip");
}
Test(weights_torch, deflated) {
    expect_plain(FILES "deflated.pth", "torch zip");
}

Test(weights_torch, views_are_made_contiguous) {
    ist_weights *w = open_good(FILES "views.pth");
    float whole[24], tail[12], transposed[24], odd[12];
    for (int i = 0; i < 24; i++) {
        whole[i] = (float)i;
        transposed[i] = (float)(i % 4 * 6 + i / 4);
        if (i < 12) tail[i] = (float)(12 + i);
        if (i % 2) odd[i / 2] = (float)i;
    }
    expect_values(w, "whole", 2, (int64_t[]){4, 6}, whole);
    expect_values(w, "tail", 2, (int64_t[]){3, 4}, tail);
    expect_values(w, "transposed", 2, (int64_t[]){6, 4}, transposed);
    expect_values(w, "odd", 1, (int64_t[]){12}, odd);
    expect_values(w, "expanded", 1, (int64_t[]){5}, (float[]){3, 3, 3, 3, 3});
    ist_weights_close(&w);
}

/* Optimizer, scheduler, dates and the plain model lie next to the averaged weights, which win. */
Test(weights_torch, training_checkpoint) {
    ist_weights *w = open_good(FILES "training.pth");
    cr_expect_eq(ist_weights_count(w), 1);
    expect_values(w, "w", 1, (int64_t[]){2}, (float[]){2, 2});
    ist_weights_close(&w);
}

/* What would call a shell lies beside a tensor: it stays bytes. */
Test(weights_torch, hostile_objects_are_passed_over) {
    ist_weights *w = open_good(FILES "hostile.pth");
    cr_expect_eq(ist_weights_count(w), 1);
    ist_weights_close(&w);
}

/* Namespace, NumPy scalars, a Counter, an enumeration, an optimizer, tensors of other kinds and a hostile object lie
 * beside {"state_dict": ..}. */
Test(weights_torch, objects_beside_the_state_dict) {
    const char *const files[] = {FILES "objects.pth", FILES "objects4.pth", FILES "legacy_objects.pth"};
    for (int i = 0; i < 3; i++) {
        ist_weights *w = open_good(files[i]);
        cr_expect_eq(ist_weights_count(w), 1); /* a complex tensor in it is passed over */
        expect_values(w, "w", 1, (int64_t[]){2}, (float[]){3, 3});
        ist_weights_close(&w);
    }
}

Test(weights_torch, model_with_module_prefix_and_names) {
    ist_weights *w = open_good(FILES "model.pth");
    expect_values(w, "0.weight", 2, (int64_t[]){1, 2}, (float[]){0.5f, -2});
    expect_values(w, "0.bias", 1, (int64_t[]){1}, (float[]){3});
    cr_expect_eq(ist_weights_class_count(w), 2);
    cr_expect_str_eq(ist_weights_class_name(w, 1), "tooth");
    ist_weights_close(&w);
}

Test(weights_torch, parameters_and_numbered_names) {
    ist_weights *w = open_good(FILES "parameter.pth");
    expect_values(w, "0.weight", 2, (int64_t[]){1, 2}, (float[]){0.5f, -2});
    cr_expect_str_eq(ist_weights_class_name(w, 0), "bone");
    ist_weights_close(&w);
}

/* The format before PyTorch 1.6. */
Test(weights_torch, legacy) {
    expect_plain(FILES "legacy.pth", "torch legacy");
    expect_plain(FILES "legacy4.pth", "torch legacy");
}

Test(weights_torch, refusals) {
    refused(FILES "complex.pth", "holds no tensors; it refuses global torch.ComplexFloatStorage");
    refused(FILES "list.pth", "holds no state dict");
    refused(FILES "bomb.pth", "more than a file of this size may hold");
    refused(FILES "no_pickle.pth", "the zip has 0 data.pkl");
    refused(FILES "no_storage.pth", "the zip has no entry plain/data/0");
    refused(FILES "short_storage.pth", "storage data/0: 6 elements of F32 promised, the zip has 20 bytes");
    refused(FILES "big_endian.pth", "big endian");
    refused(FILES "wrapped.pth", "w: [4] at offset 0 does not lie in its storage of 16 elements");
}

static uint8_t *slurp(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    uint8_t *bytes = malloc(1 << 16);
    cr_assert_not_null(bytes);
    *size = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* In a file of `pickles` bytes of them and then storages, or the other way round, the latter say that they are cut. */
static void expect_truncated(const char *path, size_t pickles) {
    size_t size;
    uint8_t *bytes = slurp(path, &size);
    ist_error err;
    for (size_t cut = 0; cut < size; cut++) {
        ist_weights *w = NULL;
        uint8_t *part = malloc(cut + 1); /* exact: a read beyond the cut shows under a sanitizer */
        memcpy(part, bytes, cut);
        cr_expect_eq(ist_weights_open_memory(part, cut, &w, &err), IST_E_WEIGHTS, "%zu bytes", cut);
        cr_expect(cut < pickles || strstr(err.text, "cut off"), "%zu bytes: %s", cut, err.text);
        free(part);
    }
    free(bytes);
}

Test(weights_torch, truncated_anywhere) {
    expect_truncated(FILES "plain.pth", 100);
    expect_truncated(FILES "legacy.pth", 1588);
    expect_truncated(FILES "legacy4.pth", 1 << 16);
}

/* A flipped byte is refused or changes what is read, but never more than that. */
static size_t count_refused(uint8_t *bytes, size_t size) {
    size_t refusals = 0;
    ist_error err;
    for (size_t at = 0; at < size; at++) {
        ist_weights *w = NULL;
        bytes[at] ^= 0x55;
        if (ist_weights_open_memory(bytes, size, &w, &err)) refusals++;
        ist_weights_close(&w);
        bytes[at] ^= 0x55;
    }
    ist_weights *w = NULL;
    cr_expect_eq(ist_weights_open_memory(bytes, size, &w, &err), IST_OK);
    ist_weights_close(&w);
    return refusals;
}

/* The CRC guards the data in a zip; in a legacy file nothing does. */
Test(weights_torch, damaged_anywhere) {
    const char *const files[] = {FILES "plain.pth", FILES "legacy.pth"};
    for (int i = 0; i < 2; i++) {
        size_t size;
        uint8_t *bytes = slurp(files[i], &size);
        size_t refusals = count_refused(bytes, size);
        cr_expect_gt(refusals, size / 4, "%s: %zu of %zu", files[i], refusals, size);
        free(bytes);
    }
}

/* ---- legacy files by hand ---- */

typedef struct made {
    uint8_t bytes[1024];
    size_t size;
} made;

static void append(made *m, const void *bytes, size_t size) {
    cr_assert_leq(m->size + size, sizeof m->bytes);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}
#define APPEND(m, literal) append(m, literal, sizeof(literal) - 1)

#define MAGIC              "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define VERSION            "\x80\x02M\xe9\x03."
#define LITTLE             "\x80\x02}(X\x0d\0\0\0little_endian\x88u."
#define STORED             "((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0aX\3\0\0\0cpuK\4"
#define OBJECT(view)       "\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n" STORED view "tQK\0K\2\x85K\1\x85\x89)tRs."
#define KEYS               "\x80\x02](X\1\0\0\0ae."
#define COUNT              "\4\0\0\0\0\0\0\0"

/* Parts in order; four floats 0, 1, 2, 3 at the end. */
#define MAKE(m, magic, version, order, object, keys, count)                                                            \
    do {                                                                                                               \
        static const float four[] = {0, 1, 2, 3};                                                                      \
        (m)->size = 0;                                                                                                 \
        APPEND(m, magic);                                                                                              \
        APPEND(m, version);                                                                                            \
        APPEND(m, order);                                                                                              \
        APPEND(m, object);                                                                                             \
        APPEND(m, keys);                                                                                               \
        APPEND(m, count);                                                                                              \
        append(m, four, sizeof four);                                                                                  \
    } while (0)

static void expect_made(const made *m, const float *want, const char *sentence) {
    ist_weights *w = NULL;
    ist_error err = {0};
    uint8_t *exact = malloc(m->size);
    memcpy(exact, m->bytes, m->size);
    cr_expect_eq(ist_weights_open_memory(exact, m->size, &w, &err), want ? IST_OK : IST_E_WEIGHTS, "%s", err.text);
    cr_expect(want || strstr(err.text, sentence), "%s lacks %s", err.text, sentence);
    if (want && w) expect_values(w, "w", 1, (int64_t[]){2}, want);
    ist_weights_close(&w);
    free(exact);
}

Test(weights_torch, legacy_by_hand) {
    made m;
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), KEYS, COUNT);
    expect_made(&m, (float[]){0, 1}, "");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("(X\1\0\0\0bK\2K\2t"), KEYS, COUNT); /* a view of two elements */
    expect_made(&m, (float[]){2, 3}, "");
    MAKE(&m, MAGIC, VERSION, LITTLE, /* a whole network beside the tensors, with the source of its class */
         "\x80\2}(X\1\0\0\0m(X\6\0\0\0modulecsome\nNet\nX\1\0\0\0fX\1\0\0\0stQ)\x81}X\1\0\0\0aK\1sb"
         "X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n" STORED "NtQK\0K\2\x85K\1\x85\x89)tRu.",
         KEYS, COUNT);
    expect_made(&m, (float[]){0, 1}, "");
    /* the first storage is of a complex tensor, which is passed over: its elements have eight bytes */
    MAKE(&m, MAGIC, VERSION, LITTLE,
         "\x80\2}X\1\0\0\0zctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nComplexFloatStorage\n"
         "X\1\0\0\0bX\3\0\0\0cpuK\2NtQK\0K\2\x85K\1\x85\x89)tRsX\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n" STORED
         "NtQK\0K\2\x85K\1\x85\x89)tRs.",
         "\x80\2](X\1\0\0\0bX\1\0\0\0ae.", "\2\0\0\0\0\0\0\0zzzzzzzzzzzzzzzz" COUNT);
    expect_made(&m, (float[]){0, 1}, "");
}

Test(weights_torch, hostile_legacy_files) {
    made m;
    MAKE(&m, "\x80\2K\1.", VERSION, LITTLE, OBJECT("N"), KEYS, COUNT);
    expect_made(&m, NULL, "its magic number is another one");
    MAKE(&m, MAGIC, "\x80\2M\xe8\3.", LITTLE, OBJECT("N"), KEYS, COUNT);
    expect_made(&m, NULL, "version other than 1001");
    MAKE(&m, MAGIC, VERSION, "\x80\2}(X\x0d\0\0\0little_endian\x89u.", OBJECT("N"), KEYS, COUNT);
    expect_made(&m, NULL, "big endian");
    MAKE(&m, MAGIC, VERSION, LITTLE, "\x80\2cos\nsystem\nX\4\0\0\0true\x85R.", "\x80\2].", "");
    expect_made(&m, NULL, "the pickle holds no state dict; it refuses global os.system at byte 2");
    MAKE(&m, MAGIC, VERSION, LITTLE, "\x80\2Y.", KEYS, COUNT);
    expect_made(&m, NULL, "the object at byte 46: pickle: opcode 0x59 is not allowed at byte 2");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), "\x80\2K\1.", COUNT);
    expect_made(&m, NULL, "no list of storage keys");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), "\x80\2](X\1\0\0\0be.", COUNT);
    expect_made(&m, NULL, "storage 0 of the file has a key that the pickle does not know");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), "\x80\2](K\1e.", COUNT);
    expect_made(&m, NULL, "storage 0 of the file has a key that the pickle does not know");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), "\x80\2].", COUNT);
    expect_made(&m, NULL, "the file has no storage a");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), KEYS, "\5\0\0\0\0\0\0\0");
    expect_made(&m, NULL, "has 5 elements of 4 bytes, 16 bytes are left");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), KEYS, "\xff\xff\xff\xff\xff\xff\xff\xff");
    expect_made(&m, NULL, "has 18446744073709551615 elements of 4 bytes");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("N"), KEYS, "\3\0\0\0\0\0\0\0");
    expect_made(&m, NULL, "storage a: 4 elements of F32 promised, the file has 12 bytes");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("(X\1\0\0\0bK\3K\2t"), KEYS, COUNT);
    expect_made(&m, NULL, "w: [2] at offset 0 does not lie in its storage of 0 elements");
    MAKE(&m, MAGIC, VERSION, LITTLE, "\x80\2(X\7\0\0\0storagecsomewhere\nOddStorage\nX\1\0\0\0aX\3\0\0\0cpuK\4NtQ.",
         KEYS, COUNT);
    expect_made(&m, NULL, "storage 0 of the file is of a class whose elements have no known size");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("K\3"), KEYS, COUNT);
    expect_made(&m, NULL, "a view of a storage that is not (key, first, count)");
    MAKE(&m, MAGIC, VERSION, LITTLE, OBJECT("(X\1\0\0\0bJ\xff\xff\xff\xffK\2t"), KEYS, COUNT);
    expect_made(&m, NULL, "a view of a storage that is not (key, first, count)");
}
