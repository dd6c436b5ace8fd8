"""Small models of each family of Hugging Face, made by `transformers` of random
numbers, and what it says of them. Every weight counts: norms and biases are
random, too, and attention is far from uniform. Works with every version of
`transformers` that the project is held against.
"""
import copy
import logging
import warnings
from dataclasses import dataclass, field

import torch
import transformers

NEW = int(transformers.__version__.split(".")[0]) >= 5
# A prime, so that a row too many or too few is seen.
VOCAB = 61
POSITIONS = 256
TOKENS = 200
GPT2 = dict(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=24, n_layer=2, n_head=3,
            bos_token_id=None, eos_token_id=None)
# 6 heads of queries and 2 of keys: no permutation of one is one of the other.
LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=POSITIONS, hidden_size=24, intermediate_size=40,
             num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, bos_token_id=None,
             eos_token_id=None, tie_word_embeddings=False)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)


@dataclass
class Variant:
    architecture: str  # GPT2LMHeadModel
    options: dict = field(default_factory=dict)
    dtype: str = "float32"  # that it is saved in
    shard: str = "5GB"


def gpt2(**options):
    return Variant("GPT2LMHeadModel", GPT2 | options)


def like_llama(family, **options):
    return Variant(family + "ForCausalLM", LLAMA | options)


VARIANTS = {
    "gpt2": gpt2(),
    "gpt2_untied": gpt2(tie_word_embeddings=False, activation_function="gelu", n_inner=40, layer_norm_epsilon=1e-3),
    "llama2": like_llama("Llama", num_key_value_heads=6, rms_norm_eps=1e-5),
    "llama3": Variant("LlamaForCausalLM", LLAMA | dict(rope_theta=500000.0, rope_scaling=LLAMA3), shard="20KB"),
    "llama_linear": like_llama("Llama", rope_scaling=dict(rope_type="linear", factor=4.0)),
    "llama_tied": like_llama("Llama", tie_word_embeddings=True),
    "mistral": like_llama("Mistral", sliding_window=16),
    "mistral_everything": like_llama("Mistral", sliding_window=None, rope_theta=1e6),
    "qwen2": like_llama("Qwen2", rope_theta=1e6, tie_word_embeddings=True),
    "qwen2_window": like_llama("Qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0),
    "qwen3": like_llama("Qwen3", head_dim=8, rope_theta=1e6),
    "qwen3_tied": like_llama("Qwen3", head_dim=8, tie_word_embeddings=True, num_key_value_heads=3),
}
# 7 experts: a number that no other size is.
QWEN3_MOE = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=12, head_dim=8)
DOTS1 = dict(n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, moe_intermediate_size=12, head_dim=8,
             first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5, num_hidden_layers=3,
             sliding_window=None)
VARIANTS |= {
    "mixtral": like_llama("Mixtral", num_local_experts=7, num_experts_per_tok=2),
    "mixtral_window": like_llama("Mixtral", num_local_experts=4, num_experts_per_tok=1, sliding_window=16),
    "qwen3_moe": like_llama("Qwen3Moe", **QWEN3_MOE, rope_theta=1e6, norm_topk_prob=True),
    "qwen3_moe_dense": like_llama("Qwen3Moe", **QWEN3_MOE | dict(num_hidden_layers=4), decoder_sparse_step=2,
                                  mlp_only_layers=[0]),
    "olmoe": like_llama("Olmoe", num_experts=7, num_experts_per_tok=3, num_key_value_heads=6),
    "dots1": like_llama("Dots1", **DOTS1),
    "dots1_groups": like_llama("Dots1", **DOTS1 | dict(n_group=4, topk_group=2, norm_topk_prob=False)),
}
# The same weights, stored otherwise.
VARIANTS["mistral_bf16"] = Variant("MistralForCausalLM", VARIANTS["mistral"].options, dtype="bfloat16")
VARIANTS["qwen2_fp16"] = Variant("Qwen2ForCausalLM", VARIANTS["qwen2"].options, dtype="float16")


def has(architecture, config):
    """Whether this version of `transformers` has the family, and all of it: before
    version 5 Qwen2's plain attention passed over its window."""
    windowed = architecture == "Qwen2ForCausalLM" and config.get("use_sliding_window")
    return hasattr(transformers, architecture) and (NEW or not windowed)


def make(name, seed=1):
    """A model that computes in float32, with weights that its type has."""
    variant = VARIANTS[name]
    kind = getattr(transformers, variant.architecture)
    model = kind(kind.config_class(attn_implementation="eager", **variant.options)).eval()
    generator = torch.Generator().manual_seed(seed)
    biases = [(key, b) for key, b in model.named_buffers() if key.endswith("e_score_correction_bias")]
    for key, w in sorted([*model.named_parameters(), *biases]):
        noise = torch.randn(w.shape, generator=generator)
        if w.dim() == 1:
            noise = 0.3 * noise + (0 if key.endswith("bias") else 1)
        elif "wte" in key or "embed_tokens" in key or "lm_head" in key:
            noise *= 0.5
        elif "wpe" in key:
            noise *= 0.3
        else:
            fan_in = w.shape[0] if "h." in key and "GPT2" in variant.architecture else w.shape[1]
            noise *= 1.5 / fan_in**0.5
        w.data.copy_(noise.to(getattr(torch, variant.dtype)))
    return model


def save(name, model, folder):
    variant = VARIANTS[name]
    # A copy: casting also rounds the rotary frequencies, and for good.
    saved = copy.deepcopy(model).to(getattr(torch, variant.dtype))
    saved.save_pretrained(folder, max_shard_size=variant.shard)


def tokens_of(seed=1, count=TOKENS):
    """A document: its last token, the vocabulary's last, ends it."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.cat([torch.randint(0, VOCAB - 1, (count - 1,), generator=generator), torch.tensor([VOCAB - 1])])


def logits(model, tokens):
    """[tokens, vocab] float32."""
    with torch.no_grad():
        return model(tokens[None]).logits[0].float().numpy()


def loss(model, tokens):
    with torch.no_grad():
        return float(model(tokens[None], labels=tokens[None]).loss)


def greedy(model, tokens, count):
    """The likeliest tokens after `tokens`, one after the other."""
    inputs = tokens[None]
    out = model.generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=count, do_sample=False,
                         pad_token_id=0)
    return out[0, len(tokens):].tolist()


class Listener(logging.Handler):
    """What `transformers` and Python warn of within a block."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())

    def __enter__(self):
        self.logger = logging.getLogger("transformers")
        self.level = self.logger.level
        self.logger.setLevel(logging.WARNING)
        self.logger.addHandler(self)
        self.caught = warnings.catch_warnings(record=True)
        self.warned = self.caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *unused):
        self.said += [str(w.message) for w in self.warned]
        self.caught.__exit__(None, None, None)
        self.logger.removeHandler(self)
        self.logger.setLevel(self.level)


def load(folder):
    """A model as a person would load it, in float32; what was warned of on the
    way, unused and missing tensors included."""
    with Listener() as listener:
        # The argument's name: dtype, torch_dtype before version 5.
        kwargs = {"dtype" if NEW else "torch_dtype": torch.float32}
        model, told = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager", **kwargs)
    told = {key: value for key, value in told.items() if value}
    return model.eval(), listener.said + ([str(told)] if told else [])
