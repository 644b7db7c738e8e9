/* A device that repeats what another computed: below the failures of faulty.c, in place of the OpenCL driver. A run
 * over it costs what the program's own code costs, so that thousands of failures can be walked.
 *
 * FAULT_DEVICE=record:PATH  the driver is asked; what it said is in PATH when the program ends
 * FAULT_DEVICE=repeat:PATH  no driver: a question has the answer that it had, and a read of a buffer gives what it gave
 *                           after the same commands with the same bytes. What was never asked ends the process with
 *                           DEVICE_UNKNOWN and a line on stderr: that run is for the driver itself.
 * FAULT_DEVICE=             the driver, as it is */
#ifndef TESTS_REPEATED_DEVICE_H
#define TESTS_REPEATED_DEVICE_H

enum { DEVICE_UNKNOWN = 99 /* an exit code */ };

#endif
