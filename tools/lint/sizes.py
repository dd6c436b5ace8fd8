"""Checks that no source file outgrows a reader: sizes.py [ROOT].

Headers aim for 200 lines and sources for 400; this is where it stops. The
length of functions is clang-tidy's to check (.clang-tidy).
"""

import os

import source_tree

LIMITS = {".h": 400, ".cuh": 400, ".cc": 800, ".cu": 800, ".py": 800,
          ".sh": 400, ".cmake": 400}


def problems(root):
  found = []
  for path in source_tree.files(root):
    limit = LIMITS.get(os.path.splitext(path)[1])
    count = len(source_tree.lines(root, path)) if limit else 0
    if limit and count > limit:
      found.append(f"{path}:{limit}: {count} lines, at most {limit}: "
                   "split it by what its parts are for")
  return found


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
