#!/bin/sh
# Fuzzes for hours and keeps what it finds: sh tests/fuzz.sh HOURS [TARGET...]
#
# Builds all targets of tests/fuzz (clang with libFuzzer, address and undefined-behaviour sanitizers) and runs those named,
# or all, in turns of equal length until HOURS (a number such as 8 or 0.5) are over. What each turn leads to is merged into
# a corpus of the least inputs that reach as much, in FOUND/corpus/TARGET, which the next run goes on with; tests/fuzz/corpus
# only gives the first inputs. Each input that crashes, hangs or takes too much memory is kept as FOUND/crashes/TARGET-*,
# with a line in FOUND/summary.txt. Ends with one line of counts; exit code 1 when anything was found.
#
# The libraries that read these inputs are instrumented too, where their sources are to be had (tests/fuzz_libraries.sh).
#
# Environment: BUILD (folder for builds, default build), FOUND (default BUILD/fuzz-found), JOBS (targets at a time,
# default: number of cores), TURN (seconds of a turn, default 300), LIBRARIES (system: those of the system as they are).
set -u
cd "$(dirname "$0")/.." || exit 1
usage() { echo "usage: sh tests/fuzz.sh HOURS [TARGET...]" >&2; exit 2; }
[ $# -ge 1 ] || usage
total=$(awk -v h="$1" 'BEGIN { if (h !~ /^[0-9]+(\.[0-9]+)?$|^\.[0-9]+$/ || h <= 0) exit 1; printf "%d", h * 3600 + 0.5 }') || usage
shift
build=${BUILD:-build}
found=${FOUND:-$build/fuzz-found}
jobs=${JOBS:-$(nproc)}
turn=${TURN:-300}
log=$build/fuzz.log

mkdir -p "$build" "$found/corpus" "$found/crashes" "$found/logs" || exit 1
libraries=
if [ "${LIBRARIES:-}" != system ]; then
    JOBS=$jobs sh tests/fuzz_libraries.sh "$build/fuzz-libraries" || exit 1
    libraries=$(cd "$build/fuzz-libraries" && pwd)
    export PKG_CONFIG_PATH="$libraries/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
fi
# what a folder was configured with stays in its cache
grep -qsx "CMAKE_PREFIX_PATH:.*=$libraries" "$build/fuzz/CMakeCache.txt" || rm -f "$build/fuzz/CMakeCache.txt"
if ! cmake -G Ninja -S . -B "$build/fuzz" -DCMAKE_C_COMPILER=clang -DISTHMUS_FUZZ=ON -DISTHMUS_TESTS=OFF \
    -DISTHMUS_APPS=OFF "-DCMAKE_PREFIX_PATH:PATH=$libraries" >"$log" 2>&1 || ! ninja -C "$build/fuzz" -j "$jobs" tests/fuzz/all >>"$log" 2>&1; then
    tail -n 30 "$log"
    echo "the fuzz targets do not build (Debian: clang, libclang-rt-dev)"
    exit 1
fi

have=
for source in tests/fuzz/fuzz_*.c; do
    name=${source#tests/fuzz/fuzz_}
    [ -x "$build/fuzz/tests/fuzz/fuzz_${name%.c}" ] || continue # its library is not here
    have="$have ${name%.c}"
done
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $have
for name in "$@"; do
    case " $have " in
    *" $name "*) ;;
    *) echo "no target '$name'; there are:$have" >&2; exit 2 ;;
    esac
done

# merge TARGET: FOUND/corpus/TARGET becomes the smallest part of itself and the first inputs that reaches the same.
merge() {
    corpus=$found/corpus/$1
    rm -rf "$corpus.less"
    mkdir -p "$corpus" "$corpus.less"
    set -- "$1" "$corpus.less" "$corpus"
    [ ! -d "tests/fuzz/corpus/$1" ] || set -- "$@" "tests/fuzz/corpus/$1"
    name=$1
    shift
    # an input that crashes is left out; it is in crashes already, or the turn that follows finds it
    if "$build/fuzz/tests/fuzz/fuzz_$name" -merge=1 -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$corpus.less/../merge-" \
        "$@" >"$found/logs/$name.merge" 2>&1 </dev/null; then
        rm -rf "$corpus"
        mv "$corpus.less" "$corpus"
    else
        rm -rf "$corpus.less"
    fi
    rm -f "$found"/corpus/merge-*
}

# The line that says most of a log (the sanitizer's, else libFuzzer's), and the first place in our sources.
summary_of() {
    line=$(grep -m 1 -E '^SUMMARY: |runtime error: ' "$1" || grep -m 1 -E 'ERROR: |ALARM: ' "$1" || tail -n 1 "$1")
    place=$(grep -E '^ +#[0-9]+ 0x' "$1" | grep -m 1 -oE '(src|audit)/[a-z_0-9/]+\.[ch]:[0-9]+')
    echo "$line${place:+ ($place)}"
}

# one_turn TARGET SECONDS
one_turn() {
    name=$1 corpus=$found/corpus/$1 crashes=$found/crashes turn_log=$found/logs/$1
    touch "$turn_log.begin"
    if ! "$build/fuzz/tests/fuzz/fuzz_$name" -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$crashes/$name-" "$corpus" >"$turn_log" 2>&1 </dev/null; then
        new=$(find "$crashes" -name "$name-*" -newer "$turn_log.begin" | head -n 1)
        echo "$name: $(summary_of "$turn_log"): ${new:-no input was kept, see $turn_log}" >>"$found/summary.txt"
        cp "$turn_log" "$found/logs/$name.crash"
    fi
    sed -n 's/^stat::number_of_executed_units: *//p' "$turn_log" >>"$found/logs/$name.runs"
    rm -f "$turn_log.begin"
    merge "$name"
}

touch "$found/summary.txt"
before=$(wc -l <"$found/summary.txt")
rm -f "$found"/logs/*.runs
[ $(($# * turn)) -le $((total * jobs)) ] || turn=$((total * jobs / $#)) # each has its turn
[ "$turn" -ge 1 ] || turn=1
for name in "$@"; do merge "$name"; done
end=$(($(date +%s) + total))
while [ "$(date +%s)" -lt "$end" ]; do
    running=0
    for name in "$@"; do
        left=$((end - $(date +%s)))
        [ "$left" -gt 0 ] || break
        [ "$left" -lt "$turn" ] && seconds=$left || seconds=$turn
        one_turn "$name" "$seconds" &
        running=$((running + 1))
        [ $((running % jobs)) -ne 0 ] || wait
    done
    wait
done

for name in "$@"; do
    printf '%-14s %12s runs, %5s inputs\n' "$name" "$(awk '{ n += $1 } END { print n + 0 }' "$found/logs/$name.runs" 2>/dev/null)" \
        "$(find "$found/corpus/$name" -type f | wc -l)"
done
after=$(wc -l <"$found/summary.txt")
tail -n +$((before + 1)) "$found/summary.txt"
echo "$((after - before)) found, in $found/summary.txt"
[ "$after" = "$before" ]
