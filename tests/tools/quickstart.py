#!/usr/bin/python3
"""What tools/quickstart.sh builds: kernels for GPUs where there is a GPU, or
where the build folder has been told to, and one target.

The script is run as it is, up to its build, with a cmake that only writes down
what it was called with.
"""
import glob
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
OFF = "-DDELINK_CUDA=OFF"


def script(path, *lines):
  with open(path, "w", encoding="utf-8") as file:
    file.write("\n".join(["#!/bin/sh", *lines, ""]))
  os.chmod(path, 0o755)


def build(gpus, cached=""):
  """How cmake was called, and what the script said."""
  with tempfile.TemporaryDirectory() as folder:
    for name in ("tools", "bin", "build/program"):
      os.makedirs(f"{folder}/{name}")
    shutil.copy(f"{ROOT}/tools/quickstart.sh", f"{folder}/tools")
    script(f"{folder}/tools/install_deps.sh")
    script(f"{folder}/bin/nvidia-smi", gpus)
    # Building is the last thing that it does here.
    script(f"{folder}/bin/cmake", f'echo "$*" >>"{folder}/calls"',
           'test "$1" != --build')
    if cached:
      with open(f"{folder}/build/program/CMakeCache.txt", "w",
                encoding="utf-8") as file:
        file.write(f"DELINK_CUDA:STRING={cached}\n")
    done = subprocess.run(
        [f"{folder}/tools/quickstart.sh"], check=False, text=True,
        env=dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 1, done.stdout
    with open(f"{folder}/calls", encoding="utf-8") as file:
      configured, built = file.read().splitlines()
    assert built == "--build --preset program --target delink", built
    return configured, done.stdout


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
  print("ok")


if __name__ == "__main__":
  main()
