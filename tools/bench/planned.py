#!/usr/bin/python3
"""Seconds a step: planned for this machine from its file, and measured.

  tools/bench/planned.py --data CORPUS/train [--machine FILE] [--delink PROGRAM]
                         [--rounds N] [--steps N] [--only NAME ...] [--json]

Without --machine, `delink bench --suite machine` writes the file first, and two
processes of it add the network. For each configuration `delink plan --machine`
predicts a step of the last stage, and `delink train` runs it: the median of the
steps but the first two, of the rounds the least, since other programs of the
machine can only make a step slower.
Prints a table with planned / measured - 1, and its absolute median and worst.
The corpus must have at most 512 tokens in its vocabulary. Ranks are processes
with one thread each.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../recipes")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
LEFT_OUT = 2
GPT = {"recipe": "gpt_10m", "data.batch": 4}
LARGE = {"recipe": "gpt2_124m", "data.seq": 128, "data.batch": 2,
         "run.micro_batch": 2}
LLAMA = {"recipe": "gpt_10m", "data.batch": 4, "model.kind": "llama"}
MOE = {"recipe": "tiny_moe", "model.dim": 256, "model.heads": 8,
       "model.kv_heads": 4, "model.ffn": 512, "data.seq": 256, "data.batch": 4}
ONE = {"run.threads": 1}
BF16 = {"run.precision": "bf16"}
MICRO = {"run.micro_batch": 1}
BY_LAYER = MICRO | {"run.order": "layer"}


def recompute(what):
  return {"run.recompute": what}


def offload(what):
  return {"offload": f"{{ {what} }}"}


def parallel(what):
  return {"parallel": f"{{ {what} }}", "ranks": 2} | ONE | MICRO


CONFIGURATIONS = {
    "gpt": GPT,
    "gpt, 1 thread": GPT | ONE,
    "gpt, bf16": GPT | BF16,
    "gpt, bf16, 1 thread": GPT | BF16 | ONE,
    "gpt, recompute none": GPT | recompute("none"),
    "gpt, recompute block": GPT | recompute("block"),
    "gpt, micro-batches of 1": GPT | MICRO,
    "gpt, by layer": GPT | BY_LAYER,
    "gpt, bf16, by layer, recompute block":
        GPT | BF16 | BY_LAYER | recompute("block"),
    "gpt, 1024 tokens a row": GPT | {"data.seq": 1024, "data.batch": 1},
    "gpt, 512 wide": GPT | {"model.dim": 512},
    "gpt, 512 wide, bf16, 1 thread": GPT | {"model.dim": 512} | BF16 | ONE,
    "gpt, state on the host": GPT | offload('state = "host"'),
    "gpt, all on the host, device updates":
        GPT | BY_LAYER | offload('resident = 0.0, update = "device"'),
    "gpt, half on the host, host updates":
        GPT | BY_LAYER | offload('resident = 0.5, update = "host"'),
    "llama": LLAMA,
    "llama, 1 thread": LLAMA | ONE,
    "llama, bf16": LLAMA | BF16,
    "llama, recompute block": LLAMA | recompute("block"),
    "llama, bf16, recompute none": LLAMA | BF16 | recompute("none"),
    "llama, micro-batches of 1": LLAMA | MICRO,
    "llama, weights on the host":
        LLAMA | BY_LAYER | offload('weights = "host"'),
    "experts": MOE,
    "experts, 1 thread": MOE | ONE,
    "experts, bf16": MOE | BF16,
    "experts, recompute block": MOE | recompute("block"),
    "gpt-124m": LARGE,
    "gpt-124m, bf16": LARGE | BF16,
    "gpt-124m, recompute none": LARGE | recompute("none"),
    "gpt-124m, state on the host": LARGE | offload('state = "host"'),
    "gpt, data 2": GPT | parallel("data = 2"),
    "gpt, data 2, zero 3": GPT | parallel("data = 2, zero = 3"),
    "gpt, tensor 2": GPT | parallel("tensor = 2"),
    "gpt, pipeline 2": GPT | parallel("pipeline = 2"),
    "llama, bf16, tensor 2": LLAMA | BF16 | parallel("tensor = 2"),
    "experts, expert 2": MOE | parallel("expert = 2"),
}


def stages_of(name):
  with open(recipe_of(name), encoding="utf-8") as file:
    return file.read().count("\n[[stage]]")


def recipe_of(name):
  return f"{RECIPES}/{CONFIGURATIONS[name]['recipe']}.toml"


def settings(options, name):
  words = dict(CONFIGURATIONS[name])
  steps = options.steps + LEFT_OUT + 2
  last = stages_of(name) - 1
  for key in ("offload", "parallel"):
    if key in words:
      words[f"stage.{last}.{key}"] = words.pop(key)
  words.pop("recipe")
  if words.pop("ranks", 1) > 1 and last > 0:
    words["stage.0.parallel"] = words[f"stage.{last}.parallel"]
  words = {"model.vocab": 512, "run.threads": 2, "run.log_every": 1,
           "run.validate_every": 0, "run.checkpoint_every": 0,
           "schedule.kind": "constant", "schedule.steps": steps,
           "schedule.warmup": 0,
           "data.train": os.path.abspath(options.data)} | words
  if last > 0:
    words["stage.0.until"] = f"{{ fraction = {1.5 / steps} }}"
  return [word for key, value in words.items()
          for word in ("--set", f"{key}={value}")]


def run(command):
  environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                     OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
  done = subprocess.run(command, text=True, env=environment,
                        capture_output=True, check=False)
  if done.returncode != 0:
    raise RuntimeError(done.stderr.strip().splitlines()[-1])
  return done.stdout


def planned(options, name):
  ranks = CONFIGURATIONS[name].get("ranks", 1)
  return json.loads(run(
      [options.delink, "plan", recipe_of(name), "--json", "--machine",
       options.machine, "--ranks", str(ranks), *settings(options, name)]
  ))["stages"][-1]


def measured(options, name):
  ranks = CONFIGURATIONS[name].get("ranks", 1)
  with tempfile.TemporaryDirectory() as folder:
    run([*(MPIRUN if ranks > 1 else []), options.delink, "train",
         recipe_of(name), "--out", folder + "/run", *settings(options, name)])
    with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
      rows = [json.loads(line) for line in file]
  rows = [row for row in rows if "tokens_per_s" in row]
  ends = [row["seconds"] for row in rows if row["stage"] == rows[-1]["stage"]]
  ends = ends[LEFT_OUT - 1:]
  return statistics.median(b - a for a, b in zip(ends, ends[1:]))


def table(rows):
  print("| configuration | planned, s | measured, s | error | products |")
  print("|---|---|---|---|---|")
  for row in rows:
    print(f"| {row['name']} | {row['planned']:.4f} | {row['measured']:.4f} | "
          f"{100 * row['error']:+.1f} % | {100 * row['products']:.0f} % |")
  errors = sorted(abs(row["error"]) for row in rows)
  print(f"\nErrors of {len(rows)} configurations: median "
        f"{100 * statistics.median(errors):.1f} %, worst "
        f"{100 * errors[-1]:.1f} %.")


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--data", required=True,
                      help="the train folder of a corpus")
  parser.add_argument("--machine", help="a file of this machine")
  parser.add_argument("--delink", default="build/release/tools/delink")
  parser.add_argument("--rounds", type=int, default=2,
                      help="number of rounds (2)")
  parser.add_argument("--steps", type=int, default=6, help="measured steps (6)")
  parser.add_argument("--only", nargs="+", choices=list(CONFIGURATIONS),
                      default=list(CONFIGURATIONS))
  parser.add_argument("--json", action="store_true",
                      help="print one JSON object for each configuration")
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    if not options.machine:
      options.machine = folder + "/machine.toml"
      measure = [options.delink, "bench", "--suite", "machine",
                 "--machine-file", options.machine]
      run(measure)
      run(MPIRUN + measure)
    rows = []
    for name in options.only:
      try:
        plan = planned(options, name)
        times = [measured(options, name) for _ in range(options.rounds)]
      except RuntimeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        continue
      seconds = plan["seconds_per_step"]
      rows.append({
          "name": name, "planned": seconds, "measured": min(times),
          "rounds": times, "error": seconds / min(times) - 1,
          "products": plan["critical_path"].get("products", 0) / seconds,
          "critical_path": plan["critical_path"]})
      print(f"{name}: planned {seconds:.4f} s, measured {min(times):.4f} s",
            file=sys.stderr)
  if options.json:
    for row in rows:
      print(json.dumps(row))
  else:
    table(rows)


if __name__ == "__main__":
  main()
