"""Holds what documents quote against what is compiled: snippets.py [--write]
[ROOT]. Links of theirs and `folder/file.h` must lead to a file, too.

A code block under a line

  <!-- cut from tests/examples/own_model/dyt/model.cc: block -->

is the region of that file between a line `docs: block` and the next
`docs: end`, both in comments; without a name it is the whole file. --write
cuts them anew.
"""

import os
import re
import sys
import textwrap

import source_tree

QUOTE = re.compile(
    r"^<!-- cut from (?P<path>\S+?)(?:: (?P<region>\w+))? -->\n"
    r"(?P<fence>```\w*\n)(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?:#[^)\s]*)?\)")
PATH = re.compile(r"`(?P<path>[a-z_]+/[\w./-]+\.\w+)`")
MARKER = re.compile(r"^\s*(?://|#) docs: (\w+)$")


def region(lines, name):
  """The lines of a region, or None when there is none of that name."""
  found, inside = None, None
  for line in lines:
    marker = MARKER.match(line)
    if marker:
      inside = marker.group(1)
      found = [] if inside == name else found
    elif inside == name:
      found.append(line)
  return found


def cut(root, path, name):
  """The text to be quoted, or None."""
  if not os.path.isfile(os.path.join(root, path)):
    return None
  lines = source_tree.lines(root, path)
  if name:
    lines = region(lines, name)
    if lines is None:
      return None
  lines = [line for line in lines if not MARKER.match(line)]
  return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def lost_paths(root, document, text):
  """Links to files that are not there, and paths in folders of ours."""
  here = os.path.join(root, os.path.dirname(document))
  for pattern, base in ((LINK, here), (PATH, root)):
    for named in pattern.finditer(text):
      path = named["path"]
      ours = base == here or os.path.isdir(
          os.path.join(root, path.split("/")[0]))
      if ours and not os.path.exists(os.path.join(base, path)):
        line = text.count("\n", 0, named.start()) + 1
        yield f"{document}:{line}: there is no {path}"


def check(root, document, write):
  with open(os.path.join(root, document), encoding="utf-8") as file:
    text = file.read()
  problems = list(lost_paths(root, document, text))

  def renew(quote):
    path, name = quote["path"], quote["region"]
    line = text.count("\n", 0, quote.start()) + 1
    fresh = cut(root, path, name)
    if fresh is None:
      problems.append(f"{document}:{line}: there is no {path}: {name}")
    elif fresh != quote["text"] and not write:
      problems.append(f"{document}:{line}: not as {path} has it; mend it with: "
                      "python3 tools/lint/snippets.py --write")
    elif fresh != quote["text"]:
      head = quote.group(0)[:quote.start("text") - quote.start()]
      return head + fresh + "```"
    return quote.group(0)

  renewed = QUOTE.sub(renew, text)
  if "<!-- cut from" in QUOTE.sub("", text):
    problems.append(f"{document}: a cut that no code block follows")
  if renewed != text:
    with open(os.path.join(root, document), "w", encoding="utf-8") as file:
      file.write(renewed)
  return problems


if __name__ == "__main__":
  words = source_tree.arguments(__doc__, ["[ROOT]"], flags=["--write"])
  top = words[0] if words else "."
  source_tree.finish([
      problem for name in source_tree.files(top) if name.endswith(".md")
      for problem in check(top, name, "--write" in sys.argv)])
