"""The reader of compiler reports finds what it is there to find: in texts, and
where there is an nvcc (resources_test.py [NVCC]) in kernels compiled here.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import resources

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NVCC = sys.argv.pop() if len(sys.argv) > 1 else ""

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5ScalePf' for 'sm_{0}'
ptxas info    : Function properties for _Z5ScalePf
    {1} bytes stack frame, {2} bytes spill stores, {3} bytes spill loads
ptxas info    : Used 22 registers, used 0 barriers, 380 bytes cmem[0]
"""

KERNELS = """
__global__ void Scale(float* x) { x[threadIdx.x] *= 2; }
"""
# Indices that only the running program knows: the array has to be in memory.
LOCAL = """
__global__ void Count(float* x, const int* index) {
  float counts[16] = {};
  for (int i = 0; i < 64; ++i) counts[index[i] & 15] += x[i];
  x[0] = counts[index[threadIdx.x] & 15];
}
"""


class ReaderTest(unittest.TestCase):

  def test_what_is_right_passes(self):
    text = REPORT.format("80", 0, 0, 0) + REPORT.format("90a", 0, 0, 0)
    self.assertEqual(resources.problems(text, ["80", "90a"]), [])
    registers, _ = resources.parse(text)
    self.assertEqual(registers, {"_Z5ScalePf": {"80": 22, "90a": 22}})

  def test_what_is_wrong_is_found(self):
    for numbers, said in (((8, 0, 0), "8 bytes of local memory, 0 bytes"),
                          ((8, 4, 0), "4 bytes spilled"),
                          ((8, 0, 12), "12 bytes spilled")):
      found = resources.problems(REPORT.format("80", *numbers), ["80"])
      self.assertEqual(len(found), 1)
      self.assertIn("Scale for sm_80", found[0])
      self.assertIn(said, found[0])

  def test_an_architecture_that_is_missing_is_found(self):
    text = REPORT.format("80", 0, 0, 0)
    self.assertEqual(resources.problems(text, ["80", "100"]),
                     ["Scale: nothing known for sm_100"])

  def test_a_report_that_says_nothing_is_found(self):
    text = REPORT.format("80", 0, 0, 0)
    for part in ("Used 22 registers", "0 bytes stack frame"):
      lines = [line for line in text.splitlines() if part not in line]
      self.assertEqual(len(resources.problems("\n".join(lines), ["80"])), 1)


class LauncherTest(unittest.TestCase):
  """cmake/ptxas_report.sh, around a compiler that only says things."""

  def launch(self, script):
    with tempfile.TemporaryDirectory() as folder:
      run = subprocess.run(
          [f"{ROOT}/cmake/ptxas_report.sh", "sh", "-c", script, "nvcc",
           "-o", f"{folder}/a.o"],
          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
          check=False)
      self.assertEqual(os.listdir(folder), ["a.o.ptxas"])
      with open(f"{folder}/a.o.ptxas", encoding="utf-8") as file:
        return run, file.read()

  def test_reports_are_kept_and_warnings_shown(self):
    report = REPORT.format("80", 0, 0, 0)
    run, kept = self.launch("echo 'x.cu(3): warning' >&2; echo said; cat >&2 "
                            f"<<'TEXT'\n{report}TEXT\nexit 3")
    self.assertEqual((run.returncode, run.stdout, run.stderr),
                     (3, "said\n", "x.cu(3): warning\n"))
    self.assertEqual(kept, report)


@unittest.skipIf(not NVCC, "no nvcc in this build")
class CompilerTest(unittest.TestCase):

  def compiled(self, source):
    with tempfile.TemporaryDirectory() as folder:
      with open(f"{folder}/a.cu", "w", encoding="utf-8") as file:
        file.write(source)
      subprocess.run(
          [f"{ROOT}/cmake/ptxas_report.sh", NVCC, "-arch=sm_90a", "-Xptxas=-v",
           "-c", f"{folder}/a.cu", "-o", f"{folder}/a.o"], check=True)
      with open(f"{folder}/a.o.ptxas", encoding="utf-8") as file:
        return file.read()

  def test_kernels_compiled_here(self):
    self.assertEqual(resources.problems(self.compiled(KERNELS), ["90a"]), [])
    found = resources.problems(self.compiled(KERNELS + LOCAL), ["90a"])
    self.assertEqual(len(found), 1, found)
    self.assertIn("Count for sm_90a: 64 bytes of local memory", found[0])


if __name__ == "__main__":
  unittest.main()
