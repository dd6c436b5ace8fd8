#include "recipes/models/llama_traits.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace delink {
namespace {

using huggingface::ConfigReader;
using huggingface::TensorRule;
using ops::RotaryConfig;
using ops::RotaryScaling;
using Window = LlamaTraits::Window;

constexpr int64_t kDefaultWindow = 4096;

// --- in ---

// rope_scaling, or rope_parameters of newer versions.
RotaryConfig ReadScaling(ConfigReader& table, double theta, int64_t positions) {
  RotaryConfig rotary{.base = table.Float("rope_theta", theta)};
  const std::string type =
      table.Text("rope_type", table.Text("type", "default"));
  table.MustBe("partial_rotary_factor", 1.0, "Delink rotates whole heads");
  if (type == "linear") {
    rotary.scaling = RotaryScaling::kLinear;
    rotary.factor = table.Float("factor");
  } else if (type == "llama3") {
    rotary.scaling = RotaryScaling::kLlama3;
    rotary.factor = table.Float("factor");
    rotary.low_freq_factor = table.Float("low_freq_factor");
    rotary.high_freq_factor = table.Float("high_freq_factor");
    rotary.original_length =
        table.Int("original_max_position_embeddings", positions);
  } else if (type != "default") {
    table.Error(
        "rope_type",
        absl::StrCat("is ", type, ": Delink reads default, linear or llama3"));
    table.PassOverAll();
  }
  return rotary;
}

bool Same(const RotaryConfig& a, const RotaryConfig& b) {
  return a.base == b.base && a.scaling == b.scaling && a.factor == b.factor &&
         (a.scaling != RotaryScaling::kLlama3 ||
          (a.low_freq_factor == b.low_freq_factor &&
           a.high_freq_factor == b.high_freq_factor &&
           a.original_length == b.original_length));
}

// Older versions of `transformers` read rope_theta and rope_scaling, newer ones
// rope_parameters. A config that means two different models is refused.
RotaryConfig ReadRotary(ConfigReader& theirs, double otherwise,
                        int64_t positions) {
  const bool old_table = theirs.Has("rope_scaling");
  const bool new_table = theirs.Has("rope_parameters");
  const double theta = theirs.Float("rope_theta", otherwise);
  theirs.MustBe("partial_rotary_factor", 1.0, "Delink rotates whole heads");
  RotaryConfig rotary{.base = theta};
  if (old_table) {
    rotary = ReadScaling(theirs.Table("rope_scaling"), theta, positions);
  }
  if (!new_table) return rotary;
  const RotaryConfig newer =
      ReadScaling(theirs.Table("rope_parameters"), theta, positions);
  const bool older = old_table || theirs.Has("rope_theta");
  if (older && !Same(rotary, newer)) {
    theirs.Error("rope_parameters",
                 "contradicts rope_theta and rope_scaling, which older "
                 "versions of transformers read; make them agree");
  }
  return newer;
}

int64_t ReadWindow(ConfigReader& theirs, const LlamaTraits& family,
                   int64_t layers) {
  const bool sliding = theirs.AllAre("layer_types", "sliding_attention");
  const bool full = theirs.AllAre("layer_types", "full_attention");
  if (!sliding && !full) {
    theirs.Error("layer_types",
                 "is not the same for all layers, but all layers of Delink's "
                 "models have the same window");
  }
  if (family.window == Window::kNone) return 0;
  int64_t window = 0;
  if (theirs.Has("sliding_window") || !theirs.Given("sliding_window")) {
    window = theirs.Int("sliding_window", kDefaultWindow, 0);
  }
  if (family.window == Window::kAlways) return window;
  const bool asked = family.window == Window::kByLayer;
  const bool used = !asked || theirs.Bool("use_sliding_window", false);
  const int64_t first = theirs.Int("max_window_layers", asked ? 28 : 62, 0);
  if (!used || window == 0) return 0;
  if (theirs.Has("layer_types")) return sliding ? window : 0;
  if (first > 0 && first < layers) {
    theirs.Error("max_window_layers",
                 absl::StrCat("is ", first, " of ", layers,
                              " layers, so only some have a window, but all "
                              "layers of Delink's models have the same one"));
  }
  return first == 0 ? window : 0;
}

}  // namespace

