#!/usr/bin/env python3
"""Checks a GPU and measures it, from an unpacked bundle: what Delink's CUDA
backend must show, stage by stage, each with a time limit.

  tests      the tests that need a GPU, twice
  sanitizer  compute-sanitizer's memcheck and racecheck over the kernels' tests
  curves     one recipe, on the CPU in fp32 and on the GPU in bf16: how far the
             losses differ
  start      seconds from the start of 'delink train' to its first step
  speed      'delink bench' of the shapes: tokens/s, percent of the speed of
             light, planned and measured memory
  tune       the same for the first shape under each available choice: what is
             kept, sums in any order, how products are made
  ops        'delink bench' of every kernel
  offload    steps with host-resident planes: percent of the speed with
             everything on the device, and the predicted percent
             (offload_check.py); an 8B shape in 24 GiB; the largest model that
             trains. Without a GPU 'not run', and the prediction from assumed
             rates
  moe        steps of mixtures of experts with even and uneven loads, and of
             dense models with as many active parameters (moe_check.py): tokens/s
             and TFLOP/s. Without a GPU 'not run'
  peers      the shapes alternately with PyTorch's, eager and compiled

curves and start need --corpus, a folder that 'delink data build' made. peers
takes minutes for each shape: if time is short, name one at a time. All output
is kept in --out; the table at the end says what passed. Exits with 1 if a stage
failed.
"""

import argparse
import dataclasses
import glob
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import moe_check
import offload_check
try:
  import tomllib
except ImportError:  # before Python 3.11
  from pip._vendor import tomli as tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = ("gpt-124m", "qwen-0.5b", "qwen-1.5b", "qwen-3b", "qwen-7b")
# Measured without sharing alone: each case makes its weights anew.
LARGE = ("qwen-3b", "qwen-7b")
# Unless it is this, nothing is made again in backward.
RECOMPUTE = {"qwen-7b": "block"}
# How a step can be made otherwise: environment, words of 'delink bench'.
IN_ANY_ORDER = "--set", "run.deterministic=false"
CHOICES = (
    ({}, ()),
    ({}, ("--recompute", "norm+activation")),
    ({}, IN_ANY_ORDER),
    ({"DELINK_FUSE_MATMUL": "0"}, ()),
    ({"DELINK_FUSE_MATMUL": "gelu,gelu_backward"}, ()),
    ({"DELINK_FUSE_MATMUL": "bias_grad"}, ()),
    ({"DELINK_TIME_MATMUL": "1"}, ()),
    ({"DELINK_TIME_MATMUL": "1"}, IN_ANY_ORDER),
    ({}, ("--set", "run.gradients=bf16", "--set", "run.master=split")))
# What a log says where a kernel of ours stands in for a library's.
SLOW = "our own kernels'", "our own is slow"
KERNEL_TESTS = "kernels_cuda*_test", "optim_cuda_test", "device_cuda_test"
# How far losses of bf16 may be from those of fp32, relative.
CURVE_BAND = 0.01
# How far memory may be from what was planned, relative.
MEMORY_BAND = 0.01
# What programs say where there is no GPU; one that fails has other words.
NO_GPU = ("this machine has no NVIDIA driver", "shows no CUDA device",
          "this build has no CUDA backend")
# Their messages if a model does not fit on the device or the host, and the end
# of a process that the kernel killed because it took too much host memory.
NO_ROOM = "out of memory", ".offload.device: ", "ended with -9:"


class Failure(Exception):
  """A stage that did not do what it should; the text says what."""

  def says(self, signs):
    return any(sign in str(self) for sign in signs)


