/* From the pickle of a torch.save file to tensors in the store, whatever container holds the storages.
 *
 * Only storages that the chosen state dict refers to are asked for. What they and the tensors made contiguous may take
 * is bounded by the size of the file, so that a small file cannot fill the memory. */
#ifndef IST_WEIGHTS_TORCH_STATE_H
#define IST_WEIGHTS_TORCH_STATE_H

#include "weights/pickle.h"
#include "weights/store.h"

/* Largest pickle. Real files have 0.1 to 2 MB. A value takes about 50 times its shortest opcode. */
#define IST_TORCH_PICKLE_MAX ((size_t)8 << 20)

typedef struct ist_torch_item ist_torch_item;

/* A reader fills pickle, out, storage, user and err, and sets the budget. */
typedef struct ist_torch_state {
    ist_pickle pickle;
    ist_weights *out;
    /* Leaves in *bytes the `size` bytes of the storage with this key (printable, of the file): in a block of the store.
     * Fails unless the file has exactly so many. */
    ist_status (*storage)(void *user, const ist_pickle_value *storage, const char *key, size_t size,
                          const uint8_t **bytes);
    void *user;
    size_t budget; /* bytes that may still be allocated */
    ist_torch_item *items;
    size_t count, capacity;
    ist_error *err;
} ist_torch_state;

/* The budget for a file of `size` bytes. */
size_t ist_torch_budget(size_t size);
/* Takes `bytes` off it; `name` is what they are for. */
ist_status ist_torch_spend(ist_torch_state *state, size_t bytes, const char *name);

/* Adds the tensors of the state dict in the interpreted pickle, and the class names beside it. */
ist_status ist_torch_add(ist_torch_state *state);
/* Frees pickle and items. */
void ist_torch_free(ist_torch_state *state);

#endif
