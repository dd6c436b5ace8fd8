"""Adds up test results: count_tests.py NAME=REPORT...

Each REPORT is what `ctest --output-junit` wrote. A GoogleTest or unittest
program counts with every case inside it, any other test as one. A report that
is absent (its build failed) and a program that died count as one failure. Names
what failed and what was skipped; the last line is
'N passed, N failed, N skipped'. Exits 1 when something failed.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_CASE = re.compile(
    r"^\[ *(OK|FAILED|SKIPPED) *\] (\S+?),? .*\(\d+ ms\)\s*$", re.M)
UNITTEST_TOTAL = re.compile(r"^Ran (\d+) tests? in ", re.M)
UNITTEST_PART = re.compile(r"(failures|errors|skipped)=(\d+)")


class Counts:

  def __init__(self):
    self.passed = 0
    self.failed = []
    self.skipped = []


def count_gtest(name, output, counts):
  for result, case in GTEST_CASE.findall(output):
    if result == "OK":
      counts.passed += 1
    elif result == "FAILED":
      counts.failed.append(f"{name}: {case}")
    else:
      counts.skipped.append(f"{name}: {case}")


def count_unittest(name, output, counts):
  total = sum(int(n) for n in UNITTEST_TOTAL.findall(output))
  bad = skipped = 0
  for line in output.splitlines():
    if re.match(r"(OK|FAILED)( \(|$)", line):
      parts = {key: int(n) for key, n in UNITTEST_PART.findall(line)}
      bad += parts.get("failures", 0) + parts.get("errors", 0)
      skipped += parts.get("skipped", 0)
  counts.passed += total - bad - skipped
  counts.failed += [name] * bad
  counts.skipped += [name] * skipped


def count_test(name, test, counts):
  output = test.findtext("system-out") or ""
  failed_before = len(counts.failed)
  status = test.get("status")
  if GTEST_CASE.search(output):
    count_gtest(name, output, counts)
  elif UNITTEST_TOTAL.search(output):
    count_unittest(name, output, counts)
  elif status == "run":
    counts.passed += 1
  elif status != "fail":
    counts.skipped.append(name)
  if status == "fail" and len(counts.failed) == failed_before:
    counts.failed.append(name)


def count_report(name, path, counts):
  if not os.path.exists(path):
    counts.failed.append(f"{name}: no report, the build or ctest failed")
    return
  for test in ElementTree.parse(path).getroot().iter("testcase"):
    count_test(f"{name}: {test.get('name')}", test, counts)


def main(arguments):
  counts = Counts()
  for argument in arguments:
    name, _, path = argument.partition("=")
    count_report(name, path, counts)
  for title, names in (("skipped", counts.skipped), ("failed", counts.failed)):
    if names:
      print(f"\n{len(names)} {title}:")
      print("\n".join(f"  {name}" for name in names))
  print(f"\n{counts.passed} passed, {len(counts.failed)} failed, "
        f"{len(counts.skipped)} skipped")
  return 1 if counts.failed else 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
