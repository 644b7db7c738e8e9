/* Matrix instructions of a warpgroup (four warps, 128 work-items) on NVIDIA GPUs of compute capability 9.0: products of
 * matrices in local memory, started by one instruction and awaited later. Goes with isa/ptx.
 *
 * The OpenCL compiler of that vendor writes PTX for sm_90, these instructions are sm_90a's: they stand behind IST_SM_90A in
 * comments, one line each, and src/device/ptx.c turns a program that has such lines into one of sm_90a.
 *
 * A matrix lies in local memory in rows of 64 halves along the sum, 128 bytes, whose 16-byte parts are exchanged within the
 * row: part p of row r at p ^ (r & 7), the tile on a multiple of 1024 bytes (PTX ISA, "128-byte swizzle"). MATRIX_AT makes
 * the instruction's descriptor of such a tile from its address; halves 16 s on lie 2 s higher. Sums are those of mma.sync,
 * row by row of warps: warp w of the group has rows 16 w + g and 8 more, of column block j columns 8 j + 2 t + {0, 1}
 * (g = lane / 4, t = lane % 4). */
#define IST_SM_90A "//@sm_90a "

#ifdef IST_PTX
typedef ulong matrix_at;
/* 8 rows are 1024 bytes further (64 in units of 16), layout 1: 128-byte swizzle. */
#define MATRIX_AT(address) (((ulong)(address) >> 4 & 0x3fff) | 1ul << 16 | 64ul << 32 | 1ul << 62)

/* Before the first product of a batch: registers and local memory as they are now. */
#define GROUP_BEGIN()  __asm__ volatile(IST_SM_90A "wgmma.fence.sync.aligned;" ::: "memory")
#define GROUP_COMMIT() __asm__ volatile(IST_SM_90A "wgmma.commit_group.sync.aligned;" ::: "memory")
/* Until at most the `n` (a literal) latest batches are under way. */
#define GROUP_WAIT_(n) __asm__ volatile(IST_SM_90A "wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define GROUP_WAIT(n)  GROUP_WAIT_(n)
/* What this work-item wrote to local memory is there for the products of who passes the next barrier. */
#define GROUP_PUBLISH() __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory")

/* c[0..4) += A B: 64 rows of A, 8 rows of B (columns of the result), 16 halves of each. */
#define GROUP_MULTIPLY_8(c, a, b)                                                                                      \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "                                   \
                                "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"                                             \
                     : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                          \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#endif
