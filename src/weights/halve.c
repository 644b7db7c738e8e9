/* Rounding of filters to half so that their errors do not add up.
 *
 * Maps change little from pixel to pixel, and behind a ReLU all inputs are positive: a filter's errors meet inputs that
 * have much in common, and what counts is their sum more than their squares. To nearest it grows with the root of the
 * number of weights. Here each weight goes to the one of its two neighbours for which
 *     e^2 + ((d + e)^2 + (s + e)^2) / 4
 * is least, e its error, d the sum of the errors of the filter so far, s that of the input channel's taps so far: error
 * diffusion (Floyd, Steinberg 1976) that stays close to the nearest. Both sums stay within some units in the last
 * place, while the root of the mean square grows by 5 to 9 %. What is a half already stays.
 *
 * Where more is known of the inputs than that they have something in common, namely the mean of each, what the errors
 * make of it is a constant, and the bias takes it: the errors then meet only what inputs differ from their means by. */
#include "weights/fold.h"
#include "base/half.h"

#include <math.h>

enum { ROWS = 8 };

/* The largest half not above `magnitude` and, in *unit, the distance to the next; magnitude < 65504. */
static float half_below(float magnitude, float *unit) {
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    if (bits < 0x38800000) { /* below 2^-14: multiples of 2^-24 */
        *unit = 0x1p-24f;
        return (float)(int)(magnitude * 0x1p24f) * 0x1p-24f;
    }
    *unit = ist_bits_to_float((bits & 0x7f800000) - (10 << 23));
    return ist_bits_to_float(bits & ~0x1fffu);
}

/* One of x's two neighbours; d and s grow by its error. */
static float settle(float x, float *d, float *s) {
    float unit, magnitude = fabsf(x), sign = copysignf(1, x);
    if (!(magnitude < 65504)) return x; /* who stores it says what is wrong */
    float low = half_below(magnitude, &unit), error = low - magnitude;
    /* With e = error or error + unit the sum above differs by unit / 2 times this. Either is as likely: no branch. */
    float above = 3 * (2 * error + unit) + sign * (*d + *s);
    float more = (float)((error < 0) & (above < 0)) * unit;
    low += more;
    error = sign * (error + more);
    *d += error;
    *s += error;
    return sign * low;
}

/* `rows` filters of in * taps weights at a time: each waits for its sums, weight after weight. */
static void settle_rows(float *w, int rows, int in, int taps) {
    float d[ROWS] = {0}, s[ROWS];
    size_t row = (size_t)in * (size_t)taps;
    for (int i = 0; i < in; i++) {
        for (int o = 0; o < ROWS; o++) s[o] = 0;
        for (int t = 0; t < taps; t++, w++)
            for (int o = 0; o < rows; o++) w[(size_t)o * row] = settle(w[(size_t)o * row], &d[o], &s[o]);
    }
}

void ist_conv_weights_halve(ist_conv_weights *conv) {
    int taps = conv->kh * conv->kw;
    for (int o = 0; o < conv->out; o += ROWS)
        settle_rows(conv->w + (size_t)o * (size_t)conv->in * (size_t)taps, conv->out - o < ROWS ? conv->out - o : ROWS,
                    conv->in, taps);
}

/* Of output o without the bias, for inputs that are their means everywhere. */
static double mean_of(const ist_conv_weights *conv, int o, const float *mean) {
    int taps = conv->kh * conv->kw;
    const float *w = conv->w + (size_t)o * (size_t)conv->in * (size_t)taps;
    double sum = 0;
    for (int i = 0; i < conv->in; i++, w += taps) {
        double filter = 0;
        for (int t = 0; t < taps; t++) filter += w[t];
        sum += filter * mean[conv->in == 1 ? o : i];
    }
    return sum;
}

void ist_conv_weights_halve_about(ist_conv_weights *conv, const float *mean, float *result) {
    for (int o = 0; o < conv->out; o++) result[o] = (float)(mean_of(conv, o, mean) + conv->b[o]);
    ist_conv_weights_halve(conv);
    for (int o = 0; o < conv->out; o++) {
        float b = (float)(result[o] - mean_of(conv, o, mean));
        if (isfinite(b)) conv->b[o] = b;
    }
}
