#!/usr/bin/python3
"""README.md's commands, run as they are written: readme_commands.py DELINK
[MPIRUN].

They are cut from the text and run from top to bottom by one shell in a copy of
what they name. The program is built already: a cmake that does nothing stands
in for building it.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

DELINK = os.path.abspath(sys.argv[1])
MPIRUN = sys.argv[2] if len(sys.argv) > 2 else ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PROMPT = "The "


def readme():
  with open(f"{ROOT}/README.md", encoding="utf-8") as file:
    return file.read()


def commands(title):
  """The lines of the block of commands under that heading."""
  section = re.search(rf"^## {title}\n(.*?)^## ", readme(), re.M | re.S)
  block = re.search(r"^```\n(.*?)^```$", section[1], re.M | re.S)
  return [line for line in block[1].splitlines() if line]


def checkout(folder):
  """A copy of what the commands name, with the program where README builds it.
  """
  for name in ("README.md", "recipes", "docs"):
    copy = shutil.copytree if os.path.isdir(f"{ROOT}/{name}") else shutil.copy
    copy(f"{ROOT}/{name}", f"{folder}/{name}")
  os.makedirs(f"{folder}/build/program/tools")
  os.symlink(DELINK, f"{folder}/build/program/tools/delink")
  os.mkdir(f"{folder}/bin")
  with open(f"{folder}/bin/cmake", "w", encoding="utf-8") as file:
    file.write("#!/bin/sh\ncase \"$*\" in\n"
               "'--preset program' | '--build --preset program') ;;\n"
               "*) echo \"cmake $*?\" >&2; exit 1 ;;\nesac\n")
  os.chmod(f"{folder}/bin/cmake", 0o755)


def shell(folder, lines):
  """What each line prints, of a shell that goes through all of them; each must
  end with 0."""
  script = "set -e\n" + "".join(
      f"{{ {line}\n}} >{folder}/out.{number} 2>{folder}/err.{number}\n"
      for number, line in enumerate(lines))
  environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}")
  code = subprocess.run(["bash", "-c", script], cwd=folder, env=environment,
                        check=False).returncode
  printed = []
  for number, line in enumerate(lines):
    texts = []
    for kind in ("out", "err"):
      path = f"{folder}/{kind}.{number}"
      with open(path, encoding="utf-8", errors="replace") as file:
        texts.append(file.read())
      os.remove(path)
    last = not os.path.exists(f"{folder}/out.{number + 1}")
    assert code == 0 or not last, f"{line}: exit {code}\n" + "\n".join(texts)
    print(f"$ {line}\n{''.join(texts)}")
    printed.append(texts[0])
  return dict(zip(lines, printed))


def the_one(lines, start):
  found = [line for line in lines if line.startswith(start)]
  assert len(found) == 1, f"README.md has {found} for {start}"
  return found[0]


def losses(run):
  with open(f"{run}/metrics.jsonl", encoding="utf-8") as file:
    return [row["loss"] for row in map(json.loads, file)
            if "loss" in row and "event" not in row]


def check_by_hand(folder):
  lines = commands("By hand")
  printed = shell(folder, lines)
  for side in ("train", "validation"):
    assert glob.glob(f"{folder}/runs/corpus/{side}/*.h5"), side
  plan = printed[the_one(lines, "delink plan ")]
  assert "pseudo" in plan and "real" in plan, plan
  trained = losses(f"{folder}/runs/tiny")
  assert len(trained) == 20 and trained[-1] < trained[0], trained
  assert "stage       real" in printed[the_one(lines, "delink inspect ")]
  generate = the_one(lines, "delink generate ")
  assert f'"{PROMPT}"' in generate
  assert printed[generate].startswith(PROMPT), printed[generate]
  assert len(printed[generate]) > len(PROMPT)

  # What the text says of the same words: resumed, and on two processes.
  path = the_one(lines, "export PATH=")
  train = the_one(lines, "delink train ")
  shell(folder, [path, f"{train} --resume"])
  assert losses(f"{folder}/runs/tiny") == trained, "it had ended"
  recipe = re.search(r"`delink train (recipes/\S+)`", readme())[1]
  experts = train.replace("recipes/tiny.toml", recipe)
  assert experts != train, recipe
  shell(folder, [path, f"{experts}-experts"])
  trained_experts = losses(f"{folder}/runs/tiny-experts")
  assert trained_experts[-1] < trained_experts[0], trained_experts
  if MPIRUN:
    for more in ("", " --set stage.0.parallel.pipeline=2",
                 " --set stage.0.parallel.tensor=2"):
      shell(folder, [path, f"mpirun -np 2 {train} --overwrite{more}"])
      both = losses(f"{folder}/runs/tiny")
      assert max(abs(a - b) for a, b in zip(trained, both, strict=True)) < 1e-4


def check_two_commands():
  """Scripts that take long: that they are there, and say what they do."""
  lines = commands("Two commands")
  assert len(lines) == 2, lines
  for line in lines:
    script = line.split()[0]
    said = subprocess.run([f"{ROOT}/{script}", "--help"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    assert f"usage: {script}" in said, said


def main():
  check_two_commands()
  with tempfile.TemporaryDirectory() as folder:
    checkout(folder)
    check_by_hand(folder)
  print("ok")


if __name__ == "__main__":
  main()
