"""What cmake --install leaves in a prefix: documents whose links lead
somewhere, licenses, recipes that do what they say, and no empty folder.
"""
import glob
import os
import re
import shutil
import subprocess

# The lines of a recipe's first comment that are commands.
COMMAND = re.compile(r"^#   ((?:mpirun -np \d+ )?delink .*)$", re.M)
LINK = re.compile(r"\]\(([^)#\s]+\.(?:md|txt|png|svg))[)#]")


def run(words, folder, code=0):
  """What the command says; it must end with that exit code."""
  done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True, check=False)
  assert done.returncode == code, (
      f"{' '.join(words)}: {done.returncode}, not {code}\n{done.stdout}")
  return done.stdout


def check_files(prefix):
  for folder, folders, names in os.walk(prefix):
    assert folders or names, f"{folder} is empty"
  docs = f"{prefix}/share/doc/delink"
  for name in ("LICENSE", "README.md", "CHANGELOG.md", "docs/cli.md",
               "docs/licenses/chart.js.txt", "docs/licenses/cli11.txt"):
    assert os.path.isfile(f"{docs}/{name}"), f"no {name} in {docs}"
  for document in glob.glob(f"{docs}/**/*.md", recursive=True):
    with open(document, encoding="utf-8") as file:
      for link in LINK.findall(file.read()):
        to = os.path.join(os.path.dirname(document), link)
        assert "://" in link or os.path.exists(to), f"{document}: {link}"


def check_recipes(prefix, folder, mpirun):
  """Each recipe as its comment says, in a folder with a copy of it and some
  text; and as it lies, on a corpus elsewhere. Those that ask for a TEXT train
  for hours, and are planned; without `mpirun` those for several ranks wait."""
  os.environ["PATH"] = f"{prefix}/bin:{os.environ['PATH']}"
  shutil.copytree(f"{prefix}/share/doc/delink", folder)
  run("delink data build --bytes --out corpus README.md".split(), folder)
  recipes = sorted(glob.glob(f"{prefix}/share/delink/recipes/*.toml"))
  assert len(recipes) > 3, recipes
  trained = []
  for recipe in recipes:
    name = os.path.basename(recipe)
    shutil.copy(recipe, folder)
    with open(recipe, encoding="utf-8") as file:
      comment = file.read().split("\n[", 1)[0]
    commands = COMMAND.findall(comment)
    assert f"delink train {name}" in comment, f"{name} does not say how"
    if "TEXT" in comment:
      ranks = re.search(r"mpirun -np (\d+)", comment)
      words = ["--ranks", ranks.group(1)] if ranks else []
      assert "unique" in run(["delink", "plan", name, *words], folder)
      continue
    if "mpirun" in comment and not mpirun:
      continue
    shutil.rmtree(f"{folder}/corpus", ignore_errors=True)
    for command in commands:
      words = [mpirun if w == "mpirun" else w for w in command.split()]
      said = run(words, folder)
    assert "done: 20 steps" in said, said
    trained.append(name)
  assert len(trained) == (10 if mpirun else 7), trained
  run(["delink", "train", f"{prefix}/share/delink/recipes/tiny.toml", "--set",
       f"data.train={folder}/corpus/train", "--out", "again"], folder)
  machines = glob.glob(f"{prefix}/share/delink/machines/*.toml")
  assert len(machines) == 6, machines
  run(["delink", "plan", "tiny.toml", "--machine", machines[0]], folder)
