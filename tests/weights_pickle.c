/* The pickle interpreter opcode by opcode: what it builds, and the sentence for each thing it refuses. */
#include "weights/pickle.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_pickle p;
static ist_error err;

/* A literal may hold zero bytes; the terminator is not part of the pickle. */
#define READ(bytes)  ist_pickle_read((const uint8_t *)(bytes), sizeof(bytes) - 1, &p, &err)
#define ROOT         (&p.values[p.root])
#define ITEM(v, i)   (&p.values[(v)->as.list.items[i]])
#define GOOD(bytes)  cr_assert_eq(READ(bytes), IST_OK, "%s", err.text)
#define STORAGE(key) "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" key "X\3\0\0\0cpuK\6tQ"
#define REBUILD      "ctorch._utils\n_rebuild_tensor_v2\n("

static void expect_refused(const char *bytes, size_t size, const char *part) {
    cr_expect_eq(ist_pickle_read((const uint8_t *)bytes, size, &p, &err), IST_E_WEIGHTS, "wanted: %s", part);
    cr_expect_not_null(strstr(err.text, part), "wanted: %s; got: %s", part, err.text);
    ist_pickle_free(&p);
}
#define REFUSED(bytes, part) expect_refused(bytes, sizeof(bytes) - 1, part)

static void expect_int(const ist_pickle_value *v, int64_t want) {
    cr_expect(v->kind == IST_PICKLE_INT && v->as.integer == want, "kind %d, %lld", v->kind, (long long)v->as.integer);
}

Test(weights_pickle, numbers) {
    GOOD("\x80\2(K\xffM\1\2J\xff\xff\xff\xff\x8a\2\0\xff\x8a\0\x8a\x09\1\2\3\4\5\6\7\x08\x09G?"
         "\xd0\0\0\0\0\0\0\x88\x89Nt.");
    cr_assert(ROOT->kind == IST_PICKLE_TUPLE && ROOT->as.list.count == 10);
    expect_int(ITEM(ROOT, 0), 255);
    expect_int(ITEM(ROOT, 1), 513);
    expect_int(ITEM(ROOT, 2), -1);
    expect_int(ITEM(ROOT, 3), -256);
    expect_int(ITEM(ROOT, 4), 0);
    cr_expect_eq(ITEM(ROOT, 5)->kind, IST_PICKLE_OTHER);
    cr_expect_eq(ITEM(ROOT, 6)->as.number, 0.25);
    cr_expect(ITEM(ROOT, 7)->kind == IST_PICKLE_BOOL && ITEM(ROOT, 7)->as.integer == 1);
    cr_expect_eq(ITEM(ROOT, 8)->as.integer, 0);
    cr_expect_eq(ITEM(ROOT, 9)->kind, IST_PICKLE_NONE);
    ist_pickle_free(&p);
}

