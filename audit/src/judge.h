/* The rules that turn events into findings. Private to audit/src.
 *
 * A rule claims events for a category; what an earlier rule has claimed stays with it. Rules over a frame get the
 * frame's events in the order of the log; frame 0 is everything outside of frames. */
#ifndef IST_AUDIT_JUDGE_H
#define IST_AUDIT_JUDGE_H

#include "audit/audit.h"

enum { IST_AUDIT_UNCLAIMED = 0xFF };

typedef struct ist_audit_claim {
    uint8_t category, severity;
    uint32_t partner; /* on the upload of a chain or round trip: its download's event; else IST_AUDIT_NONE */
} ist_audit_claim;

/* Events of one frame: indices into the log, ascending. */
typedef struct ist_audit_slice {
    const uint32_t *items;
    size_t count;
    uint32_t frame;
} ist_audit_slice;

typedef struct ist_audit_judge_state {
    const ist_audit_log *log;
    ist_audit_frames frames;
    ist_audit_claim *claims; /* [event] */
    uint32_t *site_counts;   /* [site + 1], zero between uses; the last is for unknown places */
} ist_audit_judge_state;

static inline bool ist_audit_is_free(const ist_audit_judge_state *j, size_t event) {
    return j->claims[event].category == IST_AUDIT_UNCLAIMED;
}
static inline void ist_audit_claim_event(ist_audit_judge_state *j, size_t event, ist_audit_category category,
                                         ist_audit_severity severity) {
    j->claims[event] = (ist_audit_claim){(uint8_t)category, (uint8_t)severity, IST_AUDIT_NONE};
}
static inline uint32_t *ist_audit_site_counter(ist_audit_judge_state *j, const ist_audit_event *e) {
    return &j->site_counts[e->site < j->log->site_count ? e->site : j->log->site_count];
}

/* Over the whole log, before the frames. */
ist_status ist_audit_rule_chains(ist_audit_judge_state *judge, ist_error *err);
ist_status ist_audit_rule_uploads(ist_audit_judge_state *judge, ist_error *err);
void ist_audit_rule_unfinished_work(ist_audit_judge_state *judge);
void ist_audit_rule_single_events(ist_audit_judge_state *judge);

/* Per frame, the first two before ist_audit_rule_uploads. */
void ist_audit_rule_scalars(ist_audit_judge_state *judge, ist_audit_slice slice);
void ist_audit_rule_round_trips(ist_audit_judge_state *judge, ist_audit_slice slice);
void ist_audit_rule_wait_loops(ist_audit_judge_state *judge, ist_audit_slice slice);
void ist_audit_rule_mid_frame(ist_audit_judge_state *judge, ist_audit_slice slice);
void ist_audit_rule_flushes(ist_audit_judge_state *judge, ist_audit_slice slice);

#endif
