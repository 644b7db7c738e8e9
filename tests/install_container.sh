#!/bin/sh
# The container: install_container.sh. Builds what the Containerfile says and runs it on a frame of the demo, as a user
# who is not root. Where neither podman nor a docker that answers is to be had, Debian's podman does it in a root of its
# own, on images that are what debootstrap makes, for no registry is asked; that needs root and Debian's archive. Exit
# code 77: left out.
#
# Environment: ROOTS (folder that keeps bare roots and podman's), MIRROR, CONTAINER (podman, docker or root).
set -eu
. "$(dirname "$0")/roots.sh"
mkdir -m 777 "$work/data"
cp "$here/weights/demo/frame-001.png" "$work/data"
chmod 755 "$work"
chmod 644 "$work/data/frame-001.png"
checkout "$work/context"

at=$work
tool=${CONTAINER:-}
if [ -z "$tool" ]; then
    tool=root
    for t in podman docker; do
        if command -v $t >/dev/null && $t info >/dev/null 2>&1; then tool=$t; fi
    done
fi
if [ "$tool" = root ]; then
    if ! can_have_roots; then
        echo "left out: the container; neither podman nor docker, nor root with debootstrap for one"
        exit 77
    fi
    echo "podman in a root of its own"
    root=$roots/podman
    root_at "$root" trixie
    quietly chroot "$root" apt-get update
    quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends crun podman
    mount_at "$root/sys/fs/cgroup" -t cgroup2 -o ro cgroup2
    mount_at "$root/mnt" --bind "$work"
    at=/mnt
    # No network and no control groups of its own, which would need a whole system around it, and the limits that are
    # there; layers over each other where the kernel lets us, else copies.
    mkdir "$work/low" "$work/high" "$work/aside" "$work/both"
    driver=vfs
    if mount -t overlay -o "lowerdir=$work/low,upperdir=$work/high,workdir=$work/aside" overlay "$work/both" 2>/dev/null; then
        umount "$work/both"
        driver=overlay
    fi
    # shellcheck disable=SC2016
    limits=$(chroot "$root" bash -c 'printf "\"%s=%s:%s\"," nofile "$(ulimit -n)" "$(ulimit -n)" nproc "$(ulimit -u)" "$(ulimit -u)"')
    printf '[containers]\nnetns = "host"\ncgroups = "disabled"\ndefault_ulimits = [%s]\n' \
        "$(echo "$limits" | sed 's/unlimited/-1/g')" >"$root/etc/containers/containers.conf"
    printf '[storage]\ndriver = "%s"\nrunroot = "%s/run"\ngraphroot = "%s/storage"\n' $driver $at $at >"$root/etc/containers/storage.conf"
    tool="chroot $root env BUILDAH_ISOLATION=chroot podman"
    for image in $(sed -n 's/^FROM \([^ ]*\).*/\1/p' "$here/Containerfile" | sort -u); do
        suite=$(echo "$image" | sed -n 's/.*debian:\([a-z]*\)-slim$/\1/p')
        [ -n "$suite" ] || { echo "Containerfile: $image is none of Debian's"; exit 1; }
        root_at "$work/$suite" "$suite"
        tar -c --one-file-system -C "$work/$suite" . | $tool import - "$image" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    done
fi

# build IMAGE OPTIONS...
build() {
    image=$1
    shift
    $tool build "$@" -f "$at/context/Containerfile" -t "$image" "$at/context" >"$work/log" 2>&1 || { tail -n 60 "$work/log"; exit 1; }
    $tool image inspect --format "$image: {{.Size}} bytes" "$image"
}
# container IMAGE ARGUMENTS...
container() { $tool run --rm --user 1234:1234 -v "$at/data:/data" "$@"; }

build isthmus-test
container isthmus-test | grep -q '^  isthmus SUBCOMMAND'
container isthmus-test predict frame-001.png -o out --quiet
grep -q '"name":"bone"' "$work/data/out/frames.ndjson"
build isthmus-test-no-driver --build-arg ICD=
code=0
container isthmus-test-no-driver predict frame-001.png -o out2 --quiet 2>"$work/said" || code=$?
[ "$code" = 3 ] || { cat "$work/said"; echo "without a driver: exit code $code, want 3"; exit 1; }
$tool rmi isthmus-test isthmus-test-no-driver >/dev/null
echo "ok: container by ${tool##* }"