Test(weights_pickle, containers) {
    GOOD("]q\0(K\1K\2e}q\1(X\1\0\0\0ah\0X\1\0\0\0bK\3u\x86.");
    cr_assert(ROOT->kind == IST_PICKLE_TUPLE && ROOT->as.list.count == 2);
    const ist_pickle_value *a = ist_pickle_get(&p, ITEM(ROOT, 1), "a");
    cr_assert_not_null(a);
    cr_expect_eq(a, ITEM(ROOT, 0), "the memo must give the same list");
    cr_expect_eq(a->as.list.count, 2);
    expect_int(ist_pickle_get(&p, ITEM(ROOT, 1), "b"), 3);
    cr_expect_null(ist_pickle_get(&p, ITEM(ROOT, 1), "c"));
    cr_expect_null(ist_pickle_get(&p, a, "a"));
    ist_pickle_free(&p);
    GOOD("(K\1K\2l."); /* LIST */
    cr_expect_eq(ROOT->as.list.count, 2);
    ist_pickle_free(&p);
    GOOD("(K\1K\2d."); /* DICT */
    cr_expect(ROOT->kind == IST_PICKLE_DICT && ROOT->as.list.count == 2);
    ist_pickle_free(&p);
    GOOD("]K\5a}K\1K\2s\x86."); /* APPEND, SETITEM */
    expect_int(ITEM(ITEM(ROOT, 0), 0), 5);
    expect_int(ITEM(ITEM(ROOT, 1), 1), 2);
    ist_pickle_free(&p);
    GOOD("\x80\4\x95\5\0\0\0\0\0\0\0\x8f(K\1\x90."); /* a set in a frame */
    cr_expect_eq(ROOT->as.list.count, 1);
    ist_pickle_free(&p);
    GOOD("](K\1K\2e(K\3e(e."); /* APPENDS to what is there, as Python does beyond 1000 items; of nothing */
    cr_assert_eq(ROOT->as.list.count, 3);
    for (size_t i = 0; i < 3; i++) expect_int(ITEM(ROOT, i), (int64_t)i + 1);
    ist_pickle_free(&p);
    GOOD("K\1(K\2K\0031K\4\x86."); /* POP_MARK drops 2 and 3 */
    expect_int(ITEM(ROOT, 1), 4);
    ist_pickle_free(&p);
}

Test(weights_pickle, a_list_in_itself) {
    GOOD("]q\0h\0a.");
    cr_expect_eq(ITEM(ROOT, 0), ROOT);
    ist_pickle_free(&p);
}

Test(weights_pickle, calls) {
    GOOD("ccollections\nOrderedDict\n)R(X\1\0\0\0aK\1u}b.");
    expect_int(ist_pickle_get(&p, ROOT, "a"), 1);
    ist_pickle_free(&p);
    GOOD("ccollections\nOrderedDict\n]](X\1\0\0\0aK\1ea\x85R.");
    expect_int(ist_pickle_get(&p, ROOT, "a"), 1);
    ist_pickle_free(&p);
    GOOD("ccollections\ndefaultdict\n(N](X\1\0\0\0aK\1tatR."); /* a factory before the pairs */
    expect_int(ist_pickle_get(&p, ROOT, "a"), 1);
    ist_pickle_free(&p);
    GOOD("\x8c\x0b"
         "collections\x8c\7Counter\x93}K\3K\1s\x85R.");
    cr_expect_eq(ROOT->kind, IST_PICKLE_DICT);
    ist_pickle_free(&p);
    GOOD("ctorch\nSize\n](K\1K\2e\x85R.");
    cr_expect(ROOT->kind == IST_PICKLE_LIST && ROOT->as.list.count == 2);
    ist_pickle_free(&p);
}

Test(weights_pickle, tensors) {
    GOOD(REBUILD STORAGE("0") "K\1K\2K\3\x86K\3K\1\x86\x89)tR.");
    cr_assert_eq(ROOT->kind, IST_PICKLE_TENSOR);
    const ist_pickle_tensor *t = ROOT->as.tensor;
    cr_expect(t->rank == 2 && t->offset == 1 && t->dims[0] == 2 && t->dims[1] == 3 && t->strides[0] == 3 &&
              t->strides[1] == 1 && t->type == IST_WEIGHT_F32);
    const ist_pickle_value *s = &p.values[t->storage];
    cr_expect(s->kind == IST_PICKLE_STORAGE && s->as.storage.count == 6);
    cr_expect_eq(*p.values[s->as.storage.key].as.string.text, '0');
    ist_pickle_free(&p);
    GOOD("ctorch._utils\n_rebuild_parameter\n(" REBUILD STORAGE("0") "K\0))\x89)tR\x88)tR.");
    cr_assert_eq(ROOT->kind, IST_PICKLE_TENSOR);
    cr_expect_eq(ROOT->as.tensor->rank, 0);
    ist_pickle_free(&p);
    GOOD("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n(" STORAGE(
        "0") "K\0))\x89)t}tR.");
    cr_expect_eq(ROOT->kind, IST_PICKLE_TENSOR);
    ist_pickle_free(&p);
    GOOD("ctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0"
         "0X\3\0\0\0cpuK\x08tQ"
         "K\0K\2\x85K\1\x85\x89)ctorch\nfloat32\ntR.");
    cr_assert_eq(ROOT->kind, IST_PICKLE_TENSOR);
    cr_expect(ROOT->as.tensor->type == IST_WEIGHT_F32 && p.values[ROOT->as.tensor->storage].as.storage.untyped);
    ist_pickle_free(&p);
}

