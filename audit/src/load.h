/* Reads what the layer recorded. */
#ifndef IST_AUDIT_LOAD_H
#define IST_AUDIT_LOAD_H

#include "audit/audit.h"

/* Adds one recorded process to the log. Stops without an error at the first record that is not whole: the process may
 * have died there. IST_E_INPUT when `bytes` is no recording. Events of several processes are to be sorted afterwards.
 */
ist_status ist_audit_load(ist_audit_log *log, const void *bytes, size_t count, ist_error *err);

/* Sorts by time, numbers threads from 0 in order of appearance, and lets the log begin at 0 ms. */
void ist_audit_sort(ist_audit_log *log);

/* Of a sorted log. A copy between the device's memory and a buffer in the host's comes with its direction and that
 * buffer as `host`. Where the program also maps, reads or writes the buffer by a call, as OpenCL demands, that call is
 * the crossing and the copy loses its direction; `host` goes from all. */
void ist_audit_settle_copies(ist_audit_log *log);

#endif
