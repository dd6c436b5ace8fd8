#!/usr/bin/python3
"""Where the time of a step goes with shared and with separate experts.

  tools/bench/experts.py [--delink PROGRAM] [--experts E ...] [--rows R ...]
                         [--steps N] [--json FILE]

Trains models of 8 blocks with E experts, of which a token chooses one, on random
letters, so that each expert has about R rows a step and block. Prints for each way
of sharing the seconds of a step by its parts, from a trace: passes (forward and
backward), reduce (gradients between ranks), norm (with the sums of squares),
update and copies (between device and host memory). Parts on several lanes
overlap, so they can exceed the step. In memory or with optimizer state in host
memory; one rank with all cores, or two data ranks with half of them each.
"""
import argparse
import collections
import itertools
import json
import os
import random
import statistics
import string
import subprocess
import tempfile

LAYERS, DIM, FFN, SEQ, MICRO_TOKENS = 8, 128, 256, 32, 4096
SHARES = {
    "none": {},
    "experts by 2": {"share": '{ experts = "groups:4" }'},
    "experts by 4": {"share": '{ experts = "groups:2" }'},
    "experts of all": {"share": '{ experts = "all" }'},
    "all": {"share": '"all"'},
    "depth 1": {"share": '"all"', "depth": 1},
}
PLACES = {"memory": "", "host": '{ state = "host", update = "host" }'}
PARTS = {"F": "passes", "B": "passes", "Reduce": "reduce", "Squares": "norm", "Norm": "norm", "Update": "update",
         "Gather": "update", "Fetch": "copies", "Take": "copies", "Evict": "copies", "Release": "copies"}
NAMES = ["passes", "reduce", "norm", "update", "copies"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np"]


def recipe(folder, experts, rows, share, place, ranks, steps):
  sequences = max(ranks, rows * experts // SEQ // ranks * ranks)
  micro = max(1, min(sequences // ranks, MICRO_TOKENS // SEQ))
  while sequences // ranks % micro:
    micro -= 1
  stage = "".join(f"{key} = {value}\n" for key, value in SHARES[share].items())
  stage += f"offload = {PLACES[place]}\n" if PLACES[place] else ""
  path = os.path.join(folder, "recipe.toml")
  with open(path, "w", encoding="utf-8") as file:
    file.write(f"""[model]
kind = "moe"
layers = {LAYERS}
dim = {DIM}
heads = 4
experts = {experts}
top_k = 1
expert_ffn = {FFN}
[data]
train = "corpus/train"
seq = {SEQ}
batch = {sequences}
[optimizer]
kind = "adamw"
lr = 1e-4
[schedule]
kind = "constant"
steps = {steps}
[[stage]]
{stage}
[run]
device = "cpu"
micro_batch = {micro}
threads = {max(1, os.cpu_count() // ranks)}
validate_every = 0
checkpoint_every = 0
""")
  return path, sequences * SEQ


def measure(options, folder, experts, rows, share, place, ranks):
  """Seconds of a step, by part, and its tokens."""
  path, tokens = recipe(folder, experts, rows, share, place, ranks, options.steps)
  trace = os.path.join(folder, "trace.json")
  words = [options.delink, "train", path, "--out", os.path.join(folder, "run"), "--overwrite", "--trace", trace,
           "--trace-steps", f"2:{options.steps}"]
  subprocess.run(([*MPIRUN, str(ranks)] if ranks > 1 else []) + words, check=True, stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL)
  with open(trace, encoding="utf-8") as file:
    events = [event for event in json.load(file)["traceEvents"]
              if event.get("ph") == "X" and event.get("pid") == 0 and "step" in event.get("args", {})]
  parts, ends = collections.Counter(), collections.defaultdict(list)
  for event in events:
    ends[event["args"]["step"]] += [event["ts"], event["ts"] + event["dur"]]
    parts[PARTS.get(event["name"].split("(")[0].split(" ")[0], "other")] += event["dur"]
  step = statistics.median(max(of) - min(of) for of in ends.values()) / 1e6
  return {"step": step, "tokens": tokens} | {name: parts[name] / 1e6 / len(ends) for name in [*NAMES, "other"]}


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--delink", default="build/release/tools/delink")
  parser.add_argument("--experts", type=int, nargs="+", default=[8, 64, 256])
  parser.add_argument("--rows", type=int, nargs="+", default=[20, 200, 2000])
  parser.add_argument("--most-tokens", type=int, default=1 << 17, help="pass over larger steps (131072)")
  parser.add_argument("--places", nargs="+", choices=list(PLACES), default=list(PLACES))
  parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
  parser.add_argument("--steps", type=int, default=4, help="steps of a run; the first does not count (4)")
  parser.add_argument("--json", help="write all figures to this file")
  options = parser.parse_args()
  options.delink = os.path.abspath(options.delink)
  rows = []
  print(f"| experts | rows | ranks | state | share | step | of none | {' | '.join(NAMES)} |")
  print("|---|---|---|---|---|---|---|---|---|---|---|---|")
  with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "text"), "w", encoding="utf-8") as file:
      file.write("".join(random.Random(1).choices(string.ascii_letters, k=1 << 22)))
    subprocess.run([options.delink, "data", "build", "--bytes", "--out", os.path.join(folder, "corpus"),
                    os.path.join(folder, "text")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for experts, each, ranks, place in itertools.product(options.experts, options.rows, options.ranks, options.places):
      if experts * each > options.most_tokens:
        continue
      none = None
      for share in SHARES:
        of = measure(options, folder, experts, each, share, place, ranks)
        none = none or of["step"]
        rows.append({"experts": experts, "rows": each, "ranks": ranks, "place": place, "share": share} | of)
        print(f"| {experts} | {each} | {ranks} | {place} | {share} | {of['step']:.3g} s | {of['step'] / none:.2f} | "
              + " | ".join(f"{of[name]:.3g}" for name in NAMES) + " |", flush=True)
  if options.json:
    with open(options.json, "w", encoding="utf-8") as file:
      json.dump(rows, file, indent=1)


if __name__ == "__main__":
  main()
