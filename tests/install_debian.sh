#!/bin/sh
# The Debian packages: install_debian.sh [SUITE...]
#
# With suites (bookworm, trixie): the source package is made of this checkout and built in a root of its own as Debian's
# machines build, by a user without home and network; cleaning leaves the source as it was; a second build, elsewhere and
# without tests, gives the same bits; lintian finds nothing. In a bare root the packages are offered as an archive, each
# test of debian/tests runs with what it depends on and no more, the packages replace an older version, and removing them
# leaves nothing. Needs root, debootstrap and Debian's archive.
#
# Without suites: on this machine, where debhelper and the build dependencies are; the packages are then unpacked and
# used without being installed. Exit code 77: left out.
#
# Environment: ROOTS (folder that keeps bare roots and those with what the build needs), MIRROR.
# shellcheck disable=SC2016,SC2046,SC2086 # lists of words, and what the root's own shell expands
set -eu
. "$(dirname "$0")/roots.sh"
new=$(sed -n '1s/.*(\(.*\)).*/\1/p' "$here/debian/changelog")
old=0~$new
version=${new%-*}
packages="isthmus libisthmus0 libisthmus-dev isthmus-weights isthmus-audit"

# sources FOLDER: the upstream archive and the unpacked source package, of what git has and what it would take.
sources() {
    checkout "$1/isthmus-$version"
    tar -czf "$1/isthmus_$version.orig.tar.gz" -C "$1" --exclude "isthmus-$version/debian" "isthmus-$version"
}

