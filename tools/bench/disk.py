#!/usr/bin/python3
"""The disk tier (`delink bench --suite disk`) and fio, in turn, in one folder.

fio uses io_uring, O_DIRECT, registered buffers and files, the same size of the
file, of pieces and the same depth: writes, reads, and both at once, each in one
half of the file. Prints GB/s of every round, and the medians.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

WAYS = ("write", "read", "both: write", "both: read")
SIZE, PIECE, DEPTH = 128 << 20, 1 << 20, 8  # as tools/bench/disk.cc has them


def ours(delink, folder):
  """GB/s by WAYS."""
  text = subprocess.run([delink, "bench", "--suite", "disk", "--scratch",
                         folder], check=True, capture_output=True,
                        text=True).stdout
  found = re.search(r"([\d.]+) GB/s written, ([\d.]+) GB/s read; both at once "
                    r"([\d.]+), ([\d.]+)", text)
  return dict(zip(WAYS, map(float, found.groups())))


def fio(folder, *jobs):
  """GB/s of jobs at once, each a direction, an offset and a size."""
  words = ["fio", "--output-format=json", f"--directory={folder}",
           "--filename=fio", f"--bs={PIECE}", f"--iodepth={DEPTH}",
           "--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1",
           "--direct=1", "--time_based", "--runtime=1"]
  for way, offset, size in jobs:
    words += [f"--name={way}", f"--rw={way}", f"--offset={offset}",
              f"--size={size}"]
  # Huge pages, as ours has: a request to a disk lists each page.
  pages = dict(os.environ, GLIBC_TUNABLES="glibc.malloc.hugetlb=1")
  done = subprocess.run(words, check=True, capture_output=True, text=True,
                        env=pages)
  return [job[job["jobname"]]["bw_bytes"] / 1e9
          for job in json.loads(done.stdout)["jobs"]]


def theirs(folder):
  half = SIZE // 2
  fio(folder, ("write", 0, SIZE))  # Writing where nothing was takes longer.
  alone = [fio(folder, (way, 0, SIZE))[0] for way in ("write", "read")]
  both = fio(folder, ("write", half, half), ("read", 0, half))
  os.remove(os.path.join(folder, "fio"))
  return dict(zip(WAYS, alone + both))


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--folder", default=tempfile.gettempdir())
  parser.add_argument("--delink", default="build/release/tools/delink")
  parser.add_argument("--rounds", type=int, default=3)
  options = parser.parse_args()
  if shutil.which("fio") is None:
    sys.exit("fio is missing: apt-get install fio")
  rounds = []
  with tempfile.TemporaryDirectory(dir=options.folder) as folder:
    for _ in range(options.rounds):
      rounds.append((ours(options.delink, folder), theirs(folder)))
  for way in WAYS:
    tier, beside = ([r[i][way] for r in rounds] for i in (0, 1))
    of_fio = statistics.median(a / b for a, b in zip(tier, beside))
    lists = (" ".join(f"{x:.2f}" for x in xs) for xs in (tier, beside))
    print(f"{way:12} delink {statistics.median(tier):.2f} ({next(lists)}), "
          f"fio {statistics.median(beside):.2f} ({next(lists)}): "
          f"{100 * of_fio:.0f} %")


if __name__ == "__main__":
  main()
