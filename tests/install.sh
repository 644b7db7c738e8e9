#!/bin/sh
# Installs the build into an empty folder and uses it from there as a stranger would: exported symbols, pkg-config with
# C and C++ (shared), CMake package with both libraries, the installed program, all of it moved. Then whether debian/
# has what the build has. ctest runs it: install.sh BUILD
#     install.sh debian [SUITE...]    the Debian packages (install_debian.sh)
#     install.sh container            the container (install_container.sh)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
debian | container)
    kind=$1
    shift
    exec sh "$here/install_$kind.sh" "$@"
    ;;
"") echo "usage: sh tests/install.sh BUILD | debian [SUITE...] | container" >&2; exit 2 ;;
esac
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/log" # whoever may write there; no root
echo "nothing is installed over something else; every subcommand has its man page"
test -z "$(sort "$work/log" | uniq -d)"
for command in $("$prefix/bin/isthmus" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -v isthmus); do
    test -s "$prefix/share/man/man1/isthmus-$command.1"
done
libdir=$(dirname "$(find "$prefix" -name libisthmus.so)")
PKG_CONFIG_PATH=$libdir/pkgconfig
LD_LIBRARY_PATH=$libdir
export PKG_CONFIG_PATH LD_LIBRARY_PATH

echo "symbols: the shared library exports the header's functions and nothing else"
sed -n 's/^[a-z].*[ *]\(ist_[a-z_]*\)(.*/\1/p' "$prefix/include/isthmus.h" | sort >"$work/declared"
nm -D --defined-only "$libdir/libisthmus.so" | awk '{print $NF}' | sort >"$work/exported"
diff "$work/declared" "$work/exported"
test -s "$work/declared"

cat >"$work/use.c" <<'C'
#include <isthmus.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    int count = -1;
    ist_error err;
    ist_config config = ist_config_default();
    if (ist_devices(0, 0, &count, &err) != IST_OK || count < 0) return 1;
    if (config.struct_size != sizeof config) return 2;
    ist_engine *engine = 0;
    config.device = "no such device";
    if (ist_open(&config, &engine, &err) != IST_E_NO_DEVICE || engine) return 3;
    printf("%s, %d devices; %s\n", ist_version(), count, err.text);
    return strcmp(ist_version(), VERSION) != 0;
}
C
cp "$work/use.c" "$work/use.cc"
version=$(pkg-config --modversion isthmus)
echo "pkg-config: version $version"
# shellcheck disable=SC2046
cc -std=c11 -pedantic -Wall -Wextra -Werror -DVERSION="\"$version\"" "$work/use.c" -o "$work/use_c" $(pkg-config --cflags --libs isthmus)
"$work/use_c"
# shellcheck disable=SC2046
c++ -std=c++11 -pedantic -Wall -Wextra -Werror -DVERSION="\"$version\"" "$work/use.cc" -o "$work/use_cc" $(pkg-config --cflags --libs isthmus)
"$work/use_cc"

echo "CMake: find_package(isthmus)"
mkdir "$work/package"
cat >"$work/package/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.22)
project(use LANGUAGES C)
find_package(isthmus ${version%.*} REQUIRED)
add_executable(use_shared ../use.c)
target_link_libraries(use_shared PRIVATE isthmus::isthmus)
add_executable(use_static ../use.c)
target_link_libraries(use_static PRIVATE isthmus::isthmus_static)
add_compile_definitions(VERSION="$version")
CMAKE
cmake -G Ninja -S "$work/package" -B "$work/package/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/package/build" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/package/build/use_shared"
"$work/package/build/use_static"

echo "isthmus-probe: found from where the library is, once"
probe=$libdir/isthmus/${version%%.*}/isthmus-probe
test -x "$probe"
cat >"$work/probe.sh" <<SH
#!/bin/sh
echo x >>"$work/probed"
exec "\$0.real" "\$@"
SH
mv "$probe" "$probe.real"
mv "$work/probe.sh" "$probe"
chmod +x "$probe"
cat >"$work/open.c" <<'C'
#include <isthmus.h>
#include <stdio.h>
int main(void) {
    ist_engine *engine = 0;
    ist_error err;
    ist_config config = ist_config_default();
    if (ist_open(&config, &engine, &err)) return fprintf(stderr, "%s\n", err.text), 1;
    ist_close(&engine);
    return 0;
}
C
# shellcheck disable=SC2046
cc "$work/open.c" -o "$work/open" $(pkg-config --cflags --libs isthmus)
ISTHMUS_CACHE_DIR="$work/cache" "$work/open"
ISTHMUS_CACHE_DIR="$work/cache" "$work/open" # known by now
test "$(cat "$work/probed")" = x

