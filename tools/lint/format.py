"""Checks that clang-format would change nothing: format.py [ROOT]."""

import shutil
import subprocess

import source_tree


def problems(root):
  program = shutil.which("clang-format-14") or shutil.which("clang-format")
  if program is None:
    return ["clang-format is missing: tools/install_deps.sh --tests"]
  names = source_tree.cpp_files(root)
  if not names:
    return []
  run = subprocess.run(
      [program, "--dry-run", "-Werror", "--style=file", *names], cwd=root,
      stderr=subprocess.PIPE, text=True, check=False)
  if run.returncode == 0:
    return []
  said = [line for line in run.stderr.splitlines() if ": error: " in line]
  wrong = sorted({line.split(":")[0] for line in said})
  return (said[:40] or [run.stderr.strip()]) + [
      "mend it with: clang-format -i " + " ".join(wrong)]


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
