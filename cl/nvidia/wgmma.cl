/* Matrix instructions of a warpgroup (four warps, 128 work-items) on NVIDIA GPUs of compute capability 9.0: products of
 * matrices in local memory, started by one instruction and awaited later. Goes with nvidia/ptx.
 *
 * The OpenCL compiler of that vendor writes PTX for sm_90, these instructions are sm_90a's: they stand behind IST_SM_90A in
 * comments, one line each, and src/device/ptx.c turns a program that has such lines into one of sm_90a.
 *
 * A matrix lies in local memory in rows of 64 halves along the sum, 128 bytes, whose 16-byte parts are exchanged within the
 * row: part p of row r at p ^ (r & 7), the tile on a multiple of 1024 bytes (PTX ISA, "128-byte swizzle"). MATRIX_AT makes
 * the instruction's descriptor of such a tile from its address; halves 16 s on lie 2 s higher. What is exchanged follows from
 * the address alone, so that a matrix may begin with any row of a tile, 8 higher for each, and its rows may go on elsewhere
 * after every eight: MATRIX_AT_PITCH. Sums are those of mma.sync,
 * row by row of warps: warp w of the group has rows 16 w + g and 8 more, of column block j columns 8 j + 2 t + {0, 1}
 * (g = lane / 4, t = lane % 4).
 *
 * A may be in registers instead, four words of each work-item as MATRIX_MULTIPLY takes them; B may then be turned: rows of
 * 64 columns of the result, so that 16 rows of the sum lie 2048 bytes behind 16 others. What registers hold must stand
 * before GROUP_BEGIN and is there behind GROUP_WAIT: GROUP_HOLD, on either side, keeps compilers from moving it. */
#define IST_SM_90A "//@sm_90a "

#ifdef IST_PTX
typedef ulong matrix_at;
/* Each 8 rows lie `pitch` units of 16 bytes behind those before them. Layout 1: 128-byte swizzle. */
#define MATRIX_AT_PITCH(address, pitch) (((ulong)(address) >> 4 & 0x3fff) | 1ul << 16 | (ulong)(pitch) << 32 | 1ul << 62)
#define MATRIX_AT(address)              MATRIX_AT_PITCH(address, 64)

/* Before the first product of a batch: registers and local memory as they are now. */
#define GROUP_BEGIN()  __asm__ volatile(IST_SM_90A "wgmma.fence.sync.aligned;" ::: "memory")
#define GROUP_COMMIT() __asm__ volatile(IST_SM_90A "wgmma.commit_group.sync.aligned;" ::: "memory")
/* Until at most the `n` (a literal) latest batches are under way. */
#define GROUP_WAIT_(n) __asm__ volatile(IST_SM_90A "wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define GROUP_WAIT(n)  GROUP_WAIT_(n)
/* What this work-item wrote to local memory is there for the products of who passes the next barrier. */
#define GROUP_PUBLISH() __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory")
/* A barrier of the warpgroup with this number in its work-group; all warpgroups must have as many. */
#define GROUP_BARRIER(number) __asm__ volatile("bar.sync %0, 128;" ::"r"((number) + 1) : "memory")
/* The work-items of a warp see what they wrote to local memory. */
#define WARP_MEETS() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
/* How often a warpgroup passes its own barriers: `own`; `all` where they are those of the work-group. */
#define GROUP_TURNS(own, all) (own)