std::unique_ptr<LlamaConfig> ReadLlama(ConfigReader& theirs,
                                       const LlamaTraits& family) {
  auto ours = std::make_unique<LlamaConfig>();
  ours->vocab = theirs.Int("vocab_size");
  ours->max_seq = theirs.Int("max_position_embeddings");
  ours->layers = theirs.Int("num_hidden_layers");
  ours->dim = theirs.Int("hidden_size");
  ours->heads = theirs.Int("num_attention_heads");
  ours->kv_heads =
      theirs.Int("num_key_value_heads",
                 family.kv_heads > 0 && !theirs.Given("num_key_value_heads")
                     ? family.kv_heads
                     : ours->heads);
  ours->head_dim = theirs.Int(
      "head_dim",
      family.head_dim > 0 ? family.head_dim : ours->dim / ours->heads, 1);
  ours->ffn = theirs.Int("intermediate_size", {}, 1, 4 * LlamaConfig::kMaxSize);
  ours->norm_eps = theirs.Float("rms_norm_eps", family.norm_eps);
  ours->tied = theirs.Bool("tie_word_embeddings", false);
  ours->init_std = theirs.Float("initializer_range", 0.02);
  ours->qkv_bias = family.qkv_bias;
  ours->qk_norm = family.qk_norm;
  if (family.qk_norm_over_all) {
    ours->qk_norm_over = LlamaConfig::QkNormOver::kAll;
  }
  ours->rotary = ReadRotary(theirs, family.rope_theta, ours->max_seq);
  ours->window = ReadWindow(theirs, family, ours->layers);
  const std::string activation = theirs.Text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    theirs.Error("hidden_act", absl::StrCat("is ", activation,
                                            ": Delink's MLP is gated by silu"));
  }
  theirs.MustBe("attention_bias", false,
                "Delink's attention has biases on queries, keys and values at "
                "most, as Qwen 2, and none on its output");
  theirs.MustBe("mlp_bias", false, "Delink's MLP has no biases");
  return ours;
}

namespace {

// --- out ---

RotaryConfig WithoutNtk(RotaryConfig rotary, int64_t head_dim) {
  if (rotary.scaling != RotaryScaling::kNtk) return rotary;
  // A larger base, and nothing else.
  const auto dim = static_cast<double>(head_dim);
  rotary.base *= std::pow(rotary.factor, dim / (dim - 2));
  rotary.scaling = RotaryScaling::kNone;
  rotary.factor = 1;
  return rotary;
}

// In the words of old versions (from 4.43 on) and of new ones.
void WriteRotary(const RotaryConfig& rotary, nlohmann::ordered_json& theirs) {
  nlohmann::ordered_json scaling = nullptr;
  if (rotary.scaling == RotaryScaling::kLinear) {
    scaling = {{"rope_type", "linear"}, {"factor", rotary.factor}};
  } else if (rotary.scaling == RotaryScaling::kLlama3) {
    scaling = {{"rope_type", "llama3"},
               {"factor", rotary.factor},
               {"low_freq_factor", rotary.low_freq_factor},
               {"high_freq_factor", rotary.high_freq_factor},
               {"original_max_position_embeddings", rotary.original_length}};
  }
  nlohmann::ordered_json parameters;
  parameters["rope_theta"] = rotary.base;
  parameters["rope_type"] = "default";
  if (!scaling.is_null()) parameters.update(scaling);
  theirs["rope_theta"] = rotary.base;
  theirs["rope_scaling"] = std::move(scaling);
  theirs["rope_parameters"] = std::move(parameters);
}

absl::Status CheckExpressible(const LlamaConfig& ours,
                              const LlamaTraits& family) {
  const auto no_such = [&](const char* key, std::string why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.", key, ": models of the family ", family.model_type, why));
  };
  if (ours.qkv_bias != family.qkv_bias) {
    return no_such("qkv_bias",
                   family.qkv_bias ? " have these biases" : " have no biases");
  }
  if (ours.qk_norm != family.qk_norm) {
    return no_such("qk_norm", family.qk_norm ? " have these norms"
                                             : " have no such norms");
  }
  const bool over_all = ours.qk_norm_over == LlamaConfig::QkNormOver::kAll;
  if (over_all != family.qk_norm_over_all) {
    return no_such("qk_norm_over", over_all ? " have norms of each head"
                                            : " have norms of all heads");
  }
  if (over_all && ours.heads * ours.head_dim != ours.dim) {
    return no_such("head_dim", " have a dim of heads x head_dim");
  }
  if (ours.window != 0 && family.window == Window::kNone) {
    return no_such("window", " attend to all earlier tokens");
  }
  if (family.dim_of_heads && ours.dim % ours.heads != 0) {
    return no_such("heads", " have a dim that is a multiple of heads");
  }
  return absl::OkStatus();
}

void WriteWindow(const LlamaConfig& ours, const LlamaTraits& family,
                 nlohmann::ordered_json& theirs) {
  if (family.window == Window::kNone) return;
  nlohmann::ordered_json window = nullptr;
  if (ours.window > 0) window = ours.window;
  if (family.window == Window::kByLayer) {
    theirs["use_sliding_window"] = ours.window > 0;
  }
  if (family.window != Window::kAlways) {
    theirs["max_window_layers"] = ours.window > 0 ? 0 : ours.layers;
  }
  theirs["sliding_window"] = std::move(window);
}

}  // namespace

