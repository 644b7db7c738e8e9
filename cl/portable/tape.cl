/* What the words of a chain's tape mean, to portable/sequence and to nvidia/sequence: the numbers of src/ops/chain_piece.h, and what
 * both of its kernels go by. */
#define LOWEST (-3.0e38f)
#define BINS   33

/* enum micro. */
#define LOAD_ROWS     0
#define STORE_ROWS    1
#define LINEAR_PART   2
#define LINEAR_SUM    3
#define ELTWISE       4
#define NORM_SUM      5
#define MATRIX_NORM   NORM_SUM /* all of it */
#define NORM_SQUARE   6
#define NORM_OUT      7
#define KEYS_SCORE    8
#define MATRIX_MEET   KEYS_SCORE /* sums of two groups, each of half of the inputs */
#define KEYS_MOST     9
#define KEYS_EXP      10
#define KEYS_PART     11
#define KEYS_SUM      12
#define SAMPLE_AT     13
#define SAMPLE_SUM    14
#define BOX_SIGMOID   15
#define SIDES         16
#define MATRIX_SIDES  SIDES /* with the sum before and the boxes behind it */
#define SIDES_BOX     17
#define SIDES_BEST    18
#define MATRIX_LINEAR 19
/* On matrix instructions, with the number of the operator: the next step wants what other warps make; the tape is to be
 * read on; turns of a linear layer. */
#define GROUP_WAITS     256
#define READS_ON        512
#define LINEAR_TURNS(w) ((w) >> 10)

/* Of an element: its second operand. */
#define PRESENT    1
#define ONE_COLUMN 2
#define GATED      4
#define CLAMPED    8
#define IN_FOURS   16 /* columns and places are multiples of four */
#define ALSO       32 /* on matrix instructions: and the result with an addend, to another place */
/* Of a tensor outside: */
#define FLOATS     1 /* its elements are float although T is half */
#define ONE_ITEM   2
#define QUADS      4 /* may be read, on matrix instructions also written, by fours */
#define OCTS       8 /* by eights */
/* Of a linear layer on matrix instructions: */
#define WHOLE      1 /* its batches have no inputs beyond the last one */
#define EXACT      2 /* its inputs count as floats: once rounded to half, and once what was lost */
