#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/models/huggingface_families.h"
#include "recipes/models/llama_traits.h"
#include "recipes/models/moe_config.h"

namespace delink {
namespace {

using huggingface::ConfigReader;
using huggingface::Family;
using huggingface::TensorRule;
using nlohmann::ordered_json;
using Window = LlamaTraits::Window;

// The differences between the families besides those of their blocks. Keys that
// are null are not theirs.
struct MoeTraits {
  LlamaTraits blocks;
  const char* experts;     // the key of their number
  const char* renamed;     // the same from version 5 on, or null
  const char* expert_ffn;  // null: intermediate_size
  int64_t top_k;           // default
  // Names of tensors: what comes before "gate" and "experts", and the three
  // matrices of an expert.
  const char* module;
  const char *gate, *up, *down;
  // Whether gates are normalised, unless a key says so.
  bool always_normalised = false;
  bool every = false;     // decoder_sparse_step, mlp_only_layers
  bool deepseek = false;  // sigmoid scores with a bias, groups, a scale, shared
                          // experts, and dense layers first
};

constexpr MoeTraits kMoeFamilies[] = {
    {.blocks = {.model_type = "mixtral",
                .architecture = "MixtralForCausalLM",
                .window = Window::kAlways,
                .kv_heads = 8,
                .norm_eps = 1e-5,
                .rope_theta = 1e6},
     .experts = "num_local_experts",
     .expert_ffn = nullptr,
     .top_k = 2,
     .module = "block_sparse_moe.",
     .gate = "w1",
     .up = "w3",
     .down = "w2",
     .always_normalised = true},
    {.blocks = {.model_type = "qwen3_moe",
                .architecture = "Qwen3MoeForCausalLM",
                .window = Window::kByLayer,
                .qk_norm = true,
                .kv_heads = 4},
     .experts = "num_experts",
     .renamed = "num_local_experts",
     .expert_ffn = "moe_intermediate_size",
     .top_k = 8,
     .module = "mlp.",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .every = true},
    {.blocks = {.model_type = "olmoe",
                .architecture = "OlmoeForCausalLM",
                .window = Window::kNone,
                .qk_norm = true,
                .qk_norm_over_all = true,
                .norm_eps = 1e-5},
     .experts = "num_experts",
     .renamed = "num_local_experts",
     .expert_ffn = nullptr,
     .top_k = 8,
     .module = "mlp.",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj"},
    {.blocks = {.model_type = "dots1",
                .architecture = "Dots1ForCausalLM",
                .window = Window::kFromLayer,
                .qk_norm = true},
     .experts = "n_routed_experts",
     .expert_ffn = "moe_intermediate_size",
     .top_k = 0,
     .module = "mlp.",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .deepseek = true},
};

// DeepSeek-V3's, for models whose bias goes on moving.
constexpr double kBiasRate = 1e-3;

// --- in ---

// Their layers without experts are the first ones, or those between every
// moe_every-th.
void ReadLayers(ConfigReader& theirs, MoeConfig& ours) {
  ours.moe_every = theirs.Int("decoder_sparse_step", 1);
  for (const int64_t layer : theirs.Ints("mlp_only_layers")) {
    if (layer == ours.dense_layers) {
      ++ours.dense_layers;
    } else {
      theirs.Error("mlp_only_layers",
                   "lists others than the first layers, but in Delink's models "
                   "only these have no experts");
      return;
    }
  }
}

void ReadDeepSeek(ConfigReader& theirs, MoeConfig& ours) {
  ours.score = MoeConfig::Score::kSigmoid;
  ours.bias_rate = kBiasRate;
  ours.scale = theirs.Float("routed_scaling_factor", 1.0);
  ours.groups = theirs.Int("n_group", 1);
  ours.top_groups = theirs.Int("topk_group", 1);
  ours.shared_experts = theirs.Int("n_shared_experts");
  ours.dense_layers = theirs.Int("first_k_dense_replace", 0, 0);
}

int64_t ReadExperts(ConfigReader& theirs, const MoeTraits& family) {
  if (family.renamed == nullptr || !theirs.Has(family.renamed)) {
    return theirs.Int(family.experts);
  }
  const int64_t experts = theirs.Int(family.renamed);
  if (theirs.Int(family.experts, experts) != experts) {
    theirs.Error(family.experts, absl::StrCat("contradicts ", family.renamed,
                                              "; make them agree"));
  }
  return experts;
}

std::unique_ptr<ModelConfig> Read(ConfigReader& theirs,
                                  const MoeTraits& family) {
  auto ours = std::make_unique<MoeConfig>();
  ours->llama = *ReadLlama(theirs, family.blocks);
  ours->layers = ours->llama.layers;
  ours->vocab = ours->llama.vocab;
  ours->max_seq = ours->llama.max_seq;
  ours->experts = ReadExperts(theirs, family);
  ours->top_k = family.top_k > 0
                    ? theirs.Int("num_experts_per_tok", family.top_k)
                    : theirs.Int("num_experts_per_tok");
  ours->expert_ffn = family.expert_ffn != nullptr
                         ? theirs.Int(family.expert_ffn)
                         : ours->llama.ffn;
  ours->normalise =
      family.always_normalised || theirs.Bool("norm_topk_prob", false);
  ours->top_groups = ours->groups;
  if (theirs.Has("clip_qkv")) {
    theirs.Error("clip_qkv",
                 "clips queries, keys and values, but Delink's attention does "
                 "not");
  }
  if (family.every) ReadLayers(theirs, *ours);
  if (family.deepseek) ReadDeepSeek(theirs, *ours);
  // Of training alone.
  theirs.PassOver("router_aux_loss_coef");
  theirs.PassOver("router_jitter_noise");
  return ours;
}

// --- out ---

absl::Status CheckExpressible(const MoeConfig& ours, const MoeTraits& family) {
  const auto no_such = [&](const char* key, std::string why) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.", key, ": models of the family ",
                     family.blocks.model_type, why));
  };
  const ops::RouteConfig route = ours.Route();
  if (ours.block != MoeConfig::Block::kLlama) {
    return no_such("block", " have blocks of a llama");
  }
  if (route.form.prototypes > 1) {
    return no_such("prototypes", " have no prototypes");
  }
  if (route.form.sigmoid != family.deepseek) {
    return no_such("router.score", family.deepseek
                                       ? " have sigmoid scores"
                                       : " have scores of a softmax");
  }
  if (ours.bias_rate.has_value() != family.deepseek) {
    return no_such("router.bias_rate",
                   family.deepseek ? " have this bias" : " have no such bias");
  }
  if (family.always_normalised && !route.form.normalise) {
    return no_such("router.normalise", " normalise gates");
  }
  if (!family.deepseek &&
      (route.form.top_groups > 0 || route.form.scale != 1)) {
    return no_such("router", " have neither groups nor a scale");
  }
  if ((ours.shared_experts > 0) != family.deepseek) {
    return no_such("shared_experts",
                   family.deepseek ? " have some" : " have none");
  }
  if (!family.every && ours.moe_every > 1) {
    return no_such("moe_every", " have experts in every block");
  }
  if (!family.every && !family.deepseek && ours.dense_layers > 0) {
    return no_such("dense_layers", " have experts in every block");
  }
  if (family.expert_ffn == nullptr && ours.expert_ffn != ours.llama.ffn) {
    return no_such("ffn",
                   " have no width but that of an expert; give both the "
                   "same");
  }
  return absl::OkStatus();
}

