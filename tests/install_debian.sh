#!/bin/sh
# The Debian packages: install_debian.sh [SUITE...]
#
# With suites (bookworm, trixie), each in a bare root made by debootstrap: the source package is built from this checkout,
# the packages from that; lintian finds nothing; they are installed with apt, the tests of debian/tests pass, and purging
# leaves nothing. Needs root, debootstrap and Debian's archive. Without suites: on this machine, where debhelper and the
# build dependencies are; the packages are then unpacked and used without being installed. Exit code 77: left out.
#
# Environment: ROOTS (folder for the roots, which are kept and used again; default: a temporary one), MIRROR.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
version=$(sed -n '1s/.*(\(.*\)-[^-]*).*/\1/p' "$here/debian/changelog")
work=$(mktemp -d)
mounted=
leave() {
    for m in $mounted; do umount -l "$m"; done
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP
packages="isthmus libisthmus0 libisthmus-dev isthmus-weights isthmus-audit"

# sources FOLDER: the upstream archive and the unpacked source package, of what git has and what it would take.
sources() {
    mkdir -p "$1/isthmus-$version"
    (cd "$here" && git ls-files -co --exclude-standard | while read -r f; do [ ! -e "$f" ] || echo "$f"; done) >"$work/files"
    (cd "$here" && tar -cf - -T "$work/files") | tar -xf - -C "$1/isthmus-$version"
    tar -czf "$1/isthmus_$version.orig.tar.gz" -C "$1" --exclude "isthmus-$version/debian" "isthmus-$version"
}

# every_package FOLDER: it has the five, and each has what it is for.
every_package() {
    for package in $packages; do dpkg-deb -c "$1/${package}_$version"-*.deb >"$work/$package"; done
    while read -r package file; do
        grep -q " \./$file" "$work/$package" || { echo "$package has no $file"; return 1; }
    done <<LIST
isthmus usr/bin/isthmus$
isthmus usr/share/bash-completion/completions/isthmus$
isthmus usr/share/fish/vendor_completions\.d/isthmus\.fish$
isthmus usr/share/zsh/vendor-completions/_isthmus$
isthmus usr/share/man/man1/isthmus\.1\.gz$
isthmus usr/share/man/man1/isthmus-predict\.1\.gz$
isthmus-audit usr/share/man/man1/isthmus-audit\.1\.gz$
isthmus-audit usr/bin/isthmus-audit$
isthmus-audit usr/lib/.*/isthmus/isthmus-audit-layer\.so$
libisthmus0 usr/lib/.*/libisthmus\.so\.0 ->
libisthmus0 usr/lib/.*/isthmus/0/isthmus-probe$
libisthmus-dev usr/include/isthmus\.h$
libisthmus-dev usr/lib/.*/libisthmus\.so ->
libisthmus-dev usr/lib/.*/libisthmus\.a$
libisthmus-dev usr/lib/.*/pkgconfig/isthmus\.pc$
libisthmus-dev usr/lib/.*/cmake/isthmus/isthmusConfig\.cmake$
isthmus-weights usr/share/isthmus/weights/dfine_n_demo\.safetensors$
isthmus-weights usr/share/isthmus/weights/SHA256SUMS$
isthmus-weights usr/share/isthmus/weights/demo/frame-001\.png$
LIST
}

if [ $# = 0 ]; then
    if ! command -v dh >/dev/null || ! (cd "$here" && dpkg-checkbuilddeps) 2>"$work/lacks"; then
        echo "left out: Debian packages; debhelper or build dependencies are not installed: $(cat "$work/lacks" 2>/dev/null)"
        exit 77
    fi
    sources "$work/build"
    cd "$work/build/isthmus-$version"
    dpkg-buildpackage -jauto -us -uc >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
    every_package ..
    if command -v lintian >/dev/null; then lintian --fail-on error,warning ../*.changes; fi
    for deb in ../*.deb; do dpkg-deb -x "$deb" "$work/root"; done
    export ISTHMUS_CACHE_DIR="$work/cache"
    "$work/root/usr/bin/isthmus" predict "$work/root/usr/share/isthmus/weights/demo/frame-001.png" -o "$work/out" --quiet
    grep -q '"name":"bone"' "$work/out/frames.ndjson"
    echo "ok: packages of this machine"
    exit 0
fi

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "left out: Debian packages in roots of their own; that needs root and debootstrap"
    exit 77
fi
for suite in "$@"; do
    root=${ROOTS:-$work/roots}/$suite
    if [ ! -e "$root/ready" ]; then
        echo "$suite: a bare root"
        mkdir -p "$root"
        debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
        # Where packages come from and how is this machine's affair.
        if [ -d /etc/apt/apt.conf.d ]; then
            for f in /etc/apt/apt.conf.d/*; do grep -iq 'acquire::' "$f" 2>/dev/null && cp "$f" "$root/etc/apt/apt.conf.d/"; done
        fi
        touch "$root/ready"
    fi
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    for m in proc sys; do
        mountpoint -q "$root/$m" && continue
        mount -t ${m}fs $m "$root/$m" 2>/dev/null || mount -t $m $m "$root/$m"
        mounted="$mounted $root/$m"
    done
    run() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@" >"$work/log" 2>&1 || { tail -n 60 "$work/log"; echo "FAILED in $suite: $*"; exit 1; }; }
    install="apt-get install -y --no-install-recommends"
    rm -rf "$root/build"
    sources "$root/build"

    echo "$suite: source package and packages"
    run apt-get update
    # shellcheck disable=SC2086
    run $install build-essential lintian
    run sh -c "cd /build/isthmus-$version && apt-get build-dep -y --no-install-recommends ./"
    run sh -c "cd /build/isthmus-$version && dpkg-buildpackage -jauto -us -uc"
    every_package "$root/build"
    echo "$suite: lintian"
    run sh -c "cd /build && lintian --fail-on error,warning --show-overrides isthmus_$version-*.changes"

    echo "$suite: installed"
    # shellcheck disable=SC2086
    run sh -c "cd /build && $install ./*.deb pocl-opencl-icd gcc libc6-dev cmake make pkgconf"
    for t in predict library audit; do
        echo "$suite: debian/tests/$t"
        mkdir "$root/build/$t"
        run env AUTOPKGTEST_TMP="/build/$t" "/build/isthmus-$version/debian/tests/$t"
    done
    # shellcheck disable=SC2086
    run apt-get purge -y $packages
    left=$(chroot "$root" find /usr /etc /var/lib -xdev -path '*isthmus*' ! -path '/var/lib/apt/*' | head -n 5)
    [ -z "$left" ] || { echo "FAILED in $suite: purging leaves $left"; exit 1; }
    echo "ok: packages of $suite"
done
