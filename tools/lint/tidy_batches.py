"""Packs sources into batches that can be one translation unit, for tidy.py."""

import os
import re
import shlex
from pathlib import Path

NUMBERED = 9000  # begins what names of a batch's sources end in
# Of one batch. Most of a batch's time goes into what it includes, whatever its
# own lines: 16000 take a third more than 4000.
MOST_LINES = 16000

UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
COMMENT = re.compile(r"//.*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
WORD = re.compile(r"(?<![\w.])(?<!->)\w+")  # not what is a member's name
# What is defined there, as clang-format lays it out, and tests and macros.
DEFINITION = re.compile(
    r"^(?:struct|class|union|enum|enum class) (?!class )(\w+)"
    r"(?=[;<]| [:{]| final)"
    r"|^(?!using |namespace )[A-Za-z][\w:<>,&* ]*[ &*](\w+)(?:\(|\[| = |\{)",
    re.M)
# What a header defines once for all that read it.
TYPE = re.compile(
    r"^(?:struct|class|union|enum|enum class) (?!class )(\w+)(?=<| [:{]| final)"
    r"|^using (\w+) = ", re.M)
OUTER = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+, \w+)\)"
                   r"|^int (main)\("
                   r"|^extern \"C\" int (\w+)\(.*\{$", re.M)
