#!/usr/bin/python3
"""Runs whose ranks are processes, over tensor, context and pipeline ranks, and
with another layout after the switch: their losses are those of one process, to
the rounding of sums, and the switch changes none. First the recipes that show
it, by the commands they begin with.

  layout_ranks.py DELINK RECIPE

Exit status 77: skipped, there is no mpirun.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import runs

RECIPES = ("tiny_tensor", "tiny_context", "tiny_layouts")
# By ranks: layouts of the first stage, and of the second.
LAYOUTS = [
    (2, "tensor=2,sequence=false", "context=2,tensor=1"),
    (2, "context=2", "pipeline=2,context=1"),
    (2, "data=2", "tensor=2,zero=1"),
    (2, "pipeline=2,schedule='interleaved'", "pipeline=2,schedule='zero-bubble'"),
    (4, "tensor=2,context=2", "tensor=2,data=2,context=1,zero=3"),
    (4, "data=4", "tensor=2,pipeline=2"),
    (4, "tensor=2,pipeline=2,schedule='interleaved'", "tensor=4,pipeline=1"),
    (4, "tensor=2,pipeline=2,schedule='zero-bubble'", "context=2,tensor=1,schedule='1f1b'"),
    (4, "data=2,context=2,zero=1", "pipeline=4,context=1"),
]


def losses(run):
  rows = runs.rows(run)
  switches = [row for row in rows if row.get("event") == "delink"]
  assert len(switches) == 1 and switches[0]["loss_before"] == switches[0]["loss_after"], switches
  return [row["loss"] for row in rows if "loss" in row]


def expect_close(name, here, there):
  assert len(here) == len(there) == 20, (name, len(here), len(there))
  most = max(abs(a - b) / b for a, b in zip(here, there))
  assert most < 2e-5, f"{name}: losses differ by {most}"


def check_recipe(delink, recipes, name, folder):
  """As its first lines say, and on one process."""
  recipe = f"{recipes}/{name}.toml"
  with open(recipe, encoding="utf-8") as file:
    lines = re.findall(r"^#   (.*)$", file.read(), re.M)
  assert len(lines) == 2 and lines[1].startswith("mpirun -np "), lines
  shutil.copy(recipe, folder)
  shutil.copy(f"{recipes}/../README.md", folder)
  for line in lines:
    words = [delink if word == "delink" else word for word in line.split()]
    if "data" in words and os.path.exists(f"{folder}/corpus"):
      continue
    runs.succeed(words, cwd=folder)
  alone = f"{folder}/{name}_alone"
  runs.succeed([delink, "train", recipe, "--out", alone,
                *runs.sets(f"data.train={folder}/corpus/train", "stage.0.parallel={tensor=1}",
                           "stage.1.parallel={tensor=1,context=1,pipeline=1}")])
  expect_close(name, losses(f"{folder}/runs/{name}"), losses(alone))


def check_layout(delink, recipe, folder, alone, row):
  ranks, before, after = row
  out = f"{folder}/{len(os.listdir(folder))}"
  runs.succeed(["mpirun", "-np", str(ranks), delink, "train", recipe, "--out", out, "--threads", "1",
                *runs.sets(f"data.train={folder}/corpus/train", f"stage.0.parallel={{{before}}}",
                           f"stage.1.parallel={{{after}}}")])
  expect_close(row, losses(out), alone)


def check_saved(delink, folder, name):
  """Ranks that have a checkpoint together say what one process says."""
  run, cut = f"{folder}/{name}", ["mpirun", "-np", "4", delink]
  words = ["eval", run, "--data", f"{folder}/corpus", "--json"]
  here, there = (json.loads(runs.succeed([*how, *words]))["loss"] for how in ([delink], cut))
  assert abs(here - there) < 2e-5 * here, (here, there)
  words = ["generate", run, "--prompt", "The ", "--tokens", "8", "--temperature", "0"]
  here, there = (runs.succeed([*how, *words]) for how in ([delink], cut))
  assert here == there, (here, there)
  done = subprocess.run(["mpirun", "-np", "3", *cut[3:], *words], text=True, capture_output=True, check=False,
                        timeout=120)
  assert done.returncode != 0 and "start it with mpirun -np 4, or" in done.stderr, (done.returncode, done.stderr)
  # mpirun hands what it reads to one rank; the others end with it.
  done = subprocess.run([*cut, "generate", run, "--prompts", "/dev/stdin"], text=True,
                        input='{"prompt": "The"}\n', capture_output=True, check=False, timeout=120)
  assert done.returncode != 0 and "/dev/stdin" in done.stderr, (done.returncode, done.stderr)


def check_experts(delink, recipes, folder):
  """The same with experts on several ranks, of one data place and of all."""
  for number, layout in enumerate(("tensor=2,expert=4", "pipeline=2,expert=2")):
    runs.succeed(["mpirun", "-np", "4", delink, "train", f"{recipes}/tiny_moe.toml",
                  "--out", f"{folder}/experts{number}", "--threads", "1",
                  *runs.sets(f"data.train={folder}/corpus/train", "stage.0.parallel={}",
                             f"stage.1.parallel={{{layout}}}")])
    check_saved(delink, folder, f"experts{number}")


def main():
  delink, recipe = map(os.path.abspath, sys.argv[1:])
  runs.skip_without_mpirun()
  with tempfile.TemporaryDirectory() as folder:
    for name in RECIPES:
      check_recipe(delink, os.path.dirname(recipe), name, folder)
    out = f"{folder}/alone"
    runs.succeed([delink, "train", recipe, "--out", out, "--set", f"data.train={folder}/corpus/train"])
    check_saved(delink, folder, "runs/tiny_layouts")
    check_experts(delink, os.path.dirname(recipe), folder)
    for row in LAYOUTS:
      check_layout(delink, recipe, folder, losses(out), row)
  print(f"{len(RECIPES)} recipes and {len(LAYOUTS)} layouts are as one process")


main()
