"""Tokenizers with the pre-tokenizers that models have, trained on the spot."""
from tokenizers import (Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, trainers)

# Llama 3's; Qwen takes digits one by one.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# GPT-4o's.
CASES = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
  return pre_tokenizers.Sequence([
      pre_tokenizers.Split(Regex(pattern), "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": lambda: split(WORDS),
    "qwen": lambda: split(WORDS.replace(r"\p{N}{1,3}", r"\p{N}")),
    "cases": lambda: split(CASES),
    # Several cuts after each other, as StarCoder and DeepSeek have them.
    "sequence": lambda: pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split("::", "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False)]),
}


def train(name, lines, vocab):
  tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
  tokenizer.pre_tokenizer = KINDS[name]()
  tokenizer.decoder = decoders.ByteLevel()
  if name == "qwen":
    tokenizer.normalizer = normalizers.NFC()
  tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
      vocab_size=vocab, show_progress=False,
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      special_tokens=["<|endoftext|>", "<|im_start|>"]))
  tokenizer.add_tokens(["    ", "caf\u00e9-au-lait"])
  return tokenizer
