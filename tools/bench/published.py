#!/usr/bin/python3
"""Steps that others measured, held against plans.

  tools/bench/published.py --rows CSV [--machine FILE] [--delink PROGRAM]
                           [--every N] [--recompute none|block] [--list]
                           [--jobs N]

CSV is vtrain_multi.csv or vtrain_single.csv: seconds of a Megatron-LM step on
A100s by layout, from VIA-Research/vTrain (MIT; arXiv 2312.12391). Each row
becomes a recipe: a GPT of that size and layout with Megatron's defaults (tied
vocabulary of 51 200, 1F1B, mixed precision with fp32 masters, no ZeRO). Rows
say nothing of recomputation: --recompute is for all of them (default: block for
many nodes, whose activations would not fit otherwise; none for one node).
`delink plan --machine` simulates a step of each; nothing is fitted to a row.

Prints the errors of seconds (planned / measured - 1), by layout and by
micro-batch, and the share of pairs of layouts of the same model on as many GPUs
with the same batch, more than 10 % apart, that are in the right order. --every
N takes each N-th row; --list prints all rows.
"""
import argparse
import collections
import concurrent.futures
import csv
import itertools
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
NODE = 8  # GPUs
APART = 1.1  # measured seconds of a pair of layouts
NAMES = {"# GPUs": "gpus", "global batch": "batch", "micro batch": "micro",
         "hidden size": "dim", "attention heads": "heads",
         "# layers": "layers", "sequence length": "seq",
         "tensor parallelism": "tensor", "data parallelism": "data",
         "pipeline parallelism": "pipeline"}
RECIPE = """[model]
kind = "gpt"
layers = {layers}
dim = {dim}
heads = {heads}
vocab = 51200
[data]
train = "corpus/train"
seq = {seq}
batch = {batch}
[optimizer]
kind = "adamw"
lr = 1e-4
[schedule]
kind = "wsd"
warmup = 1
steps = 2
[[stage]]
name = "real"
share = "none"
parallel = {{ tensor = {tensor}, data = {data}, pipeline = {pipeline}, \
sequence = false, tensor_across_nodes = true }}
[run]
micro_batch = {micro}
recompute = "{recompute}"
precision = "bf16"
gradients = "bf16"
"""


def read(path):
  with open(path, encoding="utf-8") as file:
    for words in csv.DictReader(file):
      row = {ours: int(words[theirs]) for theirs, ours in NAMES.items()}
      row["measured"] = float(words["iteration time (ms)"]) / 1e3
      yield row


def plan(options, recipe, ranks, machine):
  """The plan of a recipe's text as JSON, or its error."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "recipe.toml")
    with open(path, "w", encoding="utf-8") as file:
      file.write(recipe)
    done = subprocess.run(
        [options.delink, "plan", path, "--ranks", str(ranks), "--machine",
         machine, "--json"], capture_output=True, text=True, check=False)
  if done.returncode != 0:
    raise SystemExit(f"{recipe}\n{done.stderr}")
  return json.loads(done.stdout)


def planned(options, row):
  of = dict(row)
  of["recompute"] = options.recompute or (
      "block" if row["gpus"] > NODE else "none")
  answer = plan(options, RECIPE.format(**of), row["gpus"], options.machine)
  stage = answer["stages"][0]
  of["planned"] = stage["seconds_per_step"]
  of["error"] = of["planned"] / of["measured"] - 1
  of["path"] = stage["critical_path"]
  of["bytes"] = answer["peak_bytes"]
  return of


def order(rows):
  """Pairs of layouts that are apart, and how many are ordered right."""
  alike = collections.defaultdict(list)
  for row in rows:
    alike[tuple(row[key] for key in ("layers", "dim", "heads", "seq", "gpus",
                                     "batch"))].append(row)
  pairs = right = 0
  for group in alike.values():
    for one, other in itertools.combinations(group, 2):
      slow, fast = ((one, other) if one["measured"] > other["measured"]
                    else (other, one))
      if slow["measured"] > APART * fast["measured"]:
        pairs += 1
        right += slow["planned"] > fast["planned"]
  return pairs, right


def line(name, rows):
  errors = sorted(abs(row["error"]) for row in rows)
  mean = statistics.median(row["error"] for row in rows)
  return (f"| {name} | {len(rows)} | {100 * statistics.median(errors):.1f} % "
          f"| {100 * errors[int(0.9 * (len(errors) - 1))]:.0f} % "
          f"| {100 * errors[-1]:.0f} % | {100 * mean:+.0f} % |")


def by(rows, name, key):
  groups = collections.defaultdict(list)
  for row in rows:
    groups[key(row)].append(row)
  for value in sorted(groups):
    print(line(f"{name} {value}", groups[value]))


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--rows", required=True)
  parser.add_argument("--machine",
                      default=os.path.join(ROOT,
                                           "tools/bench/published_a100.toml"))
  parser.add_argument("--delink", default="delink")
  parser.add_argument("--every", type=int, default=1)
  parser.add_argument("--recompute")
  parser.add_argument("--list", action="store_true")
  parser.add_argument("--jobs", type=int, default=2)
  options = parser.parse_args()
  options.delink = os.path.abspath(options.delink)
  with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    rows = list(pool.map(lambda row: planned(options, row),
                         list(read(options.rows))[::options.every]))
  print("| rows | count | median error | 90th percentile | worst | signed "
        "median |")
  print("|---|---|---|---|---|---|")
  print(line("all", rows))
  by(rows, "width", lambda row: row["dim"])
  by(rows, "micro-batch", lambda row: row["micro"])
  by(rows, "tensor", lambda row: row["tensor"])
  by(rows, "pipeline", lambda row: row["pipeline"])
  pairs, right = order(rows)
  if pairs:
    print(f"\n{pairs} pairs of layouts more than 10 % apart: "
          f"{100 * right / pairs:.0f} % in the right order")
  if not options.list:
    return
  print("\n| GPUs | batch | micro-batch | width | layers | tensor, data, "
        "pipeline | measured | planned | error | planned parts |")
  print("|" + "---|" * 10)
  for row in rows:
    parts = ", ".join(f"{seconds:.3g} {word}"
                      for word, seconds in row["path"].items()
                      if seconds > 0.02 * row["planned"])
    print(f"| {row['gpus']} | {row['batch']} | {row['micro']} | {row['dim']} "
          f"| {row['layers']} | {row['tensor']}, {row['data']}, "
          f"{row['pipeline']} | {row['measured']:.4g} | {row['planned']:.4g} "
          f"| {100 * row['error']:+.0f} % | {parts} |")


if __name__ == "__main__":
  main()
