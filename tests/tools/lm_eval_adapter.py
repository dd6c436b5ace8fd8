"""tools/lm_eval/delink_lm.py, driven as lm-evaluation-harness drives a model,
beside what the program says of the same texts by other ways.

  lm_eval_adapter.py DELINK RECIPE

The harness itself need not be there: of it the adapter takes a base class and a
registry, which are stood in for.
"""
import importlib.util
import json
import os
import sys
import tempfile
import types

import runs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
ADAPTER = os.path.join(ROOT, "tools", "lm_eval", "delink_lm.py")
PAIRS = [("Of the making", " of many tests"), ("Of the making", " zzzzzzzzzzzzz"),
         ("", "there is no end"), ("no ", "end. Of")]


class Hook:
  """Keeps what a model says it has found."""

  def __init__(self):
    self.found = []

  def add_partial(self, kind, arguments, result):
    self.found.append((kind, arguments, result))


class Request:

  def __init__(self, *arguments):
    self.args = arguments


def load_adapter():
  registered = {}

  class Base:

    def __init__(self):
      self.cache_hook = Hook()

  def register_model(name):
    return lambda model: registered.setdefault(name, model)

  for name, members in (("lm_eval", {}), ("lm_eval.api", {}),
                        ("lm_eval.api.model", {"LM": Base}),
                        ("lm_eval.api.registry",
                         {"register_model": register_model})):
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
  spec = importlib.util.spec_from_file_location("delink_lm", ADAPTER)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module, registered["delink"]


def train(delink, recipe, folder):
  out = os.path.join(folder, "run")
  corpus = runs.build_corpus(delink, folder)
  runs.succeed([delink, "train", recipe, "--out", out,
                *runs.sets(f"data.train={corpus}/train", "optimizer.lr=0.01")])
  return out


def choices_scores(delink, run, folder):
  """The log-likelihoods of PAIRS as `eval --choices` has them."""
  path, lines = (os.path.join(folder, name) for name in ("q.jsonl", "a.jsonl"))
  with open(path, "w", encoding="utf-8") as file:
    for context, continuation in PAIRS:
      file.write(json.dumps({"question": context, "answer": 0,
                             "options": [continuation, "x"]}) + "\n")
  runs.succeed([delink, "eval", run, "--choices", path, "--delimiter", "",
                "--lines", lines])
  with open(lines, encoding="utf-8") as file:
    return [json.loads(line)["options"][0]["log_likelihood"] for line in file]


def generated(delink, run, prompt, tokens):
  said = runs.succeed([delink, "generate", run, "--prompt", prompt, "--tokens",
                       str(tokens), "--temperature", "0"], encoding="utf-8")
  assert said.startswith(prompt) and said.endswith("\n")
  return said[len(prompt):-1]


def check_scores(model, delink, run, folder):
  scores = model.loglikelihood([Request(*pair) for pair in PAIRS])
  for (mine, _), other in zip(scores, choices_scores(delink, run, folder)):
    assert abs(mine - other) < 1e-4 * abs(other), (mine, other)
  assert [kind for kind, _, _ in model.cache_hook.found] == (
      ["loglikelihood"] * len(PAIRS))
  assert scores[1][0] < scores[0][0] and not scores[1][1], scores
  # What is generated greedily is greedy, and with its last letter changed not.
  follows = generated(delink, run, "Of the", 8)
  assert len(follows) == 8, follows
  other = follows[:-1] + ("x" if follows[-1] != "x" else "y")
  greedy = model.loglikelihood([Request("Of the", follows),
                                Request("Of the", other)])
  assert [score[1] for score in greedy] == [True, False], greedy
  # White space at the seam that is none of ASCII's is scored, too.
  seam, whole = model.loglikelihood([Request("Of the\u00a0", "making"),
                                     Request("Of the", "\u00a0making")])
  assert abs(seam[0] - whole[0]) < 1e-6 * abs(whole[0]), (seam, whole)
  # A text longer than the context; begun as a pair without a context is.
  text = "Of the making of many tests there is no end. " * 3
  short, = model.loglikelihood_rolling([Request(text[:20])])
  (pair, _), = model.loglikelihood([Request("", text[:20])])
  assert abs(short - pair) < 1e-6 * abs(pair), (short, pair)
  whole, = model.loglikelihood_rolling([Request(text)])
  assert whole < short, (whole, short)
  assert model.loglikelihood([]) == []


def check_texts(model, delink, run):
  prompt = "Of the making"
  follows = generated(delink, run, prompt, 12)
  requests = [Request(prompt, {"max_gen_toks": 12, "do_sample": False}),
              Request(prompt, {"max_gen_toks": 12, "until": [follows[4:6]]}),
              Request(prompt, {"max_gen_toks": 3, "until": "\n\n"})]
  texts = model.generate_until(requests)
  assert texts == [follows, follows[:follows.index(follows[4:6])],
                   follows[:3]], (texts, follows)
  warm = Request(prompt, {"max_gen_toks": 12, "do_sample": True,
                          "temperature": 5.0, "seed": 3})
  assert model.generate_until([warm]) == model.generate_until([warm])
  assert model.generate_until([warm])[0] != follows
  once, again = model.generate_until([warm, warm])
  assert once != again, once
  # Lines end where JSON lines do, not at every character that ends a line.
  run_program, model._run = model._run, (
      lambda words: '{"text": "a\u2028b"}\n{"text": ""}\n')
  assert model.generate_until(requests[:2]) == ["a\u2028b", ""]
  model._run = run_program
  try:
    model.generate_until([Request("a", {"num_beams": 4})])
  except ValueError as error:
    assert "num_beams" in str(error)
  else:
    raise AssertionError("beams were let pass")


def main():
  delink, recipe = map(os.path.abspath, sys.argv[1:])
  module, delink_lm = load_adapter()
  assert module.prompt_of("a", {"temperature": 0.5}) == {
      "prompt": "a", "until": [], "tokens": 256, "temperature": 0.5}
  with tempfile.TemporaryDirectory() as folder:
    run = train(delink, recipe, folder)
    model = delink_lm(checkpoint=run, program=delink, batch_size=1)
    check_scores(model, delink, run, folder)
    check_texts(model, delink, run)
    missing = delink_lm(checkpoint=os.path.join(folder, "none"),
                        program=delink)
    try:
      missing.loglikelihood([Request("a", "b")])
    except RuntimeError as error:
      assert os.path.join(folder, "none") in str(error), error
    else:
      raise AssertionError("a checkpoint that is not there was let pass")


main()