/* c[j][0..4) += A B: 64 rows of A, N rows of B (columns of the result, eight in each j), 16 halves of each. */
#define GROUP_SUMS(c, j) "+f"((c)[j][0]), "+f"((c)[j][1]), "+f"((c)[j][2]), "+f"((c)[j][3])
#define GROUP_MULTIPLY_(n, c, a, b) GROUP_MULTIPLY_##n(c, a, b)
#define GROUP_MULTIPLY(n, c, a, b)  GROUP_MULTIPLY_(n, c, a, b)
#define GROUP_MULTIPLY_8(c, a, b)                                                                                      \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {"                                  \
                     "%0, %1, %2, %3}, "                                                                               \
                     "%4, %5, 1, 1, 1, 0, 0;"                                                                          \
                     : GROUP_SUMS(c, 0)                                                                                \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_16(c, a, b)                                                                                     \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7}, "                                                               \
                     "%8, %9, 1, 1, 1, 0, 0;"                                                                          \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1)                                                              \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_24(c, a, b)                                                                                     \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, "                                             \
                     "%12, %13, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2)                                            \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_32(c, a, b)                                                                                     \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                         \
                     "%16, %17, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3)                          \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_48(c, a, b)                                                                                     \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23}, "                                                       \
                     "%24, %25, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5)                                                              \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_64(c, a, b)                                                                                     \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "               \
                     "%32, %33, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7)                          \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_96(c, a, b)                                                                                     \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "               \
                     "%48, %49, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11)                        \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_128(c, a, b)                                                                                    \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"                                \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "               \
                     "%64, %65, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11),                       \
                       GROUP_SUMS(c, 12), GROUP_SUMS(c, 13), GROUP_SUMS(c, 14), GROUP_SUMS(c, 15)                      \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_192(c, a, b)                                                                                    \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"                                \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                \
                     "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                \
                     "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "               \
                     "%96, %97, 1, 1, 1, 0, 0;"                                                                        \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11),                       \
                       GROUP_SUMS(c, 12), GROUP_SUMS(c, 13), GROUP_SUMS(c, 14), GROUP_SUMS(c, 15),                     \
                       GROUP_SUMS(c, 16), GROUP_SUMS(c, 17), GROUP_SUMS(c, 18), GROUP_SUMS(c, 19),                     \
                       GROUP_SUMS(c, 20), GROUP_SUMS(c, 21), GROUP_SUMS(c, 22), GROUP_SUMS(c, 23)                      \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")
#define GROUP_MULTIPLY_256(c, a, b)                                                                                    \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"                                \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                \
                     "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                \
                     "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                \
                     "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "    \
                     "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "\
                     "%128, %129, 1, 1, 1, 0, 0;"                                                                      \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11),                       \
                       GROUP_SUMS(c, 12), GROUP_SUMS(c, 13), GROUP_SUMS(c, 14), GROUP_SUMS(c, 15),                     \
                       GROUP_SUMS(c, 16), GROUP_SUMS(c, 17), GROUP_SUMS(c, 18), GROUP_SUMS(c, 19),                     \
                       GROUP_SUMS(c, 20), GROUP_SUMS(c, 21), GROUP_SUMS(c, 22), GROUP_SUMS(c, 23),                     \
                       GROUP_SUMS(c, 24), GROUP_SUMS(c, 25), GROUP_SUMS(c, 26), GROUP_SUMS(c, 27),                     \
                       GROUP_SUMS(c, 28), GROUP_SUMS(c, 29), GROUP_SUMS(c, 30), GROUP_SUMS(c, 31)                      \
                     : "l"(a), "l"(b)                                                                                  \
                     : "memory")

/* The same with the 64 rows of A in registers, 16 of each warp: a[0..4) as those of mma.sync (nvidia/ptx). They stay as
 * they are until the batch has ended. */
#define GROUP_MULTIPLY_A_(n, c, a, b) GROUP_MULTIPLY_A_##n(c, a, b)
#define GROUP_MULTIPLY_A(n, c, a, b)  GROUP_MULTIPLY_A_(n, c, a, b)
#define GROUP_MULTIPLY_A_32(c, a, b)                                                                                   \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                         \
                     "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"                                                          \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3)                          \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b)                                      \
                     : "memory")
#define GROUP_MULTIPLY_A_64(c, a, b) GROUP_MULTIPLY_64_(c, a, b, "0")
/* With 16 rows of the sum in B by 64 columns, or the first 32 of 64: a tile of which the sum runs along the columns. */
#define GROUP_MULTIPLY_TURNED_(n, c, a, b) GROUP_MULTIPLY_TURNED_##n(c, a, b)
#define GROUP_MULTIPLY_TURNED(n, c, a, b)  GROUP_MULTIPLY_TURNED_(n, c, a, b)
#define GROUP_MULTIPLY_TURNED_64(c, a, b)  GROUP_MULTIPLY_64_(c, a, b, "1")
#define GROUP_MULTIPLY_TURNED_32(c, a, b)                                                                              \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                         \
                     "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;"                                                          \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3)                          \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b)                                      \
                     : "memory")
