"""Adds up test results: count_tests.py [--took PART=SECONDS,CPU_SECONDS]...
[--budget MINUTES] NAME=REPORT...

Each REPORT is a file written by `ctest --output-junit`. Every case of a
GoogleTest or unittest program counts; any other test counts as one. A missing
report (its build failed) and a program that died count as one failure each.
Prints the failed, skipped and slowest tests, the notes of lints ("note: ..."),
and how long the parts took, compared with the budget. The last line is 'N
passed, N failed, N skipped'. Exits with 1 if something failed, but not if the
budget was exceeded.
"""

import argparse
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_CASE = re.compile(
    r"^\[ *(OK|FAILED|SKIPPED) *\] (\S+?),? .*\((\d+) ms\)\s*$", re.M)
UNITTEST_TOTAL = re.compile(r"^Ran (\d+) tests? in ", re.M)
NOTE = re.compile(r"^note: .*", re.M)
UNITTEST_PART = re.compile(r"(failures|errors|skipped)=(\d+)")
SLOWEST = 20  # are listed


class Counts:

  def __init__(self):
    self.passed = 0
    self.failed = []
    self.skipped = []
    self.took = []  # (seconds, name)
    self.notes = []


def count_gtest(name, output, counts):
  for result, case, milliseconds in GTEST_CASE.findall(output):
    counts.took.append((int(milliseconds) / 1000, f"{name}: {case}"))
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


def count_program(name, output, status, counts):
  """One that is no GoogleTest program, or died before its first case."""
  if UNITTEST_TOTAL.search(output):
    count_unittest(name, output, counts)
  elif status == "run":
    counts.passed += 1
  elif status != "fail":
    counts.skipped.append(name)


def count_test(name, test, counts):
  output = test.findtext("system-out") or ""
  failed_before = len(counts.failed)
  status = test.get("status")
  counts.notes += NOTE.findall(output)
  if GTEST_CASE.search(output):
    count_gtest(name, output, counts)
  else:
    counts.took.append((float(test.get("time", 0)), name))
    count_program(name, output, status, counts)
  if status == "fail" and len(counts.failed) == failed_before:
    counts.failed.append(name)


def count_report(name, path, counts):
  if not os.path.exists(path):
    counts.failed.append(f"{name}: no report, the build or ctest failed")
    return
  for test in ElementTree.parse(path).getroot().iter("testcase"):
    count_test(f"{name}: {test.get('name')}", test, counts)


def print_times(counts, parts, budget):
  slowest = sorted(counts.took, reverse=True)[:SLOWEST]
  if slowest:
    print(f"\n{len(slowest)} slowest, in seconds:")
    print("\n".join(f"  {seconds:6.1f}  {name}" for seconds, name in slowest))
  if parts:
    minutes = [(name, *(int(s) / 60 for s in seconds.split(",")))
               for name, seconds in parts]
    print("\nminutes (of all cores): " +
          ", ".join(f"{name} {m:.1f} ({cpu:.1f})" for name, m, cpu in minutes) +
          f"; all {sum(m for _, m, _ in minutes):.1f}" +
          (f" of the {budget} that they may take" if budget else ""))


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--took", action="append", default=[])
  parser.add_argument("--budget", type=int)
  parser.add_argument("reports", nargs="*")
  arguments = parser.parse_args()
  counts = Counts()
  for report in arguments.reports:
    name, _, path = report.partition("=")
    count_report(name, path, counts)
  print_times(counts, [part.rsplit("=", 1) for part in arguments.took],
              arguments.budget)
  if counts.notes:
    print("\n" + "\n".join(counts.notes))
  for title, names in (("skipped", counts.skipped), ("failed", counts.failed)):
    if names:
      print(f"\n{len(names)} {title}:")
      print("\n".join(f"  {name}" for name in names))
  print(f"\n{counts.passed} passed, {len(counts.failed)} failed, "
        f"{len(counts.skipped)} skipped")
  return 1 if counts.failed else 0


if __name__ == "__main__":
  sys.exit(main())
