/* States of tracks in words, and whose they are. */
#ifndef IST_IO_VISIBILITY_H
#define IST_IO_VISIBILITY_H

#include "io/text.h"

/* "LOST", "RELOCALIZING" or "VISIBLE". */
const char *ist_visibility_name(ist_visibility state);

/* What is known of an object of the frame; NULL when it was not judged. */
const ist_trust *ist_visibility_of(const ist_frame *frame, int object);

/* Appends ,"state":..,"S":..,"C":..,"scores":{"S1":.. "C3":..}. */
void ist_visibility_put(ist_text *line, const ist_trust *trust);

/* Appends ,"unseen":[{"track":..,"state":..}] with the tracks that have no object in the frame; nothing without any. */
void ist_visibility_put_unseen(ist_text *line, const ist_frame *frame);

#endif
