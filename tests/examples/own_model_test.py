#!/usr/bin/python3
"""A user's repository, built against an installed Delink: own_model_test.py
CMAKE BUILD [MPIRUN].

Installs the build to a prefix outside the source tree, copies own_model out of
it too, and there configures, builds, tests and trains as docs/models.md says.
"""
import json
import os
import shutil
import sys
import tempfile

import installed

CMAKE, BUILD = sys.argv[1], os.path.abspath(sys.argv[2])
MPIRUN = sys.argv[3] if len(sys.argv) > 3 else ""  # of a build with MPI
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "own_model")
STEPS = 12


run = installed.run


def expect_in(text, said):
  assert text in said, f"no '{text}' in\n{said}"


def build(folder):
  """The user's program and its installed Delink."""
  prefix, repository = f"{folder}/prefix", f"{folder}/repository"
  run([CMAKE, "--install", BUILD, "--prefix", prefix], folder)
  shutil.copytree(EXAMPLE, repository)
  # A header or library of the source tree would come with a path into it.
  run([CMAKE, "-B", "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"],
      repository)
  run([CMAKE, "--build", "build"], repository)
  run(["ctest", "--test-dir", "build", "--no-tests=error"], repository)
  source = os.path.dirname(os.path.dirname(os.path.dirname(EXAMPLE)))
  with open(f"{repository}/build/build.ninja", encoding="utf-8") as file:
    assert source not in file.read(), "built with the source tree"
  return f"{repository}/build/dyt", prefix


def losses(run_folder):
  with open(f"{run_folder}/metrics.jsonl", encoding="utf-8") as file:
    return [row["loss"] for row in map(json.loads, file) if "loss" in row]


def train(program, prefix, folder):
  delink = f"{prefix}/bin/delink"
  run([delink, "data", "build", "--bytes", "--out", "corpus",
       f"{prefix}/share/doc/delink/LICENSE"], folder)
  shutil.copy(f"{EXAMPLE}/dyt.toml", folder)
  recipe = ["dyt.toml", "--set", f"data.train={folder}/corpus/train"]

  expect_in("pseudo", run([program, "plan", *recipe], folder))
  expect_in("3 does not divide dim 32", run(
      [program, "train", *recipe, "--set", "model.heads=3", "--out", "bad"],
      folder, code=2))
  # Heads that ranks cannot have as many of.
  expect_in("; use tensor 2", run(
      [program, "plan", *recipe, "--ranks", "4", "--set", "model.heads=2",
       "--set", "stage.0.parallel.tensor=4", "--set",
       "stage.1.parallel.tensor=4"], folder, code=2))
  run([program, "train", *recipe, "--out", "run", "--threads", "1"], folder)
  alone = losses(f"{folder}/run")
  assert len(alone) == STEPS and alone[-1] < alone[0] - 0.2, alone
  run([program, "train", *recipe, "--set", "run.precision=bf16", "--set",
       "run.gradients=bf16", "--out", "bf16", "--threads", "1"], folder)
  rounded = losses(f"{folder}/bf16")
  assert max(abs(a / b - 1)
             for a, b in zip(alone, rounded, strict=True)) < 0.01, rounded
  if MPIRUN:
    run([MPIRUN, "-np", "2", program, "train", *recipe, "--set",
         "stage.1.parallel.zero=1", "--set", "stage.0.recompute=block",
         "--out", "two", "--threads", "1"], folder)
    both = losses(f"{folder}/two")
    assert max(abs(a - b) for a, b in zip(alone, both, strict=True)) < 1e-4
    # Rows are cut, then the weights as modules say and the tokens between.
    run([MPIRUN, "-np", "2", program, "train", *recipe, "--set",
         "stage.0.parallel.context=2", "--set", "stage.1.parallel.context=1",
         "--set", "stage.1.parallel.tensor=2", "--out", "cut", "--threads", "1"],
        folder)
    cut = losses(f"{folder}/cut")
    assert max(abs(a - b) for a, b in zip(alone, cut, strict=True)) < 1e-4
    expect_in("; use tensor 2 or 4", run(
        [MPIRUN, "-np", "3", program, "eval", "run", "--data", "corpus", "--set",
         "stage.1.parallel.tensor=3"], folder, code=2))
  expect_in("dyt", run([program, "inspect", "run"], folder))
  run([program, "generate", "run", "--prompt", "The ", "--tokens", "4"], folder)
  expect_in("dyt", run([delink, "inspect", "run"], folder))
  expect_in("dyt", run([delink, "generate", "run", "--prompt", "The "], folder,
                       code=2))


def main():
  if shutil.which("ccache"):
    os.environ["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
  with tempfile.TemporaryDirectory() as folder:
    os.environ["CCACHE_BASEDIR"] = folder
    program, prefix = build(folder)
    train(program, prefix, folder)
    installed.check_files(prefix)
    installed.check_recipes(prefix, f"{folder}/recipes", MPIRUN)
  print("ok")


if __name__ == "__main__":
  main()
