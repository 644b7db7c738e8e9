/* What `isthmus audit` asks of an engine beyond isthmus.h: its transfer ledger. Not part of the public API. */
#ifndef IST_PIPELINE_CROSSINGS_H
#define IST_PIPELINE_CROSSINGS_H

#include "device/device.h"

/* ist_ledger_since of the engine's device; frames are numbered from 1 in the order of submission, one per batch. Any
 * thread. */
int ist_engine_crossings(ist_engine *engine, uint64_t *cursor, uint64_t *missed, ist_ledger_entry *entries,
                         int capacity);

#endif
