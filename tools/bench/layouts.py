#!/usr/bin/python3
"""Speed of two processes in several layouts, compared with two data ranks.

  tools/bench/layouts.py --data CORPUS/train [--delink PROGRAM] [--rounds N]
                         [--recipe RECIPE] [--set KEY=VALUE ...] [--only NAME ...]

Trains a recipe of two stages (default: recipes/gpt_10m.toml) with 8 sequences a
step in micro-batches of one, one core a process. Prints tokens a second of the real
stage: the median of a run's steps after the first five, then the median (least
- most) over rounds. A pipeline can reach the data ranks' speed times (1 -
bubble), with the bubble that `delink plan` predicts; the last column is the
fraction of this that it reaches. The other layouts have no bubble.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../../recipes/gpt_10m.toml")
LAYOUTS = {
    "data 2": "{ data = 2 }",
    "data 2, zero 1": "{ data = 2, zero = 1 }",
    "data 2, zero 3": "{ data = 2, zero = 3 }",
    "1f1b": "{ pipeline = 2 }",
    "interleaved": '{ pipeline = 2, schedule = "interleaved" }',
    "zero-bubble": '{ pipeline = 2, schedule = "zero-bubble" }',
    "tensor 2": "{ tensor = 2 }",
    "tensor 2, no sequence": "{ tensor = 2, sequence = false }",
    "context 2": "{ context = 2 }",
}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]


def settings(options, layout):
  words = {"data.train": os.path.abspath(options.data), "data.batch": 8,
           "run.micro_batch": 1, "run.threads": 1, "run.log_every": 1,
           "run.validate_every": 0, "run.checkpoint_every": 0,
           "schedule.steps": options.steps, "schedule.warmup": 2,
           "stage.0.until.fraction": 0.1, "stage.0.parallel": layout,
           "stage.1.parallel": layout}
  pairs = [f"{key}={value}" for key, value in words.items()] + options.set
  return [word for pair in pairs for word in ("--set", pair)]


def planned_bubble(options, layout):
  if "pipeline" not in layout:
    return 0.0
  done = subprocess.run(
      [options.delink, "plan", options.recipe, "--json", *settings(options, layout)],
      check=True, text=True, stdout=subprocess.PIPE)
  return json.loads(done.stdout)["stages"][1]["pipeline"]["bubble"]


def train(options, layout):
  """Tokens a second, and the bubble that was measured."""
  with tempfile.TemporaryDirectory() as folder:
    subprocess.run(
        [*MPIRUN, options.delink, "train", options.recipe, "--out", folder + "/run",
         *settings(options, layout)], check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
      rows = [json.loads(line) for line in file]
  steps = [row for row in rows
           if row.get("stage") == "real" and "tokens_per_s" in row][5:]
  return (statistics.median(row["tokens_per_s"] for row in steps),
          statistics.median(row.get("bubble", 0.0) for row in steps))


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--data", required=True,
                      help="the train folder of a corpus")
  parser.add_argument("--delink", default="build/release/tools/delink")
  parser.add_argument("--recipe", default=RECIPE)
  parser.add_argument("--set", action="append", default=[],
                      help="a key of the recipe; may be repeated")
  parser.add_argument("--rounds", type=int, default=5,
                      help="number of rounds (5)")
  parser.add_argument("--steps", type=int, default=20,
                      help="steps of a run (20)")
  parser.add_argument("--only", nargs="+", choices=list(LAYOUTS),
                      default=list(LAYOUTS),
                      help="layouts to compare with data 2")
  options = parser.parse_args()
  layouts = {name: layout for name, layout in LAYOUTS.items()
             if name in options.only or name == "data 2"}
  speeds = {name: [] for name in layouts}
  waits = {name: [] for name in layouts}
  for _ in range(options.rounds):
    for name, layout in layouts.items():
      speed, waited = train(options, layout)
      speeds[name].append(speed)
      waits[name].append(waited)
  print("| layout | tokens a second | of data 2 | bubble planned | measured | "
        "of what it may reach |")
  print("|---|---|---|---|---|---|")
  for name, layout in layouts.items():
    of = speeds[name]
    ratio = statistics.median(s / d for s, d in zip(of, speeds["data 2"]))
    bubble = planned_bubble(options, layout)
    print(f"| {name} | {statistics.median(of):.0f} ({min(of):.0f} - "
          f"{max(of):.0f}) | {ratio:.3f} | {bubble:.3f} | "
          f"{statistics.median(waits[name]):.3f} | {ratio / (1 - bubble):.3f} |")


if __name__ == "__main__":
  main()
