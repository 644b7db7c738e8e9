/* What names hold, and the blocks that they hold it in: functions, classes, branches. */
#include "audit/source_py.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BINDINGS = 1 << 20 };

/* ---- names ---- */

ist_src_value ist_py_lookup(const ist_py_reader *r, uint32_t name) {
    uint32_t b = r->u->names[name].binding;
    ist_src_value v = b ? r->bindings[b - 1].value : (ist_src_value){0};
    v.hit = 0;
    if (v.kind || !r->u->names[name].value.hit) return v;
    char key[160];
    int n =
        snprintf(key, sizeof key, "%u:%u:%s", (unsigned)r->u->file, (unsigned)r->function, ist_src_text(r->u, name));
    if (n < (int)sizeof key && ist_src_is_hinted(r->u, key, (size_t)n)) {
        v.kind = IST_PY_TENSOR;
        v.flags = IST_PY_SURE;
    }
    return v;
}

void ist_py_hint(ist_py_reader *r, uint32_t name) {
    char key[160];
    int n =
        snprintf(key, sizeof key, "%u:%u:%s", (unsigned)r->u->file, (unsigned)r->function, ist_src_text(r->u, name));
    uint32_t hinted = n < (int)sizeof key ? ist_src_intern(r->u, key, (size_t)n) : 0;
    if (!hinted) return;
    r->u->names[hinted].hint = true;
    r->u->names[name].value.hit = 1; /* some function has a hint for it */
}

void ist_py_bind(ist_py_reader *r, uint32_t name, ist_src_value value) {
    ist_src_name *n = &r->u->names[name];
    if (!name) return;
    value.hit = 0;
    if (r->change_count < IST_PY_CHANGES)
        r->changes[r->change_count++] =
            (ist_py_change){name, n->binding > r->base ? r->bindings[n->binding - 1].value : (ist_src_value){0}};
    if (n->binding > r->base) {
        r->bindings[n->binding - 1].value = value;
        return;
    }
    if (r->binding_count >= MOST_BINDINGS) return;
    if (!ist_grow((void **)&r->bindings, &r->binding_cap, r->binding_count + 1, sizeof *r->bindings)) {
        r->u->failed = true;
        return;
    }
    r->bindings[r->binding_count++] = (ist_py_binding){name, n->binding, value};
    n->binding = (uint32_t)r->binding_count;
}

void ist_py_unbind(ist_py_reader *r, size_t count) {
    while (r->binding_count > count) {
        const ist_py_binding *b = &r->bindings[--r->binding_count];
        r->u->names[b->name].binding = b->before;
    }
}

/* ---- blocks ---- */

void ist_py_widen(ist_py_reader *r, const ist_py_narrowing *n) {
    if (!n->name) return;
    ist_src_value now = ist_py_lookup(r, n->name);
    bool same = n->tensor ? ist_py_is_sure(now)
                          : now.kind == n->now.kind && now.flags == n->now.flags && now.origin == n->now.origin;
    if (same) ist_py_bind(r, n->name, n->before);
}

void ist_py_exclude(ist_py_reader *r, const ist_py_narrowing *n) {
    r->narrowed = (ist_py_narrowing){.name = n->name, .now = {.origin = n->before.origin}, .before = n->before};
    ist_py_bind(r, n->name, r->narrowed.now);
}

/* ---- branches: each begins with what held before the first ---- */

/* Gives the name this value; what it held. */
static ist_src_value exchange(ist_py_reader *r, uint32_t name, ist_src_value value) {
    uint32_t b = r->u->names[name].binding;
    if (b <= r->base) return value;
    ist_src_value before = r->bindings[b - 1].value;
    r->bindings[b - 1].value = value;
    return before;
}

/* Before a further branch: changes from `first` on are taken back, and remember what they were to. */
static void take_back(ist_py_reader *r, uint32_t first) {
    for (uint32_t i = r->change_count; i-- > first;)
        r->changes[i].value = exchange(r, r->changes[i].name, r->changes[i].value);
}

static bool is_asked(const ist_py_block *b, uint32_t name) {
    for (uint32_t k = 0; k < b->asked.count; k++)
        if (b->asked.names[k] == name) return true;
    return false;
}

/* The name holds something else on another way to here: of a tensor in host memory and one of a device, the latter, but
 * not for certain. */
