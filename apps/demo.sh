#!/bin/sh
# From nothing to boxes and masks: sh apps/demo.sh [IMAGE or FOLDER]...
#
# Installs the packages that are missing (Debian, Ubuntu; asks before sudo), builds into build/, and runs `isthmus
# predict` on the given images or on the demo frames, whose ground truth `isthmus eval` compares with. Without trained
# weights in weights/ it makes synthetic checkpoints (random numbers in the published architectures, so that the
# computation is real and the boxes are arbitrary) and takes the frames in apps/frames.
set -eu
if [ $# -gt 0 ]; then # given paths are relative to where the user is
    from=$(pwd)
    for path in "$@"; do
        shift
        case $path in /*) set -- "$@" "$path" ;; *) set -- "$@" "$from/$path" ;; esac
    done
fi
cd "$(dirname "$0")/.."
. apps/as_root.sh

packages="cmake ninja-build gcc libc6-dev pkg-config ocl-icd-opencl-dev pocl-opencl-icd libjansson-dev libzip-dev
  libpng-dev libisal-dev libturbojpeg0-dev libcairo2-dev libdw-dev libarchive-dev libmicrohttpd-dev libcriterion-dev"
if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    missing=
    for p in $packages; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
    done
    if [ -n "$missing" ]; then
        # What isthmus does without where there is none: OpenIGTLink for `live`, image formats, --config.
        optional="g++ libopenigtlink-dev libtiff-dev libwebp-dev libdcmtk-dev libopenjp2-7-dev libavformat-dev
          libavcodec-dev libswscale-dev libtomlplusplus-dev"
        # shellcheck disable=SC2086
        may_install "apt-get install --no-install-recommends" $missing $optional || exit 1
        echo "installing$missing"
        as_root apt-get update -q >/dev/null || echo "apt-get update failed; going on with the lists there are"
        # shellcheck disable=SC2086
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null
        for p in $optional; do
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$p" \
                >/dev/null 2>&1 || echo "$p is not to be had"
        done
    fi
fi

echo "building into build/"
mkdir -p build/demo
{ cmake -G Ninja -S . -B build && ninja -C build isthmus_cli make_checkpoint; } >build/demo/build.log 2>&1 ||
    { tail -n 30 build/demo/build.log; echo "the build failed; all of it is in build/demo/build.log"; exit 1; }

detector=weights/dfine_n_demo.safetensors
segmenter=weights/mobile_sam_demo.safetensors
synthetic=
if [ ! -f "$detector" ] || [ ! -f "$segmenter" ]; then
    synthetic=yes
    detector=build/demo/dfine_n_synthetic.safetensors
    segmenter=build/demo/mobile_sam_synthetic.safetensors
    [ -f "$detector" ] || build/tests/make_checkpoint n g:1 80 "$detector"
    [ -f "$segmenter" ] || build/tests/make_checkpoint sam g:1 1 "$segmenter"
fi

truth=
if [ $# -eq 0 ]; then
    set -- apps/frames
    if [ -z "$synthetic" ] && [ -f weights/demo/annotations.json ]; then
        truth=weights/demo/annotations.json
        set -- weights/demo
    fi
fi
[ -z "$synthetic" ] || set -- "$@" --max-objects 3
build/isthmus devices
echo "looking for objects (the first run also compiles kernels)"
code=0
build/isthmus predict "$@" -o build/demo/out --detector "$detector" --segmenter "$segmenter" || code=$?
[ "$code" = 0 ] || [ "$code" = 7 ] || exit "$code"
if [ -n "$truth" ]; then
    echo
    echo "compared with the ground truth ($truth):"
    build/isthmus eval --annotations "$truth" "$@" --detector "$detector" --segmenter "$segmenter" --max-objects 20 ||
        code=$?
fi

echo
echo "pictures   build/demo/out/overlays"
echo "masks      build/demo/out/masks"
echo "numbers    build/demo/out/results.json (COCO), build/demo/out/frames.ndjson (one line per image)"
if [ -n "$synthetic" ]; then
    echo "The checkpoints are synthetic (random weights): boxes, names and masks are arbitrary. For real objects use"
    echo "published ones: build/isthmus predict ... --detector dfine_s_coco.pth --segmenter mobile_sam.pt"
fi
exit "$code"
