/* A folder that one run at a time writes to.
 *
 * The claim is a lock on the folder itself: it needs no file and ends with the process, however that ends. What a
 * killed run left under temporary names (atomic_file.h) can then be told from what a living one is writing. */
#ifndef IST_IO_CLAIM_H
#define IST_IO_CLAIM_H

#include "base/status.h"

/* Claims `folder`; IST_E_STATE when another process has it. *claim is for ist_claim_end, -1 where the file system knows
 * no such locks: then nothing is claimed. A forked child shares the claim until it closes its files. */
ist_status ist_claim_folder(const char *folder, int *claim, ist_error *err);

/* Accepts -1. */
void ist_claim_end(int *claim);

/* Removes the temporary files of processes that are no more from `folder` and the folders inside, `depth` levels down
 * (0: from `folder` alone). Linked folders are not entered; a folder that is not there is no failure. */
void ist_remove_leftovers(const char *folder, int depth);

#endif
