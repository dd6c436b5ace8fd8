"""What the compiler needed for each kernel: resources.py LIST [ARCHITECTURE...]

LIST names the objects of all device code, one a line; beside each lies
OBJECT.ptxas, what `ptxas -v` said of it (cmake/ptxas_report.sh). Prints the
registers of every kernel by architecture, and fails where one spills registers
or keeps anything in local memory, which is device memory by another name, or
was not compiled for one of the architectures.
"""

import collections
import os
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
FUNCTION = re.compile(r"Function properties for (\w+)")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")

Use = collections.namedtuple("Use", "function architecture stack spilled")


def parse(text):
  """The registers of kernels, {name: {architecture: n}}, and every Use."""
  registers = collections.defaultdict(dict)
  uses = []
  kernel = architecture = function = None
  for line in text.splitlines():
    if entry := ENTRY.search(line):
      kernel, architecture = entry.groups()
      function = kernel
      registers[kernel][architecture] = None
    elif named := FUNCTION.search(line):
      function = named.group(1)
    elif stack := STACK.search(line):
      frame, stores, loads = map(int, stack.groups())
      uses.append(Use(function, architecture, frame, stores + loads))
    elif used := REGISTERS.search(line):
      registers[kernel][architecture] = int(used.group(1))
  return registers, uses


def problems(text, architectures):
  registers, uses = parse(text)
  found = []
  for use in uses:
    if use.stack or use.spilled:
      found.append(
          f"{readable(use.function)} for sm_{use.architecture}: {use.stack} "
          f"bytes of local memory, {use.spilled} bytes spilled")
  measured = {(use.function, use.architecture) for use in uses}
  for kernel, by_architecture in registers.items():
    for architecture in architectures:
      if (by_architecture.get(architecture) is None
          or (kernel, architecture) not in measured):
        found.append(f"{readable(kernel)}: nothing known for "
                     f"sm_{architecture}")
  return found


def readable(name):
  """A kernel's name as in its source, its arguments and namespace left out."""
  if name not in readable.known:
    said = subprocess.run(["c++filt", name], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()
    said = re.sub(r"^void |delink::cuda::|\(anonymous namespace\)::|"
                  r"_INTERNAL_\w+::", "", said)
    readable.known[name] = re.sub(r"\((?!anonymous).*$", "", said)
  return readable.known[name]


readable.known = {}


def table(registers, architectures):
  rows = [(readable(kernel), *(f"{by.get(a)}" for a in architectures))
          for kernel, by in registers.items()]
  rows.sort(key=lambda row: (-max(int(n) for n in row[1:] if n.isdigit()),
                             row))
  heads = "".join(f"{'sm_' + a:>8}" for a in architectures)
  return "\n".join([f"{heads}  registers of", *(
      "".join(f"{n:>8}" for n in row[1:]) + f"  {row[0]}" for row in rows)])


def main(listing, architectures):
  with open(listing, encoding="utf-8") as file:
    objects = file.read().split()
  if not objects:
    print("no device code")
    return 1
  texts = []
  for name in objects:
    if not os.path.isfile(f"{name}.ptxas"):
      print(f"{name}.ptxas: no report; build all first")
      return 1
    with open(f"{name}.ptxas", encoding="utf-8") as file:
      texts.append(file.read())
  text = "\n".join(texts)
  registers, _ = parse(text)
  print(table(registers, architectures))
  found = problems(text, architectures)
  print("\n".join(found) or f"{len(registers)} kernels, nothing spilled")
  return 1 if found or not registers else 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1], sys.argv[2:]))
