/* The safetensors reader and writer: what is right comes back, what is wrong is named. */
#include "weights/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of this header text and `size` data bytes counting from 0; *length is its size. */
static uint8_t *build(const char *header, size_t size, size_t *length) {
    size_t n = strlen(header);
    *length = 8 + n + size;
    uint8_t *bytes = calloc(*length + 1, 1);
    cr_assert_not_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n >> (8 * i));
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < size; i++) bytes[8 + n + i] = (uint8_t)i;
    return bytes;
}

static ist_status open_text(const char *header, size_t size, ist_weights **w, ist_error *err) {
    size_t length;
    uint8_t *bytes = build(header, size, &length);
    ist_status status = ist_weights_open_memory(bytes, length, w, err);
    free(bytes);
    return status;
}

static void refused(const char *header, size_t size, const char *part) {
    ist_weights *w = NULL;
    ist_error err = {0};
    cr_expect_eq(open_text(header, size, &w, &err), IST_E_WEIGHTS, "%s", header);
    cr_expect_not_null(strstr(err.text, part), "%s: %s", header, err.text);
    cr_expect_null(w);
}

Test(weights_safetensors, reads) {
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(open_text("{\"__metadata__\":{\"format\":\"pt\",\"names\":\"bone, soft tissue\"},"
                           "\"b\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[4,10]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"z\":{\"dtype\":\"F16\",\"shape\":[3,0],\"data_offsets\":[10,10]}}   ",
                           10, &w, &err),
                 IST_OK, "%s", err.text);
    cr_expect_eq(ist_weights_count(w), 3);
    const ist_weight *b = ist_weights_find(w, "b"), *z = ist_weights_find(w, "z");
    cr_expect(b->rank == 2 && b->dims[0] == 2 && b->dims[1] == 3 && b->bytes == 6 && b->count == 6);
    cr_expect_eq(((const uint8_t *)b->data)[0], 4);
    cr_expect(z->count == 0 && z->rank == 2);
    cr_expect_eq(ist_weights_find(w, "a")->count, 1);
    cr_expect_str_eq(ist_weights_metadata(w, "format"), "pt");
    cr_expect_null(ist_weights_metadata(w, "other"));
    cr_expect_eq(ist_weights_class_count(w), 2);
    cr_expect_str_eq(ist_weights_class_name(w, 1), "soft tissue");
    cr_expect_null(ist_weights_class_name(w, 2));
    cr_expect_null(ist_weights_class_name(w, -1));
    cr_expect_str_eq(ist_weights_format(w), "safetensors");
    cr_expect_str_eq(ist_weights_naming(w), "official");
    ist_weights_close(&w);
}