absl::Status WriteLlama(const LlamaConfig& ours, const LlamaTraits& family,
                        nlohmann::ordered_json& theirs) {
  const absl::Status status = CheckExpressible(ours, family);
  if (!status.ok()) return status;
  theirs["vocab_size"] = ours.vocab;
  theirs["hidden_size"] = ours.dim;
  theirs["intermediate_size"] = ours.ffn;
  theirs["num_hidden_layers"] = ours.layers;
  theirs["num_attention_heads"] = ours.heads;
  theirs["num_key_value_heads"] = ours.kv_heads;
  theirs["head_dim"] = ours.head_dim;
  theirs["hidden_act"] = "silu";
  theirs["max_position_embeddings"] = ours.max_seq;
  theirs["initializer_range"] = ours.init_std;
  theirs["rms_norm_eps"] = ours.norm_eps;
  theirs["tie_word_embeddings"] = ours.tied;
  theirs["attention_dropout"] = 0.0;
  if (!family.qkv_bias && family.window != Window::kAlways) {
    theirs["attention_bias"] = false;
  }
  WriteRotary(WithoutNtk(ours.rotary, ours.head_dim), theirs);
  WriteWindow(ours, family, theirs);
  return absl::OkStatus();
}

int64_t InterleavedWidth(const LlamaConfig& ours) {
  return ours.rotary.pairing == RotaryPairing::kInterleaved ? ours.head_dim : 0;
}

std::vector<TensorRule> LlamaTensors() {
  const std::string mine = "blocks/{i}/", theirs = "model.layers.{i}.";
  const auto of = [&](const char* name) { return theirs + name; };
  return {
      {"embed/token/weight", {"model.embed_tokens.weight"}},
      {mine + "norm1/weight", {of("input_layernorm.weight")}},
      {.ours = mine + "attn/qkv/weight",
       .theirs = {of("self_attn.q_proj.weight"), of("self_attn.k_proj.weight"),
                  of("self_attn.v_proj.weight")},
       .rotated = 2},
      {.ours = mine + "attn/qkv/bias",
       .theirs = {of("self_attn.q_proj.bias"), of("self_attn.k_proj.bias"),
                  of("self_attn.v_proj.bias")},
       .rotated = 2},
      {.ours = mine + "attn/q_norm/weight",
       .theirs = {of("self_attn.q_norm.weight")},
       .rotated = 1},
      {.ours = mine + "attn/k_norm/weight",
       .theirs = {of("self_attn.k_norm.weight")},
       .rotated = 1},
      {mine + "attn/out/weight", {of("self_attn.o_proj.weight")}},
      {mine + "norm2/weight", {of("post_attention_layernorm.weight")}},
      {mine + "mlp/gate_up/weight",
       {of("mlp.gate_proj.weight"), of("mlp.up_proj.weight")}},
      {mine + "mlp/down/weight", {of("mlp.down_proj.weight")}},
      {"norm/weight", {"model.norm.weight"}},
      {"head/weight", {"lm_head.weight"}}};
}

std::vector<std::string> LlamaBuffers() {
  return {"model.layers.{i}.self_attn.rotary_emb.inv_freq"};
}

}  // namespace delink
