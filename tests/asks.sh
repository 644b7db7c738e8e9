#!/bin/sh
# What apps/as_root.sh does for a user who is not root: nothing is installed without a yes. Programs of this script's own
# stand for id, sudo and apt-get.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "${USER_ID:-1000}"\n' >"$work/bin/id"
printf '#!/bin/sh\necho "sudo $*" >>"%s"\n' "$work/ran" >"$work/bin/sudo"
printf '#!/bin/sh\necho "apt-get $*" >>"%s"\n' "$work/ran" >"$work/bin/apt-get"
chmod +x "$work"/bin/*
cat >"$work/install" <<SH
. "$here/apps/as_root.sh"
may_install "apt-get install" one two || exit 3
as_root apt-get install one two
SH
PATH=$work/bin:$PATH
unset ISTHMUS_YES

# run WHAT CODE RAN COMMAND...: the script's exit code and what it ran.
run() {
    what=$1 want=$2 expected=$3
    shift 3
    rm -f "$work/ran"
    code=0
    "$@" >"$work/said" 2>&1 || code=$?
    ran=$(cat "$work/ran" 2>/dev/null || true)
    if [ "$code" = "$want" ] && [ "$ran" = "$expected" ]; then
        echo "ok: $what"
    else
        echo "FAILED: $what: exit code $code, ran: $ran"
        cat "$work/said"
        exit 1
    fi
}
run "root is not asked" 0 "apt-get install one two" env USER_ID=0 sh "$work/install" </dev/null
run "without a terminal nothing is run" 3 "" sh "$work/install" </dev/null
grep -q 'As root: apt-get install one two$' "$work/said"
grep -q 'ISTHMUS_YES=1' "$work/said"
run "a yes beforehand" 0 "sudo apt-get install one two" env ISTHMUS_YES=1 sh "$work/install" </dev/null
grep -q '^to be installed with sudo: one two$' "$work/said"
run "another value is no yes" 3 "" env ISTHMUS_YES=0 sh "$work/install" </dev/null
rm "$work/bin/sudo"
mkdir "$work/few"
for tool in sh cat; do ln -s "$(command -v $tool)" "$work/few/$tool"; done
ln -s "$work/bin/id" "$work/few/id"
run "without sudo nothing is run" 3 "" env PATH="$work/few" ISTHMUS_YES=1 sh "$work/install" </dev/null
grep -q 'there is no sudo' "$work/said"

# At a terminal, which script (util-linux) makes where there are pseudo-terminals.
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    printf '#!/bin/sh\necho "sudo $*" >>"%s"\n' "$work/ran" >"$work/bin/sudo"
    chmod +x "$work/bin/sudo"
    answer() { printf '%s\n' "$1" | script -qec "sh $work/install" /dev/null; }
    run "no at the terminal" 3 "" answer n
    run "nothing at the terminal" 3 "" answer ""
    run "yes at the terminal" 0 "sudo apt-get install one two" answer y
    grep -q 'Install them now' "$work/said"
fi
