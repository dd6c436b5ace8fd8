#!/usr/bin/python3
"""Step times over slow links: predicted by the joint execution, and measured.

  tools/bench/simulated.py --data CORPUS/train [--delink PROGRAM]
                           [--delay SECONDS,RATE] [--rounds N] [--steps N]
                           [--recipe RECIPE] [--set KEY=VALUE ...]
                           [--only NAME ...] [--json]

Trains a recipe of two stages (default: recipes/gpt_10m.toml) with 8 sequences a
step in micro-batches of one, by two processes of one core each, in several
layouts; --only names three more for recipes with experts. Each layout runs twice:
once with a trace and without delay, once with DELINK_DELAY, which gives all
exchanges between ranks a set latency and bandwidth (docs/benchmarks.md). `delink plan --trace --delay` predicts from the
first run how long a step of the second takes. Prints for each layout the median
seconds of an undelayed step, the step times that the trace predicts without and
with the delay, the median seconds of a delayed step, and measured / planned:
the median of the rounds (least - most). With zero = 3 it also prints the
planned share of the gathers of weights that computation hides. The steps of the real stage count,
except the first three.
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
    "data 2, zero 2": "{ data = 2, zero = 2 }",
    "data 2, zero 3": "{ data = 2, zero = 3 }",
    "1f1b": "{ pipeline = 2 }",
    "interleaved": '{ pipeline = 2, schedule = "interleaved" }',
    "zero-bubble": '{ pipeline = 2, schedule = "zero-bubble" }',
    "tensor 2": "{ tensor = 2 }",
    "context 2": "{ context = 2 }",
}
OF_EXPERTS = {
    "experts, gather": '{ expert = 2, dispatch = "gather" }',
    "experts, all-to-all":
        '{ expert = 2, dispatch = "all-to-all", expert_room = 2 }',
    "experts, overlap":
        '{ expert = 2, dispatch = "all-to-all", expert_room = 2, '
        'expert_overlap = true }',
}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
LEFT_OUT = 3


def settings(options, layout):
  words = {"data.train": os.path.abspath(options.data), "data.batch": 8,
           "run.micro_batch": 1, "run.threads": 1, "run.log_every": 1,
           "run.validate_every": 0, "run.checkpoint_every": 0,
           "schedule.steps": options.steps + LEFT_OUT + 2,
           "schedule.warmup": 2,
           "stage.0.until":
               f"{{ fraction = {1.5 / (options.steps + LEFT_OUT + 2)} }}",
           "stage.0.parallel": layout, "stage.1.parallel": layout}
  pairs = [f"{key}={value}" for key, value in words.items()] + options.set
  return [word for pair in pairs for word in ("--set", pair)]


def train(options, layout, folder, delay=None):
  """The median of a run's steps in seconds."""
  environment = dict(os.environ)
  environment.pop("DELINK_DELAY", None)
  words = []
  if delay is None:
    last = options.steps + LEFT_OUT + 2
    words = ["--trace", folder + "/trace.json",
             "--trace-steps", f"{last - options.steps}:{last}"]
  else:
    environment["DELINK_DELAY"] = delay
  run = folder + ("/delayed" if delay else "/run")
  subprocess.run(
      [*MPIRUN, options.delink, "train", options.recipe, "--out", run, *words,
       *settings(options, layout)], check=True, env=environment,
      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  with open(run + "/metrics.jsonl", encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
  ends = [row["seconds"] for row in rows
          if row.get("stage") == "real" and "tokens_per_s" in row]
  ends = ends[-options.steps - 1:]
  return statistics.median(b - a for a, b in zip(ends, ends[1:]))


def planned(options, layout, folder, delay=None):
  words = ["--delay", delay] if delay else []
  done = subprocess.run(
      [options.delink, "plan", options.recipe, "--json", "--ranks", "2",
       "--trace", folder + "/trace.json", *words, *settings(options, layout)],
      check=True, text=True, stdout=subprocess.PIPE)
  traced = json.loads(done.stdout)["stages"][1]["traced"]
  gathers = [lane for lane in traced["lanes"] if lane["lane"] == "gather"]
  busy = sum(lane["busy_seconds"] for lane in gathers)
  hidden = sum(lane["hidden_seconds"] for lane in gathers)
  return traced["planned_step_seconds"], hidden / busy if busy else None


def measure(options, layout):
  with tempfile.TemporaryDirectory() as folder:
    before = train(options, layout, folder)
    after = train(options, layout, folder, options.delay)
    without, _ = planned(options, layout, folder)
    over, hidden = planned(options, layout, folder, options.delay)
  row = {"undelayed": before, "planned_undelayed": without, "planned": over,
         "measured": after, "ratio": after / over}
  return row if hidden is None else row | {"gathers_hidden": hidden}


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--data", required=True,
                      help="the train folder of a corpus")
  parser.add_argument("--delink", default="build/release/tools/delink")
  parser.add_argument("--recipe", default=RECIPE)
  parser.add_argument("--set", action="append", default=[],
                      help="a key of the recipe; may be repeated")
  parser.add_argument("--delay", default="0.005,1e8",
                      help="latency in seconds, bytes a second (0.005,1e8)")
  parser.add_argument("--rounds", type=int, default=3,
                      help="number of rounds (3)")
  parser.add_argument("--steps", type=int, default=10,
                      help="measured steps (10)")
  parser.add_argument("--only", nargs="+",
                      choices=list(LAYOUTS) + list(OF_EXPERTS),
                      default=list(LAYOUTS))
  parser.add_argument("--json", action="store_true",
                      help="print one JSON object for each layout")
  options = parser.parse_args()
  rounds = {name: [] for name in options.only}
  for _ in range(options.rounds):
    for name, of in rounds.items():
      of.append(measure(options, (LAYOUTS | OF_EXPERTS)[name]))
  if not options.json:
    print("| layout | undelayed, s | by its trace | delayed by the plan | "
          "measured | measured / planned | gathers hidden |")
    print("|---|---|---|---|---|---|---|")
  for name, of in rounds.items():
    middle = {key: statistics.median(row[key] for row in of) for key in of[0]}
    if options.json:
      print(json.dumps({"layout": name, "rounds": of, **middle}))
      continue
    ratios = [row["ratio"] for row in of]
    share = middle.get("gathers_hidden")
    hidden = "" if share is None else f"{share:.2f}"
    print(f"| {name} | {middle['undelayed']:.3f} | "
          f"{middle['planned_undelayed']:.3f} | {middle['planned']:.3f} | "
          f"{middle['measured']:.3f} | {middle['ratio']:.3f} "
          f"({min(ratios):.3f} - {max(ratios):.3f}) | "
          f"{hidden} |")


if __name__ == "__main__":
  main()
