"""Each lint finds the one thing that is wrong in a small tree, and nothing in
the tree without it.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "lint"))

import tidy_batches

# Also in a full run these tests say themselves when clang-tidy reads all.
os.environ.pop("DELINK_FULL_TESTS", None)

GOOD = {
    ".clang-format": None,  # the project's own
    ".clang-tidy": None,
    "framework/base/rng.h": "#pragma once\n",
    "framework/tensor/tensor.h":
        '#pragma once\n\n#include "framework/base/rng.h"\n',
    "framework/hdf5/library.h": "#pragma once\n\n#include <hdf5.h>\n",
    "framework/module/slab.h":
        '#pragma once\n\n#include "framework/hdf5/library.h"\n',
    "framework/step/plan/plan.h":
        '#pragma once\n\n#include "framework/module/slab.h"\n'
        '#include "framework/optim/adamw.h"\n',
    "framework/optim/adamw.h": "#pragma once\n",
    "layers/ops/op.h":
        '#pragma once\n\n#include "framework/tensor/tensor.h"\n',
    "layers/kernels/cuda/copy.h": "#pragma once\n\n#include <cuda_runtime.h>\n",
    "parallel/mpi/launch.cc": "#include <mpi.h>\n",
    "parallel/launch/split.h": '#pragma once\n\n#include "layers/ops/op.h"\n',
    "data/loader/loader.h": "#pragma once\n",
    "recipes/run/run.h":
        '#pragma once\n\n#include "data/loader/loader.h"\n'
        '#include "parallel/launch/split.h"\n',
    "recipes/run/setup/setup.h": "#pragma once\n",
    "recipes/schema/toml.cc": "#include <toml++/toml.h>\n",
    "tools/main.cc":
        '#include <CLI/CLI.hpp>\n\n#include "recipes/run/run.h"\n'
        "#if defined(__COMPILER_HAS_IT__)\n#endif\n",
    "tests/testing/near.h": '#pragma once\n\n#include "tools/main.h"\n',
    "tools/main.h": "#pragma once\n",
    "tests/parallel/mpi/launch_test.cc": "#include <mpi.h>\n",
    "tools/run.sh": "#!/bin/sh\necho \"$1\"\n",
    "README.md": "Unpack it in ~/src or under /usr/share/doc.\n",
}


class Tree:
  """A temporary tree: GOOD and the changes given."""

  def __init__(self, changes):
    self._folder = tempfile.TemporaryDirectory()
    self.root = self._folder.name
    for path, text in {**GOOD, **changes}.items():
      if text is None:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
          text = file.read()
      full = os.path.join(self.root, path)
      os.makedirs(os.path.dirname(full), exist_ok=True)
      with open(full, "w", encoding="utf-8") as file:
        file.write(text)

  def __enter__(self):
    return self.root

  def __exit__(self, *_):
    self._folder.cleanup()


def lint(name, *arguments, cwd=None, **environment):
  run = subprocess.run(
      [sys.executable, "-B", f"{ROOT}/tools/lint/{name}.py", *arguments],
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
      cwd=cwd, env={**os.environ, **environment})
  return run.returncode, run.stdout


def tidy(root):
  """As a machine says that has not seen it: what it remembers is in `root`."""
  return lint("tidy", root, root, XDG_CACHE_HOME=root)


class LintCase(unittest.TestCase):

  def expect_found(self, name, changes, where, what):
    with Tree(changes) as root:
      code, said = lint(name, root)
    self.assertEqual(code, 1, said)
    self.assertIn(where, said)
    self.assertIn(what, said)


class CommandLineTest(unittest.TestCase):

  def test_help_is_not_a_folder(self):
    with tempfile.TemporaryDirectory() as folder:
      for name in ("include_direction", "includes", "sizes", "machine_paths",
                   "format", "full_run", "shell", "snippets", "visits", "tidy"):
        code, said = lint(name, "--help", cwd=folder)
        self.assertEqual(code, 0, said)
        self.assertIn(f"{name}.py", said)
        code, said = lint(name, "--halp", cwd=folder)
        self.assertEqual(code, 2, said)
        self.assertIn("usage: ", said)
      self.assertEqual(lint("tidy", cwd=folder)[0], 2)
      code, said = lint("tidy", folder, cwd=folder)
      self.assertEqual(code, 1)
      self.assertIn("no compile_commands.json", said)
      self.assertEqual(os.listdir(folder), [])


class TreeTest(LintCase):

  def test_the_good_tree_is_good(self):
    with Tree({}) as root:
      for name in ("include_direction", "includes", "sizes", "machine_paths",
                   "format", "shell", "visits"):
        self.assertEqual(lint(name, root), (0, "ok\n"), name)

  def test_only_files_that_git_tracks_count(self):
    with Tree({"framework/base/wild.h": '#include "layers/ops/op.h"\n'}) as root:
      for command in (["init", "-q"], ["add", "--all"],
                      ["rm", "-q", "--cached", "framework/base/wild.h"]):
        subprocess.run(["git", *command], cwd=root, check=True)
      self.assertEqual(lint("include_direction", root)[0], 0)
      subprocess.run(["git", "add", "--all"], cwd=root, check=True)
      self.assertEqual(lint("include_direction", root)[0], 1)


class IncludesTest(LintCase):

  def test_what_is_used_is_included(self):
    for path, text, header in (
        ("layers/ops/bad.h", "std::vector<int> x;", "vector"),
        ("layers/ops/bad.h", "int64_t x;", "cstdint"),
        ("layers/ops/bad.cc", "int x = std::max(1, 2);", "algorithm"),
        ("layers/ops/bad.cc", "absl::Status F();", "absl/status/status.h"),
        ("tests/layers/bad_test.cc", "TEST(A, B) {}", "gtest/gtest.h"),
    ):
      self.expect_found("includes", {path: f"// Text.\n\n{text}\n"},
                        f"{path}:3: ", f"include {header}\n")

  def test_what_brings_it(self):
    for changes in (
        {"layers/ops/a.h": "#include <vector>\nstd::vector<int> x;\n"},
        {"layers/ops/a.h": "#include <vector>\n",
         "layers/ops/b.cc": '#include "layers/ops/a.h"\nstd::vector<int> x;\n'},
        {"layers/ops/a.cc": '#include "absl/status/statusor.h"\n'
                            "absl::Status F();\n"},
        {"layers/ops/a.cc": "// std::vector\nF(\"std::vector\");\n"},
        {"layers/ops/a.cuh": "int64_t x;\n"},
    ):
      with Tree(changes) as root:
        self.assertEqual(lint("includes", root), (0, "ok\n"), changes)

  def test_but_not_from_afar(self):
    self.expect_found("includes", {
        "layers/ops/a.h": "#include <vector>\n",
        "layers/ops/b.h": '#include "layers/ops/a.h"\n',
        "layers/ops/c.cc": '#include "layers/ops/b.h"\nstd::vector<int> x;\n',
    }, "layers/ops/c.cc:2: ", "include vector")


class IncludeDirectionTest(LintCase):

  def expect_refused(self, *bad):
    """Each a path and a line; all are in one tree."""
    texts = {}
    for path, line in bad:
      texts[path] = texts.get(path, "// Text.\n") + line + "\n"
    with Tree(texts) as root:
      code, said = lint("include_direction", root)
    self.assertEqual(code, 1, said)
    for path, text in texts.items():
      for number, line in enumerate(text.splitlines()[1:], 2):
        self.assertIn(f"{path}:{number}: ", said, line)

  def test_folders(self):
    self.expect_refused(*((path, f'#include "{header}"') for path, header in (
        ("framework/base/bad.h", "layers/ops/op.h"),
        ("layers/bad.h", "parallel/launch/split.h"),
        ("layers/bad.h", "data/loader/loader.h"),
        ("parallel/bad.h", "data/loader/loader.h"),
        ("data/bad.h", "layers/ops/op.h"),
        ("offload/bad.h", "parallel/launch/split.h"),
        ("recipes/bad.h", "tools/main.h"),
        ("tools/bad.cc", "tests/testing/near.h"),
    )))

  def test_inside_framework(self):
    self.expect_refused(*((path, f'#include "{header}"') for path, header in (
        ("framework/base/bad.h", "framework/tensor/tensor.h"),
        ("framework/tensor/bad.h", "framework/hdf5/library.h"),
        ("framework/autograd/bad.h", "framework/hdf5/library.h"),
        ("framework/module/bad.h", "framework/step/plan/plan.h"),
        ("framework/optim/bad.cc", "framework/step/plan/plan.h"),
        ("framework/sharing/bad.cc", "framework/optim/adamw.h"),
        ("framework/new_room/bad.h", "framework/base/rng.h"),
        ("framework/step/program/bad.h", "framework/step/plan/plan.h"),
        ("framework/step/groups/bad.cc", "framework/step/plan/plan.h"),
        ("framework/step/new_room/bad.h", "framework/step/plan/plan.h"),
    )))

  def test_inside_the_others(self):
    self.expect_refused(*((path, f'#include "{header}"') for path, header in (
        ("layers/kernels/bad.h", "layers/ops/op.h"),
        ("recipes/record/bad.h", "recipes/run/run.h"),
        ("recipes/schema/bad.cc", "recipes/run/run.h"),
        ("recipes/run/setup/bad.cc", "recipes/run/run.h"),
        ("recipes/run/stage/bad.h", "recipes/run/setup/setup.h"),
        ("tools/bench/bad.cc", "tools/main.h"),
        ("offload/rates/bad.h", "offload/plan/bounds.h"),
    )))

  def test_code_lies_in_a_folder_that_is_known(self):
    for path, what in (
        ("parallel/bad.h", "no code directly in parallel/"),
        ("data/bad.cc", "no code directly in data/"),
        ("recipes/bench/bad.cc", "recipes/bench is not in the lint's list"),
        ("framework/new_room/bad.h", "framework/new_room is not in the lint's"),
        ("framework/step/bad.h", "no code directly in framework/step/"),
        ("recipes/run/new_room/bad.h", "recipes/run/new_room is not in the"),
    ):
      self.expect_found("include_direction", {path: "// Text.\n"},
                        f"{path}:1: ", what)

  def test_headers_with_a_home(self):
    self.expect_refused(*((path, f"#include {header}") for path, name in (
        ("parallel/bad.cc", "mpi.h"),
        ("tests/parallel/bad_test.cc", "mpi.h"),
        ("framework/checkpoint/bad.cc", "hdf5.h"),
        ("recipes/run/bad.cc", "toml++/toml.h"),
        ("layers/ops/bad.cc", "cuda_runtime.h"),
        ("layers/kernels/cpu/bad.cc", "cublasLt.h"),
        ("parallel/mpi/bad.cc", "nccl.h"),
        ("recipes/bad.cc", "CLI/CLI.hpp"),
        ("layers/ops/bad.cc", "omp.h"),
        ("layers/ops/bad.cc", "dnnl.hpp"),
        ("recipes/bad.cc", "sentencepiece_processor.h"),
        ("recipes/run/bad.cc", "mutex"),
        ("tests/recipes/run/bad_test.cc", "shared_mutex"),
    ) for header in (f"<{name}>", f'"{name}"')))

  def test_device_code_may_include_cuda(self):
    for path in ("layers/kernels/rope.cu", "tests/testing/simt/fibers.cc",
                 "tests/layers/kernels/cuda_test.cc"):
      with Tree({path: "#include <cuda_runtime.h>\n"}) as root:
        self.assertEqual(lint("include_direction", root), (0, "ok\n"), path)

  def test_device_code(self):
    launch = "Scale<<<1, 32>>>(x);"
    for path in ("layers/kernels/cuda/scale.cu", "layers/kernels/cuda/a.cuh"):
      self.expect_refused((path, "#include <absl/status/status.h>"),
                          (path, launch))
      behind = {"framework/base/status.h":
                    '#pragma once\n#include "absl/status/status.h"\n',
                "framework/tensor/view.h":
                    '#pragma once\n#include "framework/base/status.h"\n'}
      for header in behind:
        self.expect_found(
            "include_direction", {**behind, path: f'#include "{header}"\n'},
            f"{path}:1: ", "status.h -> absl/status/status.h")
    with Tree({"layers/kernels/cuda/scale.cu": f"// not {launch}\n",
               "layers/kernels/cuda/table.cc":
                   "#include <absl/status/status.h>\n"}) as root:
      self.assertEqual(lint("include_direction", root), (0, "ok\n"))

  def test_spelling(self):
    self.expect_refused(*(("layers/ops/bad.h", f'#include "{header}"')
                          for header in ("op.h", "../ops/op.h",
                                         "layers/ops/none.h")))

  def test_conditions(self):
    self.expect_refused(*(("layers/ops/bad.h", f"#{condition}")
                          for condition in (
                      "ifdef DELINK_CUDA", "if defined(__CUDACC__)",
                      "ifndef HAVE_NCCL", "if USE_MPI", "elif OPEN_MPI",
                      "if __has_include(<mpi.h>)", "ifdef OMPI_MAJOR_VERSION",
                      "ifdef _OPENMP", "if DELINK_ONEDNN",
                      "  if   WITH_CUDNN || CUDA_VERSION > 12")))


class OtherLintsTest(LintCase):

  def test_sizes(self):
    self.expect_found("sizes", {"layers/long.cc": "\n" * 801},
                      "layers/long.cc", "801 lines, at most 800")
    self.expect_found("sizes", {"layers/long.h": "\n" * 401},
                      "layers/long.h", "401 lines, at most 400")

  def test_machine_paths(self):
    for folder in ("home", "work", "root"):
      text = f"Text.\nSee /{folder}/somebody/notes.\n"
      self.expect_found("machine_paths", {"docs/a.md": text},
                        "docs/a.md:2: ", "somebody")

  def test_visits(self):
    for call in ("tape.BeginForward(phase, inputs);",
                 "visit->tape.RunBackward(y, dy, x, dx);",
                 "tape->BeginForward("):
      code = f"void F() {{\n  {call}\n"
      for path in ("framework/step/engine/executor.cc",
                   "recipes/run/observers/probe.cc"):
        self.expect_found("visits", {path: code}, f"{path}:2: ",
                          "only the engine lets layers work")
      for path in ("framework/step/engine/engine_visits.cc",
                   "tests/step/a_test.cc"):
        with Tree({path: code}) as root:
          self.assertEqual(lint("visits", root), (0, "ok\n"), path)

  def test_format(self):
    self.expect_found("format", {"layers/bad.h": "int   Sum( int a );\n"},
                      "layers/bad.h:1:", "clang-format -i layers/bad.h")

  def test_snippets(self):
    source = "int Before();\n  // docs: sum\n  int Sum();\n\n  // docs: end\n"
    quote = "<!-- cut from layers/a.h: %s -->\n```cpp\n%s```\n"
    files = {"layers/a.h": source, "docs/a.md": quote % ("sum", "int Sum();\n")}
    with Tree(files) as root:
      self.assertEqual(lint("snippets", root), (0, "ok\n"))
    for text, what in (
        (quote % ("sum", "int Sum() ;\n"), "docs/a.md:1: not as layers/a.h"),
        (quote % ("difference", ""), "docs/a.md:1: there is no layers/a.h"),
        ("Text.\n<!-- cut from layers/a.h: sum -->\n", "no code block follows"),
    ):
      self.expect_found("snippets", {**files, "docs/a.md": text}, "docs/a.md",
                        what)
    for text, what in (
        ("Text.\nSee [b](b.md#there).\n", "docs/a.md:2: there is no b.md"),
        ("See `layers/b.h`.\n", "docs/a.md:1: there is no layers/b.h"),
    ):
      self.expect_found("snippets", {**files, "docs/a.md": text}, what, "")
    with Tree({**files, "docs/a.md":
               "`layers/a.h`, `runs/a/log.txt`, [top](../README.md#top), "
               "[far](https://example.org/a.md), [here](#a)\n"}) as root:
      self.assertEqual(lint("snippets", root), (0, "ok\n"))
    with Tree({**files, "docs/a.md": quote % ("sum", "x\n")}) as root:
      self.assertEqual(lint("snippets", "--write", root)[0], 0)
      self.assertEqual(lint("snippets", root)[0], 0)

  def test_shell(self):
    self.expect_found("shell", {"tools/bad.sh": "#!/bin/sh\nrm $1\n"},
                      "tools/bad.sh:2:", "SC2086")
    self.expect_found("shell", {".ci/run": "#!/bin/sh\nrm $1\n"},
                      ".ci/run:2:", "SC2086")


def write_commands(root, sources, flags=""):
  commands = [{"directory": root, "file": f"{root}/{path}",
               "command": f"c++ -std=c++20 {flags} -I{root} -c {root}/{path}"}
              for path in sources if path.endswith(".cc")]
  with open(f"{root}/compile_commands.json", "w", encoding="utf-8") as file:
    json.dump(commands, file)


class TidyTest(LintCase):

  def tidy(self, text, header="#pragma once\n"):
    return self.tidy_all({"layers/a.cc": text, "layers/a.h": header})

  def tidy_all(self, sources):
    with Tree(sources) as root:
      write_commands(root, sources)
      first = tidy(root)
      self.assertEqual(tidy(root)[0], first[0])  # remembered
      return first

  def test_what_passed_is_not_read_again_anywhere(self):
    sources = {"layers/a.cc": '#include "layers/a.h"\n',
               "layers/a.h": "#pragma once\n"}
    with tempfile.TemporaryDirectory() as machine:
      def reads(changes, flags="", version=1):
        """Whether clang-tidy is asked about a checkout with these changes."""
        program, log = f"{machine}/clang-tidy-14", f"{machine}/log"
        with open(program, "w", encoding="utf-8") as file:
          file.write(f"#!/bin/sh\n[ $1 = --version ] && echo {version} ||"
                     f" echo read >>{log}\n")
        os.chmod(program, 0o755)
        with Tree({**sources, **changes}) as root:
          write_commands(root, sources, flags)
          code, said = lint(
              "tidy", root, root, XDG_CACHE_HOME=machine,
              PATH=f"{machine}:{os.environ['PATH']}")
        self.assertEqual(code, 0, said)
        asked = os.path.exists(log)
        if asked:
          os.remove(log)
        return asked
      self.assertTrue(reads({}))
      self.assertFalse(reads({}))
      self.assertFalse(reads({"layers/b.h": "#pragma once\n"}))
      self.assertTrue(reads({"layers/a.h": "#pragma once\nint F();\n"}))
      self.assertTrue(reads({".clang-tidy": "Checks: -*\n"}))
      self.assertTrue(reads({}, flags="-DX=1"))
      self.assertFalse(reads({}, flags="-O2 -o there.o"))
      self.assertTrue(reads({}, version=2))
      self.assertFalse(reads({}))

  def test_house_names_pass(self):
    code, said = self.tidy("""
