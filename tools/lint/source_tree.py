"""The files of the project, for the lints beside this one."""

import os
import subprocess
import sys

CPP = (".h", ".cc", ".cuh", ".cu")
NOT_OURS = ("build", "run", "runs")  # at the top


def files(root):
  """Paths of all files of the project, relative to root, sorted."""
  git = subprocess.run(
      ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"],
      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
  if git.returncode == 0:
    names = git.stdout.decode().split("\0")
  else:  # an unpacked archive
    names = []
    for folder, folders, inside in os.walk(root):
      folders[:] = [f for f in folders if f not in (".git", "__pycache__")
                    and not (folder == root and f in NOT_OURS)]
      names += [os.path.relpath(os.path.join(folder, f), root) for f in inside]
  return sorted(n for n in names if n and os.path.isfile(f"{root}/{n}"))


def cpp_files(root):
  return [name for name in files(root) if name.endswith(CPP)]


def lines(root, name):
  """The lines of a text file; of any other file none."""
  with open(os.path.join(root, name), "rb") as file:
    data = file.read()
  try:
    return data.decode().splitlines()
  except UnicodeDecodeError:
    return []


def finish(problems):
  """Prints the problems and ends the program with what ctest should see."""
  for problem in problems:
    print(problem)
  print(f"{len(problems)} problems" if problems else "ok")
  sys.exit(1 if problems else 0)
