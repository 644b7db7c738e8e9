/* The engine's ledger for the audit. */
#include "pipeline/crossings.h"

#include "pipeline/engine.h"

int ist_engine_crossings(ist_engine *engine, uint64_t *cursor, uint64_t *missed, ist_ledger_entry *entries,
                         int capacity) {
    return ist_ledger_since(engine->device, cursor, missed, entries, capacity);
}
