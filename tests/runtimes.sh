#!/bin/sh
# What works on which OpenCL runtime: sh tests/runtimes.sh [RUNTIME...]
#
# Prepares every runtime that can be had here, runs the test programs of operators and of models, and the demo frames
# (predict, compared with the first runtime's results, and verify), and prints a table; of a runtime that the engine
# refuses, why. Without names it takes all:
#     debian12-pocl debian12-rusticl debian12-oclgrind debian13-pocl debian13-rusticl testing-pocl
#                      packages of Debian, in a system of their own (debootstrap, which needs root)
#     intel            Intel's runtime for CPUs (PyPI: intel-opencl-rt), with this system's build, build/gcc
#     pypi-pocl        PyPI's pocl-binary-distribution, the same way
#     system-pocl      what is installed here
# What cannot be prepared is named and left out. rusticl is llvmpipe, on the CPU; it and oclgrind, an interpreter, get the
# tests' small shapes. A test that takes longer than LIMIT seconds counts as that and not as failed.
#
# Environment: WORK (folder, default build/runtimes; systems stay there, and results: a runtime that has been measured is
# measured again only when it is named), JOBS (for building, default 1), LIMIT (default 600), NICE (default 19), PARTS (default
# "operators models folder"). All of it takes hours.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$(pwd)
work=${WORK:-build/runtimes}
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 1
jobs=${JOBS:-1}
limit=${LIMIT:-600}
parts=${PARTS:-operators models folder}
all="debian12-pocl debian13-pocl intel testing-pocl pypi-pocl debian13-rusticl debian12-rusticl debian12-oclgrind"
named=$*
unset ISTHMUS_DEVICE ISTHMUS_CAPS OCL_ICD_VENDORS

say() { echo "==> $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- systems ----

packages="cmake ninja-build gcc g++ libc6-dev pkg-config ocl-icd-opencl-dev libjansson-dev libzip-dev libpng-dev
  libisal-dev libturbojpeg0-dev libcairo2-dev libdw-dev libarchive-dev libmicrohttpd-dev libcriterion-dev"

# /proc, /dev and /sys, which drivers read, are there while something runs in a system, and no longer.
mounted=
enter() {
    for m in proc dev sys; do
        mountpoint -q "$1/$m" && continue
        mount --bind "/$m" "$1/$m" && mount --make-private "$1/$m" && mounted="$1/$m $mounted"
    done
}
leave() {
    for m in $mounted; do umount "$m" || say "still mounted: $m"; done
    mounted=
}
trap leave EXIT
trap 'exit 1' INT TERM HUP

build="cmake -G Ninja -S . -B build/gcc >/dev/null && ninja -C build/gcc isthmus_cli isthmus_probe -j"

# debian SUITE PACKAGES: a system in $work/SUITE with the build of this tree in /src.
debian() {
    suite=$1
    shift
    if [ "$(id -u)" != 0 ] || ! have debootstrap; then
        say "left out: a system of Debian $suite needs root and debootstrap"
        return 1
    fi
    if [ ! -e "$work/$suite/.made" ]; then
        say "Debian $suite"
        debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/$suite" http://deb.debian.org/debian \
            >"$work/$suite.log" 2>&1 && touch "$work/$suite/.made" || { say "left out: see $work/$suite.log"; return 1; }
    fi
    cp /etc/resolv.conf "$work/$suite/etc/resolv.conf"
    enter "$work/$suite"
    # shellcheck disable=SC2086  # a mirror of testing may be behind
    chroot "$work/$suite" env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update -q -o Acquire::Check-Valid-Until=false && apt-get install -y -q --no-install-recommends "$@"' sh $packages "$@" \
        >>"$work/$suite.log" 2>&1 || { say "left out: $suite has not all of: $*"; return 1; }
    mkdir -p "$work/$suite/src"
    git ls-files -co --exclude-standard | tar cf - -T - | tar xf - -C "$work/$suite/src"
    nice chroot "$work/$suite" sh -c "cd /src && $build $jobs" >>"$work/$suite.log" 2>&1 ||
        { say "left out: the build in $suite failed, see $work/$suite.log"; return 1; }
    inside="chroot $work/$suite"
    tree=/src
    caches=/src
}

# This system's build, the one of tests/run.sh.
here() {
    nice sh -c "$build $jobs" >"$work/here.log" 2>&1 ||
        { say "left out: the build failed, see $work/here.log"; return 1; }
    inside=
    tree=$root
    caches=$work/here
}

# pypi FOLDER PACKAGE...: installed into $work/FOLDER.
pypi() {
    folder=$1
    shift
    have python3 || { say "left out: no python3"; return 1; }
    [ -e "$work/$folder/.made" ] && return
    python3 -m venv "$work/$folder" >"$work/$folder.log" 2>&1 &&
        "$work/$folder/bin/pip" install -q "$@" >>"$work/$folder.log" 2>&1 && touch "$work/$folder/.made" ||
        { say "left out: $* is not to be had, see $work/$folder.log"; return 1; }
}

# icd FOLDER LIBRARY: the loader then sees this library alone.
icd() {
    library=$(find "$work/$1" -name "$2" | head -n 1)
    [ -n "$library" ] || { say "left out: there is no $2 in $work/$1"; return 1; }
    mkdir -p "$work/$1/vendors"
    echo "$library" >"$work/$1/vendors/only.icd"
    environment="OCL_ICD_VENDORS=$work/$1/vendors/only.icd"
}

# prepare RUNTIME sets: inside (a prefix of commands), tree, environment, wrapper.
rusticl="RUSTICL_ENABLE=llvmpipe ISTHMUS_DEVICE=llvmpipe ISTHMUS_SMALL=1"
prepare() {
    inside='' tree='' caches='' environment='' wrapper=''
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
    intel) pypi intel intel-opencl-rt intel-cmplr-lib-rt && here && icd intel libintelocl.so ;;
    pypi-pocl) pypi pypi-pocl pocl-binary-distribution && here && icd pypi-pocl 'libpocl*.so*' ;;
    system-pocl) here && environment="ISTHMUS_DEVICE=Portable" ;;
    *) say "there is no runtime named $1"; return 1 ;;
    esac
}

