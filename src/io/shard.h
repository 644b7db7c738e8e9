/* One of several runs that share out the images of one list: which of them are its own, and shard.json, by which their
 * folders become what one run would have written (isthmus merge).
 *
 * Every run lists all images, so that stems and ids are those of one run, and keeps its own. Whose an image is depends
 * on its name alone: it stays with its shard when others are added. */
#ifndef IST_IO_SHARD_H
#define IST_IO_SHARD_H

#include "io/sources.h"

#define IST_SHARD_NAME "shard.json"

enum { IST_SHARD_MOST = 1000000 };

typedef struct ist_shard {
    int index, count; /* index from 1; count 0: no shard, all images */
} ist_shard;

/* What shard.json says. */
typedef struct ist_shard_part {
    ist_shard shard;
    size_t total;        /* images of the whole list */
    uint64_t list;       /* hash of their paths and names, in order */
    size_t *positions;   /* of its own in the whole list, rising */
    bool is_coco;        /* as in ist_labels, .. */
    int64_t *categories; /* .. and so are these, of category_count labels; NULL: none */
    int category_count;
    char save[64]; /* as behind --save */
} ist_shard_part;

/* Keeps the shard's images of a finished list; with `sequences` those of one folder stay together. */
ist_status ist_shard_take(ist_shard shard, bool sequences, ist_sources *sources, ist_shard_part *part, ist_error *err);

/* Writes shard.json for the images that were kept. `lazy` as in ist_atomic_file. */
ist_status ist_shard_write(const char *folder, const ist_shard_part *part, const ist_sources *sources, bool lazy,
                           ist_error *err);

/* Reads it; IST_E_STATE when there is none, IST_E_INPUT when it is damaged. `part` and `sources` (empty before) are the
 * caller's to free. Of the images path, name, stem and id are set. */
ist_status ist_shard_read(const char *folder, ist_shard_part *part, ist_sources *sources, ist_error *err);

void ist_shard_part_free(ist_shard_part *part);

#endif