USING = re.compile(r"^using (?!::testing|testing|std|absl)(?:[\w:]+::)(\w+);"
                   r"|^(?:using|namespace) (\w+) = .*", re.M)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{$", re.M)
ALIAS = re.compile(r"^using (\w+) = ", re.M)
MACRO = re.compile(r"^#define (\w+)", re.M)
INCLUDE = re.compile(r"^ *# *include .*", re.M)
# No names of the file's own: of something, and macros.
OTHERS = re.compile(r"(?:\.|->|::)\s*(\w+)|\b([A-Z][A-Z_]+)\b")
# A namespace that some sources have and others must not.
TESTING = re.compile(r"\bnamespace delink::testing\b")
PLAIN_TESTING = re.compile(r"[^:]\btesting::")
# What is not to be seen together with others: SentencePiece's header, which
# brings an absl::string_view of its own; macros that steer a header; a use of
# all our names from outside, where some of others' are the same.
ALONE = re.compile(r"<sentencepiece_processor\.h>|^#define .*\n+#include"
                   r"|^ *using namespace delink;", re.M)


def words(pattern, text):
  """What the groups of the pattern found."""
  return {next(filter(None, found)) for found in pattern.findall(text)}


class Source:
  """One source: its flags that matter here and what it would clash with."""

  def __init__(self, path, texts, command):
    """texts: of itself, then of the files of ours that it includes."""
    self.path = path
    self.device_code = path.endswith(".cu")  # reads another launch.cuh
    # Defines what another source does, for builds that lack something.
    self.stands_in = "/no_" in path or path.endswith("_simt.cc")
    self.mark = ""  # the file that says that it passed
    self.lines = texts[0].count("\n")
    own = COMMENT.sub("", texts[0])
    everything = COMMENT.sub("", "\n".join(texts))
    # A test's names are in a namespace that has its own, where none clash.
    stem = Path(path).stem
    apart = any(name.endswith(f"::{stem}") for name in NAMESPACE.findall(own))
    unnamed = "" if apart else "".join(UNNAMED.findall(texts[0]))
    self.defines = words(DEFINITION, unnamed) | {
        name for name in words(OUTER, own) if not (apart and ", " in name)}
    if apart:
      self.defines.add(stem)
    # Names of the headers it reads, which others' own ones would hide.
    self.reads = words(DEFINITION, COMMENT.sub("", "\n".join(texts[1:])))
    # Which headers define a name that it reads: others may read another's.
    # Names of delink::testing would hide those of delink.
    self.types = {}
    for text in texts[1:]:
      spaces = NAMESPACE.findall(text)[:1]
      for name in words(TYPE, COMMENT.sub("", text)):
        key = (*(space.removesuffix("::testing") for space in spaces), name)
        self.types.setdefault(key, set()).add(text)
    self.usings = {} if apart else {
        found[1] or found[2]: found[0] for found in USING.finditer(own)}
    # What only this file means by them, so that any other will do.
    self.own_names = (
        (words(DEFINITION, unnamed)
         | set(() if apart else ALIAS.findall(own)))
        - words(OTHERS, own)
        - set(re.findall(r"\w+", COMMENT.sub("", "\n".join(texts[1:])))))
    self.includes = INCLUDE.findall(own)
    self.own_macros = MACRO.findall(own)
    self.mentions = set(WORD.findall(STRING.sub("", own))) - {"testing"}
    if TESTING.search(everything):
      self.defines.add("testing")
    elif PLAIN_TESTING.search(everything):
      self.mentions.add("testing")
    self.alone = bool(ALONE.search(everything))
    self.macros = {}
    self.folders = []
    self.others = set()
    self.machine = []
    rest = iter(shlex.split(command))
    for word in rest:
      if word == "-isystem":
        self.folders.append((word, next(rest)))
      elif word.startswith("-I"):
        self.folders.append(("-I", word[2:] or next(rest)))
      elif word.startswith("-D"):
        self.macros[word.partition("=")[0]] = word
      elif word.startswith(("-m", "-std=")):
        self.machine.append(word)
      elif word in ("-fopenmp", "-pthread"):
        self.others.add(word)

  def hides(self, other):
    """Whether a name of this one could mean something else in the other."""
    shown = (other.mentions | (other.reads - self.reads)) - self.own_names
    return not self.defines.isdisjoint(shown) or any(
        name in shown and other.usings.get(name) != using
        for name, using in self.usings.items()) or any(
            self.types[name] != other.types[name]
            for name in self.types.keys() & other.types.keys())

  def numbered(self, text, number):
    """Its text with its own names in the style that they had: with digits."""
    if not self.own_names:
      return text
    names = re.compile(rf"\b({'|'.join(sorted(self.own_names))})\b")
    return "\n".join(
        line if INCLUDE.match(line) else names.sub(rf"\g<1>{NUMBERED}{number}",
                                                   line)
        for line in text.split("\n"))


class Batch:
  """Sources that are checked together."""

  def __init__(self, sources):
    self.sources = sources

  def takes(self, source):
    first = self.sources[0]
    return (
        first.machine == source.machine
        and first.device_code == source.device_code
        and first.stands_in == source.stands_in
        and first.path.startswith("tests/") == source.path.startswith("tests/")
        and sum(s.lines for s in self.sources) + source.lines <= MOST_LINES
        and not source.alone and not first.alone
        and not any(source.hides(s) or s.hides(source) for s in self.sources)
        and all(s.macros.get(name, value) == value for s in self.sources
                for name, value in source.macros.items()))

  def write(self, root, folder):
    """One unit of all: first what any includes, lest it sees their names.

    It stands in `folder`, with copies of the sources in which each one's own
    names end in a number of its own.
    """
    lines = list(dict.fromkeys(i for s in self.sources for i in s.includes))
    for number, source in enumerate(self.sources):
      copy = os.path.join(folder, source.path)
      os.makedirs(os.path.dirname(copy), exist_ok=True)
      with open(os.path.join(root, source.path), encoding="utf-8") as file:
        text = file.read()
      with open(copy, "w", encoding="utf-8") as file:
        file.write(source.numbered(text, number))
      lines.append(f'#include "{copy}"')
      lines += [f"#undef {name}" for name in source.own_macros]
    unit = os.path.join(folder, "unit.cc")
    with open(unit, "w", encoding="utf-8") as file:
      file.write("\n".join([*lines, ""]))
    return unit

  def parts(self, said):
    """Two smaller batches: apart those that clang-tidy complained of."""
    named = [s for s in self.sources if f"/{s.path}:" in said]
    if not named or len(named) == len(self.sources):
      named = self.sources[:len(self.sources) // 2]
    return Batch(named), Batch([s for s in self.sources if s not in named])

  def flags(self):
    """What the compiler needs to read them; nothing of how to optimise."""
    folders = dict.fromkeys(f for s in self.sources for f in s.folders)
    macros = dict.fromkeys(w for s in self.sources for w in s.macros.values())
    return ["-xc++", *self.sources[0].machine,
            *sorted({o for s in self.sources for o in s.others}),
            *(w for folder in folders for w in folder),
            *macros]


def pack(sources):
  """Batches of all sources, the longest first.

  Those that most others cannot be with choose theirs first.
  """
  clashes = {
      s.path: sum(s.hides(other) or other.hides(s)
                  for other in sources if other is not s) for s in sources}
  batches = []
  for source in sorted(sources, key=lambda s: (-clashes[s.path], s.path)):
    for batch in batches:
      if batch.takes(source):
        batch.sources.append(source)
        break
    else:
      batches.append(Batch([source]))
  return sorted(batches, key=lambda b: -sum(s.lines for s in b.sources))
