#!/bin/sh
# Reads and writes outside of memory, use of what was never written, and leaks of `isthmus predict` with PoCL, under
# valgrind, which also sees the compiled kernels: sh tests/valgrind.sh PROGRAM [FOLDER]
#
# Boxes alone, then masks, at the least sizes. valgrind has a CPU of its own, for which PoCL compiles: once under a tool
# that checks nothing, so that LLVM does not run under the one that checks; kernels and results of that are kept in FOLDER
# (default build/valgrind). Results must be the same. Exit code 77 without valgrind.
set -u
cd "$(dirname "$0")/.." || exit 1
if [ $# -lt 1 ] || [ ! -x "$1" ]; then echo "usage: sh tests/valgrind.sh PROGRAM [FOLDER]" >&2; exit 2; fi
command -v valgrind >/dev/null || { echo "left out: no valgrind"; exit 77; }
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=${2:-build/valgrind}
mkdir -p "$folder/pocl" && folder=$(cd "$folder" && pwd) || exit 1
export ISTHMUS_DEVICE="${ISTHMUS_DEVICE-Portable}" ISTHMUS_CACHE_DIR="$folder/isthmus" POCL_CACHE_DIR="$folder/pocl"
export ISTHMUS_PROBE=off # another process would have the machine's CPU
[ ! -f /etc/OpenCL/vendors/pocl.icd ] || export OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd

# predict OUT OPTIONS... under valgrind with $tool
predict() {
    out=$1
    shift
    rm -rf "$out"
    # shellcheck disable=SC2086
    valgrind $tool --log-file="$out.log" "$program" predict weights/training.png -o "$out" --quiet --conf 0 --max-objects 2 \
        --save json --imgsz 256 "$@" || { echo "exit code $? of: predict $*"; tail -n 60 "$out.log"; return 1; }
}

code=0
for options in --no-masks "--segmenter-size 256"; do
    name=$folder/$(echo "$options" | tr -d ' -')
    if [ ! -f "$name.first/results.json" ]; then
        tool="--tool=none"
        # shellcheck disable=SC2086
        predict "$name.first" $options || exit 1
    fi
    tool="--tool=memcheck --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --num-callers=30
        --gen-suppressions=all --suppressions=tests/valgrind.supp"
    # shellcheck disable=SC2086
    if predict "$name" $options && cmp "$name.first/results.json" "$name/results.json"; then
        echo "predict $options: $(grep -o 'ERROR SUMMARY: [^(]*' "$name.log" | tail -n 1)"
    else
        code=1
    fi
done
exit $code
