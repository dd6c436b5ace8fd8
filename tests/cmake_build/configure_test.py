#!/usr/bin/python3
"""Configures the presets where optional programs are missing:
configure_test.py CMAKE SOURCE [--toolkit].

All programs are hidden in every preset, and each alone in the preset `release`,
most of them in `tools/test.sh --full` only; with --toolkit ccache alone is hidden in every preset, beside a CUDA
toolkit, without which this skips. Nothing that is generated may have the name
that CMake gives to what it has not found: it would be called as a program.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

CMAKE, SOURCE = sys.argv[1:3]
SKIPPED = 77
# What may be missing, by the names of its programs.
PROGRAMS = {
    "ccache": r"ccache",
    "chromium": r"chromium.*|chromedriver",
    "clang": r"(clang|run-clang|llvm).*",
    "git": r"git.*",
    "mpirun": r"(mpirun|mpiexec|orterun|prun)(\..*)?",
    "MPI": r"(mpi|orte|ompi|opal|osh|prun).*",
    "nvcc": r"nvcc|ptxas|fatbinary|cuda-.*",
    "python": r"python.*|pip.*",
    "what tests look at things with": r"zsh|fish|groff|h5dump|patchelf",
}
MOST = ("ccache", "mpirun", "nvcc")  # what machines lack most
FOLDERS = {"Chart.js": ["/usr/share/javascript/chart.js"]}
# Python packages are missing where Python is.
MODULES = ["h5py", "numpy", "selenium", "tokenizers", "torch"]
# CMake's notes to itself.
NOT_GENERATED = re.compile(
    r"CMakeCache\.txt|CMakeFiles/(?!rules\.ninja|TargetDirectories\.txt)")


class Machine:
  """This machine, less some of what it has, and one build folder."""

  def __init__(self, folder):
    self.folder, self.build = folder, f"{folder}/build"
    self.compilers = []  # what the first configuration found out of them
    self.bins = [path for path in dict.fromkeys(
        os.environ["PATH"].split(":") +
        ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/cuda/bin"])
                 if os.path.isdir(path)]
    self.compiler = {"CC": shutil.which("cc"), "CXX": shutil.which("c++")}
    # It is called by its own name: it knows from that where it is.
    self.toolkits = [path for path in self.bins
                     if os.path.exists(f"{path}/nvcc") and os.path.exists(
                         f"{path}/../include/cuda_runtime_api.h")]

  def programs_without(self, hidden):
    """A folder of links to all programs but those."""
    links = tempfile.mkdtemp(dir=self.folder)
    gone = re.compile("|".join(PROGRAMS[name] for name in hidden
                               if name in PROGRAMS) or r"(?!)")
    for folder in self.bins:
      if folder in self.toolkits:
        continue
      for name in os.listdir(folder):
        if not gone.fullmatch(name) and not os.path.lexists(f"{links}/{name}"):
          os.symlink(f"{folder}/{name}", f"{links}/{name}")
    return links

  def environment(self, links, hidden):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("CUDA", "CMAKE_"))}
    environment |= {"PATH": links} | self.compiler
    if "nvcc" not in hidden:
      environment["PATH"] = ":".join([*self.toolkits, links])
    else:
      # Where CMake looks for a toolkit, and where tools/bootstrap.sh puts one.
      environment |= {"CUDAToolkit_ROOT": links, "XDG_CACHE_HOME": links}
    if "python" in hidden:
      for name in MODULES:
        with open(f"{links}/{name}.py", "w", encoding="utf-8") as file:
          file.write(f"raise ImportError('{name}')\n")
      environment["PYTHONPATH"] = links
    return environment

  def configure(self, preset, hidden):
    """What CMake says of it."""
    links = self.programs_without(hidden)
    ignored = [path for path in self.bins
               if path not in self.toolkits or "nvcc" in hidden]
    ignored += [path for name in hidden for path in FOLDERS.get(name, [])]
    done = subprocess.run(
        [CMAKE, "--preset", preset, "-B", self.build,
         f"-DCMAKE_IGNORE_PATH={';'.join(ignored)}", *self.compilers],
        cwd=SOURCE, env=self.environment(links, hidden), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, (
        f"{preset} without {hidden}: {done.returncode}\n{done.stdout}")
    return done.stdout

  def generated(self):
    """The text of all that was generated, by name."""
    texts = {}
    for folder, _, names in os.walk(self.build):
      for name in names:
        path = os.path.relpath(f"{folder}/{name}", self.build)
        if NOT_GENERATED.match(path):
          continue
        with open(f"{self.build}/{path}", encoding="utf-8") as file:
          texts[path] = file.read()
    for path in ("build.ninja", "cmake_install.cmake", "CMakeFiles/rules.ninja"):
      assert path in texts, f"there is no {path}: {sorted(texts)}"
    return texts

  def forget(self):
    """Leaves only what was found out of the compilers, which takes longest."""
    with open(f"{self.build}/CMakeCache.txt", encoding="utf-8") as file:
      found = re.findall(
          r"^(CMAKE_(?:EXECUTABLE_FORMAT|PLATFORM_INFO_INITIALIZED):.*)$",
          file.read(), re.M)
    assert len(found) == 2, found
    self.compilers = [f"-D{entry}" for entry in found]
    for name in os.listdir(self.build):
      path = f"{self.build}/{name}"
      if name == "CMakeFiles":
        continue
      if os.path.isdir(path):
        shutil.rmtree(path)
      else:
        os.remove(path)


def check(machine, preset, hidden):
  said = machine.configure(preset, hidden)
  texts = machine.generated()
  bad = [f"{path}: {line.strip()[:200]}" for path, text in texts.items()
         for line in text.splitlines() if "NOTFOUND" in line]
  what = ", ".join(hidden)
  assert not bad, (f"{preset} without {what}: {len(bad)} lines have what was "
                   "not found, such as\n" + "\n".join(bad[:5]))
  assert "tests/testing/gradcheck.cc" in texts["cmake_install.cmake"], (
      f"{preset} installs nothing to test gradients with")
  # What is hidden must not have been found all the same.
  rules = texts["build.ninja"] + texts["CMakeFiles/rules.ninja"]
  with open(f"{machine.build}/CMakeCache.txt", encoding="utf-8") as file:
    cache = file.read()
  for name, trace in (("ccache", "/ccache "), ("nvcc", "/nvcc "),
                      ("mpirun", "/mpirun "), ("Chart.js", "chart.min.js ")):
    assert name not in hidden or trace not in rules, (
        f"{preset} without {what}: {trace}was found")
  print(f"{preset} without {what}: nothing that is not there is named")
  machine.forget()
  return said, cache


def main():
  with open(f"{SOURCE}/CMakePresets.json", encoding="utf-8") as file:
    presets = [preset["name"] for preset in json.load(file)["configurePresets"]]
  everything = [*PROGRAMS, *FOLDERS]
  with tempfile.TemporaryDirectory() as folder:
    machine = Machine(folder)
    if "--toolkit" in sys.argv:
      for preset in presets:
        said, cache = check(machine, preset, ["ccache"])
        if "DELINK_CUDA:STRING=AUTO" in cache and "No CUDA backend" in said:
          print("SKIPPED: no CUDA toolkit\n", said)
          sys.exit(SKIPPED)
    else:
      for preset in presets:
        check(machine, preset, everything)
      for name in everything if os.environ.get("DELINK_FULL_TESTS") else MOST:
        check(machine, "release", [name])
  print("ok")


if __name__ == "__main__":
  main()
