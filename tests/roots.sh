# shellcheck shell=sh
# Bare roots of Debian and this checkout in them, for scripts that source this (install_debian.sh, install_container.sh,
# runtimes.sh).
# What is mounted and made is gone when the script ends, however it ends.
#
# Environment: ROOTS (folder that keeps the roots, to be used again; default: a temporary one), MIRROR.
# Sets: here (this checkout), work (a folder that is removed), roots. Changes the traps of EXIT, INT, TERM and HUP.
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
roots=${ROOTS:-$work/roots}
mounted=
leave() {
    for m in $mounted; do umount -l "$m"; done
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP

can_have_roots() { [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; }

# quietly COMMAND...: what it says is shown if it fails, which ends the script.
quietly() {
    "$@" >"$work/log" 2>&1 </dev/null || { tail -n 60 "$work/log"; echo "FAILED: $*"; exit 1; }
}

# mount_at TARGET ARGUMENTS...
mount_at() {
    target=$1
    shift
    mount "$@" "$target"
    mount --make-private "$target"
    mounted="$target $mounted"
}

# bare_root SUITE: as debootstrap makes it, kept as $roots/bare-SUITE.
bare_root() {
    bare=$roots/bare-$1
    [ ! -e "$bare" ] || return 0
    rm -rf --one-file-system "$bare.new"
    mkdir -p "$bare.new"
    quietly debootstrap --variant=minbase "$1" "$bare.new" "${MIRROR:-http://deb.debian.org/debian}"
    for f in /etc/apt/apt.conf.d/*; do # how the archive is reached is this machine's affair; a package's file is not
        if grep -iq 'acquire::' "$f" 2>/dev/null && ! dpkg -S "$f" >/dev/null 2>&1; then cp "$f" "$bare.new/etc/apt/apt.conf.d/"; fi
    done
    echo force-unsafe-io >"$bare.new/etc/dpkg/dpkg.cfg.d/roots" # no waiting for the disk: a root that is lost is made again
    mv "$bare.new" "$bare"
}

# root_at FOLDER SUITE: a copy of the bare root, or what was left there, with what programs expect to be mounted.
root_at() {
    bare_root "$2"
    if [ ! -e "$1" ]; then
        rm -rf --one-file-system "$1.new"
        cp -a "$roots/bare-$2" "$1.new"
        mv "$1.new" "$1"
    fi
    mount_at "$1" --bind "$1" # programs that make mounts of their own want one at /
    cp /etc/resolv.conf "$1/etc/resolv.conf"
    mount_at "$1/proc" -t proc proc
    mount_at "$1/sys" -t sysfs -o ro sysfs # PoCL reads the processor there
    mount_at "$1/dev/shm" -t tmpfs -o mode=1777 tmpfs
    mount_at "$1/dev/pts" -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts # apt and cli_progress ask for terminals
}

# checkout FOLDER [PATH...]: what git has of this checkout, or of these paths of it, and what it would take.
checkout() {
    to=$1
    shift
    mkdir -p "$to"
    (cd "$here" && git ls-files -co --exclude-standard -- "$@" | while read -r f; do [ ! -e "$f" ] || echo "$f"; done) >"$work/files"
    [ -s "$work/files" ] || { echo "there is no $*"; return 1; }
    tar -cf - -C "$here" -T "$work/files" | tar -xf - -C "$to"
}
