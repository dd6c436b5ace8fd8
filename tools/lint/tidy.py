"""Runs clang-tidy (.clang-tidy) over the sources: tidy.py BUILD [ROOT].

BUILD holds the compile_commands.json of a configured build. As many run at once
as there are cores. A file that passed is not checked again while it, what it
includes of ours and the rules stay the same (BUILD/tidy remembers).
"""

import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import source_tree

OUR_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def read(path):
  with open(path, encoding="utf-8", errors="replace") as file:
    return file.read()


def closure(root, path, seen):
  """Adds to `seen` the files of ours that `path` includes, itself as well."""
  full = os.path.join(root, path)
  if path in seen or not os.path.isfile(full):
    return
  seen[path] = text = read(full)
  for header in OUR_INCLUDE.findall(text):
    closure(root, header, seen)


def digest(root, path, command):
  seen = {}
  closure(root, path, seen)
  seen["rules"] = read(os.path.join(root, ".clang-tidy"))
  seen["command"] = command
  return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def tidy(program, build, root, path, command):
  """What clang-tidy has to say of one file."""
  mark = os.path.join(build, "tidy", digest(root, path, command))
  if os.path.exists(mark):
    return ""
  run = subprocess.run(
      [program, "--quiet", "-p", build, os.path.join(root, path)], cwd=root,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
  if run.returncode == 0:
    with open(mark, "w", encoding="utf-8"):
      return ""
  return run.stdout.replace(root + "/", "") or run.stderr


def problems(build, root):
  program = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
  if program is None:
    return ["clang-tidy is missing: tools/install_deps.sh --tests"]
  os.makedirs(os.path.join(build, "tidy"), exist_ok=True)
  ours = set(source_tree.cpp_files(root))
  commands = {}
  for entry in json.loads(read(os.path.join(build, "compile_commands.json"))):
    path = os.path.relpath(entry["file"], root)
    if path in ours:  # a file built several times is checked once
      commands.setdefault(path, entry["command"])
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    said = pool.map(
        lambda item: tidy(program, build, root, *item), commands.items())
    return [text for text in said if text]


if __name__ == "__main__":
  source_tree.finish(problems(
      os.path.abspath(sys.argv[1]),
      os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else ".")))
