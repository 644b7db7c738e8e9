/* What rows on CPUs keep relative to an image's last token (variants/absorbed.h). */
#ifndef IST_TESTS_RELATIVE_TOKENS_H
#define IST_TESTS_RELATIVE_TOKENS_H

#include "support/optest.h"

/* Columns, or else panels, of m less those of the last of `tokens` tokens, `heads` of each, which become zero: as
 * ist_head_fold's flag leaves them. */
static inline ref_map relative_to_last(optest *t, ref_map m, bool columns, int tokens, int heads) {
    ref_map y = optest_zeros(t, m.n, m.h, m.w, m.c);
    int last = (tokens - 1) * heads;
    for (int n = 0; n < m.n; n++)
        for (int h = 0; h < m.h; h++)
            for (int w = 0; w < m.w; w++)
                for (int c = 0; c < m.c; c++) {
                    int at = columns ? c : w;
                    const float *from = columns ? ref_at(m, n, h, w) + last + c % heads
                                                : ref_at(m, n, h, last + w % heads) + c;
                    float v = ref_at(m, n, h, w)[c];
                    if (at < last)
                        v -= *from;
                    else if (columns)
                        v = w < m.w - 1 ? 0 : -3.0e38f;
                    ref_at(y, n, h, w)[c] = v;
                }
    return y;
}

#endif
