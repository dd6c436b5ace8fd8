#!/usr/bin/env bash
# From a bare Debian 12 to two trained models: builds the program, fetches real
# text, trains a small deep GPT by Pseudo-to-Real and once more from scratch with
# the same number of tokens, and compares the two.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/quickstart.sh [--corpus FILE] [--out DIR]

Installs what is missing, builds the program and trains a narrow GPT of eight
layers on the bytes of a text, on two processes: once by Pseudo-to-Real, with
one layer for the first quarter of the tokens, and once from scratch. Prints
some text of each and a table of losses, seconds and memory, and draws both runs
in one HTML file. Takes about six minutes on two fast idle cores the first time;
later runs reuse build and corpus.

  --corpus FILE   text to train on, plain or gzipped, or a folder of such files
                  (default: the King James Bible, Debian package bible-kjv)
  --out DIR       where corpus and runs go (default: runs/quickstart)
  --help          this text
TXT
}

cd "$(dirname "$0")/.."
corpus=
out=runs/quickstart
while (($#)); do
  case $1 in
    --corpus | --out)
      (($# > 1)) || { echo "quickstart.sh: $1 needs a value" >&2; exit 2; }
      path=$(cd "$OLDPWD" && realpath -m -- "$2")
      if [[ $1 == --out ]]; then out=$path; else corpus=$path; fi
      shift 2
      ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
if [[ -n $corpus && ! -r $corpus ]]; then
  echo "quickstart.sh: cannot read $corpus; give --corpus an existing text" >&2
  exit 2
fi

# Debian's Open MPI needs these as root and with more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
delink=build/program/tools/delink

# A part's title, the seconds so far, and what is expected to remain.
heading() { printf '\n== %s (%d s so far%s)\n' "$1" "$SECONDS" "${2:+, $2}"; }

# With a CUDA toolkit, kernels for GPUs would take minutes to compile.
has_gpu() {
  [[ $(nvidia-smi -L 2>/dev/null) == *GPU* ]] ||
    compgen -G "/dev/nvidia[0-9]*" >/dev/null
}

# Whether the build folder is configured with them anyway.
asked_for_cuda() {
  grep -q -s "^DELINK_CUDA:.*=ON$" build/program/CMakeCache.txt
}

# The King James Bible, one verse a line and one chapter a file.
print_text() {
  rm -rf "$1.new"
  mkdir "$1.new"
  bible -f gen1:1-rev22:21 | awk -v folder="$1.new" '{
    chapter = $1
    sub(/:[0-9]+$/, "", chapter)
    sub(/^[^ ]+ /, "")
    if (chapter != last) close(file)  # few files may be open at once
    last = chapter
    file = folder "/" chapter ".txt"
    print > file
  }'
  mv "$1.new" "$1"
}

build_corpus() {
  local input=$corpus source
  if [[ -z $input ]]; then
    input=$out/text
    [[ -d $input ]] || print_text "$input"
  fi
  source="bytes $input $(stat -c '%s %Y' "$input")"
  if [[ $(cat "$out/corpus.source" 2>/dev/null) == "$source" ]] &&
    "$delink" data verify "$out/corpus"; then
    echo "using the corpus in $out/corpus"
    return
  fi
  # Only a corpus that this script has begun may be replaced; `data build`
  # refuses to replace another.
  if [[ -e $out/corpus.source ]]; then
    rm -rf "$out/corpus"
  fi
  [[ -e $out/corpus ]] || echo "unfinished" >"$out/corpus.source"
  "$delink" data build --out "$out/corpus" --bytes --validation 0.02 "$input"
  echo "$source" >"$out/corpus.source"
}

train() {  # recipe and run folder: NAME
  mpirun -np 2 "$delink" train "recipes/quickstart_$1.toml" \
    --set "data.train=$out/corpus/train" --out "$out/$1" --overwrite
}

sample() {
  "$delink" generate "$out/$1" --prompt "And" --tokens 400 \
    --temperature 0.8 --top-k 40 --seed 1
  echo
}

metric() {  # the last value of KEY in the metrics of run NAME
  sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$out/$1/metrics.jsonl" | tail -n 1
}

# The savings of Pseudo-to-Real; --corpus may be too short for any.
gain() {
  awk -v fast="$(metric p2r seconds)" -v slow="$(metric scratch seconds)" \
    -v a="$(metric p2r validation_loss)" -v b="$(metric scratch validation_loss)" \
    'BEGIN {
      apart = sprintf("%.3f", a < b ? b - a : a - b)
      printf "pseudo to real took %.2f of the seconds, and ended %s\n",
        fast / slow, apart + 0 == 0 ? "no higher" : \
        apart " " (a < b ? "lower" : "higher")
    }'
}

# One row of the table: a title, the format of a value, the value of each run.
row() {
  awk -v title="$1" -v format="$2" -v a="$3" -v b="$4" 'BEGIN {
    if (a !~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ || b !~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/)
      exit 1
    printf "%-34s%16s%16s\n", title, sprintf(format, a), sprintf(format, b)
  }' || { echo "quickstart.sh: no number for: $1" >&2; exit 1; }
}

