#!/usr/bin/env bash
# Compares our training steps with PyTorch's of the same models, in turn.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: tools/bench/peers.sh [OPTION]...

Trains the same models on the same machine with `delink bench` and with
tools/bench/torch_peer.py (eager and compiled), alternately, for several rounds.
Prints tokens a second, the ratio of our speed to the faster peer's, and memory
beyond 16 bytes a parameter. Speeds are the median (least - most) of the rounds.

  --device DEVICE    cpu or cuda (cpu)
  --shape NAME       gpt-10m, llama-10m, gpt-124m, qwen-0.5b to qwen-7b, or with
                     experts moe-8x2 or moe-64x1; may be repeated (the first
                     three). torch runs experts one by one and, where it can, by
                     grouped products
  --seq N            tokens of a sequence (256)
  --batch N          sequences of a step (as many as have 2048 tokens, for
                     gpt-124m and moe-8x2 1024, for moe-64x1 4096; on a GPU the
                     default of delink bench)
  --precision TYPE   fp32 or bf16 (fp32). In bf16, torch uses autocast on the
                     CPU, and weights and AdamW's state in bf16 on a GPU
  --share            one block's weights for every layer, on both sides
  --recompute        our blocks keep no activations; torch's do. By default ours
                     recompute norms and activations, on a GPU nothing (except
                     for qwen-7b blocks, since it would not fit otherwise)
  --threads N        threads on both sides (the machine's cores)
  --rounds N         number of rounds (5)
  --steps N          measured steps of each round (8)
  --no-compile       eager only; compiling takes about a minute a round
  --delink PROGRAM   (build/release/tools/delink, else delink on the PATH)
  --python PROGRAM   a Python that has torch (python3)
  --help             this text

Delink does not depend on torch. To install it:
  python3 -m venv ~/torch-peer
  ~/torch-peer/bin/pip install torch numpy \
    --index-url https://download.pytorch.org/whl/cpu
  tools/bench/peers.sh --python ~/torch-peer/bin/python
TXT
}

fail() {
  echo "peers.sh: $*" >&2
  exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
declare -A option=([seq]=256 [precision]=fp32 [rounds]=5 [steps]=8
  [threads]=$(nproc) [batch]='' [delink]='' [python]=python3 [device]=cpu)
shapes=()
share='' recompute='' compile=1
while (($#)); do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --share) share=1 ;;
    --recompute) recompute=1 ;;
    --no-compile) compile='' ;;
    --device | --shape | --seq | --batch | --precision | --threads | --rounds | --steps | \
      --delink | --python)
      (($# > 1)) || fail "$1 needs a value; see --help"
      if [[ $1 == --shape ]]; then shapes+=("$2"); else option[${1#--}]=$2; fi
      shift
      ;;
    *) fail "unknown option '$1'; see --help" ;;
  esac
  shift
done
((${#shapes[@]})) || shapes=(gpt-10m llama-10m gpt-124m)
for name in seq threads rounds steps; do
  [[ ${option[$name]} =~ ^[1-9][0-9]*$ ]] ||
    fail "--$name: '${option[$name]}' is not a whole number of at least 1"
done
[[ ${option[device]} == cpu || ${option[device]} == cuda ]] ||
  fail "--device: '${option[device]}' is neither cpu nor cuda"
python=${option[python]}
delink=${option[delink]}
if [[ -z $delink ]]; then
  delink=$here/../../build/release/tools/delink
  [[ -x $delink ]] || delink=$(command -v delink) ||
    fail "there is no delink program; build it, or give it by --delink"
fi
"$python" -c 'import torch' 2>/dev/null ||
  fail "$python has no torch; --help says how to install it"

ours=(--suite step --device "${option[device]}" --seq "${option[seq]}"
  --precision "${option[precision]}"
  --threads "${option[threads]}" --steps "${option[steps]}" --json -)
torch=(--device "${option[device]}" --seq "${option[seq]}"
  --dtype "${option[precision]}"
  --threads "${option[threads]}" --steps "${option[steps]}")
if [[ -n $share ]]; then
  ours+=(--share all)
  torch+=(--share)
else
  ours+=(--share none)
fi
if [[ -n $recompute ]]; then ours+=(--recompute block); fi
if [[ -n ${option[batch]} ]]; then
  ours+=(--batch "${option[batch]}")
  torch+=(--batch "${option[batch]}")
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run FILE COMMAND...: writes its output to FILE; shows messages if it fails.
run() {
  local file=$1
  shift
  "$@" >"$file" 2>"$work/log" && return
  cat "$work/log" >&2
  fail "this command failed: $*"
}

for shape in "${shapes[@]}"; do
  echo "$shape, ${option[seq]} tokens, ${option[precision]}${share:+, shared}${recompute:+, ours recomputed}, ${option[threads]} threads, ${option[rounds]} rounds"
  mkdir "$work/$shape"
  kept=() forms=('')
  if [[ $shape == moe-* ]]; then forms=(loop grouped); fi
  if [[ ${option[device]} == cuda && -z $recompute && $shape != qwen-7b ]]; then
    kept=(--recompute none)
  fi
  for ((round = 1; round <= option[rounds]; ++round)); do
    at=$work/$shape/$round
    run "$at.delink.json" "$delink" bench --shape "$shape" "${ours[@]}" \
      "${kept[@]}"
    for form in "${forms[@]}"; do
      peer=("$python" "$here/torch_peer.py" --shape "$shape" "${torch[@]}"
        ${form:+--experts "$form"})
      run "$at.eager${form:+-$form}.json" "${peer[@]}"
      [[ -z $compile ]] ||
        run "$at.compile${form:+-$form}.json" "${peer[@]}" --compile
    done
  done
  "$python" "$here/peer_ratios.py" "$work/$shape"
done
