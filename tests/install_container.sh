#!/bin/sh
# The container: install_container.sh. Builds what the Containerfile says and runs it on a frame of the demo, as a user
# who is not root. Where podman, buildah or a docker that answers is not to be had, the file's lines are carried out one
# by one in roots that debootstrap makes, which needs root and Debian's archive; that shows that the steps work and what
# they give, not that a tool reads the file. Exit code 77: left out.
#
# Environment: ROOTS (folder that keeps the bare root), MIRROR, CONTAINER (podman, docker or replay).
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
mounted=
leave() {
    for m in $mounted; do umount -l "$m"; done
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP
data=$work/data
mkdir -m 777 "$data"
cp "$here/weights/demo/frame-001.png" "$data"
chmod 644 "$data/frame-001.png"

tool=${CONTAINER:-}
if [ -z "$tool" ]; then
    tool=replay
    for t in podman docker; do
        if command -v $t >/dev/null && $t info >/dev/null 2>&1; then tool=$t; fi
    done
fi
if [ "$tool" != replay ]; then
    "$tool" build -f "$here/Containerfile" -t isthmus-test "$here"
    "$tool" run --rm --user 1234:1234 -v "$data:/data" isthmus-test predict frame-001.png -o out --quiet
    "$tool" image inspect --format '{{.Size}} bytes' isthmus-test
    grep -q '"name":"bone"' "$data/out/frames.ndjson"
    echo "ok: container by $tool"
    exit 0
fi

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "left out: the container; neither podman nor docker, nor root with debootstrap for its steps"
    exit 77
fi
mount_at() { # mount_at TARGET ARGUMENTS...
    target=$1
    shift
    mount "$@" "$target"
    mounted="$target $mounted"
}
say() { echo "Containerfile:$number: $*" | cut -c 1-110; }

number=0
stage=
while IFS= read -r line; do
    number=$((number + 1))
    case $line in "" | \#*) continue ;; esac
    word=${line%% *} rest=${line#* }
    case $word in
    FROM)
        say "$line"
        suite=$(echo "$rest" | sed -n 's/.*debian:\([a-z]*\)-slim.*/\1/p')
        stage=$(echo "$rest" | sed -n 's/.* AS //p')
        stage=${stage:-final}
        root=$work/$stage bare=${ROOTS:-$work}/bare-$suite
        if [ ! -e "$bare/ready" ]; then
            debootstrap --variant=minbase "$suite" "$bare" "$mirror" >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
            touch "$bare/ready"
        fi
        cp -a "$bare" "$root"
        cp /etc/resolv.conf "$root/etc/resolv.conf"
        for f in /etc/apt/apt.conf.d/*; do # how the archive is reached is this machine's affair
            if grep -iq 'acquire::' "$f" 2>/dev/null; then cp "$f" "$root/etc/apt/apt.conf.d/"; fi
        done
        mount_at "$root/proc" -t proc proc
        mount_at "$root/sys" -t sysfs -o ro sysfs # PoCL reads the processor there
        set_env="env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        folder=/
        entry=
        before=$(du -sx "$root" | cut -f 1)
        ;;
    ENV | ARG) eval "for v in $rest; do set_env=\"\$set_env '\$v'\"; done" ;;
    WORKDIR)
        folder=$rest
        mkdir -p "$root$folder"
        ;;
    VOLUME) mkdir -p "$root$rest" ;;
    COPY)
        to=$root$folder/${rest##* }
        for from in ${rest% *}; do
            mkdir -p "$to"
            (cd "$here" && git ls-files -co --exclude-standard "$from" | while read -r f; do [ ! -e "$f" ] || echo "$f"; done) >"$work/files"
            [ -s "$work/files" ] || { say "there is no $from"; exit 1; }
            strip=
            [ ! -d "$here/$from" ] || strip=--strip-components=1
            (cd "$here" && tar -cf - -T "$work/files") | tar -xf - -C "$to" $strip
        done
        ;;
    RUN)
        case $rest in
        --mount=*)
            options=${rest%% *} rest=${rest#* }
            of() { echo "$options" | sed -n "s/.*[=,]$1=\([^,]*\).*/\1/p"; }
            mkdir -p "$root$(of target)"
            mount_at "$root$(of target)" --bind "$work/$(of from)$(of source)"
            ;;
        esac
        say "RUN $rest"
        printf 'cd %s\n%s\n' "$folder" "$rest" >"$root/step"
        eval "chroot '$root' $set_env sh -e /step" </dev/null >"$work/log" 2>&1 || { tail -n 60 "$work/log"; say "failed"; exit 1; }
        rm "$root/step"
        ;;
    ENTRYPOINT) entry=$(echo "$rest" | tr -d '[]",') ;;
    CMD) ;;
    *)
        say "$word is not known here"
        exit 1
        ;;
    esac
done <"$here/Containerfile"
echo "the image adds $((($(du -sx "$root" | cut -f 1) - before) / 1024)) MiB to Debian's"

mount_at "$root$folder" --bind "$data"
eval "chroot --userspec=1234:1234 '$root' $set_env sh -c 'cd $folder && exec $entry predict frame-001.png -o out --quiet'"
grep -q '"name":"bone"' "$data/out/frames.ndjson"
echo "ok: container, its steps replayed"