absl::Status Write(const ModelConfig& config, const MoeTraits& family,
                   ordered_json& theirs) {
  const MoeConfig& ours = ConfigAs<MoeConfig>(config);
  DELINK_RETURN_IF_ERROR(CheckExpressible(ours, family));
  LlamaConfig blocks = ours.llama;
  blocks.layers = ours.layers;
  blocks.vocab = ours.vocab;
  blocks.max_seq = ours.max_seq;
  DELINK_RETURN_IF_ERROR(WriteLlama(blocks, family.blocks, theirs));
  const ops::RouteConfig route = ours.Route();
  theirs[family.experts] = ours.experts;
  if (family.renamed != nullptr) theirs[family.renamed] = ours.experts;
  theirs["num_experts_per_tok"] = ours.top_k;
  if (family.expert_ffn != nullptr) {
    theirs[family.expert_ffn] = ours.expert_ffn;
  }
  if (!family.always_normalised) {
    theirs["norm_topk_prob"] = route.form.normalise;
  }
  if (family.every) {
    theirs["decoder_sparse_step"] = ours.moe_every;
    theirs["mlp_only_layers"] = ordered_json::array();
    for (int64_t i = 0; i < ours.dense_layers; ++i) {
      theirs["mlp_only_layers"].push_back(i);
    }
  }
  if (family.deepseek) {
    theirs["routed_scaling_factor"] = route.form.scale;
    theirs["n_group"] = ours.groups;
    theirs["topk_group"] = ours.top_groups;
    theirs["n_shared_experts"] = ours.shared_experts;
    theirs["first_k_dense_replace"] = ours.dense_layers;
  }
  return absl::OkStatus();
}

std::vector<TensorRule> TensorsOf(const MoeTraits& family) {
  std::vector<TensorRule> rules = LlamaTensors();
  const std::string mine = "blocks/{i}/moe/";
  const std::string theirs = absl::StrCat("model.layers.{i}.", family.module);
  const auto expert = [&](const char* name) {
    return absl::StrCat(theirs, "experts.{e}.", name, ".weight");
  };
  rules.push_back({mine + "router/weight", {theirs + "gate.weight"}});
  rules.push_back(
      {mine + "router/bias", {theirs + "gate.e_score_correction_bias"}});
  rules.push_back({mine + "experts/gate_up/weight",
                   {expert(family.gate), expert(family.up)}});
  rules.push_back({mine + "experts/down/weight", {expert(family.down)}});
  rules.push_back({mine + "shared/gate_up/weight",
                   {theirs + "shared_experts.gate_proj.weight",
                    theirs + "shared_experts.up_proj.weight"}});
  rules.push_back({mine + "shared/down/weight",
                   {theirs + "shared_experts.down_proj.weight"}});
  return rules;
}

Family FamilyOf(const MoeTraits& traits) {
  return {
      .model_type = traits.blocks.model_type,
      .architecture = traits.blocks.architecture,
      .kind = "moe",
      .prefix = "model.",
      .tensors = TensorsOf(traits),
      .buffers = LlamaBuffers(),
      .read = [traits](ConfigReader& c) { return Read(c, traits); },
      .write = [traits](const ModelConfig& c,
                        ordered_json& out) { return Write(c, traits, out); },
      .own_keys = {"dropout", "init_std", "z_loss", "capacity", "router.drop",
                   "router.bias_rate", "router.aux_loss", "router.aux_over",
                   "router.z_loss"},
      .interleaved =
          [](const ModelConfig& c) {
            return InterleavedWidth(ConfigAs<MoeConfig>(c).llama);
          }};
}

}  // namespace

std::vector<Family> MoeFamilies() {
  std::vector<Family> families;
  for (const MoeTraits& traits : kMoeFamilies) {
    families.push_back(FamilyOf(traits));
  }
  return families;
}

}  // namespace delink