# every_package FOLDER: it has the five, and each has what it is for.
every_package() {
    for package in $packages; do dpkg-deb -c "$1/${package}_$version"-*.deb >"$work/$package"; done
    while read -r package file; do
        grep -q " \./$file" "$work/$package" || { echo "$package has no $file"; return 1; }
    done <<LIST
isthmus usr/bin/isthmus$
isthmus usr/lib/.*/isthmus/[0-9.]*/isthmus-format-dicom\.so$
isthmus usr/lib/.*/isthmus/[0-9.]*/isthmus-format-tiff\.so$
isthmus usr/lib/.*/isthmus/[0-9.]*/isthmus-format-video\.so$
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
    quietly dpkg-buildpackage -jauto -us -uc
    every_package ..
    if command -v lintian >/dev/null; then lintian --fail-on error,warning ../*.changes; fi
    for deb in ../*.deb; do dpkg-deb -x "$deb" "$work/root"; done
    export ISTHMUS_CACHE_DIR="$work/cache"
    "$work/root/usr/bin/isthmus" predict "$work/root/usr/share/isthmus/weights/demo/frame-001.png" -o "$work/out" --quiet
    grep -q '"name":"bone"' "$work/out/frames.ndjson"
    echo "ok: packages of this machine"
    exit 0
fi

if ! can_have_roots; then
    echo "left out: Debian packages in roots of their own; that needs root and debootstrap"
    exit 77
fi

# In the root: as root, as a user who has a home, and as Debian's machines build.
inside="LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
as_root() { quietly chroot "$root" env -i $inside DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { quietly chroot --userspec=user "$root" env -i $inside HOME=/home/user "$@"; }
as_builder() { quietly unshare -n chroot --userspec=user "$root" env -i $inside HOME=/nonexistent "$@"; }
add() { as_root apt-get install -y --no-install-recommends "$@"; }
ready() {
    as_root apt-get update
    [ -d "$root/home/user" ] || as_root useradd -m user
}

# older: packages of a version before this one, for the rest the same.
older() {
    for package in $packages; do
        as_root sh -c "cd /build && dpkg-deb -R ${package}_${new}_*.deb older &&
            sed -i 's/$new/$old/' older/DEBIAN/control && dpkg-deb -b -Zgzip -z1 older . && rm -r older"
    done
}

# are_installed VERSION PACKAGE...: and no other of ours, not even its configuration.
are_installed() {
    for package in $packages; do
        chroot "$root" dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' "$package" 2>/dev/null || true
    done | grep -v '^not-installed' | sort >"$work/have"
    want=$1
    shift
    for package in "$@"; do echo "installed $package $want"; done | sort | diff - "$work/have"
}

# run_test NAME: one of debian/tests, with what it depends on.
run_test() {
    echo "$suite: debian/tests/$1"
    depends=$(awk -v name="$1" '/^Tests:/ { on = $2 == name } on && sub(/^Depends:/, "") { gsub(",", ""); print }' \
        "$root/packages/tests/control")
    [ -n "$depends" ]
    add $depends
    as_user sh -c "rm -rf ~/$1 && mkdir ~/$1 && AUTOPKGTEST_TMP=~/$1 /packages/tests/$1"
}

for suite in "$@"; do
    echo "$suite: built by a user without home and network"
    root=$roots/$suite
    root_at "$root" "$suite"
    ready
    add build-essential lintian
    rm -rf "$root/build"
    sources "$root/build"
    as_root sh -c "cd /build/isthmus-$version && apt-get build-dep -y --no-install-recommends ./"
    as_root chown -R user /build
    as_builder sh -c "cd /build/isthmus-$version && dpkg-buildpackage -jauto -us -uc"
    every_package "$root/build"

    echo "$suite: cleaned, the source package is the same; built from that elsewhere, without tests, so are the packages"
    as_builder sh -c "cd /build/isthmus-$version && debian/rules clean && mkdir ../again && cp ../*.orig.tar.gz ../again &&
        mv ../isthmus-$version ../again/other && cd ../again && dpkg-source -b other && cmp *.dsc ../*.dsc && rm -r other"
    as_builder TZ=EAST-14 LC_ALL=C sh -c "umask 002 && cd /build/again && dpkg-source -x *.dsc other && cd other &&
        DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -jauto -b -us -uc"
    for deb in "$root"/build/*.deb; do cmp "$deb" "$root/build/again/${deb##*/}"; done

    echo "$suite: lintian"
    # the policy is Debian 12's, which is old in 13
    as_builder sh -c "cd /build && lintian -I --pedantic --suppress-tags out-of-date-standards-version \
        --fail-on error,warning,info,pedantic isthmus_*.changes"

    echo "$suite: a bare root, the packages offered as an archive, with those of an older version"
    older
    as_root sh -c "cd /build && rm -f *-dbgsym_*.deb && dpkg-scanpackages -m . >Packages"
    mkdir "$work/packages"
    mv "$root"/build/*.deb "$root/build/Packages" "$root/build/again/other/debian/tests" "$work/packages"
    rm -r "$root/build"
    root=$work/$suite
    root_at "$root" "$suite"
    mv "$work/packages" "$root/packages"
    echo "deb [trusted=yes] file:/packages ./" >"$root/etc/apt/sources.list.d/packages.list"
    ready
    as_root sh -c 'apt-get -s install isthmus | sed -n "s/^Inst \([^ ]*\).*/\1/p" >/recommended'
    for package in isthmus-audit isthmus-weights pocl-opencl-icd; do
        grep -qx "$package" "$root/recommended" || { echo "isthmus does not bring $package"; exit 1; }
    done
    run_test audit
    are_installed "$new" isthmus-audit
    as_root apt-get purge -y isthmus-audit
    add $(for package in $packages; do echo "$package=$old"; done)
    are_installed "$old" $packages
    as_root apt-get upgrade -y
    are_installed "$new" $packages
    for t in $(sed -n 's/^Tests: //p' "$root/packages/tests/control"); do run_test "$t"; done

    echo "$suite: removed"
    chroot "$root" dpkg -L $packages | grep '^/[^.]' | sort -u >"$work/owned"
    as_root apt-get remove -y $packages
    are_installed none
    while read -r f; do
        [ ! -e "$root$f" ] || chroot "$root" dpkg -S "$f" >/dev/null 2>&1 || echo "$f"
    done <"$work/owned" >"$work/left"
    chroot "$root" find /etc /opt /root /srv /usr /var -xdev -name '*isthmus*' ! -path '/var/lib/apt/*' >>"$work/left"
    [ ! -s "$work/left" ] || { echo "FAILED in $suite: removing leaves"; cat "$work/left"; exit 1; }
    echo "ok: packages of $suite"
done
