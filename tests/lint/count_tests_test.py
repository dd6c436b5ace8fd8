"""tools/count_tests.py adds up what ctest reports."""

import os
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))

GTEST = """[==========] Running 4 tests from 2 test suites.
[ RUN      ] Rope.Turns
[       OK ] Rope.Turns (0 ms)
[ RUN      ] Cuda.Starts
cuda_test.cc:5: Skipped
no GPU
[  SKIPPED ] Cuda.Starts (0 ms)
[ RUN      ] Shapes/Gelu.Agrees/1
[       OK ] Shapes/Gelu.Agrees/1 (12 ms)
[ RUN      ] Shapes/Gelu.Agrees/2
{last}
[==========] 4 tests from 2 test suites ran. (12 ms total)
[  PASSED  ] 3 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Cuda.Starts
"""
PASSING = GTEST.format(last="[       OK ] Shapes/Gelu.Agrees/2 (1 ms)")
FAILING = GTEST.format(
    last="[  FAILED  ] Shapes/Gelu.Agrees/2, where GetParam() = 7 (1 ms)\n"
         "[  FAILED  ] 1 test, listed below:\n"
         "[  FAILED  ] Shapes/Gelu.Agrees/2, where GetParam() = 7")
CRASHING = "[ RUN      ] Rope.Turns\nSegmentation fault\n"


def report(*tests):
  cases = "".join(
      f'<testcase name="{name}" time="2.5" status="{status}">'
      f"<system-out>{escape(output)}</system-out></testcase>"
      for name, status, output in tests)
  return f'<?xml version="1.0"?><testsuite>{cases}</testsuite>'


class CountTestsTest(unittest.TestCase):

  def count(self, *reports, options=()):
    """Exit code, last line, and all that was printed."""
    with tempfile.TemporaryDirectory() as folder:
      arguments = list(options)
      for number, text in enumerate(reports):
        path = f"{folder}/{number}.xml"
        arguments.append(f"preset{number}={path}")
        if text is not None:
          with open(path, "w", encoding="utf-8") as file:
            file.write(text)
      run = subprocess.run(
          [sys.executable, f"{ROOT}/tools/count_tests.py", *arguments],
          stdout=subprocess.PIPE, text=True, check=False)
    return run.returncode, run.stdout.splitlines()[-1], run.stdout

  def test_cases_of_googletest_count_once_each(self):
    code, last, said = self.count(report(("ops_test", "run", PASSING)))
    self.assertEqual((code, last), (0, "3 passed, 0 failed, 1 skipped"))
    self.assertIn("preset0: ops_test: Cuda.Starts", said)

  def test_failures_are_named(self):
    code, last, said = self.count(report(("ops_test", "fail", FAILING)))
    self.assertEqual((code, last), (1, "2 passed, 1 failed, 1 skipped"))
    self.assertIn("preset0: ops_test: Shapes/Gelu.Agrees/2\n", said)

  def test_a_crash_is_a_failure(self):
    for output in (CRASHING, PASSING, ""):
      code, last, _ = self.count(report(("ops_test", "fail", output)))
      self.assertEqual(code, 1)
      self.assertIn(" 1 failed, ", last)

  def test_unittest_programs(self):
    bad = "Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=1)\n"
    good = "Ran 3 tests in 0.1s\n\nOK (skipped=2)\n"
    self.assertEqual(self.count(report(("a", "run", good)))[:2],
                     (0, "1 passed, 0 failed, 2 skipped"))
    self.assertEqual(self.count(report(("a", "fail", bad)))[:2],
                     (1, "2 passed, 2 failed, 1 skipped"))

  def test_other_programs_count_as_one(self):
    code, last, _ = self.count(report(
        ("lint", "run", "ok\n"), ("oracle", "notrun", "no torch"),
        ("other", "disabled", "")))
    self.assertEqual((code, last), (0, "1 passed, 0 failed, 2 skipped"))

  def test_presets_add_up_and_a_broken_build_fails(self):
    one = report(("ops_test", "run", PASSING))
    self.assertEqual(self.count(one, one)[:2],
                     (0, "6 passed, 0 failed, 2 skipped"))
    self.assertEqual(self.count(one, None)[:2],
                     (1, "3 passed, 1 failed, 1 skipped"))

  def test_what_took_longest_is_listed_by_case(self):
    slow = "".join(f"[       OK ] Slow.Case{i} ({i}000 ms)\n"
                   for i in range(1, 25))
    _, last, said = self.count(report(("ops_test", "run", slow),
                                      ("lint", "run", "ok\n")))
    self.assertEqual(last, "25 passed, 0 failed, 0 skipped")
    listed = said.split("20 slowest, in seconds:\n")[1].splitlines()
    self.assertEqual(listed[0], "    24.0  preset0: ops_test: Slow.Case24")
    self.assertEqual(listed[19], "     5.0  preset0: ops_test: Slow.Case5")
    self.assertEqual(listed[20], "")
    _, _, said = self.count(report(("lint", "run", "ok\n")))
    self.assertIn("     2.5  preset0: lint\n", said)

  def test_what_lints_note_is_repeated(self):
    _, _, said = self.count(report(("lint", "run", "note: too few\nok\n")))
    self.assertIn("\nnote: too few\n", said)

  def test_minutes_of_the_parts_stand_beside_the_budget(self):
    parts = ("--took", "install=30,6", "--took", "release, built=600,1200")
    one = report(("ops_test", "run", PASSING))
    for budget, end in (((), ""),
                        (("--budget", "9"), " of the 9 that they may take")):
      code, last, said = self.count(one, options=parts + budget)
      self.assertEqual((code, last), (0, "3 passed, 0 failed, 1 skipped"))
      self.assertIn(
          "\nminutes (of all cores): install 0.5 (0.1), release, built 10.0 "
          f"(20.0); all 10.5{end}\n", said)
    self.assertNotIn("minutes", self.count(one)[2])


if __name__ == "__main__":
  unittest.main()
