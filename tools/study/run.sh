#!/usr/bin/env bash
# The runs behind docs/study-pseudo-to-real.md: fetches the text, builds the
# corpus, runs the sweeps of tools/study and makes tables and figures.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/study/run.sh [--out DIR] [--delink PROGRAM] [--jobs N]
                          [--set KEY=VALUE]... [SWEEP...]

Each SWEEP (default: all) is a file tools/study/SWEEP.toml: 1 to 7 on sharing, 8
to 15 on stages that run fewer layers, and on sharing where depth pays. A run
takes one to five minutes on one core with bf16 instructions; on two such cores,
sweeps 1 to 7 take two hours and 8 to 15 three. Finished runs are not run again.
The first sweeps of each part find learning rates and warm-up; the recipes that
the other sweeps vary contain these values. 14_seconds measures speeds: run it
with one job on an otherwise idle machine.

  --out DIR         folder of text, corpus, runs, tables (default: runs/study)
  --delink PROGRAM  the program (default: build/program/tools/delink)
  --jobs N          runs at the same time (default: 2); they divide the cores
  --set KEY=VALUE   a key of the recipe of every run
  --help            this text
TXT
}

cd "$(dirname "$0")/../.."
out=runs/study
delink=build/program/tools/delink
jobs=2
sets=()
sweeps=()
while (($#)); do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --out | --delink | --jobs | --set)
      (($# > 1)) || { echo "run.sh: $1 needs a value" >&2; exit 2; }
      case $1 in
        --out) out=$(cd "$OLDPWD" && realpath -m -- "$2") ;;
        --delink) delink=$(cd "$OLDPWD" && realpath -m -- "$2") ;;
        --jobs) jobs=$2 ;;
        --set) sets+=(--set "$2") ;;
      esac
      shift 2
      ;;
    -*) usage >&2; exit 2 ;;
    *) sweeps+=("$1"); shift ;;
  esac
done
if ((${#sweeps[@]} == 0)); then
  mapfile -t sweeps < <(cd tools/study &&
    printf '%s\n' [0-9]*_*.toml | sort -V | sed 's/\.toml$//')
fi

mkdir -p "$out"
out=$(realpath "$out")
[[ -d $out/text ]] || tools/study/fetch_text.sh "$out/text"
[[ -d $out/corpus ]] ||
  "$delink" data build --out "$out/corpus" --train-tokenizer 4000 \
    --validation 0.02 "$out/text"
[[ -d $out/bytes ]] ||
  "$delink" data build --out "$out/bytes" --bytes --validation 0.02 "$out/text"

failed=0
for sweep in "${sweeps[@]}"; do
  echo "== $sweep"
  corpus=corpus at_once=$jobs
  case $sweep in
    14_*) corpus=bytes at_once=1 ;;
    8_* | 9_* | 1?_*) corpus=bytes ;;
  esac
  code=0
  "$delink" sweep "tools/study/$sweep.toml" \
    --out "$out/runs/$sweep" --jobs "$at_once" \
    --set "data.train=$out/$corpus/train" "${sets[@]}" || code=$?
  ((code < 128)) || exit "$code"
  ((code == 0)) || failed=1
done
mkdir -p "$out/tables"
/usr/bin/python3 -B tools/study/tables.py "$out/runs" "$out/tables" |
  tee "$out/tables/tables.md"
/usr/bin/python3 -B tools/study/growth_tables.py "$out/runs" "$out/tables" |
  tee "$out/tables/growth.md"
exit $failed
