#!/usr/bin/env bash
# Fetches the text of the study, 24 MB in 3200 files: the sources of the Linux
# kernel's documentation, from Debian.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/study/fetch_text.sh DIR

Downloads the Debian package linux-doc-6.1 (37 MB) and writes the plain text of
its pages to DIR, which must not exist yet.
TXT
}

case ${1:-} in
  --help | -h) usage; exit 0 ;;
  '' | -*) usage >&2; exit 2 ;;
esac
out=$(realpath -m -- "$1")
if [[ -e $out ]]; then
  echo "fetch_text.sh: $out exists; choose another folder" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download linux-doc-6.1
dpkg-deb --fsys-tarfile linux-doc-6.1_*.deb |
  tar -x --wildcards './usr/share/doc/linux-doc-6.1/html/_sources/*.txt'
mkdir -p "$(dirname "$out")"
mv usr/share/doc/linux-doc-6.1/html/_sources "$out"