static void may_hold(ist_py_reader *r, const ist_py_block *b, uint32_t name, ist_src_value other) {
    ist_src_value now = ist_py_lookup(r, name);
    if (is_asked(b, name)) return;
    if (now.kind == IST_PY_HOST_TENSOR && other.kind == IST_PY_TENSOR) {
        exchange(r, name, ist_py_either(now, other));
    } else if (now.kind == IST_PY_TENSOR && other.kind != IST_PY_HOST && !(other.flags & IST_PY_PLACED)) {
        now.flags &= (uint8_t)~IST_PY_PLACED;
        exchange(r, name, now);
    }
}

/* Behind the last branch: what only earlier ones assigned holds too, the last of them counts; a device is one if any
 * branch says so, and so is what lies there, unless a condition asked about it. The changes become those of the whole.
 */
static void join_branches(ist_py_reader *r, const ist_py_block *b) {
    for (uint32_t i = b->changes; i < b->left && i < r->change_count; i++) {
        ist_py_change *c = &r->changes[i];
        uint32_t k = b->left;
        while (k < r->change_count && r->changes[k].name != c->name) k++;
        if (k == r->change_count) {
            c->value = exchange(r, c->name, c->value);
        } else {
            bool device = c->value.kind == IST_PY_DEVICE && ist_py_lookup(r, c->name).kind == IST_PY_HOST_DEVICE;
            if (device) exchange(r, c->name, c->value);
            may_hold(r, b, c->name, c->value);
            c->value = r->changes[k].value;
        }
    }
    for (uint32_t i = b->changes; i < r->change_count && !b->is_else; i++) /* or what held before */
        may_hold(r, b, r->changes[i].name, r->changes[i].value);
}

static void leave_changes(ist_py_reader *r, const ist_py_block *b, uint32_t indent) {
    bool goes_on = r->goes_on && b->indent == indent;
    if (b->kind == IST_PY_FUNCTION_BLOCK) {
        r->change_count = b->left;
    } else if (b->is_except) {
        for (uint32_t i = r->change_count; i-- > b->left;) /* what went well holds, where there is any */
            if (b->ended || r->changes[i].value.kind) exchange(r, r->changes[i].name, r->changes[i].value);
        if (b->ended) r->change_count = b->left;
    } else if (b->branch_of_if) {
        if (goes_on || b->ended) take_back(r, b->left);
        if (b->ended) r->change_count = b->left;
        if (!goes_on) {
            join_branches(r, b);
            return;
        }
        r->branch_changes = b->changes;
        r->asked = b->asked;
    }
}

void ist_py_leave_blocks(ist_py_reader *r, uint32_t indent) {
    while (r->block_count && r->blocks[r->block_count - 1].indent >= indent) {
        const ist_py_block *b = &r->blocks[--r->block_count];
        bool exact = b->branch_of_if && b->narrowed.exact, goes_on = r->goes_on && b->indent == indent;
        ist_py_widen(r, &b->narrowed);
        leave_changes(r, b, indent);
        if (exact && goes_on) r->excluded = b->narrowed;
        if (exact && !goes_on && b->ended) ist_py_exclude(r, &b->narrowed);
        if (b->kind == IST_PY_FUNCTION_BLOCK) {
            ist_py_unbind(r, b->bindings);
            r->base = b->base;
        }
        r->function = b->function;
        r->loop = b->loop;
        r->owner = b->owner;
        r->class_ = b->class_;
        r->module_class = b->module_class;
        r->training = b->training;
        r->branch = b->branch;
    }
}

void ist_py_enter_block(ist_py_reader *r, uint32_t indent, ist_py_block_kind kind) {
    if (r->block_count == IST_PY_BLOCKS) return;
    r->blocks[r->block_count++] = (ist_py_block){.indent = indent,
                                                 .function = r->function,
                                                 .loop = r->loop,
                                                 .owner = r->owner,
                                                 .class_ = r->class_,
                                                 .bindings = r->binding_count,
                                                 .base = r->base,
                                                 .kind = (uint8_t)kind,
                                                 .module_class = r->module_class,
                                                 .branch = r->branch,
                                                 .changes = r->change_count,
                                                 .left = r->change_count,
                                                 .training = r->training};
    r->branch = ++r->branches;
}
