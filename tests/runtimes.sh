#!/bin/sh
# What works on which OpenCL runtime: sh tests/runtimes.sh [RUNTIME...]
#
# Prepares every runtime that can be had here, runs the test programs of operators and of models, and the demo frames
# (predict, whose results the table compares with those of PoCL 3.1, and verify), and prints a table; of a runtime that
# the engine refuses, why. Without names it takes all:
#     debian12-pocl debian12-rusticl debian12-oclgrind debian13-pocl debian13-rusticl testing-pocl
#                      packages of Debian, in a system of their own (roots.sh, which needs root), or here if this is it
#     intel            Intel's runtime for CPUs (PyPI: intel-opencl-rt), with this system's build, build/gcc
#     pypi-pocl        PyPI's pocl-binary-distribution, the same way
#     table            no runtime: prints what has been measured
# What cannot be prepared is named and left out. rusticl is llvmpipe, on the CPU; it and oclgrind, an interpreter, get the
# tests' small shapes, and rusticl one frame without masks. A test that takes longer than LIMIT seconds counts as that and
# not as failed.
#
# Environment: WORK (folder, default build/runtimes; systems stay there, and results: a test that was run at this commit
# is not run again, so that what was interrupted goes on, unless files that are not committed may have changed it), JOBS
# (for building, default 1), LIMIT (default 600), NICE (default 19), PARTS (default "operators models folder"), TESTS (a
# pattern; only test programs of matching names are run). All of it takes hours.
set -u
WORK=${WORK:-$(dirname "$0")/../build/runtimes}
mkdir -p "$WORK" || exit 1
ROOTS=$(cd "$WORK" && pwd)
# shellcheck source=tests/roots.sh
. "$(dirname "$0")/roots.sh"
cd "$here" || exit 1
jobs=${JOBS:-1}
limit=${LIMIT:-600}
parts=${PARTS-operators models folder}
all="debian12-pocl debian13-pocl intel testing-pocl pypi-pocl debian13-rusticl debian12-rusticl debian12-oclgrind"
named=$*
unset ISTHMUS_DEVICE ISTHMUS_CAPS OCL_ICD_VENDORS

say() { echo "==> $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# The commit of what is built and run, with a + where that has been changed since.
measured="src include cl apps cmake CMakeLists.txt weights tests/*.c tests/*.h tests/support tests/golden"
# shellcheck disable=SC2086
commit=$(git log -1 --abbrev=7 --format=%h -- $measured)$([ -z "$(git status --porcelain -- $measured)" ] || echo +)

# ---- systems ----

packages="cmake ninja-build gcc g++ libc6-dev pkg-config ocl-icd-opencl-dev libjansson-dev libzip-dev libpng-dev
  libisal-dev libturbojpeg0-dev libcairo2-dev libdw-dev libarchive-dev libmicrohttpd-dev libcriterion-dev"
build="cmake -G Ninja -S . -B build/gcc >/dev/null && ninja -C build/gcc isthmus_cli isthmus_probe -j"

# This system's build, the one of tests/run.sh.
this_system() {
    nice sh -c "$build $jobs" >"$roots/here.log" 2>&1 ||
        { say "left out: the build failed, see $roots/here.log"; return 1; }
    root='' inside='' tree=$here
}

# debian SUITE PACKAGES: this system if it is that and has them, or else one in $roots/SUITE with this tree in /src.
debian() {
    suite=$1
    shift
    if grep -qs "^VERSION_CODENAME=$suite\$" /etc/os-release && dpkg-query -W "$@" >/dev/null 2>&1; then
        this_system
        return
    fi
    if ! can_have_roots; then
        say "left out: a system of Debian $suite needs root and debootstrap"
        return 1
    fi
    root=$roots/$suite
    (bare_root "$suite") >&2 || return 1
    mountpoint -q "$root" || root_at "$root" "$suite"
    inside="chroot $root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive" tree=/src
    # shellcheck disable=SC2086  # a mirror of testing may be behind
    $inside sh -c 'apt-get update -q -o Acquire::Check-Valid-Until=false && apt-get install -y -q --no-install-recommends "$@"' sh $packages "$@" \
        >"$root.log" 2>&1 || { say "left out: $suite has not all of: $*"; return 1; }
    mkdir -p "$root/src"
    find "$root/src" -mindepth 1 -maxdepth 1 ! -name build -exec rm -r {} +
    checkout "$root/src"
    # shellcheck disable=SC2086
    nice $inside sh -c "cd /src && $build $jobs" >>"$root.log" 2>&1 ||
        { say "left out: the build in $suite failed, see $root.log"; return 1; }
}

# pypi FOLDER PACKAGE...: installed into $roots/FOLDER.
pypi() {
    folder=$1
    shift
    have python3 || { say "left out: no python3"; return 1; }
    [ -e "$roots/$folder/.made" ] && return
    python3 -m venv "$roots/$folder" >"$roots/$folder.log" 2>&1 &&
        "$roots/$folder/bin/pip" install -q "$@" >>"$roots/$folder.log" 2>&1 && touch "$roots/$folder/.made" ||
        { say "left out: $* is not to be had, see $roots/$folder.log"; return 1; }
}

# icd FOLDER LIBRARY: the loader then sees this library alone.
icd() {
    library=$(find "$roots/$1" -name "$2" | head -n 1)
    [ -n "$library" ] || { say "left out: there is no $2 in $roots/$1"; return 1; }
    mkdir -p "$roots/$1/vendors"
    echo "$library" >"$roots/$1/vendors/only.icd"
    environment="OCL_ICD_VENDORS=$roots/$1/vendors/only.icd"
}

# prepare RUNTIME sets: root, inside (a prefix of commands), tree, environment, wrapper, frames (what predict gets), and
# twice, where the runtime keeps what it has compiled.
rusticl="RUSTICL_ENABLE=llvmpipe ISTHMUS_DEVICE=llvmpipe ISTHMUS_SMALL=1"
prepare() {
    environment='' wrapper='' twice='' frames=weights/demo
    case $1 in
    *-pocl) twice=yes ;;
    *-rusticl) frames="weights/demo/frame-001.png --no-masks" ;;
    esac
    case $1 in
    debian12-pocl) debian bookworm pocl-opencl-icd && environment="ISTHMUS_DEVICE=Portable" ;;
    debian13-pocl) debian trixie pocl-opencl-icd && environment="ISTHMUS_DEVICE=Portable" ;;
    testing-pocl) debian testing pocl-opencl-icd && environment="ISTHMUS_DEVICE=Portable" ;;
    debian12-rusticl) debian bookworm mesa-opencl-icd && environment=$rusticl ;;
    debian13-rusticl) debian trixie mesa-opencl-icd && environment=$rusticl ;;
    debian12-oclgrind)
        debian bookworm oclgrind && environment="ISTHMUS_DEVICE=oclgrind ISTHMUS_SMALL=1" &&
            wrapper="oclgrind --local-mem-size 131072"
        ;;
    intel) pypi intel intel-opencl-rt intel-cmplr-lib-rt && this_system && icd intel libintelocl.so ;;
    pypi-pocl) pypi pypi-pocl pocl-binary-distribution && this_system && icd pypi-pocl 'libpocl*.so*' ;;
    *) say "there is no runtime named $1"; return 1 ;;
    esac
}

