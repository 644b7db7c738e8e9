# shellcheck shell=sh
# Installing packages, for scripts that source this: they ask first. Root is not asked, for it can be nobody's mistake
# (images, CI). Whoever else is told what will be installed and asked at the terminal; ISTHMUS_YES=1 is a yes
# beforehand, and without either nothing is installed.

# may_install COMMAND PACKAGES...: whether COMMAND may be run with as_root. Says how to do it by hand when not.
may_install() {
    [ "$(id -u)" != 0 ] || return 0
    command=$1
    shift
    echo "to be installed with sudo: $*"
    if ! command -v sudo >/dev/null 2>&1; then
        echo "there is no sudo here"
    elif [ "${ISTHMUS_YES:-}" = 1 ]; then
        return 0
    elif [ -t 0 ]; then
        printf 'Install them now? [y/N] '
        read -r answer || answer=
        case $answer in y | Y | yes | Yes | YES) return 0 ;; esac
    else
        echo "nobody can be asked here; ISTHMUS_YES=1 is a yes"
    fi
    echo "nothing was installed. As root: $command $*"
    return 1
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi }
