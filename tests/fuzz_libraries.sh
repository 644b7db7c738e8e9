#!/bin/sh
# The libraries that read untrusted files for us, instrumented as the fuzz targets are: sh tests/fuzz_libraries.sh PREFIX
#
# Fetches the sources of this Debian's own packages (apt-get source, with lists of its own: nothing of the system's changes),
# builds them with clang, libFuzzer's counters and the address sanitizer, and installs shared libraries below PREFIX, from
# where tests/fuzz.sh links them. What is there already is kept. Assembly is left out, which nothing could look into.
# Prints a line per library: one whose sources are not to be had, or do not build, stays the system's.
set -u
[ $# = 1 ] || { echo "usage: sh tests/fuzz_libraries.sh PREFIX" >&2; exit 2; }
mkdir -p "$1/src" "$1/apt/lists/partial" "$1/apt/cache/archives/partial" || exit 1
prefix=$(cd "$1" && pwd)
jobs=${JOBS:-$(nproc)}
flags="-O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address"
export CC=clang CFLAGS="$flags" LDFLAGS="-L$prefix/lib -Wl,-rpath,$prefix/lib" CPPFLAGS="-I$prefix/include"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" ASAN_OPTIONS=detect_leaks=0

leave_all_out() {
    echo "left out, no library is instrumented: $1"
    exit 0
}

# The system's sources with "deb-src" for "deb".
apt_source() {
    apt-get -q -o Dir::Etc::SourceList="$prefix/apt/sources.list" -o Dir::Etc::SourceParts="$prefix/apt/parts" \
        -o Dir::State::Lists="$prefix/apt/lists" -o Dir::Cache="$prefix/apt/cache" -o APT::Sandbox::User="" "$@"
}
prepare_apt() {
    command -v apt-get >/dev/null && command -v dpkg-source >/dev/null || leave_all_out "no apt-get, or no dpkg-source (Debian: dpkg-dev)"
    mkdir -p "$prefix/apt/parts"
    grep -hs '^deb ' /etc/apt/sources.list /etc/apt/sources.list.d/*.list | sed 's/^deb /deb-src /' >"$prefix/apt/sources.list"
    for list in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$prefix/apt/parts/$(basename "$list")"
    done
    apt_source update >"$prefix/apt.log" 2>&1 || leave_all_out "$(tail -n 1 "$prefix/apt.log")"
}

# The newest sources of a package or, where a mirror lacks those, the release's.
fetch() {
    apt_source source "$1" || apt_source source "$1/$(. /etc/os-release && echo "$VERSION_CODENAME")"
}

# library NAME FILE SOURCE COMMAND: unless lib/FILE is there, fetches the package SOURCE and runs COMMAND in its folder.
library() {
    name=$1 file=$2 package=$3 log=$prefix/$1.log
    shift 3
    if [ ! -e "$prefix/lib/$file" ]; then
        [ -e "$prefix/apt.log" ] || prepare_apt
        rm -rf "$prefix/src/$name" "$prefix/src/build-$name"
        mkdir -p "$prefix/src/$name"
        if ! (cd "$prefix/src/$name" && fetch "$package") >"$log" 2>&1; then
            echo "left out: $name: $(tail -n 1 "$log")"
            return
        fi
        if ! (cd "$prefix/src/$name" && cd ./*/ && "$@") >>"$log" 2>&1 || [ ! -e "$prefix/lib/$file" ]; then
            echo "left out: $name does not build, see $log"
            return
        fi
    fi
    echo "instrumented: $name"
}

with_cmake() {
    cmake -S . -B "$prefix/src/build-$name" -G Ninja -DCMAKE_BUILD_TYPE= -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_INSTALL_LIBDIR:STRING=lib -DCMAKE_INSTALL_RPATH="$prefix/lib" -DBUILD_SHARED_LIBS=ON "$@" &&
        cmake --build "$prefix/src/build-$name" -j "$jobs" && cmake --install "$prefix/src/build-$name"
}
with_configure() {
    ./configure --prefix="$prefix" "$@" && make -j "$jobs" install
}
# It brings no libisal.pc, by which the build finds it.
with_isal() {
    make -f Makefile.unx -j "$jobs" arch=noarch CC=clang CFLAGS_="$flags -fPIC" LDFLAGS="$flags" slib &&
        make -f Makefile.unx arch=noarch CC=clang CFLAGS_="$flags -fPIC" LDFLAGS="$flags" prefix="$prefix" install &&
        mkdir -p "$prefix/lib/pkgconfig" &&
        printf 'Name: libisal\nDescription: ISA-L\nVersion: 2\nLibs: -L%s/lib -lisal\nCflags: -I%s/include\n' "$prefix" "$prefix" \
            >"$prefix/lib/pkgconfig/libisal.pc"
}

library zlib libz.so zlib with_configure
library libpng libpng16.so libpng1.6 with_cmake -DPNG_STATIC=OFF -DPNG_TESTS=OFF -DPNG_HARDWARE_OPTIMIZATIONS=OFF
library libzip libzip.so libzip with_cmake -DENABLE_BZIP2=OFF -DENABLE_LZMA=OFF -DENABLE_ZSTD=OFF -DENABLE_GNUTLS=OFF \
    -DENABLE_MBEDTLS=OFF -DENABLE_OPENSSL=OFF -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF
library jansson libjansson.so jansson with_cmake -DJANSSON_BUILD_SHARED_LIBS=ON -DJANSSON_BUILD_DOCS=OFF \
    -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF
library libjpeg-turbo libturbojpeg.so libjpeg-turbo with_cmake -DENABLE_STATIC=OFF -DWITH_SIMD=OFF -DWITH_JAVA=OFF
library isa-l libisal.so libisal with_isal
library libwebp libwebp.so libwebp with_cmake -DWEBP_BUILD_ANIM_UTILS=OFF -DWEBP_BUILD_CWEBP=OFF \
    -DWEBP_BUILD_DWEBP=OFF -DWEBP_BUILD_GIF2WEBP=OFF -DWEBP_BUILD_IMG2WEBP=OFF -DWEBP_BUILD_VWEBP=OFF \
    -DWEBP_BUILD_WEBPINFO=OFF -DWEBP_BUILD_WEBPMUX=OFF -DWEBP_BUILD_EXTRAS=OFF
library libtiff libtiff.so tiff with_cmake -Dtiff-tools=OFF -Dtiff-tests=OFF -Dtiff-docs=OFF -Dtiff-contrib=OFF -Dcxx=OFF
library openjpeg libopenjp2.so openjpeg2 with_cmake -DBUILD_STATIC_LIBS=OFF -DBUILD_CODEC=OFF -DBUILD_TESTING=OFF