#define DELINK_SQUARE(x) ((x) * (x))
namespace delink {
constexpr int kRows = 3;
enum class Kind { kSmall };
struct Shape {
  int dim = 0;
  int Hkv = 1;
};
class Table {
 public:
  int rows() const { return rows_; }
  int RowSum() const { return DELINK_SQUARE(rows_); }

 private:
  int rows_ = kRows;
};
inline int __popc(int x) { return x; }
int MatMul(int B, int dX) {
  const int sum = B + dX;
  return sum;
}
}  // namespace delink
""")
    self.assertEqual(code, 0, said)

  def test_other_names_and_mistakes_do_not(self):
    wrong = (
        ("class small_name {};", "class 'small_name'"),
        ("int doThing();", "function 'doThing'"),
        ("class A { int rows = 0; };", "private member 'rows'"),
        ("struct A { int Rows = 0; int lastRow = 0; };", "member 'lastRow'"),
        ("const int rows = 3;", "global constant 'rows'"),
        ("enum class Kind { SMALL };", "enum constant 'SMALL'"),
        ("#define SQUARE(x) (x)", "macro definition 'SQUARE'"),
        ("int Add(int firstRow) { return firstRow; }", "parameter 'firstRow'"),
        ("int* Null() { return 0; }", "modernize-use-nullptr"),
        ("struct A { A(int x); };", "google-explicit-constructor"),
        ("int Long() {\n" + "\n" * 90 + "return 1; }",
         "readability-function-size"),
    )
    code, said = self.tidy("".join(
        f"namespace n{number} {{\n{text}\n}}\n"
        for number, (text, _) in enumerate(wrong)))
    self.assertEqual(code, 1, said)
    for _, what in wrong:
      self.assertIn(what, said)
    # Of what does not compile nothing else is told.
    code, said = self.tidy("int Broken() { return }\n")
    self.assertEqual(code, 1, said)
    self.assertIn("expected expression", said)

  def test_what_a_mutex_guards_is_touched_under_it(self):
    sum_of = """
