/* See jpeg_survey.h. */
#include "io/jpeg_survey.h"

enum { SOF0 = 0xC0, DHT = 0xC4, JPG = 0xC8, DAC = 0xCC, SOF15 = 0xCF, RST0 = 0xD0, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA };

/* Those without a length; 0 is a stuffed byte of coded data. */
static bool is_bare(int marker) {
    return marker <= 1 || (marker >= RST0 && marker <= SOI);
}

static bool begins_frame(int marker) {
    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

ist_jpeg_survey ist_jpeg_survey_of(const unsigned char *bytes, size_t count) {
    ist_jpeg_survey s = {0};
    for (size_t at = 0; at + 1 < count;) {
        int marker = bytes[at] == 0xFF ? bytes[at + 1] : -1;
        if (marker < 0 || marker == 0xFF) { /* coded data, or what fills */
            at++;
            continue;
        }
        at += 2;
        if (is_bare(marker)) continue;
        s.ended = marker == EOI;
        if (s.ended || count - at < 2) return s;
        size_t length = (size_t)bytes[at] << 8 | bytes[at + 1];
        s.scans += marker == SOS;
        if (begins_frame(marker) && !s.width && length >= 8 && count - at >= 8) {
            const unsigned char *p = bytes + at + 3; /* behind the length and the precision */
            s.height = (size_t)p[0] << 8 | p[1];
            s.width = (size_t)p[2] << 8 | p[3];
            s.samples = p[4];
        }
        if (length < 2 || length > count - at) return s;
        at += length;
    }
    return s;
}
