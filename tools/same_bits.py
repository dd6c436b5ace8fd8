#!/usr/bin/python3
"""Trains the same runs with two builds and compares the results bit for bit.

  tools/same_bits.py OLD NEW [--runs N] [--seed S] [--keep DIR]

OLD and NEW are two `delink` programs; OLD is from before a change. Each run is
a small recipe with a switch in its middle. The seed determines its model,
precision, optimizer, sharing, state policy, ranks, ZeRO and recompute. In half
of the runs OLD stops, and NEW resumes from OLD's checkpoint. Losses and
gradient norms of every step, and every weight and optimizer state of the last
checkpoint, must have the same bits. Prints a table; exits with 1 if anything
differs.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEPS, SWITCH = 12, 6
CHOICES = {
    "model": [
        "gpt", "gpt norm=rms_norm tied=false", "gpt dropout=0.1 bias=false",
        "llama", "llama tied=false qk_norm=false window=0"],
    "precision": [
        "fp32", "bf16", "bf16 gradients=bf16", "bf16 master=split",
        "bf16 master=none"],
    "optimizer": [
        "adamw", "adamw moments=bf16", "adamw moments=8bit", "sgd", "lion",
        "adafactor", "muon"],
    "share": ["all", "groups:2", "cycle:2"],
    "state": ["scale", "reset", "copy", "calibrated"],
    "ranks": ["1", "2", "2 zero=1", "4 zero=1"],
    "recompute": ["none", "norm+activation", "block"],
    "documents": ["packed", "masked"],
}


def draw(count, seed):
  """Runs in which every value occurs about as often as the others."""
  rng = random.Random(seed)
  columns = {}
  for name, values in CHOICES.items():
    column = [values[i % len(values)] for i in range(count)]
    rng.shuffle(column)
    columns[name] = column
  return [{name: column[i] for name, column in columns.items()}
          for i in range(count)]


def settings(run, corpus):
  """The recipe, and the words after it, of a run."""
  kind, *model = run["model"].split()
  precision, *storage = run["precision"].split()
  optimizer, *moments = run["optimizer"].split()
  ranks, *zero = run["ranks"].split()
  pairs = [f"model.{word}" for word in model]
  pairs += [f"run.precision={precision}"] + [f"run.{w}" for w in storage]
  pairs += [f"optimizer.kind={optimizer}"] + [
      f"optimizer.{word}" for word in moments]
  pairs += [f"stage.{i}.parallel.{w}" for i in (0, 1) for w in zero]
  pairs += [
      f"data.train={corpus}/train", f"data.documents={run['documents']}",
      f"schedule.steps={STEPS}", f"stage.0.until.steps={SWITCH}",
      f"stage.0.share={run['share']}", f"stage.1.state={run['state']}",
      f"run.recompute={run['recompute']}", "run.checkpoint_every=3",
      "run.validate_every=4"]
  recipe = "tiny.toml" if kind == "gpt" else "tiny_llama.toml"
  words = [os.path.join(ROOT, "recipes", recipe)]
  for pair in pairs:
    words += ["--set", pair]
  return int(ranks), words


def train(program, ranks, words, out, more):
  mpirun = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
  ended = subprocess.run(
      [*mpirun, program, "train", *words, "--out", out, *more],
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
      env={**os.environ, "OMP_NUM_THREADS": "1",
           "OMPI_ALLOW_RUN_AS_ROOT": "1",
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMPI_MCA_rmaps_base_oversubscribe": "1"})
  if ended.returncode != 0:
    sys.exit(f"same_bits.py: {program} failed:\n{ended.stdout[-2000:]}")


def losses(out):
  steps = {}
  with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
    for line in file:
      row = json.loads(line)
      if "grad_norm" in row:
        steps[row["step"]] = (row["loss"], row["grad_norm"])
  return steps


def tensors(out):
  """Every logical tensor and state of the last checkpoint, by name."""
  found = {}
  last = f"step-{STEPS:08}"
  folder = os.path.join(out, "checkpoints", last)
  if not os.path.isdir(folder):
    folder = os.path.join(out, last)
  with h5py.File(os.path.join(folder, "index.h5"), "r") as file:
    def visit(name):
      if isinstance(file[name], h5py.Dataset):
        found[name] = numpy.array(file[name])
    for top in ("model", "optimizer"):
      file[top].visit(lambda name, top=top: visit(f"{top}/{name}"))
  return found


def difference(old, new):
  """What differs first between two runs; empty where nothing does."""
  a, b = losses(old), losses(new)
  if len(a) != STEPS:
    return f"{len(a)} steps were logged, {STEPS} were asked for"
  for step in sorted(a.keys() | b.keys()):
    if a.get(step) != b.get(step):
      return f"step {step}: {a.get(step)} against {b.get(step)}"
  a, b = tensors(old), tensors(new)
  if a.keys() != b.keys():
    return f"tensors: {sorted(a.keys() ^ b.keys())[:4]}"
  for name, value in a.items():
    if value.tobytes() != b[name].tobytes():
      return f"{name} differs"
  return "" if a else "no tensors were found"


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("old")
  parser.add_argument("new")
  parser.add_argument("--runs", type=int, default=40)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--keep", help="leave the runs in this folder")
  options = parser.parse_args()
  folder = options.keep or tempfile.mkdtemp(prefix="same_bits.")
  os.makedirs(folder, exist_ok=True)
  corpus = os.path.join(folder, "corpus")
  if not os.path.isdir(corpus):
    subprocess.run(
        [options.old, "data", "build", "--bytes", "--out", corpus,
         os.path.join(ROOT, "README.md")],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  different = 0
  print("| run | " + " | ".join(CHOICES) + " | resumed | result |")
  print("|---" * (len(CHOICES) + 3) + "|")
  for i, run in enumerate(draw(options.runs, options.seed)):
    old, new = (os.path.join(folder, f"{i:02}-{s}") for s in ("old", "new"))
    ranks, words = settings(run, corpus)
    train(options.old, ranks, words, old, ["--overwrite"])
    resumed = i % 2 == 1
    if resumed:
      stop = random.Random(i).randrange(1, STEPS)
      train(options.old, ranks, words, new,
            ["--overwrite", "--until-step", str(stop)])
      train(options.new, ranks, words, new, ["--resume"])
    else:
      train(options.new, ranks, words, new, ["--overwrite"])
    result = difference(old, new)
    different += bool(result)
    print(f"| {i} | " + " | ".join(run.values()) +
          f" | {f'at {stop}' if resumed else 'no'} | {result or 'same bits'} |",
          flush=True)
    if not options.keep and not result:
      shutil.rmtree(old)
      shutil.rmtree(new)
  if not options.keep and not different:
    shutil.rmtree(folder)
  print(f"{options.runs - different} of {options.runs} runs have the same bits")
  return 1 if different else 0


if __name__ == "__main__":
  sys.exit(main())
