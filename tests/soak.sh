#!/bin/sh
# Whether a long run stays as small as it was: sh tests/soak.sh MINUTES [predict options]
#
# One `isthmus predict` reads images of all sizes and formats in the tree, and some that are damaged or not there, in a
# shuffled list that is longer than the time; every few seconds its resident memory and open descriptors are written down.
# After the first quarter of the time, in which buffers grow to the largest image, neither may grow: the most memory of the
# last quarter may be 1 % and 4 MB above the most of the second, and descriptors not at all. Prints one line; exit code 1
# when something grew or the program failed.
#
# Environment: PROGRAM (default build/gcc/isthmus), EVERY (seconds between samples, default 2), OUT (folder for results
# and samples, default build/soak).
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=$(awk -v m="${1:-}" 'BEGIN { if (m !~ /^[0-9]+(\.[0-9]+)?$/ || m < 0.2) exit 1; printf "%d", m * 60 }') ||
    { echo "usage: sh tests/soak.sh MINUTES [predict options]; at least 0.2" >&2; exit 2; }
shift
program=${PROGRAM:-build/gcc/isthmus}
every=${EVERY:-2}
out=${OUT:-build/soak}
[ -x "$program" ] || { echo "no program $program" >&2; exit 2; }
rm -rf "$out"
mkdir -p "$out" || exit 1

head -c 900 weights/training.png >"$out/cut.png"
find weights apps/frames perf/results tests/fuzz/corpus/png -name '*.png' -o -name '*.jpg' >"$out/kinds"
printf '%s\n' "$out/cut.png" "$out/missing.png" >>"$out/kinds"
# the same shuffle each time; a hundred images a second are more than any device here does with masks
awk -v count="$((seconds * 100))" '
    { name[NR - 1] = $0 }
    END { x = 1; for (i = 0; i < count; i++) { x = (x * 16807) % 2147483647; print name[x % NR] } }' "$out/kinds" >"$out/list"

"$program" predict - -o "$out/results" --save ndjson --quiet "$@" <"$out/list" >"$out/stdout" 2>"$out/stderr" &
pid=$!
trap 'kill "$pid" 2>/dev/null' EXIT
end=$(($(date +%s) + seconds))
while [ "$(date +%s)" -lt "$end" ] && kill -0 "$pid" 2>/dev/null; do
    memory=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status" 2>/dev/null)
    [ -z "$memory" ] || echo "$memory $(find "/proc/$pid/fd" -mindepth 1 2>/dev/null | wc -l)"
    sleep "$every"
done >"$out/samples"
if ! kill -TERM "$pid" 2>/dev/null; then
    tail -n 3 "$out/stderr"
    echo "the program ended before the time was over"
    exit 1
fi
wait "$pid"
code=$?
trap - EXIT
images=$(wc -l <"$out/results/frames.ndjson.partial" 2>/dev/null || echo 0)

[ "$code" = 130 ] || [ "$code" = 143 ] || [ "$code" = 1 ] || { tail -n 3 "$out/stderr"; echo "exit code $code"; exit 1; }
awk -v images="$images" -v seconds="$seconds" '
    { memory[NR] = $1; files[NR] = $2 }
    END {
        if (NR < 8) { print "too few samples: " NR; exit 1 }
        quarter = int(NR / 4)
        for (i = quarter + 1; i <= 2 * quarter; i++) { if (memory[i] > m0) m0 = memory[i]; if (files[i] > f0) f0 = files[i] }
        for (i = NR - quarter + 1; i <= NR; i++) { if (memory[i] > m1) m1 = memory[i]; if (files[i] > f1) f1 = files[i] }
        grew = m1 > m0 * 1.01 + 4096 || f1 > f0
        printf "%d images in %d s: memory %.1f -> %.1f MB, descriptors %d -> %d: %s\n", images, seconds, m0 / 1024, m1 / 1024,
            f0, f1, grew ? "GREW" : images < 1 ? "nothing was done" : "flat"
        exit grew || images < 1
    }' "$out/samples"
