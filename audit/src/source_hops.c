/* The ways that data takes from its download on, hop by hop. A hop knows the one before; the same hop of the same way
 * is kept once, so that going over the text again adds nothing. */
#include "audit/source_unit.h"

#include "base/mem.h"

enum { MOST_HOPS = 1 << 20 };

static uint32_t hash_of(const ist_src_hop *h) {
    const uint32_t parts[] = {h->before, h->file, h->line, h->function, h->name, h->param, h->kind, h->derived};
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = (hash ^ parts[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static bool is_same(const ist_src_hop *a, const ist_src_hop *b) {
    return a->before == b->before && a->file == b->file && a->line == b->line && a->function == b->function &&
           a->name == b->name && a->param == b->param && a->kind == b->kind && a->derived == b->derived;
}

uint32_t ist_src_hop_add(ist_src_unit *u, ist_src_hop hop) {
    uint32_t open = hop.before ? hop.before & IST_SRC_HOP_OPEN : hop.kind == IST_SRC_HOP_PARAM ? IST_SRC_HOP_OPEN : 0;
    uint32_t before = hop.before;
    bool last = hop.kind == IST_SRC_HOP_UP || hop.kind == IST_SRC_HOP_CALL;
    hop.before &= ~IST_SRC_HOP_OPEN;
    if (hop.before) {
        const ist_src_hop *b = ist_src_hop_at(u, hop.before);
        if (b->depth >= IST_SRC_HOPS && !last) return before;
        hop.depth = (uint8_t)(b->depth + 1);
        hop.root = b->root;
        hop.derived = hop.derived || b->derived;
    }
    uint32_t hash = hash_of(&hop) % u->bucket_count;
    for (uint32_t k = u->hop_buckets[hash]; k; k = u->hops[k - 1].next)
        if (is_same(&u->hops[k - 1], &hop)) return k | open;
    if (u->hop_count >= MOST_HOPS) return last ? 0 : before;
    if (!ist_grow((void **)&u->hops, &u->hop_cap, u->hop_count + 1, sizeof *u->hops)) {
        u->failed = true;
        return 0;
    }
    uint32_t number = (uint32_t)++u->hop_count;
    if (!hop.before) hop.root = number;
    hop.next = u->hop_buckets[hash];
    u->hops[number - 1] = hop;
    u->hop_buckets[hash] = number;
    return number | open;
}

uint32_t ist_src_hop_join(ist_src_unit *u, uint32_t head, uint32_t tail) {
    uint32_t hops[IST_SRC_HOPS + 2], count = 0;
    if (!head || !tail) return 0;
    for (uint32_t k = tail & ~IST_SRC_HOP_OPEN; ist_src_hop_at(u, k)->before; k = ist_src_hop_at(u, k)->before)
        hops[count++] = k;
    while (head && count) {
        ist_src_hop hop = *ist_src_hop_at(u, hops[--count]);
        hop.before = head;
        head = ist_src_hop_add(u, hop);
    }
    return head;
}

void ist_src_add_chain(ist_src_unit *u, uint32_t hop) {
    if (!hop || u->chain_count >= IST_AUDIT_SOURCE_FINDINGS) return;
    if (!ist_grow((void **)&u->chains, &u->chain_cap, u->chain_count + 1, sizeof *u->chains))
        u->failed = true;
    else
        u->chains[u->chain_count++] = hop;
}