static void expect_opaque(const char *bytes, size_t size, const char *want) {
    char text[256];
    cr_assert_eq(ist_pickle_read((const uint8_t *)bytes, size, &p, &err), IST_OK, "%s: %s", want, err.text);
    cr_assert_eq(ROOT->kind, IST_PICKLE_OPAQUE, "%s", want);
    cr_expect_str_eq(ist_pickle_unknown_text(&p.unknown[ROOT->as.integer], text, sizeof text), want);
    ist_pickle_free(&p);
}
#define OPAQUE(bytes, want) expect_opaque(bytes, sizeof(bytes) - 1, want)

/* What is not known is not looked up, and what is made of it is not known either. */
Test(weights_pickle, unknown_globals_are_opaque) {
    OPAQUE("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R.", "os.system at byte 2");
    OPAQUE("\x80\4\x8c\x08"
           "builtins\x8c\4eval\x93.",
           "builtins.eval at byte 18");
    OPAQUE("c\x1b[2Jx\ny z\n.", "?[2Jx.y?z at byte 0");
    OPAQUE("cargparse\nNamespace\n)\x81}X\1\0\0\0aK\1sb.", "argparse.Namespace at byte 0"); /* NEWOBJ, BUILD */
    OPAQUE("ca\nb\n)}\x92K\1K\2s(K\3e.", "a.b at byte 0"); /* NEWOBJ_EX, SETITEM, APPENDS */
    OPAQUE("ca\nb\n)R)R.", "a.b at byte 0");               /* a call of what a call gave */
    OPAQUE("(X\7\0\0\0storagectorch\nFloatStorage2\nX\1\0\0\0"
           "0X\3\0\0\0cpuK\6tQ.",
           "torch.FloatStorage2 at byte 13");
    OPAQUE(REBUILD "ca\nb\nK\0))tR.", "a.b at byte 34");
    OPAQUE("ctorch._utils\n_rebuild_parameter\nca\nb\n\x85R.", "a.b at byte 33");
}

Test(weights_pickle, refuses_opcodes) {
    REFUSED("ccollections\nOrderedDict\n)}\x92.", "a call by keyword of something that is known");
    REFUSED("(S'x'\nios\nsystem\n.", "opcode 0x53 is not allowed at byte 1");
    REFUSED("(ios\nsystem\n.", "opcode 0x69 is not allowed at byte 1");
    REFUSED("\x82\1.", "opcode 0x82 is not allowed");
    REFUSED("P0\n.", "opcode 0x50 is not allowed");
    REFUSED("\x97.", "opcode 0x97 is not allowed");
}

Test(weights_pickle, refuses_calls) {
    REFUSED("ctorch\nFloatStorage\n)R.", "a call of something that builds nothing");
    REFUSED("K\1)R.", "a call of something that is not a global");
    REFUSED("ctorch\nSize\nK\1R.", "a call without an argument tuple");
    REFUSED("ccollections\nOrderedDict\n]K\1a\x85R.", "a dictionary from something else than pairs");
    REFUSED("K\1}b.", "attributes for a plain value");
    REFUSED("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nN(NNNttR.",
            "too few arguments");
}