class Check:
  """The stages and what they share."""

  def __init__(self, options):
    self.options = options
    self.delink = options.delink or f"{HERE}/bin/delink"
    self.deadline = 0.0
    self.said = []  # by the stage at work
    # Of `offload`: whether there is what to run it on; steps by model, tokens.
    self.runs = True
    self.resident = {}

  def path(self, name):
    return os.path.join(self.options.out, name)

  def run(self, log, words, environment=None):
    """Runs a program until the stage's end; what it says goes to a log."""
    with open(self.path(log), "a+", encoding="utf-8", errors="replace") as file:
      file.write(f"$ {' '.join(words)}\n")
      file.flush()
      began = file.tell()
      process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT,
                                 start_new_session=True,
                                 env={**os.environ, "DELINK_FULL_TESTS": "1",
                                      **(environment or {})})
      try:
        code = process.wait(max(1.0, self.deadline - time.monotonic()))
      except subprocess.TimeoutExpired as late:
        # With what it has started, which would go on computing.
        for how in (signal.SIGTERM, signal.SIGKILL):
          os.killpg(process.pid, how)
          time.sleep(2)
        process.wait()
        raise Failure(f"out of time in {words[0]}: see {file.name}") from late
      file.seek(began)
      said = file.read()
    if code != 0:
      last = "\n".join(said.splitlines()[-5:])
      raise Failure(f"{words[0]} ended with {code}: see {file.name}\n{last}")
    return said

  def programs(self, *patterns):
    found = sorted({path for pattern in patterns
                    for path in glob.glob(f"{HERE}/bin/{pattern}")})
    if not found:
      raise Failure(f"no program {' or '.join(patterns)} in {HERE}/bin")
    return found

  def tests(self):
    passed = skipped = 0
    idle = []
    for program in self.programs("*_test"):
      # It already compares whole runs with each other, so once is enough.
      once = os.path.basename(program) == "cuda_run_test"
      said = self.run("tests.log", [
          program, f"--gtest_repeat={1 if once else 2}"])
      done = said.count("[       OK ]")
      left = len(re.findall(r"^\[  SKIPPED \] .* \(\d+ ms\)$", said, re.M))
      passed += done
      skipped += left
      if left > 0 and left >= done:
        idle.append(os.path.basename(program))
    self.said.append(f"{passed} passed, {skipped} skipped, over two rounds")
    if idle:
      raise Failure("at least half of the tests were skipped in: "
                    f"{', '.join(idle)}; tests.log says why")

  def sanitizer(self):
    folders = [os.environ.get("PATH", "")] + [
        f"{folder}/../bin" for folder in wheel_folders()] + [
        f"{root}/bin" for root in (os.environ.get("CUDA_HOME"),
                                   os.environ.get("CUDA_PATH"),
                                   "/usr/local/cuda") if root]
    program = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if program is None:
      raise Failure("compute-sanitizer is not installed")
    for tool in ("memcheck", "racecheck"):
      for test in self.programs(*KERNEL_TESTS):
        # Tests ask for more memory than there is, which is no error of theirs.
        # Of the libraries' kernels nothing could be mended here.
        self.run("sanitizer.log", [
            program, "--tool", tool, "--target-processes", "all",
            "--report-api-errors", "no", "--kernel-name", "kns=delink",
            "--error-exitcode", "9", test])
        self.said.append(f"{tool} {os.path.basename(test)} clean")

  def train(self, name, device, *settings):
    if self.options.corpus is None:
      raise Failure("the stage needs --corpus, a corpus folder")
    words = [self.delink, "train", f"{HERE}/recipes/{self.options.recipe}",
             "--set", f"data.train={self.options.corpus}/train",
             "--out", self.path(name), "--device", device, "--overwrite"]
    for setting in settings:
      words += ["--set", setting]
    return words

  def losses(self, name):
    with open(f"{self.path(name)}/metrics.jsonl", encoding="utf-8") as file:
      return [row["loss"] for row in map(json.loads, file) if "loss" in row]

  def curves(self):
    steps = self.options.steps
    for name, device, precision in (("curve-cpu", "cpu", "fp32"),
                                    ("curve-gpu", self.options.device, "bf16")):
      self.run("curves.log", self.train(
          name, device, f"schedule.steps={steps}",
          f"schedule.warmup={steps // 10}", "run.log_every=1",
          f'run.precision="{precision}"'))
    cpu, gpu = self.losses("curve-cpu"), self.losses("curve-gpu")
    if not len(cpu) == len(gpu) == steps:
      raise Failure(f"{len(cpu)} and {len(gpu)} losses of {steps} steps")
    if not all(isinstance(x, float) and math.isfinite(x) for x in cpu + gpu):
      raise Failure("some losses are not finite numbers")
    apart = max(abs(a - b) / a for a, b in zip(cpu, gpu))
    self.said.append(f"{steps} steps, loss {cpu[0]:.3f} to {cpu[-1]:.3f} and "
                     f"{gpu[-1]:.3f}, at most {100 * apart:.2f} % apart")
    if apart > CURVE_BAND:
      raise Failure(f"more than {100 * CURVE_BAND:g} % apart")

  def start(self):
    words = self.train("start", self.options.device, 'run.precision="bf16"')
    words[2] = f"{HERE}/recipes/{self.options.start_recipe}"
    began = time.monotonic()
    self.run("start.log", [*words, "--set", "data.batch=8", "--until-step",
                           "1"])
    self.said.append(f"{time.monotonic() - began:.1f} s for one step of "
                     f"{self.options.start_recipe}, with its checkpoint")

  def bench(self, log, *words, environment=None):
    target = self.path(f"{log}.json")
    if self.options.quick:
      words = ("--quick", *words)
    said = self.run(f"{log}.log", [
        self.delink, "bench", "--device", self.options.device, "--json", target,
        *words], environment)
    for line in said.splitlines():
      if any(sign in line for sign in SLOW):
        raise Failure(f"not what is to be measured: {line}")
    with open(target, encoding="utf-8") as file:
      return json.load(file)

  def speed(self):
    wrong = []
    for shape in self.options.shape:
      words = ["--recompute", RECOMPUTE.get(shape, "none")]
      if shape in LARGE:
        words += ["--share", "none"]
      for step in self.bench(f"speed-{shape}", "--suite", "step", "--shape",
                             shape, *words)["steps"]:
        wrong += self.say_step(step)
    if wrong:
      raise Failure("\n".join(["memory beside the plan:", *wrong]))

  def tune(self):
    shape = self.options.shape[0]
    for place, (environment, words) in enumerate(CHOICES):
      said = [f"{key}={value}" for key, value in environment.items()]
      if "--recompute" not in words:
        words = ("--recompute", RECOMPUTE.get(shape, "none"), *words)
      step, = self.bench(
          f"tune-{place}", "--suite", "step", "--shape", shape, "--share",
          "none", "--precision", "bf16", *words,
          environment=environment)["steps"]
      seconds = step["seconds"]
      self.said.append(f"{' '.join([*said, shape, *words])}: "
                       f"{step['tokens_per_s']:.0f} tokens/s "
                       f"({1e3 * seconds['low']:.2f} to "
                       f"{1e3 * seconds['high']:.2f} ms a step), "
                       f"{step['allocated_bytes'] / 2**30:.2f} GiB")

  def say_step(self, step):
    """Says what was measured of a step; returns what is wrong with it."""
    name = (f"{step['shape']} {step['batch']} x {step['seq']} "
            f"{step['precision']}, share {step['share']}, recompute "
            f"{step['recompute']}")
    total = step["memory"]["total"]
    planned = total - step["memory"].get("overhead", 0)
    sizes = [("allocated", planned, step["allocated_bytes"])]
    if step["device_bytes"]:
      sizes.append(("of the GPU", total, step["device_bytes"]))
    texts = []
    wrong = []
    for kind, plan, measured in sizes:
      more = measured / plan - 1
      texts.append(f"{measured / 2**30:.2f} GiB {kind} ({100 * more:+.2f} % "
                   "beside the plan)")
      if abs(more) > MEMORY_BAND:
        wrong.append(f"{name}: {texts[-1]}")
    self.said.append(f"{name}: {step['tokens_per_s']:.0f} tokens/s, "
                     f"{step['percent_of_light']:.1f} % of light, "
                     f"{step['percent_of_peak']:.1f} % of peak, "
                     f"{', '.join(texts)}")
    return wrong

  def ops(self):
    rows = self.bench("ops", "--suite", "ops")["ops"]
    slow = [f"{row['name']} {row['dtype']} {row['percent_of_peak']:.0f} %"
            for row in rows if row["percent_of_peak"] < 80]
    self.said.append(f"{len(rows)} kernels, under 80 % of peak: "
                     f"{', '.join(slow) or '-'}")

  def peers(self):
    for shape in self.options.shape:
      self.said.append(self.run(f"peers-{shape}.log", [
          f"{HERE}/bench/peers.sh", "--device", self.options.device,
          "--precision", "bf16", "--seq", "1024", "--rounds", "1", "--delink",
          self.delink, "--python", sys.executable, "--shape", shape]).rstrip())

  def moe(self):
    cases = moe_check.cases(self.options.device)
    for place, (name, words) in enumerate(cases):
      try:
        step, = self.bench(f"moe-{place}", *words)["steps"]
      except Failure as failure:
        if not failure.says(NO_GPU):
          raise
        self.said.append(f"not run: {str(failure).splitlines()[-1]}")
        return
      self.said.append(f"{name}: {moe_check.figures(step)}")

  def offload(self):
    rates = self.offload_rates()
    if self.options.device == "cpu":
      rows = [(offload_check.TINY, 2 * 8 * 1024, name)
              for name in offload_check.HOMES]
    else:
      rows = offload_check.cases()
    stages = [lambda row=row: self.say_homes(rates, *row) for row in rows]
    if self.options.device != "cpu":
      stages += [lambda: self.offload_capped(rates),
                 lambda: self.offload_largest(rates)]
    wrong = []
    for stage in stages:
      try:
        stage()
      except Failure as failure:  # the others go on
        wrong.append(str(failure))
    if wrong:
      raise Failure("\n".join(wrong))

  def offload_rates(self):
    """This machine's, or those that are assumed where there is no GPU."""
    self.runs = True
    # Where runs that have XDG_CACHE_HOME from offload_step look for it.
    target = self.path("offload-cache/delink/machine.toml")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    words = [self.delink, "bench", "--suite", "machine", "--device",
             self.options.device, "--machine-file", target]
    try:
      self.run("offload.log", words + ["--quick"] * self.options.quick)
      with open(target, "rb") as file:
        machine = tomllib.load(file)
    except Failure as failure:
      if not failure.says(NO_GPU):
        raise
      self.runs = False
      self.said.append(f"not run: {str(failure).splitlines()[-1]}")
      self.said.append(f"with rates that are assumed: {offload_check.ASSUMED}")
      return offload_check.ASSUMED
    rates = offload_check.measured(machine)
    missing = [name for name, rate in dataclasses.asdict(rates).items()
               if not rate > 0]
    if missing:
      raise Failure(f"not measured: {', '.join(missing)}; see {target}")
    return rates

  def offload_step(self, log, model, tokens, homes):
    words = offload_check.words(model, tokens, homes)
    cache = os.path.abspath(self.path("offload-cache"))
    return self.bench(log, *words, environment={"XDG_CACHE_HOME": cache})[
        "steps"][0]

  def say_homes(self, rates, model, tokens, name):
    homes = offload_check.HOMES[name]
    text = f"{model.parameters() / 1e9:.3g}B, {tokens} tokens, {name}: "
    if self.runs:
      log = f"offload-{model.shape}-{tokens}"
      if (model, tokens) not in self.resident:
        self.resident[model, tokens] = self.offload_step(log, model, tokens,
                                                         None)
      rates = self.step_rates(rates, model, tokens)
      step = self.offload_step(f"{log}-{len(self.said)}", model, tokens, homes)
      speed = step["tokens_per_s"]
      of = 100 * speed / self.resident[model, tokens]["tokens_per_s"]
      text += f"{speed:.0f} tokens/s, {of:.0f} % of resident speed, "
    foretold = offload_check.percent(rates, model, tokens, homes)
    self.said.append(f"{text}{foretold:.0f} % foretold")

  def step_rates(self, rates, model, tokens):
    """With products as fast as the resident step of this model has them, or the
    one that was measured first where it has none."""
    if not self.resident:
      return rates
    at = (model, tokens)
    if at not in self.resident:
      at = next(iter(self.resident))
    return offload_check.as_fast_as(
        rates, *at, at[1] / self.resident[at]["tokens_per_s"])

  def offload_capped(self, rates):
    """Compares `auto` within 24 GiB with as much as fits on the device."""
    model, tokens = offload_check.LLAMA_8B, 16384
    rates = self.step_rates(rates, model, tokens)
    foretold = max(offload_check.percent(rates, model, tokens, homes)
                   for homes in offload_check.HOMES.values())
    text = f"8B in {offload_check.CAP}, {tokens} tokens: "
    if not self.runs:
      self.said.append(f"{text}{foretold:.0f} % of resident speed foretold")
      return
    capped = self.offload_step("offload-8b-capped", model, tokens,
                               offload_check.within(offload_check.CAP))
    free = None
    for budget in (None, "130GiB", "72GiB", "44GiB"):
      try:
        free = self.offload_step("offload-8b-free", model, tokens,
                                 budget and offload_check.within(budget))
        break
      except Failure as failure:
        if not failure.says(NO_ROOM):
          raise
    if free is None:
      raise Failure("8B does not train on this device: see offload-8b-free.log")
    of = 100 * capped["tokens_per_s"] / free["tokens_per_s"]
    self.said.append(
        f"{text}{capped['tokens_per_s']:.0f} tokens/s in "
        f"{capped['memory']['total'] / 2**30:.1f} GiB, {of:.0f} % of "
        f"{free['tokens_per_s']:.0f} tokens/s in "
        f"{free['memory']['total'] / 2**30:.1f} GiB, {foretold:.0f} % of "
        "resident speed foretold")

  def offload_largest(self, rates):
    """Blocks of an 8B shape, as many as the host holds."""
    model, tokens = offload_check.LLAMA_8B, 16384
    rates = self.step_rates(rates, model, tokens)
    homes = offload_check.HOMES["all, updated by the host"]
    host = (offload_check.available_memory() if self.runs
            else offload_check.HOST)
    layers = offload_check.most_layers(model, 0.95 * host)
    while layers > 0:
      larger = offload_check.with_layers(model, layers)
      tokens_per_s = tokens / offload_check.seconds(rates, larger, tokens,
                                                    homes)
      text = (f"largest model, {host / 2**30:.0f} GiB of the host: "
              f"{larger.parameters() / 1e9:.1f}B, {layers} blocks, ")
      foretold = f"{tokens_per_s:.0f} tokens/s foretold"
      if not self.runs:
        self.said.append(text + foretold)
        return
      try:
        step = self.offload_step("offload-largest", larger, tokens, homes)
        self.said.append(f"{text}{step['tokens_per_s']:.0f} tokens/s, "
                         f"{foretold}")
        return
      except Failure as failure:
        if not failure.says(NO_ROOM):
          raise
        layers = int(0.9 * layers)
    raise Failure("no model trains")