minus() { awk -v a="$1" -v b="$2" 'BEGIN { print a - b }'; }
mebibytes() { awk -v a="$1" 'BEGIN { print a / 1048576 }'; }

table() {
  local entropy p2r scratch
  entropy=$("$delink" data info "$out/corpus" |
    sed -n 's/.*unigram entropy[^0-9]*\([0-9.]*\).*/\1/p' | head -n 1)
  p2r=$(metric p2r validation_loss)
  scratch=$(metric scratch validation_loss)
  printf '%-34s%16s%16s\n' "" "pseudo to real" "from scratch"
  row "training loss, nats a byte" %.3f \
    "$(metric p2r loss)" "$(metric scratch loss)"
  row "validation loss" %.3f "$p2r" "$scratch"
  row "unigram entropy of the corpus" %.3f "$entropy" "$entropy"
  row "validation loss under it by" %.3f \
    "$(minus "$entropy" "$p2r")" "$(minus "$entropy" "$scratch")"
  row "seconds of training" %.0f "$(metric p2r seconds)" \
    "$(metric scratch seconds)"
  row "peak memory of a rank, MiB" %.0f \
    "$(mebibytes "$(metric p2r peak_memory)")" \
    "$(mebibytes "$(metric scratch peak_memory)")"
  # A model that has learnt nothing about order knows only unigrams. A user's
  # own text may be too short to learn from.
  awk -v a="$entropy" -v b="$p2r" -v c="$scratch" -v own="$corpus" 'BEGIN {
    exit own == "" && (a - b < 0.8 || a - c < 0.8)
  }' || { echo "quickstart.sh: the models learnt too little" >&2; exit 1; }
}

heading "packages" "about 6 minutes remain on two fast idle cores"
needs=()
[[ -n $corpus ]] || needs=(--quickstart)
tools/install_deps.sh "${needs[@]}"

heading "build" "about 6 minutes remain, 3 of them to build"
cuda=()
if ! has_gpu && ! asked_for_cuda; then
  cuda=(-DDELINK_CUDA=OFF)
  echo "no GPU with a driver here, so none of the kernels for one; to have them:" \
    "cmake --preset program -DDELINK_CUDA=ON (docs/cuda.md)"
fi
# Likewise for kernels for other processors.
cmake --preset program --log-level=WARNING -DDELINK_SIMD_TARGETS=NATIVE \
  "${cuda[@]}" >/dev/null
cmake --build --preset program --target delink

heading "corpus" "about 3 minutes remain"
mkdir -p "$out"
out=$(realpath "$out")
build_corpus

heading "pseudo to real" "about 3 minutes remain"
train p2r
# The time of the first run, plus what its early layer saved.
heading "from scratch" \
  "about $(awk -v s="$(metric p2r seconds)" 'BEGIN { printf "%d", s * 1.3 + 2 }') s remain"
train scratch

heading "a sample of pseudo to real"
sample p2r
heading "a sample of from scratch"
sample scratch

heading "the two runs"
table
echo
gain
echo "runs: $out/p2r $out/scratch"
"$delink" report "$out/p2r" "$out/scratch" --out "$out/report.html" >/dev/null
echo "report: $out/report.html (open it in a browser)"
