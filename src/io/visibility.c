/* See visibility.h. */
#include "io/visibility.h"

const char *ist_visibility_name(ist_visibility state) {
    static const char *const names[] = {"LOST", "RELOCALIZING", "VISIBLE"};
    return names[state];
}

const ist_trust *ist_visibility_of(const ist_frame *frame, int object) {
    for (int i = 0; i < frame->trust_count; i++)
        if (frame->trust[i].object == object) return &frame->trust[i];
    return NULL;
}

void ist_visibility_put(ist_text *line, const ist_trust *t) {
    static const char *const names[] = {"S1", "S2", "S3", "S4", "C1", "C2", "C3"};
    const float scores[] = {t->sharpness, t->contrast,   t->continuity, t->stability,
                            t->geometry,  t->appearance, t->depth};
    ist_text_printf(line, ",\"state\":\"%s\",\"S\":", ist_visibility_name(t->state));
    ist_text_json_float(line, t->s);
    ist_text_put(line, ",\"C\":");
    ist_text_json_float(line, t->c);
    for (int i = 0; i < 7; i++) {
        ist_text_printf(line, "%s\"%s\":", i ? "," : ",\"scores\":{", names[i]);
        ist_text_json_float(line, scores[i]);
    }
    ist_text_put(line, "}");
}

void ist_visibility_put_unseen(ist_text *line, const ist_frame *frame) {
    int count = 0;
    for (int i = 0; i < frame->trust_count; i++) {
        const ist_trust *t = &frame->trust[i];
        if (t->object >= 0) continue;
        ist_text_printf(line, "%s{\"track\":%d,\"state\":\"%s\"}", count++ ? "," : ",\"unseen\":[", t->track,
                        ist_visibility_name(t->state));
    }
    if (count) ist_text_put(line, "]");
}