echo "moved: what was installed is found from where it is now"
mv "$prefix" "$work/elsewhere"
prefix=$work/elsewhere
libdir=$prefix${libdir#"$work/prefix"}
PKG_CONFIG_PATH=$libdir/pkgconfig
LD_LIBRARY_PATH=$libdir
ISTHMUS_CACHE_DIR="$work/cache_moved" "$work/open"
test "$(cat "$work/probed")" = "$(printf 'x\nx')"
# shellcheck disable=SC2046
cc "$work/open.c" -o "$work/open_moved" $(pkg-config --cflags --libs isthmus)
rm -r "$work/package/build"
cmake -G Ninja -S "$work/package" -B "$work/package/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" || { cat "$work/log"; exit 1; }

if [ -e "$build/isthmus" ]; then
    echo "program"
    "$prefix/bin/isthmus" --version
    echo "audit layer"
    "$prefix/bin/isthmus" audit -- true 2>"$work/audit"
    grep -q 'audit of true' "$work/audit"
    "$prefix/bin/isthmus-audit" -- true 2>"$work/alone"
    grep -q 'audit of true' "$work/alone"
    echo "weights: found from where the program is, and whole"
    weights=$prefix/share/isthmus/weights
    (cd "$weights" && sha256sum --quiet -c SHA256SUMS)
    "$prefix/bin/isthmus" predict "$weights/demo/frame-001.png" -o "$work/out" --quiet
    grep -q '"name":"bone"' "$work/out/frames.ndjson"
    echo "modules of formats: found from where the program is"
    for module in "$build"/isthmus-format-*.so; do
        case $module in
        *-tiff.so) file=palette.tif ;;
        *-dicom.so) file=pal.dcm ;;
        *) continue ;;
        esac
        "$prefix/bin/isthmus" predict "$here/fuzz/corpus/frames/$file" -o "$work/out" --no-masks --quiet
    done
    mv "$weights" "$work/away"
    code=0
    "$prefix/bin/isthmus" predict "$work/away/demo/frame-001.png" -o "$work/out2" 2>"$work/said" || code=$?
    test "$code" = 4
    grep -q 'there is no dfine_n_demo.safetensors in ' "$work/said"
fi

echo "debian/: the version, the symbols and the packages to build with are those of the build"
debian=$here/../debian
same() { [ "$1" = "$2" ] || { echo "$3: $1, want $2"; exit 1; }; }
same "$(sed -n '1s/.*(\(.*\)-[^-]*).*/\1/p' "$debian/changelog")" "$version" "version in debian/changelog"
sed -n 's/^ \(ist_[a-z_]*\)@Base .*/\1/p' "$debian/libisthmus0.symbols" | sort >"$work/listed"
diff "$work/declared" "$work/listed" || { echo "debian/libisthmus0.symbols is not the functions of isthmus.h"; exit 1; }
# list FILE VARIABLE: the words that the script sets it to, over one or more lines.
list() {
    awk -v head="^ *$2=\"" '$0 ~ head { on = 1; sub(head, "") } on && /"/ { sub(/".*/, ""); print; exit } on' "$1"
}
for p in $(list "$here/../apps/demo.sh" packages) $(list "$here/../apps/demo.sh" optional) $(list "$here/run.sh" may); do
    case $p in
    gcc | g++ | libc6-dev | pocl-opencl-icd) continue ;; # part of build-essential; for running
    pkg-config) p=pkgconf ;;                             # what is behind that name since Debian 12
    esac
    grep -q "^ $p\b.*,$" "$debian/control" || { echo "Build-Depends of debian/control lacks $p"; exit 1; }
done
