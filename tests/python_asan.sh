#!/bin/sh
# The Python package's tests under the address sanitizer and its search for leaks: sh tests/python_asan.sh BUILD PYTHON
#
# BUILD is a tree of -DISTHMUS_SANITIZE=address,undefined -DISTHMUS_PYTHON=ON -DPython3_EXECUTABLE=PYTHON by GCC, with the
# target isthmus_python built. The interpreter has to load the sanitizer first, and takes its objects from malloc, so that
# what they point to is found. It and its modules keep a lot, and are compiled without frame pointers, so that no name can
# be relied on to suppress that: a leak counts where a line of this project is among its callers. More arguments go to
# pytest. Environment: ISTHMUS_DEVICE (default Portable), as in run.sh.
set -u
if [ $# -lt 2 ] || [ ! -d "$1" ]; then echo "usage: sh tests/python_asan.sh BUILD PYTHON [pytest's arguments]" >&2; exit 2; fi
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) python=$2
shift 2
reports=$build/python-asan
rm -rf "$reports"
mkdir -p "$reports" || exit 1
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1 PYTHONMALLOC=malloc
export ISTHMUS_DEVICE="${ISTHMUS_DEVICE-Portable}"
if [ -f /etc/OpenCL/vendors/pocl.icd ]; then export OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd; fi
export LSAN_OPTIONS="suppressions=$root/tests/lsan.supp:print_suppressions=0"
# left out: a forked child, which forgets its parent's engine by promise (isthmus.h) and so leaks it
# exit codes are the programs' own: what is reported is read below. Thread-local blocks: google/sanitizers issue 1322
ASAN_OPTIONS="intercept_tls_get_addr=0:quarantine_size_mb=4:exitcode=0:log_path=$reports/report" \
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    "$python" -m pytest -q -p no:cacheprovider -k 'not test_a_child_gets_a_clear_error_and_the_parent_goes_on' "$@" "$root/python/tests"
code=$?
find "$reports" -type f -exec cat {} + >"$reports.log"
leaks=$(awk -v RS= -v mine="$root/(src|apps|audit|python/binding)/|/_native/" '/ leak of / && $0 ~ mine { print $0 "\n" }' \
    "$reports.log")
errors=$(grep -E 'ERROR: AddressSanitizer|runtime error:' "$reports.log")
[ -z "$leaks$errors" ] || { printf '%s\n%s\n' "$errors" "$leaks" | head -n 200; code=1; }
echo "python under ASan: $(find "$reports" -type f | wc -l) processes reported, $(printf %s "$leaks" | grep -c ' leak of ') leaks of ours"
exit $code