Test(weights_safetensors, strips_module) {
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(open_text("{\"module.a.b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, &w, &err),
                 IST_OK);
    cr_expect_not_null(ist_weights_find(w, "a.b"));
    ist_weights_close(&w);
}

Test(weights_safetensors, class_names_from_json) {
    ist_weights *w = NULL;
    ist_error err;
    const char *tail = "},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    char text[256];
    snprintf(text, sizeof text, "{\"__metadata__\":{\"class_names\":\"[\\\"a, b\\\",\\\"c\\\"]\"%s", tail);
    cr_assert_eq(open_text(text, 1, &w, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_weights_class_count(w), 2);
    cr_expect_str_eq(ist_weights_class_name(w, 0), "a, b");
    ist_weights_close(&w);
    snprintf(text, sizeof text, "{\"__metadata__\":{\"names\":\"{\\\"1\\\":\\\"y\\\",\\\"0\\\":\\\"x\\\"}\"%s", tail);
    cr_assert_eq(open_text(text, 1, &w, &err), IST_OK, "%s", err.text);
    cr_expect_str_eq(ist_weights_class_name(w, 1), "y");
    ist_weights_close(&w);
    snprintf(text, sizeof text, "{\"__metadata__\":{\"names\":\"{\\\"2\\\":\\\"y\\\"}\"%s", tail);
    refused(text, 1, "no name for class 0 of 1");
    snprintf(text, sizeof text, "{\"__metadata__\":{\"names\":\"[1\"%s", tail);
    refused(text, 1, "metadata \"names\" is not valid JSON");
}

#define T(name, dtype, shape, offsets)                                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(weights_safetensors, offsets) {
    refused("{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[2,6]") "}", 6, "b: overlaps a at data byte 2");
    refused("{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[0,4]") "}", 4, "overlaps");
    refused("{" T("a", "U8", "[4]", "[2,6]") "}", 6, "a: starts at data byte 2, 2 bytes before it");
    refused("{" T("a", "U8", "[4]", "[0,4]") "}", 7, "3 bytes after the last tensor");
    refused("{" T("a", "U8", "[4]", "[-4,0]") "}", 4, "a: data_offsets [-4,0]");
    refused("{" T("a", "U8", "[4]", "[4,0]") "}", 4, "a: data_offsets [4,0]");
    refused("{" T("a", "U8", "[4]", "[0,9223372036854775807]") "}", 4, "do not lie in the 4 data bytes");
    refused("{" T("a", "U8", "[4]", "[0,18446744073709551616]") "}", 4, "not valid JSON");
    refused("{" T("a", "U8", "[4]", "[0,4.0]") "}", 4, "a: data_offsets is not a pair of integers");
    refused("{" T("a", "U8", "[4]", "[0]") "}", 4, "a: data_offsets is not a pair");
    refused("{" T("a", "U8", "[4]", "\"x\"") "}", 4, "a: data_offsets is not a pair");
}

