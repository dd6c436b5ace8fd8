#!/usr/bin/env bash
# Installs the Debian packages that Delink needs; docs/dependencies.md says why
# each. Does nothing where all of them are there already.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/install_deps.sh [--tests] [--quickstart]

Installs the missing ones of the Debian 12 packages that building and running
Delink needs. Needs root; otherwise it uses sudo.

  --tests        also packages for the tests, the lints and the sanitizers
  --quickstart   also the text that tools/quickstart.sh trains on
  --help         this text
TXT
}

program=(
  g++ cmake ninja-build pkg-config make
  libabsl-dev libhdf5-dev libdnnl-dev libssl-dev zlib1g-dev libzstd-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libsentencepiece-dev
  libpcre2-dev libutf8proc-dev liburing-dev
  libopenmpi-dev openmpi-bin libjs-chart.js
)
tests=(
  libgtest-dev libgmock-dev libboost-context-dev
  clang libomp-dev clang-format clang-tidy shellcheck git ccache
  python3 python3-numpy python3-h5py python3-torch hdf5-tools
  python3-pip patchelf xz-utils
  zsh fish groff
  chromium chromium-driver python3-selenium fonts-dejavu-core
)
quickstart=(bible-kjv)

packages=("${program[@]}")
for argument in "$@"; do
  case $argument in
    --tests) packages+=("${tests[@]}") ;;
    --quickstart) packages+=("${quickstart[@]}") ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == \
      installed ]] || echo "$package"
  done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  cat >&2 <<TXT
install_deps.sh: this system has no apt (Delink is tested on Debian 12).
Install by hand your system's equivalents of
  ${packages[*]}
Then build with: cmake --preset release && cmake --build --preset release
TXT
  exit 1
fi

mapfile -t missing < <(missing_packages)
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_deps.sh: run it as root, or install sudo; missing:" \
      "${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install_deps.sh: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
