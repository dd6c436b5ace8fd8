"""The bundle of a build runs from another folder and takes nothing of this
system but libc: bundle_test.py BUILD.

What each process really loads is told by the loader itself (LD_DEBUG).
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

BUILD = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
# What every Linux has.
LIBC = re.compile(r"/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec"
                  r"|nss_\w+))\.so")
# Bytes of the archive, so that it can be carried about. A full run has kernels
# for all GPUs.
LARGEST = 90_000_000 if "DELINK_FULL_TESTS" in os.environ else 60_000_000


def run(words, **options):
  done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True, check=False, **options)
  assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}"
  return done.stdout


def unpack(folder):
  """The bundle, at a place that is not where it was made."""
  archive = f"{folder}/bundle.tar.xz"
  print(run([f"{ROOT}/tools/bundle.sh", "--build", BUILD, "--out", archive]))
  assert os.path.getsize(archive) < LARGEST, os.path.getsize(archive)
  with tarfile.open(archive) as file:
    file.extractall(f"{folder}/else where")
  os.remove(archive)
  return f"{folder}/else where/delink"


def loaded(folder):
  """Every library that a process of the last runs has loaded."""
  paths = set()
  for name in glob.glob(f"{folder}/loader.*"):
    with open(name, encoding="utf-8", errors="replace") as file:
      paths.update(re.findall(r"calling init: (/.*)", file.read()))
    os.remove(name)
  assert paths, "the loader said nothing"
  return paths


def expect_own(paths, bundle):
  foreign = [path for path in paths
             if not os.path.realpath(path).startswith(bundle + "/")
             and not LIBC.search(path)]
  assert not foreign, f"from outside the bundle: {sorted(foreign)}"


def environment(folder):
  return {
      "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder,
      "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/loader",
      "OMP_NUM_THREADS": "1",
      **{name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT",
                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                "OMPI_MCA_rmaps_base_oversubscribe")}}


def losses(path):
  with open(path, encoding="utf-8") as file:
    return [row["loss"] for row in map(json.loads, file) if "loss" in row]


def check_gpu(bundle, folder):
  """gpu_check.py, on the CPU: it measures, and tells what could not be."""
  run([sys.executable, "-B", f"{bundle}/gpu_check.py", "curves", "start",
       "speed", "tune", "ops", "offload", "moe", "--out", f"{folder}/checked", "--corpus", f"{folder}/corpus",
       "--device", "cpu", "--recipe", "tiny.toml", "--start-recipe",
       "tiny.toml", "--steps", "12", "--shape", "gpt-tiny", "--quick"],
      cwd=folder, env=os.environ)
  with open(f"{folder}/checked/summary.txt", encoding="utf-8") as file:
    said = file.read()
  assert said.count(": ok in ") == 7, said
  assert re.search(r"^  12 steps, loss 5\.", said, re.M), said
  assert re.search(r"^  \S+ s for one step of tiny\.toml", said, re.M), said
  assert re.search(r"^  gpt-tiny .* bf16, .*allocated \(\+0\.00 %", said,
                   re.M), said
  assert re.search(r"^  DELINK_TIME_MATMUL=1 gpt-tiny .*deterministic=false: "
                   r"\d+ tokens/s", said, re.M), said
  assert re.search(r"^  \d+ kernels, under 80 %", said, re.M), said
  assert re.search(r"all, updated by the host: \d+ tokens/s, \d+ % of resident "
                   r"speed, \d+ % foretold", said, re.M), said
  rows = re.findall(r"^  tiny, .*: (\d+) tokens/s, \S+ TFLOP/s of (\S+)B active "
                    r"of (\S+)B", said, re.M)
  assert len(rows) == 3 and rows[0][1:] == rows[1][1:], said
  assert float(rows[0][1]) < float(rows[0][2]) and rows[2][1] == rows[2][2], said
  with tempfile.TemporaryDirectory(dir=folder) as empty:
    told = subprocess.run(
        [sys.executable, "-B", f"{bundle}/gpu_check.py", "curves", "start",
         "--out", empty, "--device", "cpu", "--corpus", f"{folder}/none"],
        stdout=subprocess.PIPE, text=True, check=False)
  assert told.returncode == 1, told.stdout
  assert told.stdout.count("no such corpus folder") == 2, told.stdout
  assert "start: FAILED" in told.stdout, told.stdout


def main():
  if None in map(shutil.which, ("patchelf", "xz")):
    print("SKIPPED: there is no patchelf or xz; tools/install_deps.sh --tests")
    sys.exit(77)
  # Open MPI wants short paths for its sockets.
  with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    folder = os.path.realpath(folder)
    bundle = unpack(folder)
    where = {"env": environment(folder), "cwd": folder}
    delink = f"{bundle}/bin/delink"
    assert "train" in run([delink, "--help"], **where)
    assert os.path.exists(f"{bundle}/licenses/chart.js.txt")
    run([delink, "data", "build", "--bytes", "--out", "corpus",
         f"{bundle}/LICENSE"], **where)
    expect_own(loaded(folder), bundle)

    train = ["train", f"{bundle}/recipes/tiny.toml", "--set",
             f"data.train={folder}/corpus/train", "--threads", "1"]
    run([delink, *train, "--out", "one"], **where)
    alone = losses(f"{folder}/one/metrics.jsonl")
    assert len(alone) == 20 and alone[-1] < alone[0], alone
    expect_own(loaded(folder), bundle)
    if os.path.exists(f"{bundle}/bin/mpirun"):
      run([f"{bundle}/bin/mpirun", "-np", "2", "delink", *train, "--out",
           "two"], **where)
      both = losses(f"{folder}/two/metrics.jsonl")
      assert max(abs(a - b) for a, b in zip(alone, both, strict=True)) < 1e-4
      libraries = loaded(folder)
      assert any("mca_pml_ob1" in path for path in libraries), libraries
      expect_own(libraries, bundle)

    with open(f"{BUILD}/tests/cuda_build/gpu_tests.txt",
              encoding="utf-8") as file:
      for program in map(os.path.basename, file.read().split()):
        said = run([f"{bundle}/bin/{program}", "--gtest_list_tests"], **where)
        assert re.search(r"^\S+\.$", said, re.M), said
        expect_own(loaded(folder), bundle)
    check_gpu(bundle, folder)
  print("ok")


if __name__ == "__main__":
  main()