Test(weights_safetensors, shapes_and_types) {
    refused("{" T("a", "F32", "[2]", "[0,4]") "}", 4, "a: F32 [2] does not fill its 4 bytes");
    refused("{" T("a", "F32", "[4294967296,4294967296,4]", "[0,4]") "}", 4, "does not fill");
    refused("{" T("a", "F32", "[9223372036854775807,2]", "[0,4]") "}", 4, "does not fill");
    refused("{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "a: dimension 0 is not a natural number");
    refused("{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "a: dimension 0 is not a natural number");
    refused("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "a: 9 dimensions, the limit is 8");
    refused("{" T("a", "F8_E4M3", "[4]", "[0,4]") "}", 4, "a: dtype \"F8_E4M3\" is not supported");
    refused("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a: dtype is not a string");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":3,\"data_offsets\":[0,1]}}", 1, "a: shape is not an array");
    refused("{\"a\":{}}", 1, "a: dtype is not a string");
    refused("{\"a\":5}", 1, "a: dtype is not a string");
}

Test(weights_safetensors, names_and_metadata) {
    refused("{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2, "not valid JSON");
    refused("{" T("a", "U8", "[1]", "[0,1]") "," T("module.a", "U8", "[1]", "[1,2]") "}", 2,
            "a: the name appears twice");
    refused("{" T("", "U8", "[1]", "[0,1]") "}", 1, "a name of 0 bytes");
    refused("{" T("a\\nb", "U8", "[1]", "[0,1]") "}", 1, "control character 0x0a");
    refused("{" T("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, "not valid JSON");
    refused("{\"__metadata__\":[]," T("a", "U8", "[1]", "[0,1]") "}", 1, "__metadata__ is not an object");
    refused("{\"__metadata__\":{\"k\":1}," T("a", "U8", "[1]", "[0,1]") "}", 1, "__metadata__ \"k\" is not a string");
    refused("{}", 0, "holds no tensors");
    refused("{\"__metadata__\":{}}", 0, "holds no tensors");
    refused("{\"a\":", 0, "not valid JSON at byte");
    refused("{\"a\":{}} x", 0, "not valid JSON");
}

Test(weights_safetensors, lengths) {
    size_t length;
    uint8_t *bytes = build("{" T("a", "U8", "[4]", "[0,4]") "}", 4, &length);
    ist_weights *w = NULL;
    ist_error err;
    for (size_t cut = 0; cut < length; cut++) {
        cr_expect_eq(ist_weights_open_memory(bytes, cut, &w, &err), IST_E_WEIGHTS, "%zu bytes", cut);
        cr_expect_gt(strlen(err.text), 0);
    }
    cr_expect_eq(ist_weights_open_memory(bytes, length, &w, &err), IST_OK);
    ist_weights_close(&w);
    bytes[7] = 0x7f;
    cr_expect_eq(ist_weights_open_memory(bytes, length, &w, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "the limit is 16777216"), "%s", err.text);
    bytes[7] = 0;
    bytes[2] = 1;
    cr_expect_eq(ist_weights_open_memory(bytes, length, &w, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "truncated"), "%s", err.text);
    free(bytes);
}

Test(weights_safetensors, files) {
    ist_weights *w = NULL;
    ist_error err;
    cr_expect_eq(ist_weights_open(IST_GOLDEN_DIR "/no such file", &w, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, "no such file: No such file"), "%s", err.text);
    cr_expect_eq(ist_weights_open(IST_GOLDEN_DIR, &w, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, "is not a regular file"), "%s", err.text);
    cr_expect_eq(ist_weights_open("/dev/null", &w, &err), IST_E_IO);
    cr_expect_str_eq(err.text, "/dev/null: is not a regular file");
    cr_expect_eq(ist_weights_open(IST_SOURCE_DIR "/CMakeLists.txt", &w, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "neither a safetensors nor a PyTorch file"), "%s", err.text);
}

static void temporary(char *path, size_t size) {
    snprintf(path, size, IST_BUILD_DIR "/weights_XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static ist_weights *sample(void) {
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    cr_assert_eq(ist_weights_add(w, "flag", IST_WEIGHT_BOOL, 1, (int64_t[]){3}, (uint8_t[]){1, 0, 1}, &err), IST_OK);
    cr_assert_eq(ist_weights_add(w, "real", IST_WEIGHT_F32, 2, (int64_t[]){1, 3}, (float[]){0.1f, -2, INFINITY}, &err),
                 IST_OK);
    cr_assert_eq(ist_weights_add(w, "wide", IST_WEIGHT_F64, 0, NULL, (double[]){0.25}, &err), IST_OK);
    cr_assert_eq(ist_weights_add(w, "none", IST_WEIGHT_F32, 1, (int64_t[]){0}, NULL, &err), IST_OK);
    cr_assert_eq(ist_weights_add(w, "count", IST_WEIGHT_I64, 0, NULL, (int64_t[]){1ll << 40}, &err), IST_OK);
    cr_assert_eq(ist_weights_set_metadata(w, "names", "bone,\"quoted\"", &err), IST_OK);
    cr_assert_eq(ist_weights_set_metadata(w, "names", "[\"bone\"]", &err), IST_OK);
    return w;
}

Test(weights_safetensors, writes_what_it_reads) {
    char path[512];
    ist_error err;
    ist_weights *w = sample(), *r = NULL;
    temporary(path, sizeof path);
    cr_assert_eq(ist_weights_save_safetensors(w, path, false, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_weights_open(path, &r, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_weights_count(r), 5);
    for (size_t i = 0; i < ist_weights_count(w); i++) {
        const ist_weight *a = ist_weights_at(w, i), *b = ist_weights_at(r, i);
        cr_expect_str_eq(a->name, b->name);
        cr_expect(a->type == b->type && a->rank == b->rank && a->bytes == b->bytes);
        cr_expect_arr_eq(a->data, b->data, a->bytes);
        cr_expect_eq((uintptr_t)b->data % ist_weight_type_bytes(b->type), 0, "%s is not aligned", b->name);
    }
    cr_expect_str_eq(ist_weights_metadata(r, "format"), "pt");
    cr_expect_str_eq(ist_weights_class_name(r, 0), "bone");
    cr_expect_eq(ist_weights_metadata_count(r), 2);
    remove(path);
    ist_weights_close(&w);
    ist_weights_close(&r);
}

Test(weights_safetensors, writes_half) {
    char path[512];
    ist_error err;
    ist_weights *w = sample(), *r = NULL;
    temporary(path, sizeof path);
    cr_assert_eq(ist_weights_save_safetensors(w, path, true, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_weights_open(path, &r, &err), IST_OK, "%s", err.text);
    const ist_weight *real = ist_weights_find(r, "real");
    const uint16_t want[] = {0x2e66, 0xc000, 0x7c00};
    cr_expect_eq(real->type, IST_WEIGHT_F16);
    cr_expect_arr_eq(real->data, want, sizeof want);
    cr_expect_eq(ist_weights_find(r, "wide")->type, IST_WEIGHT_F16);
    cr_expect_eq(ist_weights_find(r, "count")->type, IST_WEIGHT_I64);
    ist_weights_close(&r);
    cr_assert_eq(ist_weights_add(w, "big", IST_WEIGHT_F32, 1, (int64_t[]){2}, (float[]){1, 7e4f}, &err), IST_OK);
    cr_expect_eq(ist_weights_save_safetensors(w, path, true, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "big: element 1 is 70000, half precision ends at 65504"), "%s", err.text);
    cr_expect_eq(ist_weights_open(path, &r, &err), IST_OK, "a failed save must leave the old file");
    remove(path);
    ist_weights_close(&w);
    ist_weights_close(&r);
}

/* 640 bytes of header: the file begins like a pickle of protocol 2. */
Test(weights_safetensors, a_length_that_looks_like_a_pickle) {
    static const char tensor[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    char file[8 + 640 + 2] = {(char)0x80, 2};
    ist_error err;
    ist_weights *w = NULL;
    memset(file + 8, ' ', 640);
    memcpy(file + 8, tensor, sizeof tensor - 1);
    cr_expect_eq(ist_weights_open_memory(file, sizeof file, &w, &err), IST_OK, "%s", err.text);
    ist_weights_close(&w);
}

Test(weights_safetensors, unwritable) {
    ist_error err;
    ist_weights *w = sample();
    cr_expect_eq(ist_weights_save_safetensors(w, IST_BUILD_DIR "/no/such/folder/x", false, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, "cannot be written: No such file or directory"), "%s", err.text);
    char path[512];
    struct stat st;
    temporary(path, sizeof path);
    remove(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(ist_weights_save_safetensors(w, path, false, &err), IST_E_IO);
    cr_expect(!stat(path, &st) && S_ISFIFO(st.st_mode), "a pipe was replaced by a file");
    remove(path);
    ist_weights_close(&w);
}

/* Whoever may write to the folder must not choose which other file is overwritten. */
Test(weights_safetensors, a_link_of_the_temporary_name_is_not_followed) {
    char folder[] = IST_BUILD_DIR "/weights_XXXXXX", path[512], victim[512], temp[512], text[16] = "";
    ist_error err;
    ist_weights *w = sample();
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.safetensors", folder);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(temp, sizeof temp, "%s/.isthmus-%ld-0.tmp", folder, (long)getpid());
    FILE *f = fopen(victim, "w+");
    cr_assert_not_null(f);
    fputs("precious", f);
    fflush(f);
    cr_assert_eq(symlink("victim", temp), 0);
    cr_expect_eq(ist_weights_save_safetensors(w, path, false, &err), IST_OK, "%s", err.text);
    rewind(f);
    cr_expect_str_eq(fgets(text, sizeof text, f), "precious");
    fclose(f);
    remove(path);
    remove(victim);
    cr_expect_eq(rmdir(folder), 0);
    ist_weights_close(&w);
}
