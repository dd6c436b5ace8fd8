#!/usr/bin/python3
"""Steps with host-resident planes over a slow bus: planned and measured.

  tools/bench/offloaded.py --data CORPUS/train [--delink PROGRAM]
                           [--bus SECONDS,RATE] [--rounds N] [--steps N]
                           [--recipe RECIPE] [--set KEY=VALUE ...]
                           [--only NAME ...] [--json]

Trains a recipe of two stages (default: recipes/gpt_10m.toml, 512 wide, with a
vocabulary of 512) with 16 sequences of 128 tokens a step in micro-batches of
four, with one thread for compute and one for the host's updates, in several
placements. Each placement runs twice: once with a trace and copies as fast as
memory, once with DELINK_BUS, which gives copies between host and device a set
latency and bandwidth (docs/benchmarks.md). `delink plan --trace --bus` predicts
from the first run how long a step of the second takes. Prints for each
placement the median seconds of a step without a bus, the planned seconds with
it, how much of the copies and of the host's updates the plan overlaps with
compute, the measured seconds, and measured / planned: medians of the rounds
(least - most). The steps of the real stage count, except the first three. If
the machine's speed changes between the two runs, so does this ratio. The second
run is therefore traced as well: "at its pace" is measured / planned by its own
trace, and "computes" is the fraction of its steps in which the compute lane
works.

Layer-major placements are also compared with the resident run of the same
order: its measured seconds / theirs, and the tokens a step from which on all
prefetches overlap with a forward pass by the formula (offload/plan/bounds.h).
Parameters have 4 bytes here, and F is the rate that the resident steps reach.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../../recipes/gpt_10m.toml")
SHAPE = {"model.dim": 512, "model.vocab": 512, "data.seq": 128}
# The bytes copied to the device during a forward pass, as a multiple of the
# weights' bytes: the pass's own weights, gradients, state (twice as much as
# weights in fp32), and weights again if the device updates.
COMES = {"weights": 2, "gradients": 1, "state": 2, "state, host updates": 1,
         "half": 2.5, "half, host updates": 0.5, "all": 5,
         "all, host updates": 1}
# Name, order, offload.
RESIDENT = "resident"
PLACEMENTS = {
    RESIDENT: ("layer", ""),
    "weights": ("layer", '{ weights = "host" }'),
    "weights, by micro-batch": ("micro_batch", '{ weights = "host" }'),
    "gradients": ("layer", '{ gradients = "host" }'),
    "state": ("layer", '{ state = "host" }'),
    "state, host updates": ("layer", '{ state = "host", update = "host" }'),
    "half": ("layer", '{ resident = 0.5, update = "device" }'),
    "half, host updates": ("layer", '{ resident = 0.5, update = "host" }'),
    "half, host updates, by micro-batch": (
        "micro_batch", '{ resident = 0.5, update = "host" }'),
    "all": ("layer", '{ resident = 0.0, update = "device" }'),
    "all, host updates": ("layer", '{ resident = 0.0, update = "host" }'),
}
LEFT_OUT = 3
BYTES = 4  # of a parameter's weight, and of its gradient


def settings(options, name):
  order, offload = PLACEMENTS[name]
  steps = options.steps + LEFT_OUT + 2
  words = {} if options.recipe != RECIPE else dict(SHAPE)
  words |= {"data.train": os.path.abspath(options.data), "data.batch": 16,
            "run.micro_batch": 4, "run.threads": 1, "run.log_every": 1,
            "run.validate_every": 0, "run.checkpoint_every": 0,
            "run.order": order, "schedule.steps": steps, "schedule.warmup": 2,
            "stage.0.until.fraction": 1.5 / steps}
  if offload:
    words["stage.1.offload"] = offload
  pairs = [f"{key}={value}" for key, value in words.items()] + options.set
  return [word for pair in pairs for word in ("--set", pair)]


def train(options, name, run, bus=None):
  """The median of a run's steps in seconds. Leaves a trace of them."""
  environment = dict(os.environ)
  environment.pop("DELINK_BUS", None)
  if bus:
    environment["DELINK_BUS"] = bus
  last = options.steps + LEFT_OUT + 2
  subprocess.run(
      [options.delink, "train", options.recipe, "--out", run,
       "--trace", run + ".json",
       "--trace-steps", f"{last - options.steps}:{last}",
       *settings(options, name)], check=True, env=environment,
      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  with open(run + "/metrics.jsonl", encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
  ends = [row["seconds"] for row in rows
          if row.get("stage") == "real" and "tokens_per_s" in row]
  ends = ends[-options.steps - 1:]
  return statistics.median(b - a for a, b in zip(ends, ends[1:]))


def planned(options, name, run):
  """Of the real stage, over the bus, by a run's trace."""
  done = subprocess.run(
      [options.delink, "plan", options.recipe, "--json", "--ranks", "1",
       "--trace", run + ".json", "--bus", options.bus,
       *settings(options, name)],
      check=True, text=True, stdout=subprocess.PIPE)
  return json.loads(done.stdout)["stages"][1]


def measure(options, name):
  with tempfile.TemporaryDirectory() as folder:
    fast = train(options, name, folder + "/fast")
    stage = planned(options, name, folder + "/fast")
    slow = train(options, name, folder + "/slow", options.bus)
    own = planned(options, name, folder + "/slow")["traced"]
  traced = stage["traced"]
  beside = [lane for lane in traced["lanes"] if lane["lane"] != "compute"]
  compute = next(lane["busy_seconds"] for lane in own["lanes"]
                 if lane["lane"] == "compute")
  over = traced["planned_step_seconds"]
  return {"fast": fast, "planned": over, "measured": slow,
          "ratio": slow / over,
          "own_ratio": own["step_seconds"] / own["planned_step_seconds"],
          "computes": compute / own["step_seconds"],
          "beside": sum(lane["busy_seconds"] for lane in beside),
          "hidden": sum(lane["hidden_seconds"] for lane in beside),
          "flops": stage["flops_per_step"],
          "tokens": stage["tokens"] // (stage["end"] - stage["begin"])}


def tokens_from(rows, bus, name):
  """The number of tokens from which copies to the device overlap with a forward
  pass. Copies to the host (weights, gradients or state) are fewer."""
  reached = rows["flops"] / rows["fast"]
  rate = float(bus.split(",")[1])
  return COMES[name] * BYTES / rate * reached / 2


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--data", required=True,
                      help="the train folder of a corpus")
  parser.add_argument("--delink", default="build/release/tools/delink")
  parser.add_argument("--recipe", default=RECIPE)
  parser.add_argument("--set", action="append", default=[],
                      help="a key of the recipe; may be repeated")
  parser.add_argument("--bus", default="0.0002,2.5e8",
                      help="latency in seconds, bytes a second (0.0002,2.5e8)")
  parser.add_argument("--rounds", type=int, default=3,
                      help="number of rounds (3)")
  parser.add_argument("--steps", type=int, default=8, help="measured steps (8)")
  parser.add_argument("--only", nargs="+", choices=list(PLACEMENTS),
                      default=list(PLACEMENTS))
  parser.add_argument("--json", action="store_true",
                      help="print one JSON object for each placement")
  options = parser.parse_args()
  rounds = {name: [] for name in options.only}
  for _ in range(options.rounds):
    for name, of in rounds.items():
      of.append(measure(options, name))
      print(f"{name}: planned {of[-1]['planned']:.3f} s, measured "
            f"{of[-1]['measured']:.3f} s", file=sys.stderr)
  middles = {name: {key: statistics.median(row[key] for row in of)
                    for key in of[0]} for name, of in rounds.items()}
  if options.json:
    for name, of in rounds.items():
      print(json.dumps({"placement": name, "rounds": of, **middles[name]}))
    return
  print("| on the host | no bus, s | over it by the plan | hidden | measured | "
        "measured / planned | at its pace | computes | resident / measured | "
        "enough tokens |")
  print("|---|---|---|---|---|---|---|---|---|---|")
  for name, of in rounds.items():
    middle = middles[name]
    spread = {key: f"{middle[key]:.3f} ({min(row[key] for row in of):.3f} - "
                   f"{max(row[key] for row in of):.3f})"
              for key in ("ratio", "own_ratio", "computes")}
    beside = enough = "-"
    if RESIDENT in middles and name in COMES:
      enough = f"{tokens_from(middles[RESIDENT], options.bus, name):.0f}"
      beside = f"{middles[RESIDENT]['measured'] / middle['measured']:.3f}"
    print(f"| {name} | {middle['fast']:.3f} | {middle['planned']:.3f} | "
          f"{middle['hidden']:.3f} of {middle['beside']:.3f} | "
          f"{middle['measured']:.3f} | {spread['ratio']} | "
          f"{spread['own_ratio']} | {spread['computes']} | {beside} | {enough} |")
  if RESIDENT in middles:
    print(f"\nA step is {middles[RESIDENT]['tokens']:.0f} tokens.")


if __name__ == "__main__":
  main()
