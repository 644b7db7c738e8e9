#!/bin/sh
# variants_page.sh PROGRAM PAGE MISSING: the page is what the program prints. MISSING: machines that are not built.
if [ -n "$3" ]; then
    echo "skipped: the page is of all machines, and these are not built: $3"
    exit 77
fi
printed=$("$1") || exit 1
if [ "$printed" != "$(cat "$2")" ]; then
    echo "$2 is not what the table says; rewrite it: ninja variants_page && $1 > $2"
    exit 1
fi