#define GROUP_MULTIPLY_64_(c, a, b, turned)                                                                            \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "               \
                     "{%32, %33, %34, %35}, %36, 1, 1, 1, " turned ";"                                                 \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7)                          \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b)                                      \
                     : "memory")
#define GROUP_MULTIPLY_A_96(c, a, b)                                                                                   \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {"                                 \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "               \
                     "{%48, %49, %50, %51}, %52, 1, 1, 1, 0;"                                                          \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11)                        \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b)                                      \
                     : "memory")
#define GROUP_MULTIPLY_A_128(c, a, b)                                                                                  \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"                                \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "               \
                     "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"                                                          \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11),                       \
                       GROUP_SUMS(c, 12), GROUP_SUMS(c, 13), GROUP_SUMS(c, 14), GROUP_SUMS(c, 15)                      \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b)                                      \
                     : "memory")
#define GROUP_MULTIPLY_A_160(c, a, b)                                                                                  \
    __asm__ volatile(IST_SM_90A "wgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {"                                \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                \
                     "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "               \
                     "{%80, %81, %82, %83}, %84, 1, 1, 1, 0;"                                                          \
                     : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3),                         \
                       GROUP_SUMS(c, 4), GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7),                         \
                       GROUP_SUMS(c, 8), GROUP_SUMS(c, 9), GROUP_SUMS(c, 10), GROUP_SUMS(c, 11),                       \
                       GROUP_SUMS(c, 12), GROUP_SUMS(c, 13), GROUP_SUMS(c, 14), GROUP_SUMS(c, 15),                     \
                       GROUP_SUMS(c, 16), GROUP_SUMS(c, 17), GROUP_SUMS(c, 18), GROUP_SUMS(c, 19)                      \
                     : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b)                                      \
                     : "memory")
/* After GROUP_WAIT: sums c[j] are there, no use of them moves in front of this. */
#define GROUP_TAKE(c, j) __asm__ volatile("" : GROUP_SUMS(c, j)::"memory")
/* The same for all sums of 64 columns. */
#define GROUP_HOLD(c)                                                                                                  \
    __asm__ volatile("" : GROUP_SUMS(c, 0), GROUP_SUMS(c, 1), GROUP_SUMS(c, 2), GROUP_SUMS(c, 3), GROUP_SUMS(c, 4),    \
                          GROUP_SUMS(c, 5), GROUP_SUMS(c, 6), GROUP_SUMS(c, 7)::"memory")
#define GROUP_HOLD_WORDS(a)                                                                                            \
    __asm__ volatile("" : "+r"((a)[0]), "+r"((a)[1]), "+r"((a)[2]), "+r"((a)[3])::"memory")
