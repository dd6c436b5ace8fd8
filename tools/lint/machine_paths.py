"""Checks that no file names a path of somebody's machine: machine_paths.py
[ROOT].
"""

import re

import source_tree

OF_A_MACHINE = re.compile(
    r"(?<![\w.$}\])*-])/(?:home|work|root|Users|mnt)/[\w.]")


def problems(root):
  found = []
  for path in source_tree.files(root):
    for number, line in enumerate(source_tree.lines(root, path), 1):
      if OF_A_MACHINE.search(line):
        found.append(f"{path}:{number}: a path of one machine: {line.strip()}")
  return found


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
