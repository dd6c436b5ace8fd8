"""Checks that layers work where a program says so: visits.py [ROOT].

What runs over a model is a pass (docs/step-program.md), and only the engine
begins a visit's forward or runs its backward (`HOMES`). Beside it stand what
measures layers before there is a program, and what uses a trained model, which
goes from layer to layer by itself. Tests may do as they like.
"""

import re

import source_tree

HOMES = {"framework/step/engine/engine_visits.cc",
         "framework/step/plan/measure.cc", "recipes/saved/forward_pass.cc",
         "recipes/saved/generate.cc"}
VISIT = re.compile(r"(?:\.|->)(BeginForward|RunBackward)\(")


def problems(root):
  found = []
  for path in source_tree.cpp_files(root):
    if path in HOMES or path.startswith("tests/"):
      continue
    for number, line in enumerate(source_tree.lines(root, path), 1):
      call = VISIT.search(line)
      if call:
        found.append(f"{path}:{number}: {call[1]}: only the engine lets layers "
                     "work; make it an instruction of a pass")
  return found


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
