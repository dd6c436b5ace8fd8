"""Checks which folder includes which: include_direction.py [ROOT].

Folders include only what they stand on (`ALLOWED`; their sub-folders, which
code lies in, `INNER`; folders inside those, `ROOMS`), some headers belong to
one folder (`HOME_OF`), and no #if asks for CUDA, NCCL, MPI, oneDNN, OpenMP or
io_uring: CMake chooses the folder. Tests may include everything, and nothing
includes them; the headers with a home stay in it there too (tests/parallel/mpi
for <mpi.h>).
Device code (.cu, .cuh) sees no Abseil, not through other headers either, and
launches nothing by <<<>>>: g++ reads it too.
"""

import os
import re

import source_tree

# What the sub-folders of a folder stand on. Where a folder is not here, its
# sub-folders include from each other as they like.
FRAMEWORK = {"base": set()}
FRAMEWORK["device"] = {"base"}
FRAMEWORK["tensor"] = {"base", "device"}
for _name in ("autograd", "comm", "hdf5", "safetensors"):
  FRAMEWORK[_name] = {"base", "device", "tensor"}
FRAMEWORK["module"] = set(FRAMEWORK)
for _name in ("sharing", "optim", "checkpoint"):
  FRAMEWORK[_name] = FRAMEWORK["module"] | {"module"}
FRAMEWORK["step"] = set(FRAMEWORK)

LAYERS = {"kernels": set(), "ops": {"kernels"}, "modules": {"kernels", "ops"}}

PARALLEL = {"launch": set(), "watch": {"launch"}, "mpi": {"launch"},
            "no_mpi": {"launch"}, "pipeline": set(), "inference": set()}

OFFLOAD = {"tiers": set(), "rates": set(), "plan": {"rates"}, "inference": {"rates", "plan"}}

DATA = {"tokenizer": set(), "corpus": {"tokenizer"}}
for _name in ("loader", "import"):
  DATA[_name] = {"corpus", "tokenizer"}
DATA["commands"] = set(DATA)

RECIPES = {"schema": set(), "huggingface": {"schema"},
           "models": {"schema", "huggingface"}, "record": {"schema"}}
RECIPES["run"] = set(RECIPES)
for _name in ("saved", "plan"):
  RECIPES[_name] = RECIPES["run"] | {"run"}
RECIPES["convert"] = RECIPES["saved"] | {"saved"}

# tools/ itself has the program's main.
TOOLS = {"syntax": set(), "bench": set(), "report": set(), "sweep": {"report"}}
TOOLS["commands"] = set(TOOLS)
TOOLS[""] = set(TOOLS)

INNER = {"framework": FRAMEWORK, "layers": LAYERS, "offload": OFFLOAD,
         "parallel": PARALLEL, "data": DATA, "recipes": RECIPES, "tools": TOOLS}

# The folders inside a sub-folder, and what they stand on. "": code directly in
# the sub-folder; where it is not here, there is none.
STEP = {"program": set(), "groups": {"program"}, "plan": {"program", "groups"},
        "proof": {"program", "plan"}, "time": {"program", "proof"}}
STEP["engine"] = set(STEP)

RUN = {"position": set(), "stage": set(), "dry_run": {"stage"},
       "setup": {"position", "stage", "dry_run"},
       "observers": {"position", "stage", "dry_run", "setup"}}
RUN["switch"] = RUN["observers"] | {"observers"}
RUN[""] = set(RUN)

ROOMS = {"framework/step": STEP, "recipes/run": RUN}

ALLOWED = {"framework": set()}
for _name in ("layers", "offload", "data"):
  ALLOWED[_name] = {"framework"}
ALLOWED["parallel"] = {"layers", "framework"}
ALLOWED["recipes"] = set(ALLOWED)
ALLOWED["tools"] = set(ALLOWED)
ALLOWED["tests"] = set(ALLOWED) | {"tests"}