#include "framework/base/mutex.h"
namespace %s {
using delink::Mutex, delink::MutexLock;
class Sum {
 public:
  void Add(int x) { %s }
  int WaitForMore(int x) {
    MutexLock lock(mutex_);
    while (sum_ <= x) lock.Wait(changed_);
    return sum_;
  }

 private:
  void AddLocked(int x) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { sum_ += x; }

  Mutex mutex_;
  std::condition_variable changed_;
  int sum_ ABSL_GUARDED_BY(mutex_) = 0;
};
int F(Sum& sum) { return sum.WaitForMore(1); }
}
"""
    bodies = (
        ("const MutexLock lock(mutex_); sum_ += x;", None),
        ("const MutexLock lock(mutex_); AddLocked(x);", None),
        ("sum_ += x;", "requires holding mutex 'mutex_'"),
        ("AddLocked(x);", "requires holding mutex 'mutex_'"),
        ("mutex_.Lock(); sum_ += x;", "still held at the end"),
    )
    text = "".join(sum_of % (f"n{number}", body)
                   for number, (body, _) in enumerate(bodies))
    with Tree({"layers/a.cc": text, "framework/base/mutex.h": None}) as root:
      write_commands(root, ["layers/a.cc"])
      code, said = tidy(root)
    self.assertEqual((code, said.count(" error: ")), (1, 3), said)
    for number, (_, what) in enumerate(bodies):
      line = text.splitlines().index(f"namespace n{number} {{") + 5
      if what:
        self.assertRegex(said, rf"layers/a\.cc:{line}:.*{what}")

  def test_headers_count_and_are_not_remembered_wrongly(self):
    code, said = self.tidy('#include "layers/a.h"\n',
                           "#pragma once\nclass small_name {};\n")
    self.assertEqual(code, 1)
    self.assertIn("class 'small_name'", said)

  def test_device_code_is_read_as_cpp(self):
    nvcc = "/opt/cuda/bin/nvcc -std=c++20 -x cu -c layers/a.cu"
    cpp = "c++ -std=c++20 -x c++ -c layers/a.cu"
    for commands, expected in (([nvcc], 0), ([nvcc, cpp], 1)):
      with Tree({"layers/a.cu": "int doThing();\n"}) as root:
        entries = [{"directory": root, "file": f"{root}/layers/a.cu",
                    "command": command} for command in commands]
        with open(f"{root}/compile_commands.json", "w",
                  encoding="utf-8") as file:
          json.dump(entries, file)
        code, said = tidy(root)
      self.assertEqual(code, expected, said)
      self.assertEqual("function 'doThing'" in said, bool(expected))

  def test_what_is_put_together_is_taken_apart(self):
    unity = "build/unity/all_0.cc"
    with Tree({"layers/a.cc": "int A() { return 1; }\n",
               "layers/b.cc": "int doThing() { return 2; }\n"}) as root:
      os.makedirs(os.path.dirname(f"{root}/{unity}"))
      with open(f"{root}/{unity}", "w", encoding="utf-8") as file:
        file.write("".join(
            f'#include "layers/{name}.cc"\n' for name in "ab"))
      with open(f"{root}/compile_commands.json", "w",
                encoding="utf-8") as file:
        json.dump([{"directory": root, "file": f"{root}/{unity}",
                    "command": f"c++ -std=c++20 -c {root}/{unity}"}], file)
      code, said = tidy(root)
    self.assertEqual(code, 1)
    self.assertIn("layers/b.cc:1:5: error: invalid case style for", said)
    self.assertTrue(said.endswith("1 problems\n"), said)

  def test_macros_and_aliases_of_many_share_a_batch(self):
    source = ("#define DELINK_TWICE(x) ((x) * %d)\nusing Row = int;\n"
              "Row %s(Row x) { return DELINK_TWICE(x); }\n")
    sources = {f"layers/{name.lower()}.cc": source % (number, name)
               for number, name in enumerate("AB")}
    batch = tidy_batches.pack([
        tidy_batches.Source(path, [text], "c++ -std=c++20")
        for path, text in sources.items()])
    self.assertEqual([len(b.sources) for b in batch], [2])
    self.assertEqual(self.tidy_all(sources)[0], 0)

  def test_names_of_a_files_own_keep_no_two_apart(self):
    source = ("namespace {\nusing Row = %s;\nconstexpr Row %s = 1;\n"
              "}  // namespace\nRow %s() { return %s; }\n")
    sources = {f"layers/{name.lower()}.cc": source % (row, "kOne", name, "kOne")
               for row, name in (("int", "A"), ("float", "B"))}
    batch = tidy_batches.pack([
        tidy_batches.Source(path, [text], "c++ -std=c++20")
        for path, text in sources.items()])
    self.assertEqual([len(b.sources) for b in batch], [2])
    self.assertEqual(self.tidy_all(sources)[0], 0)
    sources["layers/b.cc"] = source % ("float", "one", "B", "one")
    code, said = self.tidy_all(sources)
    self.assertEqual(code, 1)
    self.assertIn("layers/b.cc:3:15: error: invalid case style for", said)
    self.assertTrue(said.endswith("1 problems\n"), said)

  def test_tests_in_namespaces_of_their_own_share_a_batch(self):
    source = ("#include \"tests/rig.h\"\nnamespace delink::testing::%s {\n"
              "using Row = %s;\nnamespace {\nstruct Rig { Row row = 1; };\n"
              "}  // namespace\nRow %s(Rig rig) { return rig.row; }\n"
              "}  // namespace delink::testing::%s\n")
    sources = {f"tests/{name}.cc": source % (name, row, "Of", name)
               for row, name in (("int", "a_test"), ("float", "b_test"))}
    header = "#pragma once\nnamespace delink { struct Rig {}; }\n"
    batch = tidy_batches.pack([
        tidy_batches.Source(path, [text, header], "c++ -std=c++20")
        for path, text in sources.items()])
    self.assertEqual([len(b.sources) for b in batch], [2])
    self.assertEqual(self.tidy_all({**sources, "tests/rig.h": header})[0], 0)

  def test_headers_that_define_one_name_keep_their_readers_apart(self):
    header = "#pragma once\nnamespace delink {\nstruct Row {\n  %s row;\n};\n}\n"
    sources = {f"layers/{name}.cc":
                   f'#include "layers/{name}.h"\n'
                   f"delink::Row {name.upper()}() {{ return {{}}; }}\n"
               for name in "ab"}
    headers = {"layers/a.h": header % "int", "layers/b.h": header % "float"}
    batches = tidy_batches.pack([
        tidy_batches.Source(path, [text, headers[path.replace(".cc", ".h")]],
                            "c++ -std=c++20")
        for path, text in sources.items()])
    self.assertEqual([len(b.sources) for b in batches], [1, 1])
    self.assertEqual(self.tidy_all({**sources, **headers})[0], 0)

  def test_what_differs_from_what_landed_is_read(self):
    bad = "int %s() { return 1; }\n"
    sources = {"layers/a.cc": bad % "oneThing",
               "layers/c.cc": '#include "layers/c.h"\n' + bad % "otherThing",
               "layers/c.h": "#pragma once\n"}
    with Tree(sources) as root:
      write_commands(root, sources, f"-I{root}")

      def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b",
                        *words], cwd=root, check=True)

      def expect_read(*names, **environment):
        code, said = lint("tidy", root, root, XDG_CACHE_HOME=root,
                          **environment)
        for name in ("oneThing", "otherThing"):
          self.assertEqual(f"'{name}'" in said, name in names, said)
        self.assertEqual(code, 1 if names else 0)
      expect_read("oneThing", "otherThing")  # no history at all
      git("init", "-q")
      git("add", "--all")
      git("commit", "-q", "-m", "Begin")
      expect_read("oneThing", "otherThing")  # nothing is known to have landed
      git("update-ref", "refs/remotes/origin/main", "HEAD")
      expect_read("oneThing", "otherThing")  # all of it has
      for path, text, read in (
          ("README.md", "More.\n", ()),
          ("layers/c.h", "#pragma once\nint C();\n", ("otherThing",))):
        with open(f"{root}/{path}", "w", encoding="utf-8") as file:
          file.write(text)
        expect_read(*read)
      expect_read("oneThing", "otherThing", DELINK_FULL_TESTS="1")

  def test_what_there_is_no_time_for_is_noted(self):
    sources = {"layers/a.cc": "int doThing() { return 1; }\n"}
    with Tree(sources) as root:
      write_commands(root, sources)
      run = subprocess.run(
          [sys.executable, "-B", "-c", "import tidy; tidy.MINUTES = -1; "
           f"tidy.source_tree.finish(tidy.problems('{root}', '{root}'))"],
          stdout=subprocess.PIPE, text=True, check=False,
          cwd=f"{ROOT}/tools/lint", env={**os.environ, "XDG_CACHE_HOME": root})
    self.assertIn("note: clang-tidy has not read 1 sources", run.stdout)
    self.assertIn("layers/a.cc and more", run.stdout)
    self.assertEqual(run.returncode, 0)

  def test_sources_are_told_apart_though_checked_together(self):
    unnamed = "namespace {\n%s\n}  // namespace\n"
    fine = {
        "layers/a.cc": unnamed % "struct Row {};\nint Sum(Row) { return 1; }",
        "layers/b.cc": unnamed % "struct Row {};\nint Sum(Row) { return 2; }",
        "layers/c.cc": '#include "layers/a.h"\nint Get(Row) { return 3; }\n',
        "layers/a.h": "#pragma once\nstruct Row {};\n",
        # A clash that nothing but the compiler sees.
        "layers/d.cc": "namespace { using Row = int; }\nRow Two() { return 2; }",
        "layers/e.cc": unnamed % "constexpr int kRows = 2;",
    }
    code, said = self.tidy_all(fine)
    self.assertEqual(code, 0, said)
    code, said = self.tidy_all(
        {**fine, "layers/e.cc": unnamed % "constexpr int rows = 2;",
         "layers/f.cc": "int F() { return 0; }\n"})
    self.assertEqual(code, 1)
    self.assertIn("layers/e.cc:2:15: error: invalid case style for", said)
    self.assertTrue(said.endswith("1 problems\n"), said)


class FullRunTest(LintCase):

  def test_an_old_full_run_is_noted(self):
    docs = "docs/testing.md"
    self.expect_found("full_run", {docs: "Tests.\n"}, docs, "Last full run: ")
    with Tree({docs: "Last full run: none.\n"}) as root:
      code, said = lint("full_run", root)
      self.assertEqual((code, said.endswith("ok\n")), (0, True))
      self.assertIn("note: docs/testing.md knows of no", said)
    said_last = "Last full run: 2026-11-27, commit %s, 60 minutes\n"
    with Tree({docs: said_last % "0123456"}) as root:

      def commit(message, count=1):
        for _ in range(count):
          subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b",
                          "commit", "-q", "--allow-empty", "-m", message],
                         cwd=root, check=True)

      code, said = lint("full_run", root)
      self.assertEqual(code, 0)
      self.assertIn("note: commit 0123456", said)
      subprocess.run(["git", "init", "-q"], cwd=root, check=True)
      subprocess.run(["git", "add", "--all"], cwd=root, check=True)
      commit("Begin")
      first = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
      with open(f"{root}/{docs}", "w", encoding="utf-8") as file:
        file.write(said_last % first)
      self.assertEqual(lint("full_run", root), (0, "ok\n"))
      commit("Nothing", 201)
      self.assertEqual(lint("full_run", root), (0, "ok\n"))
      with open(f"{root}/tests/new_test.cc", "w", encoding="utf-8") as file:
        file.write("\n")
      subprocess.run(["git", "add", "tests/new_test.cc"], cwd=root, check=True)
      commit("Test more")
      code, said = lint("full_run", root)
    self.assertEqual(code, 0)
    self.assertIn("note: a test was added 202 commits after the last", said)


if __name__ == "__main__":
  unittest.main()
