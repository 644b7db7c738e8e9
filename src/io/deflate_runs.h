/* Deflate (RFC 1951) with literals, runs of one byte and Huffman codes made for each block, without a search for other
 * repetitions: what a filtered photograph has to offer, at about a nanosecond a byte.
 *
 * A stream is written block by block, so that neither its input nor its output has to be in memory as a whole. */
#ifndef IST_IO_DEFLATE_RUNS_H
#define IST_IO_DEFLATE_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Input bytes of a block at most, and room that a block and the stream's head and end need at most. */
enum { IST_RUNS_BLOCK = 1 << 17, IST_RUNS_ROOM = 2 * IST_RUNS_BLOCK + 1024 };

typedef struct ist_runs ist_runs;

/* NULL when out of memory. */
ist_runs *ist_runs_open(void);

/* Encodes the next `count` <= IST_RUNS_BLOCK bytes of a zlib stream as one block, the `last` one with the stream's end,
 * to `to` (IST_RUNS_ROOM bytes). Returns the bytes written; bits of an unfinished byte follow with the next block.
 * After the last block a new stream begins. */
size_t ist_runs_put(ist_runs *runs, const uint8_t *bytes, size_t count, bool last, uint8_t *to);

void ist_runs_close(ist_runs **runs);

#endif