# Headers, and where they may be included: a pattern of the path.
DEVICE_CODE = r"(^|/)cuda/|\.cuh?$|^testing/simt/|(^|/)\w*cuda_test\.cc$"
HOME_OF = (
    (r"(cuda|cublas|cudnn|curand|cub/|thrust/|cooperative_groups)", DEVICE_CODE),
    (r"nccl", r"^parallel/nccl/"),
    (r"mpi\.h$", r"^parallel/mpi/"),
    (r"(hdf5|H5\w*)(_hl)?\.h$", r"^(tests/)?framework/hdf5/"),
    (r"(toml\+\+/|toml\.hpp)", r"^recipes/schema/"),
    (r"sentencepiece", r"^data/tokenizer/"),
    (r"(pcre2|utf8proc)\.h$", r"^data/tokenizer/"),
    (r"dnnl|oneapi/dnnl", r"(^|/)onednn/"),
    (r"liburing", r"(^|/)uring/"),
    (r"omp\.h$", r"(^|/)openmp/"),
    (r"CLI/", r"^tools/"),
    (r"(shared_)?mutex$", r"^framework/base/mutex\.h$"),
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b(.*)")
CHOSEN_BY_CMAKE = re.compile(
    r"cuda|cudnn|nccl|dnnl|onednn|openmp|uring|(?<![a-z])o?mpi(ch)?(?![a-z])", re.I)


def room(path):
  """('framework', 'tensor') for framework/tensor/tensor.h."""
  parts = path.split("/")
  return parts[0], parts[1] if len(parts) > 2 else ""


def inside(path):
  """('framework/step', 'plan') for framework/step/plan/basic.h."""
  parts = path.split("/")
  return "/".join(parts[:2]), parts[2] if len(parts) > 3 else ""


def home_problem(path):
  """Code lies in a sub-folder that the lint knows."""
  folder, within = inside(path)
  if folder in ROOMS and within not in ROOMS[folder]:
    if not within:
      return f"no code directly in {folder}/: it goes into one of its folders"
    return f"{folder}/{within} is not in the lint's list of folders"
  top, sub = room(path)
  if top not in INNER or sub in INNER[top]:
    return None
  if not sub:
    return f"no code directly in {top}/: it goes into one of its sub-folders"
  return f"{top}/{sub} is not in the lint's list of folders"


def direction_problem(path, header):
  (top, sub), (other, other_sub) = room(path), room(header)
  if other not in ALLOWED:
    return None
  (folder, within), (other_folder, other_within) = inside(path), inside(header)
  if folder == other_folder and folder in ROOMS:
    allowed = (within == other_within
               or other_within in ROOMS[folder].get(within, ()))
    top, other = (f"{folder}/{name}".rstrip("/")
                  for name in (within, other_within))
  elif top == other and top in INNER:
    allowed = sub == other_sub or other_sub in INNER[top].get(sub, set())
    top, other = (f"{outer}/{inner}".rstrip("/")
                  for outer, inner in ((top, sub), (other, other_sub)))
  else:
    allowed = top == other or other in ALLOWED.get(top, ())
  return None if allowed else f"{top} must not include from {other}"


def include_problem(root, path, quote, header):
  if quote == '"' and os.path.isfile(os.path.join(root, header)):
    return direction_problem(path, header)
  if quote == '"' and header.split("/")[0] in ALLOWED:
    return f"{header} does not exist"
  if header.startswith(".") or (
      quote == '"' and os.path.isfile(
          os.path.join(root, os.path.dirname(path), header))):
    return f'includes start at the root of the repository, not "{header}"'
  where = path[len("tests/"):] if path.startswith("tests/") else path
  for pattern, home in HOME_OF:
    if re.match(pattern, header) and not re.search(home, where):
      return f"<{header}> may be included only where {home} matches"
  return None


def abseil_behind(root, path, known):
  """How `path` comes to include Abseil, as a list of headers; or None."""
  if path not in known:
    known[path] = None
    for line in source_tree.lines(root, path):
      include = INCLUDE.match(line)
      header = include.group(2) if include else ""
      if header.startswith("absl/"):
        known[path] = [header]
      elif header and os.path.isfile(os.path.join(root, header)):
        behind = abseil_behind(root, header, known)
        if behind:
          known[path] = [header, *behind]
  return known[path]


def device_code_problem(root, path, line, known):
  if "<<<" in line.split("//")[0]:
    return "kernels are launched by Launch() (framework/device/cuda/launch.cuh)"
  include = INCLUDE.match(line)
  if not include:
    return None
  header = include.group(2)
  behind = [header] if header.startswith("absl/") else []
  if os.path.isfile(os.path.join(root, header)):
    behind = [header, *(abseil_behind(root, header, known) or [])]
  if behind and behind[-1].startswith("absl/"):
    return "no Abseil in device code: " + " -> ".join(behind)
  return None


def problems(root):
  found = []
  known = {}  # of abseil_behind
  for path in source_tree.cpp_files(root):
    device_code = path.endswith((".cu", ".cuh"))
    problem = home_problem(path)
    if problem:
      found.append(f"{path}:1: {problem}")
    for number, line in enumerate(source_tree.lines(root, path), 1):
      problem = None
      include = INCLUDE.match(line)
      condition = CONDITION.match(line)
      if include:
        problem = include_problem(root, path, *include.groups())
      elif condition and CHOSEN_BY_CMAKE.search(condition.group(2)):
        problem = "no #if on what CMake chooses a folder for"
      if device_code and not problem:
        problem = device_code_problem(root, path, line, known)
      if problem:
        found.append(f"{path}:{number}: {problem}")
  return found


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
