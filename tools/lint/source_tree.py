"""The files of the project, for the lints beside this one."""

import os
import subprocess
import sys

CPP = (".h", ".cc", ".cuh", ".cu")
NOT_OURS = ("build", "run", "runs")  # at the top


def git(root, *words):
  """What git prints, as lines; none where it fails."""
  run = subprocess.run(
      ["git", "-c", "safe.directory=*", "-C", root, *words],
      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
  return run.stdout.splitlines() if run.returncode == 0 else []


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


def arguments(text, names, flags=()):
  """The words of the command line, of which those in brackets may be missing.

  Answers --help with `text`; refuses options that are no `flags`, and more or
  fewer words than `names`.
  """
  words = [word for word in sys.argv[1:] if word not in flags]
  if "--help" in words or "-h" in words:
    print(text.strip())
    sys.exit(0)
  least = sum(not name.startswith("[") for name in names)
  if not least <= len(words) <= len(names) or any(
      word.startswith("-") for word in words):
    program = os.path.basename(sys.argv[0])
    print(" ".join(["usage:", program, *(f"[{f}]" for f in flags), *names]),
          file=sys.stderr)
    sys.exit(2)
  return words


def root_argument(text):
  """The one word that most lints take: the top of the tree."""
  return (arguments(text, ["[ROOT]"]) or ["."])[0]


def finish(problems):
  """Prints the problems and ends the program with what ctest should see."""
  for problem in problems:
    print(problem)
  print(f"{len(problems)} problems" if problems else "ok")
  sys.exit(1 if problems else 0)