STAGES = ("tests", "sanitizer", "curves", "start", "speed", "tune", "ops",
          "offload", "moe", "peers")


def wheel_folders():
  """Where CUDA's libraries are if they came with this Python."""
  try:
    roots = importlib.util.find_spec("nvidia").submodule_search_locations
  except (AttributeError, ImportError):
    return []
  return [folder for root in roots for folder in sorted(glob.glob(
      f"{root}/*/lib"))]


def arguments():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("stage", nargs="*", metavar="STAGE",
                      help=f"{', '.join(STAGES)} (all of them)")
  parser.add_argument("--out", default="gpu-check", help="(gpu-check)")
  parser.add_argument("--corpus", help="corpus folder for curves and start")
  parser.add_argument("--seconds", type=float, default=600,
                      help="time limit of each stage (600)")
  parser.add_argument("--shape", action="append",
                      help=f"may be repeated ({', '.join(SHAPES)})")
  parser.add_argument("--steps", type=int, default=200,
                      help="steps of curves (200)")
  parser.add_argument("--recipe", default="quickstart_p2r.toml",
                      help="recipe of curves, in recipes (quickstart_p2r.toml)")
  parser.add_argument("--start-recipe", default="gpt2_124m.toml",
                      help="recipe of start, in recipes (gpt2_124m.toml)")
  parser.add_argument("--device", default="cuda", help="(cuda)")
  parser.add_argument("--quick", action="store_true",
                      help="rough figures of speed and ops")
  parser.add_argument("--delink",
                      help="the delink to run instead of the bundle's")
  options = parser.parse_args()
  for stage in options.stage:
    if stage not in STAGES:
      parser.error(f"no stage '{stage}': {', '.join(STAGES)}")
  options.stage = options.stage or list(STAGES)
  options.shape = options.shape or list(SHAPES)
  options.corpus = options.corpus and os.path.abspath(options.corpus)
  return options


def main():
  options = arguments()
  os.makedirs(options.out, exist_ok=True)
  folders = [os.environ.get("LD_LIBRARY_PATH"), *wheel_folders()]
  os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
  check = Check(options)
  table = []
  failed = False
  for stage in options.stage:
    began = time.monotonic()
    check.deadline = began + options.seconds
    check.said = []
    word = "ok"
    try:
      getattr(check, stage)()
    except Failure as failure:
      word, failed = "FAILED", True
      check.said.append(str(failure))
    except Exception as error:  # the stages after it go on
      word, failed = "FAILED", True
      check.said.append(f"{type(error).__name__}: {error}")
    said = "\n  ".join(check.said)
    text = f"{stage}: {word} in {time.monotonic() - began:.0f} s\n  {said}"
    print(text, flush=True)
    table.append(text)
    with open(check.path("summary.txt"), "w", encoding="utf-8") as file:
      file.write("\n".join(table) + "\n")
  sys.exit(1 if failed else 0)


if __name__ == "__main__":
  main()
