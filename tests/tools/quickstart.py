#!/usr/bin/python3
"""tools/quickstart.sh as it is, beside a cmake that only writes down what it
was called with: quickstart.py DELINK [MPIRUN].

Kernels for GPUs are built where there is a GPU, or where the build folder has
been told to. With mpirun the rest is run too, in recipes of a few steps, on a
small text.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

DELINK = os.path.abspath(sys.argv[1])
MPIRUN = sys.argv[2] if len(sys.argv) > 2 else ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
OFF = "-DDELINK_CUDA=OFF"


def script(path, *lines):
  with open(path, "w", encoding="utf-8") as file:
    file.write("\n".join(["#!/bin/sh", *lines, ""]))
  os.chmod(path, 0o755)


def checkout(folder, gpus, build_ends):
  """The script and what it calls, in a tree of their own."""
  for name in ("tools", "bin", "build/program/tools"):
    os.makedirs(f"{folder}/{name}")
  shutil.copy(f"{ROOT}/tools/quickstart.sh", f"{folder}/tools")
  os.symlink(DELINK, f"{folder}/build/program/tools/delink")
  script(f"{folder}/tools/install_deps.sh")
  script(f"{folder}/bin/nvidia-smi", gpus)
  script(f"{folder}/bin/cmake", f'echo "$*" >>"{folder}/calls"',
         f'test "$1" != --build || exit {build_ends}')


def quickstart(folder, *words):
  return subprocess.run(
      [f"{folder}/tools/quickstart.sh", *words], check=False, text=True,
      env=dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}"),
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def build(gpus, cached=""):
  """How cmake was called, and what the script said."""
  with tempfile.TemporaryDirectory() as folder:
    checkout(folder, gpus, build_ends=3)
    if cached:
      with open(f"{folder}/build/program/CMakeCache.txt", "w",
                encoding="utf-8") as file:
        file.write(f"DELINK_CUDA:STRING={cached}\n")
    done = quickstart(folder)
    assert done.returncode == 3, done.stdout
    with open(f"{folder}/calls", encoding="utf-8") as file:
      configured, built = file.read().splitlines()
    assert built == "--build --preset program --target delink", built
    return configured, done.stdout


def train():
  """All of it, twice: the second time it goes on with the corpus it has."""
  with tempfile.TemporaryDirectory() as folder:
    checkout(folder, "exit 9", build_ends=0)
    os.makedirs(f"{folder}/text")
    for document in glob.glob(f"{ROOT}/docs/*.md"):
      shutil.copy(document, f"{folder}/text")
    os.makedirs(f"{folder}/recipes")
    for recipe in glob.glob(f"{ROOT}/recipes/quickstart_*.toml"):
      with open(recipe, encoding="utf-8") as file:
        text, found = re.subn(r"^steps( +)= \d+\b", r"steps\1= 10", file.read(),
                              flags=re.M)
      assert found == 1, recipe
      with open(f"{folder}/recipes/{os.path.basename(recipe)}", "w",
                encoding="utf-8") as file:
        file.write(text.replace("warmup      = 100", "warmup      = 2"))
    for again in (False, True):
      done = quickstart(folder, "--corpus", f"{folder}/text", "--out",
                        f"{folder}/out")
      assert done.returncode == 0, done.stdout
      for row in ("training loss, nats a byte", "validation loss",
                  "unigram entropy of the corpus", "seconds of training",
                  "peak memory of a rank, MiB"):
        assert re.search(rf"^{row} +[0-9.]+ +[0-9.]+$", done.stdout, re.M), (
            done.stdout)
      assert re.search(r"^pseudo to real took [0-9.]+ of the seconds, and ended "
                       r"[0-9.]+ (lower|higher)$", done.stdout, re.M), done.stdout
      assert ("using the corpus in" in done.stdout) == again, done.stdout
      for name in ("report.html", "p2r/recipe.toml", "scratch/recipe.toml"):
        assert os.path.exists(f"{folder}/out/{name}"), name
    print(done.stdout)


def main():
  for cached, lists in (("", "echo 'GPU 0: of some kind'"), ("ON", "exit 9")):
    configured, said = build(lists, cached)
    assert OFF not in configured and "--preset program" in configured, configured
    assert "no GPU" not in said, said
  if glob.glob("/dev/nvidia[0-9]*"):
    print("this machine has a GPU")
  else:
    for cached in ("", "AUTO", "OFF"):
      configured, said = build("exit 9", cached)
      assert OFF in configured, configured
      assert "cmake --preset program -DDELINK_CUDA=ON" in said, said
  if MPIRUN:
    train()
  print("ok")


if __name__ == "__main__":
  main()