# in_it COMMAND: in the runtime's system, from the tree, with its environment.
in_it() {
    # shellcheck disable=SC2086
    nice -n "${NICE:-19}" $inside env $environment ISTHMUS_CACHE_DIR=$caches/cache POCL_CACHE_DIR=$caches/pocl-cache \
        sh -c "cd $tree && mkdir -p $caches/pocl-cache && $1" </dev/null
}

# ---- what is measured ----

# one TEST: its exit code; each program by itself, so that one that ends the process or takes for ever costs one line.
one() {
    in_it "timeout -k 5 $limit $wrapper build/gcc/tests/$1 --jobs 1" >"$out/$1.log" 2>&1
    code=$?
    [ "$code" = 137 ] && code=124
    echo "$(date +%T) $1 $code" >>"$out/log"
    return $code
}

# The test programs of a column, as ctest lists them in the folder of a build; names LIST: the command for their names.
operators='ctest -N -L "^op$"'
models='{ ctest -N -L "^model$"; ctest -N -R "^pipeline_(frame|golden|sam_vit)$"; }'
names() { echo "$1 | sed -n 's/.*Test *#[0-9]*: //p'"; }

# tests LIST: "38 of 42; failed: op_x; over 600 s: op_y". What takes too long is tried once more at the end: the first
# time most of it is compiling, and PoCL keeps what it has compiled.
tests() {
    good=0 count=0 failed='' late='' again=''
    if ! in_it "cd build/gcc && ninja -j $jobs make_checkpoint \$($(names "$1"))" >"$out/build.log" 2>&1; then
        printf 'do not build'
        return
    fi
    for t in $(in_it "cd build/gcc && $(names "$1")"); do
        count=$((count + 1))
        one "$t"
        case $? in
        0) good=$((good + 1)) ;;
        124) again="$again $t" ;;
        *) failed="$failed $t" ;;
        esac
    done
    for t in $again; do
        one "$t"
        case $? in
        0) good=$((good + 1)) ;;
        124) late="$late $t" ;;
        *) failed="$failed $t" ;;
        esac
    done
    printf '%s of %s%s%s' $good $count "${failed:+; failed:$failed}" "${late:+; over $limit s:$late}"
}

# The demo frames: predict, beside the first runtime's results, then verify.
folder() {
    if ! in_it "timeout -k 5 $((3 * limit)) $wrapper build/gcc/isthmus predict weights/demo -o $caches/out --quiet" >"$out/predict.log" 2>&1; then
        printf 'predict fails or takes over %s s' $((3 * limit))
        return
    fi
    system=${inside#chroot }
    cp "$system$caches/out/results.json" "$out/results.json"
    [ -e "$work/reference.json" ] || cp "$out/results.json" "$work/reference.json"
    python3 tests/runtimes_compare.py "$work/reference.json" "$out/results.json"
    in_it "timeout -k 5 $((3 * limit)) $wrapper build/gcc/isthmus verify weights/demo --quiet --json" >"$out/verify.json" 2>"$out/verify.log"
    code=$?
    case $code in
    0) printf '; verify passes' ;;
    124 | 137) printf '; verify takes over %s s' $((3 * limit)) ;;
    *) printf '; verify: exit code %s' $code ;;
    esac
}

# device: platform and driver, then why it is refused, if it is; a line each.
device() {
    in_it "$wrapper build/gcc/isthmus devices --no-masks --json" 2>"$out/devices.log" | python3 -c '
import json, sys
for d in json.load(sys.stdin):
    if d["default"]:
        print(d["platform_name"], d["driver"] if d["driver"] not in d["platform_name"] else "")
        print(d["problem"].rsplit(") ", 1)[-1].split(";")[0] if "problem" in d else "")'
}

measure() {
    prepare "$1" || return
    out=$work/results/$1
    mkdir -p "$out"
    : >"$out/log"
    say "$1"
    device >"$out/device"
    refused=$(sed -n 2p "$out/device")
    for part in $parts; do
        case $1:$part in
        *oclgrind:models | *oclgrind:folder) echo "not run (an interpreter)" >"$out/$part" && continue ;;
        esac
        [ -z "$refused" ] || { echo refused >"$out/$part" && continue; }
        case $part in
        operators) tests "$operators" >"$out/operators" ;;
        models) tests "$models" >"$out/models" ;;
        folder) folder >"$out/folder" ;;
        esac
    done
    date +%F >"$out/date"
    leave
}

[ "$(pwd)" = "$root" ] || exit 1
for r in ${named:-$all}; do
    [ -z "$named" ] && [ -e "$work/results/$r/date" ] && continue
    measure "$r" || true
    leave
done
echo "| runtime | version | date | operators | models | demo frames |"
echo "|---|---|---|---|---|---|"
for o in "$work"/results/*; do
    [ -e "$o/date" ] || continue
    refused=$(sed -n 2p "$o/device")
    echo "| $(basename "$o") | $(head -n 1 "$o/device")${refused:+; refused: $refused} | $(cat "$o/date") |" \
        "$(cat "$o/operators" 2>/dev/null) | $(cat "$o/models" 2>/dev/null) | $(cat "$o/folder" 2>/dev/null) |"
done
