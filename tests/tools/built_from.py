#!/usr/bin/python3
"""What the program is told of what it is built from: built_from.py CMAKE
SCRIPT, the script recipes/record/built_from.cmake.

The commit is git's, the file is written only when something has changed, and
nothing fails where there is no git.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

CMAKE, SCRIPT = sys.argv[1:]


def run(words, folder, **options):
  done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True, check=False,
                        **options)
  assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}"
  return done.stdout.strip()


def git(folder, *words):
  return run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org",
              *words], folder)


def built_from(source, features="MPI|AVX-512", **options):
  """The commit that the file has, and when it was last written."""
  out = f"{source}.cc"
  run([CMAKE, f"-DSOURCE={source}", f"-DOUT={out}", "-DVERSION=1.2.3",
       f"-DWITH={features}", "-P", SCRIPT], source, **options)
  with open(out, encoding="utf-8") as file:
    text = file.read()
  assert '"1.2.3"' in text, text
  listed = features.replace("|", '", "')
  assert f'{{"{listed}"}}' in text or not features and "{}" in text, text
  commit = re.search(r'DelinkCommit\(\) { return "(.*)"; }', text).group(1)
  return commit, os.stat(out).st_mtime_ns


def main():
  with tempfile.TemporaryDirectory() as folder:
    outer, tree = f"{folder}/outer", f"{folder}/outer/tree"
    os.makedirs(tree)
    # The repository around a tree is another project's.
    for repository in (outer, tree):
      assert built_from(tree)[0] == "unknown"
      git(repository, "init", "-q")
    with open(f"{tree}/file", "w", encoding="utf-8") as file:
      file.write("one\n")
    assert built_from(tree)[0] == "unknown", "there is no commit yet"
    git(tree, "add", "file")
    git(tree, "commit", "-q", "-m", "one")
    head = git(tree, "rev-parse", "--short=12", "HEAD")

    commit, written = built_from(tree)
    assert commit == head, commit
    assert built_from(tree) == (head, written), "written without a change"
    assert built_from(tree, "")[1] != written
    shutil.copy(f"{tree}/file", f"{tree}/new")
    assert built_from(tree)[0] == head, "a file that git does not know"
    with open(f"{tree}/file", "w", encoding="utf-8") as file:
      file.write("two\n")
    assert built_from(tree)[0] == f"{head}-dirty"
    git(tree, "commit", "-q", "-a", "-m", "two")
    assert built_from(tree)[0] == git(tree, "rev-parse", "--short=12", "HEAD")
    assert built_from(tree, env={"PATH": folder})[0] == "unknown", "no git"
  print("ok")


if __name__ == "__main__":
  main()
