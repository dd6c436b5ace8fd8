#!/bin/sh
# ptxas_report.sh COMMAND...: compiles device code by COMMAND, an nvcc with
# -Xptxas=-v and -o OBJECT. What ptxas says of registers, stack and spills goes
# to OBJECT.ptxas (tests/cuda_build reads it), all else where it always goes.
set -u

object=
before=
for word in "$@"; do
  if [ "$before" = -o ]; then object=$word; fi
  before=$word
done
report=$object.ptxas
info='^ptxas info|^ +[0-9]+ bytes stack frame'

"$@" 2>"$report.new"
status=$?
grep -E -v "$info" "$report.new" >&2
grep -E "$info" "$report.new" >"$report"
rm -f "$report.new"
exit $status