# in_it COMMAND: in the runtime's system, from the tree, with its environment; kernels lie where ctest has them.
# become_it COMMAND: the same instead of this shell.
in_it() { (become_it "$1"); }
become_it() {
    # shellcheck disable=SC2086
    exec nice -n "${NICE:-19}" $inside env $environment ISTHMUS_CACHE_DIR=$tree/build/gcc/kernel-cache POCL_CACHE_DIR=$tree/build/gcc/pocl-cache \
        sh -c "cd $tree && mkdir -p build/gcc/pocl-cache && $1" </dev/null
}

# ---- what is measured ----
#
# Of each runtime, in $roots/results/RUNTIME: `log` has a line for each run (date, commit, part, test, exit code or 77 where
# it skipped everything, seconds allowed), `operators` and `models` the names of their tests, and the rest is named after what said it.

# done_with PART TEST: whether there is a result of this commit, and not only that it takes longer than a shorter limit.
done_with() {
    case $commit in *+) return 1 ;; esac
    last "$1" "$2" | awk -v c="$commit" -v limit="$limit" '{ is = $2 == c && ($5 != 124 || $6 >= limit) } END { exit !is }'
}
# last PART TEST: the last line about it; fails where there is none.
last() { awk -v part="$1" -v test="$2" '$3 == part && $4 == test { line = $0 } END { if (line == "") exit 1; print line }' "$out/log"; }

# timed PART NAME SECONDS COMMAND: a line in the log. What runs ends with this script, and has no line then.
running=
trap '[ -z "$running" ] || kill "$running"; exit 1' INT TERM HUP
timed() {
    become_it "exec timeout -k 5 $3 $wrapper $4" >"$out/$2.log" 2>&1 &
    running=$!
    wait $running
    code=$?
    running=
    [ "$code" = 137 ] && code=124
    [ "$code" = 0 ] && grep -q 'Tested: 0 ' "$out/$2.log" && code=77
    echo "$(date +%F) $commit $1 $2 $code $3" >>"$out/log"
}

# tests PART: each program by itself, so that one that ends the process or takes for ever costs one line. What takes too
# long is tried once more where most of the first time is compiling.
tests() {
    case $1 in
    operators) list='ctest -N -L "^op$"' ;;
    models) list='{ ctest -N -L "^model$"; ctest -N -R "^pipeline_(frame|golden|sam_vit)$"; }' ;;
    esac
    in_it "cd build/gcc && $list | sed -n 's/.*Test *#[0-9]*: //p'" >"$out/$1"
    chosen=$(grep -E "${TESTS:-.}" "$out/$1" | tr '\n' ' ')
    if ! in_it "ninja -C build/gcc -j $jobs make_checkpoint $chosen" >"$out/build.log" 2>&1; then
        say "tests do not build, see $out/build.log"
        return
    fi
    again=
    for t in $chosen; do
        done_with "$1" "$t" && continue
        timed "$1" "$t" "$limit" "build/gcc/tests/$t --jobs 1"
        [ "$code" = 124 ] && [ -n "$twice" ] && again="$again $t"
    done
    for t in $again; do timed "$1" "$t" "$limit" "build/gcc/tests/$t --jobs 1"; done
}

