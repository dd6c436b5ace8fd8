#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "recipes/huggingface/config_reader.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/huggingface_families.h"

namespace delink {
namespace {

using huggingface::ConfigReader;

void ReadActivation(ConfigReader& theirs, GptConfig& ours) {
  const std::string name = theirs.Text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    ours.activation = GeluForm::kTanh;
  } else if (name == "gelu") {
    ours.activation = GeluForm::kErf;
  } else {
    theirs.Error(
        "activation_function",
        absl::StrCat("is ", name,
                     ": Delink's MLP has gelu_new, gelu_pytorch_tanh or gelu"));
  }
}

std::unique_ptr<ModelConfig> Read(ConfigReader& theirs) {
  auto ours = std::make_unique<GptConfig>();
  ours->vocab = theirs.Int("vocab_size");
  ours->max_seq = theirs.Int("n_positions");
  ours->layers = theirs.Int("n_layer");
  ours->dim = theirs.Int("n_embd");
  ours->heads = theirs.Int("n_head");
  ours->kv_heads = ours->heads;
  ours->ffn = theirs.Int("n_inner", 4 * ours->dim, 1, 4 * GptConfig::kMaxSize);
  ReadActivation(theirs, *ours);
  ours->norm_eps = theirs.Float("layer_norm_epsilon", 1e-5);
  ours->tied = theirs.Bool("tie_word_embeddings", true);
  ours->dropout = theirs.Float("resid_pdrop", 0.1);
  ours->init_std = theirs.Float("initializer_range", 0.02);
  theirs.MustBe("scale_attn_weights", true,
                "Delink scales attention by 1 / sqrt(head_dim)");
  theirs.MustBe("scale_attn_by_inverse_layer_idx", false,
                "Delink scales attention equally in all layers");
  theirs.MustBe("add_cross_attention", false,
                "Delink's blocks have no cross-attention");
  for (const char* key :
       {"n_ctx", "embd_pdrop", "attn_pdrop", "reorder_and_upcast_attn",
        "summary_type", "summary_use_proj", "summary_activation",
        "summary_proj_to_labels", "summary_first_dropout"}) {
    theirs.PassOver(key);
  }
  return ours;
}

absl::Status Write(const ModelConfig& config, nlohmann::ordered_json& theirs) {
  const auto& ours = ConfigAs<GptConfig>(config);
  const auto no_such = [](const char* key, const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.", key, ": models of the family gpt2 ", why));
  };
  if (ours.kv_heads != ours.heads) {
    return no_such("kv_heads", "have as many key/value heads as heads");
  }
  if (ours.norm != NormKind::kLayerNorm) {
    return no_such("norm", "have layer norms");
  }
  if (!ours.bias) return no_such("bias", "have biases");
  theirs["vocab_size"] = ours.vocab;
  theirs["n_positions"] = ours.max_seq;
  theirs["n_ctx"] = ours.max_seq;
  theirs["n_embd"] = ours.dim;
  theirs["n_layer"] = ours.layers;
  theirs["n_head"] = ours.heads;
  theirs["n_inner"] = ours.ffn;
  theirs["activation_function"] =
      ours.activation == GeluForm::kTanh ? "gelu_new" : "gelu";
  theirs["layer_norm_epsilon"] = ours.norm_eps;
  theirs["tie_word_embeddings"] = ours.tied;
  theirs["resid_pdrop"] = ours.dropout;
  theirs["embd_pdrop"] = ours.dropout;
  theirs["attn_pdrop"] = 0.0;
  theirs["initializer_range"] = ours.init_std;
  theirs["scale_attn_weights"] = true;
  return absl::OkStatus();
}

}  // namespace

huggingface::Family Gpt2Family() {
  const std::string block = "transformer.h.{i}.";
  huggingface::Family family{
      .model_type = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .kind = "gpt",
      .prefix = "transformer.",
      .tensors = {{"embed/token/weight", {"transformer.wte.weight"}},
                  {"embed/position/weight", {"transformer.wpe.weight"}},
                  {"norm/weight", {"transformer.ln_f.weight"}},
                  {"norm/bias", {"transformer.ln_f.bias"}},
                  {"head/weight", {"lm_head.weight"}}},
      .buffers = {block + "attn.bias", block + "attn.masked_bias"},
      .read = Read,
      .write = Write,
      .own_keys = {"dropout", "init_std"}};
  const struct {
    const char* ours;
    const char* theirs;
    bool linear;  // Conv1D, whose weight is [in, out]
  } in_block[] = {
      {"norm1", "ln_1", false},          {"attn/qkv", "attn.c_attn", true},
      {"attn/out", "attn.c_proj", true}, {"norm2", "ln_2", false},
      {"mlp/up", "mlp.c_fc", true},      {"mlp/down", "mlp.c_proj", true}};
  for (const auto& [ours, theirs, linear] : in_block) {
    const std::string mine = absl::StrCat("blocks/{i}/", ours);
    family.tensors.push_back({.ours = mine + "/weight",
                              .theirs = {block + theirs + ".weight"},
                              .transposed = linear});
    family.tensors.push_back(
        {.ours = mine + "/bias", .theirs = {block + theirs + ".bias"}});
  }
  return family;
}

}  // namespace delink
