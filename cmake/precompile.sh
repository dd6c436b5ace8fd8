#!/bin/sh
# precompile.sh COMPILER ARGUMENT...: compiles, and writes beside a precompiled
# header X.gch the digest of its text, X.gch.sum. ccache takes that for the header
# (CCACHE_PCH_EXTSUM): a compiler writes no precompiled header twice the same, and
# without the digest all that reads it would be compiled again.
set -e
"$@"
output=
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    -o | -MT | -MF)
      if [ "$argument" = -o ]; then output=$1; fi
      shift
      left=$((left - 1))
      ;;
    -c | -MD) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
case $output in
  *.gch)
    "$@" -E -P -dD -o "$output.text"
    sha256sum <"$output.text" >"$output.sum"
    rm "$output.text"
    ;;
esac
