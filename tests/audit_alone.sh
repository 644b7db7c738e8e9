#!/bin/sh
# The audit built and installed alone, from a copy of what audit/CMakeLists.txt says that it needs: audit_alone.sh WORK
# (a folder that is made and left; its build is there).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$1
rm -rf "$work"
mkdir -p "$work/source"
needs=$(tr '\n' ' ' <"$root/audit/CMakeLists.txt" | sed 's/.*set(IST_AUDIT_NEEDS \([^)]*\)).*/\1/')
# shellcheck disable=SC2086
(cd "$root" && tar cf - audit $needs) | tar xf - -C "$work/source"
{
    cmake -G Ninja -S "$work/source/audit" -B "$work/build" -DISTHMUS_WERROR=ON
    cmake --build "$work/build"
    cmake --install "$work/build" --prefix "$work/prefix"
} >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
rm -rf "$work/source"
audit=$work/prefix/bin/isthmus-audit
"$audit" --version
page=$work/prefix/share/man/man1/isthmus-audit.1 # says of all options
for option in $("$audit" --help | sed -n 's/^  \(-[a-z], \|    \)--\([a-z-]*\).*/\2/p'); do
    tr -d '\\' <"$page" | grep -q "Fl -$option\( \|\$\)" || { echo "$page lacks --$option"; exit 1; }
done
"$audit" -- true 2>"$work/report" # with the layer, which is found from where the program is
grep -q 'audit of true' "$work/report"
"$audit" --source "$root/tests/audit/source/cupy_faults.py" | grep 'findings   2 critical'
