/* The file in which the layer records a program, written by audit/layer and read by load.c on the same machine.
 *
 * One page of header, then records, each a multiple of eight bytes. The file is mapped memory of the recorded program,
 * so what was recorded survives its death; a record's type is stored last, and type 0 ends the file. */
#ifndef IST_AUDIT_WIRE_H
#define IST_AUDIT_WIRE_H

#include <stdint.h>

#define IST_AUDIT_WIRE_MAGIC UINT64_C(0x3230445541545349) /* "ISTAUD02" */
#define IST_AUDIT_WIRE_DIR   "ISTHMUS_AUDIT_DIR"          /* environment: folder of the files, PID.audit */

enum { IST_AUDIT_WIRE_HEADER = 4096, IST_AUDIT_WIRE_LIMIT = 128 << 20 }; /* bytes; about a million calls */

typedef struct ist_audit_wire_header {
    uint64_t magic;
    uint64_t pid;
    uint64_t start_ns; /* monotonic clock */
    uint64_t dropped;  /* calls after the file was full */
} ist_audit_wire_header;

enum { IST_AUDIT_WIRE_END, IST_AUDIT_WIRE_EVENT, IST_AUDIT_WIRE_SITE, IST_AUDIT_WIRE_LABEL };

typedef struct ist_audit_wire_record {
    uint32_t type, size; /* bytes with this head */
} ist_audit_wire_record;

/* Sites and labels are numbered from 0 in the order of their records. A wait's `offset`: where in the file the record of
 * the download is that it was for; 0: not for one. */
typedef struct ist_audit_wire_event {
    ist_audit_wire_record head;
    uint16_t op, flags;
    uint32_t thread, entry, site, label, shape;
    uint64_t repeat, queue, object, offset, bytes, host, hash, start_ns, wait_ns, move_ns;
} ist_audit_wire_event;

typedef struct ist_audit_wire_site {
    ist_audit_wire_record head;
    uint64_t address, offset;
    uint32_t outer, unused; /* the place that called the function of this one; UINT32_MAX: not known */
    char module[]; /* ends with a zero byte; empty: not in a file */
} ist_audit_wire_site;

typedef struct ist_audit_wire_label {
    ist_audit_wire_record head;
    char text[]; /* ends with a zero byte */
} ist_audit_wire_label;

#endif
