"""Runs shellcheck over the scripts: shell.py [ROOT]."""

import shutil
import subprocess

import source_tree


def is_script(root, path):
  if path.endswith(".sh"):
    return True
  first = (source_tree.lines(root, path) or [""])[0]
  return first.startswith("#!") and first.rstrip().endswith("sh")


def problems(root):
  if shutil.which("shellcheck") is None:
    return ["shellcheck is missing: tools/install_deps.sh --tests"]
  names = [p for p in source_tree.files(root) if is_script(root, p)]
  if not names:
    return []
  run = subprocess.run(["shellcheck", "--format=gcc", *names], cwd=root,
                       stdout=subprocess.PIPE, text=True, check=False)
  return run.stdout.splitlines()


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
