"""Notes when `tools/test.sh --full` should be run again: full_run.py [ROOT].

docs/testing.md says of which commit the last such run was. The note comes where a
test was added more than 200 commits after it, or where that is not known; it is no
failure. docs/testing.md without that line is one.
"""

import os
import re

import source_tree

COMMITS = 200
LAST = re.compile(r"Last full run: (?:none|[\d-]+, commit ([0-9a-f]{7,40}), "
                  r"\d+ minutes)")
DOCS = "docs/testing.md"


def problems(root):
  with open(os.path.join(root, DOCS), encoding="utf-8") as file:
    found = LAST.search(file.read())
  if not found:
    return [f"{DOCS}: no 'Last full run: DATE, commit HASH, N minutes' or 'none'"]
  if not found.group(1):
    print(f"note: {DOCS} knows of no tools/test.sh --full; run it")
    return []
  added = source_tree.git(
      root, "log", "-1", "--format=%H", "--diff-filter=A", "--",
      "tests/*_test.cc", "tests/*.py")
  count = added and source_tree.git(
      root, "rev-list", "--count", f"{found.group(1)}..{added[0]}")
  if not count:
    print(f"note: commit {found.group(1)} of {DOCS}'s last full run is not in "
          "this clone's history")
  elif int(count[0]) > COMMITS:
    print(f"note: a test was added {count[0]} commits after the last "
          f"tools/test.sh --full of {DOCS}; run it again")
  return []


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