folder() {
    done_with folder verify && return
    to=$tree/build/gcc/runtimes-$(basename "$out")
    timed folder predict $((3 * limit)) "build/gcc/isthmus predict $frames -o $to --quiet"
    [ "$code" = 0 ] || return
    cp "$root$to/results.json" "$out/results.json"
    timed folder verify $((3 * limit)) "build/gcc/isthmus verify $frames --quiet --json"
}

# device: platform and driver, then why it is refused, if it is; a line each.
device() {
    in_it "$wrapper build/gcc/isthmus devices --no-masks --json" 2>"$out/devices.log" | python3 -c '
import json, sys
text = sys.stdin.read()
for d in json.loads(text) if text else sys.exit(1):
    if d["default"]:
        print(d["platform_name"], d["driver"] if d["driver"] not in d["platform_name"] else "")
        print(d["problem"].rsplit(") ", 1)[-1].split(";")[0] if "problem" in d else "")'
}

measure() {
    out=$roots/results/$1
    mkdir -p "$out"
    touch "$out/log"
    prepare "$1" || return
    say "$1"
    device >"$out/device" || { say "left out: see $out/devices.log"; return; }
    if [ -n "$(sed -n 2p "$out/device")" ]; then
        echo "$(date +%F) $commit devices isthmus 3 0" >>"$out/log"
        return
    fi
    for part in $parts; do
        case $1:$part in
        *oclgrind:models | *oclgrind:folder) ;; # an interpreter
        *:folder) folder ;;
        *) tests "$part" ;;
        esac
    done
}

# ---- the table ----

# tests_cell PART: "38 of 42 pass; fail: op_x; take longer: op_y (600 s); 2 not run".
tests_cell() {
    if [ ! -s "$out/$1" ] || ! grep -q " $1 " "$out/log"; then
        printf 'not run'
        return
    fi
    good=0 count=0 failed='' late='' idle='' unrun=0
    while read -r t; do
        count=$((count + 1))
        # shellcheck disable=SC2046
        set -- "$1" $(last "$1" "$t")
        case ${6:-} in
        0) good=$((good + 1)) ;;
        124) late="$late$t ($7 s) " ;;
        77) idle="$idle$t " ;;
        '') unrun=$((unrun + 1)) ;;
        *) failed="$failed$t " ;;
        esac
    done <"$out/$1"
    printf '%s of %s pass' $good $count
    [ -z "$failed" ] || printf '; fail: %s' "${failed% }"
    [ -z "$late" ] || printf '; take longer: %s' "${late% }"
    [ -z "$idle" ] || printf '; skip all that they have: %s' "${idle% }"
    [ $unrun = 0 ] || printf '; %s not run' $unrun
}

# said STEP: its exit code, or how long it was waited for, in words.
said() {
    # shellcheck disable=SC2046
    set -- "$1" $(last folder "$1")
    case ${6:-} in
    0) printf '%s passes' "$1" ;;
    124) printf '%s takes over %s s' "$1" "$7" ;;
    '') printf '%s not run' "$1" ;;
    *) printf '%s: exit code %s' "$1" "$6" ;;
    esac
}
folder_cell() {
    if ! last folder predict | grep -q ' predict 0 '; then
        said predict
        return
    fi
    only=
    case $r in *-rusticl) only=1 ;; esac
    python3 tests/runtimes_compare.py "$roots/results/debian12-pocl/results.json" "$out/results.json" $only
    printf '; '
    said verify
}

# measured_at: days and commits of the results that count.
measured_at() {
    awk '{ day[$3 $4] = $1; commit[$3 $4] = $2 }
        function list(of, k, seen, text) {
            for (k in of) if (!(of[k] in seen)) { seen[of[k]]; text = text (text == "" ? "" : " ") of[k] }
            return text
        }
        END { print list(day) ", " list(commit) }' "$out/log"
}

table() {
    echo "| runtime | version | operators | models | demo frames | date, commit |"
    echo "|---|---|---|---|---|---|"
    for r in $all; do
        out=$roots/results/$r
        [ -s "$out/log" ] || continue
        refused=$(sed -n 2p "$out/device")
        if [ -n "$refused" ]; then
            cells="refused: $refused | refused | refused"
        else
            cells="$(tests_cell operators) | $(tests_cell models) | $(folder_cell)"
        fi
        echo "| $r | $(head -n 1 "$out/device") | $cells | $(measured_at) |"
    done
}

for r in ${named:-$all}; do
    [ "$r" = table ] || measure "$r" || true
done
table