Test(weights_pickle, refuses_tensors) {
    REFUSED(REBUILD "NK\0))\x89)tR.", "a tensor without a storage");
    REFUSED(REBUILD STORAGE("0") "J\xff\xff\xff\xff))\x89)tR.", "a natural offset");
    REFUSED(REBUILD STORAGE("0") "K\0K\1\x85)\x89)tR.", "size and stride");
    REFUSED(REBUILD STORAGE("0") "K\0J\xff\xff\xff\xff\x85K\1\x85\x89)tR.", "size and stride");
    REFUSED(REBUILD STORAGE("0") "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1K\1K\1K\1t\x89)tR.", "up to 8");
    REFUSED(REBUILD "tR.", "too few arguments");
    REFUSED("K\1Q.", "a storage without its five facts");
    REFUSED("(X\7\0\0\0storageK\1X\1\0\0\0"
            "0X\3\0\0\0cpuK\6tQ.",
            "a storage that is not");
    REFUSED("(X\7\0\0\0storagectorch\nSize\nX\1\0\0\0"
            "0X\3\0\0\0cpuK\6tQ.",
            "a storage of no storage class");
}

Test(weights_pickle, refuses_damage) {
    REFUSED("", "the file ends without a STOP at byte 0");
    REFUSED("K\1", "the file ends without a STOP at byte 2");
    REFUSED(".", "the stack is empty");
    REFUSED("K", "the file ends inside an argument");
    REFUSED("X\4\0\0\0ab", "a string reaches beyond the end");
    REFUSED("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "ab",
            "a string reaches beyond the end");
    REFUSED("\x8b\xff\xff\xff\xff"
            "ab",
            "an integer reaches beyond the end");
    REFUSED("cos", "a name reaches beyond the end");
    REFUSED("\x80\x09.", "an unknown protocol");
    REFUSED("\x95\xff\0\0\0\0\0\0\0.", "a frame that reaches beyond the end");
    REFUSED("h\3.", "a memo entry that was never stored");
    REFUSED("K\1r\xff\xff\xff\xff.", "a memo index that is too large");
    REFUSED("q\0.", "the stack is empty");
    REFUSED("t.", "no mark on the stack");
    REFUSED("K\1(0.", "the stack is empty");
    REFUSED("K\1(\x85.", "the stack is empty");
    REFUSED("K\1(K\2K\3s.", "the stack is empty");
    REFUSED("(K\1u.", "the stack is empty");
    REFUSED("}(K\1u.", "a key but no value");
    REFUSED("(K\1d.", "a key but no value");
    REFUSED("K\1K\2a.", "items for a value that cannot hold them");
    REFUSED("\x93.", "the stack is empty");
    REFUSED("K\1K\2\x93.", "a global without a name");
}

/* A list of 60,000 items handed to a call 20,000 times would be copied each time. */
Test(weights_pickle, bounds_what_calls_copy) {
    size_t size = 0, items = 60000, calls = 20000;
    uint8_t *bytes = malloc(items + calls * 16 + 64);
    cr_assert_not_null(bytes);
    size += (size_t)sprintf((char *)bytes, "ctorch\nSize\nq%c](", 1);
    memset(bytes + size, 'N', items);
    size += items;
    size += (size_t)sprintf((char *)bytes + size, "eq%c0", 2);
    for (size_t i = 0; i < calls; i++) size += (size_t)sprintf((char *)bytes + size, "h%ch%c\x85R", 1, 2);
    bytes[size++] = '.';
    expect_refused((char *)bytes, size, "calls that copy more items than the file has bytes");
    free(bytes);
}

/* Nesting costs no host stack. */
Test(weights_pickle, deep_nesting) {
    size_t depth = 200000;
    uint8_t *bytes = malloc(depth + 2);
    cr_assert_not_null(bytes);
    bytes[0] = 'N';
    memset(bytes + 1, 0x85, depth);
    bytes[depth + 1] = '.';
    cr_expect_eq(ist_pickle_read(bytes, depth + 2, &p, &err), IST_OK);
    cr_expect_eq(p.count, depth + 1);
    ist_pickle_free(&p);
    free(bytes);
}
