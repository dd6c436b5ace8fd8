"""Runs clang-tidy (.clang-tidy) over the sources: tidy.py BUILD [ROOT].

BUILD holds the compile_commands.json of a configured build. As many run at once
as there are cores. A file that passed is not checked again, in whatever checkout
or build, while it, what it includes of ours, how it is compiled, the rules and
clang-tidy's version stay the same: ${XDG_CACHE_HOME:-~/.cache}/delink/tidy
remembers.

Where the checkout differs from what landed last (origin/main), it reads what
differs, by itself or by what it includes. Elsewhere it reads all, the files that
changed last first. After MINUTES it begins nothing more, and notes what it has not
read. With DELINK_FULL_TESTS in the environment it reads all, remembered or not.

Nearly all of clang-tidy's time goes into what sources include, not into the
sources, so that many are checked as one translation unit that includes copies of
them, in which names that would clash are others. What does not pass there is
looked for again in parts of it, down to single files: what a single file is told
counts, and names that clash all the same (tidy_batches.py tries to avoid that)
only cost time. What is put together for a unity build is taken apart first.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

import source_tree
import tidy_batches

OUR_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
FULL = bool(os.environ.get("DELINK_FULL_TESTS"))
UNITY = re.compile(r"/unity/\w+_\d+\.cc$")
MINUTES = 5
TOGETHER = 60000  # lines of sources that batches are made of at once


def read(path):
  with open(path, encoding="utf-8", errors="replace") as file:
    return file.read()


def closure(root, path, seen):
  """Adds to `seen` the files of ours that `path` includes, itself as well.

  An example includes from its own root (tests/examples/NAME).
  """
  full = os.path.join(root, path)
  if path in seen or not os.path.isfile(full):
    return
  seen[path] = text = read(full)
  for header in OUR_INCLUDE.findall(text):
    closure(root, header, seen)
    if path.startswith("tests/examples/"):
      closure(root, "/".join(path.split("/")[:3] + [header]), seen)


def cache():
  home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  return os.path.join(home, "delink", "tidy")


def digest(root, rules, source, texts):
  """Of all that decides what is said of a source, but for system headers."""
  flags = [flag.replace(root, "") for flag in tidy_batches.Batch(
      [source]).flags()]
  known = repr((rules, flags, sorted(texts.items())))
  return hashlib.sha256(known.encode()).hexdigest()


def tidy(program, build, root, batch):
  """What clang-tidy has to say of the files of a batch."""
  sources = batch.sources
  folder = tempfile.mkdtemp(dir=os.path.join(build, "tidy"))
  unit = (os.path.join(root, sources[0].path) if len(sources) == 1
          else batch.write(root, folder))
  run = subprocess.run(
      [program, "--quiet", f"--config-file={root}/.clang-tidy", unit, "--",
       *batch.flags()], cwd=root,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
  shutil.rmtree(folder)
  unsure = folder in run.stdout or "clang-diagnostic-error" in run.stdout
  if run.returncode != 0 and len(sources) > 1 and unsure:
    return "".join(tidy(program, build, root, part)
                   for part in batch.parts(run.stdout))
  if run.returncode != 0:
    return run.stdout.replace(root + "/", "") or run.stderr
  for source in sources:
    with open(source.mark, "w", encoding="utf-8"):
      pass
  return ""


def compiled(build, root):
  """Every source with the command that compiles it, or its unity."""
  for entry in json.loads(read(os.path.join(build, "compile_commands.json"))):
    file, command = entry["file"], entry["command"]
    for source in OUR_INCLUDE.findall(read(file)) if UNITY.search(
        file) else [file]:
      yield os.path.relpath(os.path.join(root, source), root), command


def changed(root):
  """The files that differ from what landed last; none: all may."""
  base = source_tree.git(root, "merge-base", "HEAD", "origin/main")
  names = source_tree.git(root, "diff", "--name-only", base[0]) if base else []
  return set() if ".clang-tidy" in names else set(names)


def last_changes(root):
  """A number for each file, the smaller the later it was changed."""
  names = source_tree.git(root, "diff", "--name-only", "HEAD") + source_tree.git(
      root, "log", "--format=", "--name-only")
  return {name: number for number, name in reversed(list(enumerate(names)))}


def sources_to_check(program, build, root):
  """The sources that did not pass as they are now, what changed last first."""
  rules = (read(os.path.join(root, ".clang-tidy")), subprocess.run(
      [program, "--version"], stdout=subprocess.PIPE, text=True,
      check=True).stdout)
  ours = set(source_tree.cpp_files(root))
  differing = set() if FULL else changed(root)
  order = last_changes(root)
  seen = set()
  sources = []
  for path, command in compiled(build, root):
    device_code = "nvcc " in command.split("-", 1)[0]
    if path not in ours or path in seen or device_code:
      # A file built several times is checked once; device code as the emulated
      # device compiles it.
      continue
    seen.add(path)
    texts = {}
    closure(root, path, texts)
    if differing and differing.isdisjoint(texts):
      continue
    source = tidy_batches.Source(path, list(texts.values()), command)
    source.mark = os.path.join(cache(), digest(root, rules, source, texts))
    if FULL or not os.path.exists(source.mark):
      sources.append(source)
  return sorted(sources, key=lambda s: (s.path not in differing,
                                        order.get(s.path, len(order))))


def batches(sources):
  """Of the first sources first."""
  lines, together = 0, []
  for source in sources:
    lines += source.lines
    together.append(source)
    if lines >= TOGETHER:
      yield from tidy_batches.pack(together)
      lines, together = 0, []
  yield from tidy_batches.pack(together)


def problems(build, root):
  program = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
  if program is None:
    return ["clang-tidy is missing: tools/install_deps.sh --tests"]
  if not os.path.isfile(os.path.join(build, "compile_commands.json")):
    return [f"{build}: is no configured build, there is no "
            "compile_commands.json: cmake -B makes one"]
  os.makedirs(os.path.join(build, "tidy"), exist_ok=True)
  os.makedirs(cache(), exist_ok=True)
  began = time.monotonic()
  unread = []

  def check(batch):
    if not FULL and time.monotonic() - began > 60 * MINUTES:
      unread.extend(source.path for source in batch.sources)
      return ""
    return tidy(program, build, root, batch)

  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    said = list(pool.map(check, batches(sources_to_check(program, build, root))))
  if unread:
    print(f"note: clang-tidy has not read {len(unread)} sources, after "
          f"{MINUTES} minutes of others: {min(unread)} and more; "
          "tools/test.sh --full reads all")
  return [text for text in said if text]


if __name__ == "__main__":
  words = source_tree.arguments(__doc__, ["BUILD", "[ROOT]"])
  source_tree.finish(problems(os.path.abspath(words[0]),
                              os.path.abspath((words + ["."])[1])))