/* Four 8 x 8 matrices of halves to local memory, as MATRIX_LOAD takes them from there. */
#define MATRIX_STORE(address, r)                                                                                       \
    __asm__ volatile(IST_SM_90A "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),     \
                     "r"((r)[0]), "r"((r)[1]), "r"((r)[2]), "r"((r)[3])                                                \
                     : "memory")

#else
/* The same in plain OpenCL, for tests: a tile is its address, and each work-item makes its own sums at once. */
typedef uint matrix_at;
#define MATRIX_AT_PITCH(address, pitch) ((address) / 16 | (uint)(pitch) << 16)
#define MATRIX_AT(address)              MATRIX_AT_PITCH(address, 64)
#define GROUP_BEGIN()
#define GROUP_COMMIT()
#define GROUP_WAIT(n)
#define GROUP_PUBLISH()
#define GROUP_BARRIER(number) barrier(CLK_LOCAL_MEM_FENCE)
#define WARP_MEETS()          barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP_TURNS(own, all) (all)

/* Halves 2 `pair` and the next of a row of the matrix at `at` (its start may be inside a row). */
static inline float2 group_pair(__local const uint4 *memory, uint at, int row, int pair) {
    const uint from = (at & 0xffff) + row / 8 * (at >> 16) + row % 8 * 8 + pair / 4;
    return floats_of(((__local const uint *)memory)[(from ^ (from >> 3 & 7)) * 4 + pair % 4]);
}
/* `mine` is local memory at the work-item's own number `me`: PoCL 3.1 would take an address that is the same for all for
 * that of another group's. */
NOINLINE float group_product(__local const uint4 *mine, int me, uint a, uint b, int row, int column) {
    float sum = 0.0f;
    for (int k = 0; k < 8; k++) {
        const float2 x = group_pair(mine - me, a, row, k), y = group_pair(mine - me, b, column, k);
        sum += x.x * y.x + x.y * y.y;
    }
    return sum;
}
#define GROUP_MULTIPLY(n, c, a, b)                                                                                     \
    do {                                                                                                               \
        const int me = get_local_id(0), row = me / 32 % 4 * 16 + me % 32 / 4, column = me % 4 * 2;                     \
        for (int j = 0; j < (n) / 8; j++)                                                                              \
            for (int e = 0; e < 4; e++)                                                                                \
                (c)[j][e] += group_product(memory + me, me, a, b, row + e / 2 * 8, j * 8 + column + e % 2);            \
    } while (0)

/* Halves of a word of scratch, [work-item][6]: of A, which a warp's work-items hold from `lane` 0 on. */
NOINLINE float group_own_product(__local const uint4 *mine, __local const uint *a, int me, uint b, int turned, int row,
                                 int column) {
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) {
        const float x = half_at(a[(row % 8 * 4 + k % 8 / 2) * 6 + row / 8 + k / 8 * 2], k % 2);
        float y;
        if (turned) {
            const uint from = (b & 0xffff) + (uint)k * 8 + column / 8;
            y = half_at(((__local const uint *)(mine - me))[(from ^ (from >> 3 & 7)) * 4 + column % 8 / 2], column % 2);
        } else {
            const float2 pair = group_pair(mine - me, b, column, k / 2);
            y = k % 2 ? pair.y : pair.x;
        }
        sum += x * y;
    }
    return sum;
}
/* Beside `memory`, MATRIX_SCRATCH. */
#define GROUP_MULTIPLY_A_(n, c, a, b, turned)                                                                          \
    do {                                                                                                               \
        const int me = get_local_id(0), one = me % 32;                                                                 \
        const matrix_at tile = (b);                                                                                    \
        for (int m = 0; m < 4; m++) scratch[me][m] = (a)[m];                                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = 0; m < (n) / 2; m++)                                                                              \
            (c)[m / 4][m % 4] += group_own_product(memory + me, scratch[me - one], me, tile, turned,                   \
                                                   one / 4 + m % 4 / 2 * 8, m / 4 * 8 + one % 4 * 2 + m % 2);          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define GROUP_MULTIPLY_A(n, c, a, b)      GROUP_MULTIPLY_A_(n, c, a, b, 0)
#define GROUP_MULTIPLY_TURNED(n, c, a, b) GROUP_MULTIPLY_A_(n, c, a, b, 1)
#define GROUP_TAKE(c, j)
#define GROUP_HOLD(c)
#define GROUP_HOLD_WORDS(a)
#define MATRIX_STORE(address, r)                                                                                       \
    do {                                                                                                               \
        const int me = get_local_id(0), one = me % 32;                                                                 \
        scratch[me][0] = (address);                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int m = 0; m < 4; m++)                                                                                    \
            ((__local uint *)memory)[scratch[me - one + m * 8 + one / 4][0] / 4 + one % 4] = (r)[m];                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#endif

/* A step of 64 inputs: sums acc[each][n / 8][4] of `each` blocks of 64 rows, the first of which begins `a_from` behind a,
 * each other `block` further on; the n columns begin `b_from` behind b. All in units of 16 bytes. */
#define GROUP_STEP(n, each, acc, a, a_from, block, b, b_from)                                                          \
    do {                                                                                                               \
        GROUP_BEGIN();                                                                                                 \
        UNROLL for (int s = 0; s < 4; s++)                                                                             \
            UNROLL for (int i = 0; i < (each); i++)                                                                    \
                GROUP_MULTIPLY(n, (acc)[i], (a) + (uint)((a_from) + i * (block) + 2 * s),                              \
                               (b) + (uint)((b_from) + 2 * s));                                                        \
        GROUP_COMMIT();                                                                                                \
    } while (0)
