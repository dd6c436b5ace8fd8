// Writes what a small gpt, llama or moe computes to an HDF5 file, for
// torch_oracle.py to compare with: weights, a batch, logits, loss, gradients,
// the weights after ten AdamW steps, and what layers added up in each.
//
//   dump_model FILE KIND VARIANT
//
// Variants of gpt: layer_norm, rms_norm, untied; of llama: llama2, llama3,
// qwen2, qwen3, mistral; of moe: plain, mixtral, batch, dots, m6, m6_position.
#include <cstdio>
#include <string>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/comm/self_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "recipes/models/moe_config.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing {
namespace {

constexpr int64_t kSteps = 10;
constexpr double kLr = 1e-3;

void Check(const absl::Status& status) {
  DELINK_CHECK(status.ok()) << std::string(status.message());
}

hdf5::Shape Dims(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

void WriteTensors(StepRig& rig, hdf5::File& file, const std::string& group,
                  bool gradients) {
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    if (!t.link.empty()) continue;
    const std::vector<float> values =
        gradients ? rig.Gradient(t.name) : rig.Weight(t.name);
    Check(file.WriteAll(group + "/" + t.name, Dims(t.shape), values.data()));
  }
}

// What the settings of the families exercise, at the size of the rig; initial
// weights are large, so that attention is far from uniform.
RigOptions LlamaOptions(const std::string& variant) {
  RigOptions options{.tied = false, .init_std = 0.3, .llama = LlamaConfig()};
  LlamaConfig& c = *options.llama;
  c.rotary.base = 100;
  if (variant == "llama2") {
    c.kv_heads = StepRig::kHeads;
    c.rotary.base = 10'000;
    c.rotary.pairing = RotaryPairing::kInterleaved;
  } else if (variant == "llama3") {
    options.tied = true;
    // Of four waves one is short, two are between and one is long.
    c.head_dim = 8;
    c.rotary.scaling = ops::RotaryScaling::kLlama3;
    c.rotary.factor = 8;
    c.rotary.original_length = 64;
  } else if (variant == "qwen2") {
    options.tied = true;
    c.qkv_bias = true;
    c.rotary.scaling = ops::RotaryScaling::kLinear;
    c.rotary.factor = 2;
  } else if (variant == "qwen3") {
    c.qk_norm = true;
    c.head_dim = 10;
    c.norm_eps = 1e-6;
  } else {
    DELINK_CHECK(variant == "mistral") << variant;
    c.window = 5;
    c.z_loss = 0.01;
    c.rotary.scaling = ops::RotaryScaling::kNtk;
    c.rotary.factor = 4;
  }
  return options;
}

RigOptions GptOptions(const std::string& variant) {
  RigOptions options;
  if (variant == "rms_norm") {
    options.norm = NormKind::kRmsNorm;
    options.activation = GeluForm::kErf;
    options.bias = false;
  } else if (variant == "untied") {
    options.tied = false;
  } else {
    DELINK_CHECK(variant == "layer_norm") << variant;
  }
  return options;
}

MoeConfig MoeOf(const std::string& variant) {
  MoeConfig c;
  c.experts = 8;
  c.expert_ffn = 20;
  c.llama.rotary.base = 100;
  if (variant == "plain") {
    c.scale = 1.5;
  } else if (variant == "mixtral" || variant == "batch") {
    c.normalise = true;
    c.aux_loss = 0.1;
    c.z_loss = 0.01;
    if (variant == "batch") c.aux_over = MoeConfig::AuxOver::kBatch;
  } else if (variant == "dots") {
    c.llama.qk_norm = true;
    c.experts = 16;
    c.top_k = 3;
    c.dense_layers = 1;
    c.shared_experts = 1;
    c.score = MoeConfig::Score::kSigmoid;
    c.normalise = true;
    c.scale = 2.5;
    c.groups = 4;
    c.top_groups = 2;
    c.bias_rate = 0.01;
    c.aux_loss = 0.1;
    c.aux_over = MoeConfig::AuxOver::kSequence;
  } else {
    DELINK_CHECK(variant == "m6" || variant == "m6_position") << variant;
    c.block = MoeConfig::Block::kGpt;
    c.experts = 16;
    c.top_k = c.prototypes = 4;
    c.moe_every = 2;
    c.capacity = 1;
    c.aux_loss = 0.1;
    if (variant == "m6_position") {
      c.drop = MoeConfig::Drop::kPosition;
      c.capacity = 0.9;  // no whole number of choices
    }
  }
  return c;
}

RigOptions OptionsOf(const std::string& kind, const std::string& variant) {
  RigOptions options =
      kind == "moe" ? OfMoe(MoeOf(variant), {.tied = false, .init_std = 0.3})
      : kind == "llama" ? LlamaOptions(variant)
                        : GptOptions(variant);
  options.clip = 1.0;
  options.adamw.decay = 0.1;
  return options;
}

// Biases of routers, which begin with zeros, get values of the size by which
// scores differ.
void SetBiases(StepRig& rig) {
  ParamStore& store = rig.store();
  for (const LogicalTensor& t : store.layout().tensors()) {
    if (!t.name.ends_with("router/bias")) continue;
    const int slab = store.LocalSlabsOf(t.slab).front();
    auto* const bias =
        static_cast<float*>(store.at(slab, Plane::kWeight, t.offset));
    for (int64_t e = 0; e < t.shape.elements(); ++e) {
      bias[e] = 0.05F * static_cast<float>(e * 7 % 5 - 2);
    }
  }
}

void WriteGpt(hdf5::File& file) {
  Check(file.SetInt("/", "kv_heads", StepRig::kKvHeads));
  Check(file.SetDouble("/", "norm_eps", GptConfig().norm_eps));
}

void WriteLlama(hdf5::File& file, const LlamaConfig& c) {
  const char* const scalings[] = {"none", "linear", "ntk", "llama3"};
  Check(file.SetInt("/", "kv_heads",
                    c.kv_heads > 0 ? c.kv_heads : StepRig::kKvHeads));
  Check(file.SetDouble("/", "norm_eps", c.norm_eps));
  Check(file.SetInt("/", "window", c.window));
  Check(file.SetDouble("/", "z_loss", c.z_loss));
  Check(file.SetDouble("/", "rope_theta", c.rotary.base));
  Check(file.SetInt("/", "interleaved",
                    c.rotary.pairing == RotaryPairing::kInterleaved ? 1 : 0));
  Check(file.SetText("/", "scaling", At(scalings, c.rotary.scaling)));
  Check(file.SetDouble("/", "factor", c.rotary.factor));
  Check(file.SetDouble("/", "low_freq_factor", c.rotary.low_freq_factor));
  Check(file.SetDouble("/", "high_freq_factor", c.rotary.high_freq_factor));
  Check(file.SetInt("/", "original_max_seq", c.rotary.original_length));
}

void WriteMoe(hdf5::File& file, const MoeConfig& c) {
  const bool gpt = c.block == MoeConfig::Block::kGpt;
  if (gpt) {
    WriteGpt(file);
  } else {
    WriteLlama(file, c.llama);
  }
  Check(file.SetText("/", "block", gpt ? "gpt" : "llama"));
  Check(file.SetText(
      "/", "score",
      c.score == MoeConfig::Score::kSigmoid ? "sigmoid" : "softmax"));
  Check(file.SetText("/", "aux_over",
                     c.aux_over == MoeConfig::AuxOver::kSequence ? "sequence"
                     : c.aux_over == MoeConfig::AuxOver::kBatch
                         ? "batch"
                         : "micro_batch"));
  Check(file.SetText(
      "/", "drop",
      c.drop == MoeConfig::Drop::kPosition ? "position" : "probability"));
  Check(file.SetInt("/", "top_k", c.top_k));
  Check(file.SetInt("/", "prototypes", c.prototypes));
  Check(file.SetInt("/", "normalise", c.normalise ? 1 : 0));
  Check(file.SetInt("/", "groups", c.groups));
  Check(file.SetInt("/", "top_groups",
                    c.top_groups > 0 ? c.top_groups : c.groups));
  Check(file.SetDouble("/", "scale", c.scale));
  Check(file.SetDouble("/", "capacity", c.capacity));
  Check(file.SetDouble("/", "bias_rate", c.bias_rate.value_or(0)));
  Check(file.SetDouble("/", "aux_loss", c.aux_loss));
  Check(file.SetDouble("/", "router_z_loss", c.z_loss));
}

// What the weights do not tell.
void WriteConfig(hdf5::File& file, const RigOptions& options,
                 const std::string& kind, const std::string& variant) {
  Check(file.SetText("/", "kind", kind));
  Check(file.SetText("/", "variant", variant));
  Check(file.SetInt("/", "layers", options.layers));
  Check(file.SetInt("/", "heads", StepRig::kHeads));
  Check(file.SetInt("/", "micro_batch", options.micro_batch));
  if (kind == "moe") {
    WriteMoe(file, MoeOf(variant));
  } else if (options.llama.has_value()) {
    WriteLlama(file, *options.llama);
  } else {
    WriteGpt(file);
  }
}

void Dump(const std::string& path, const std::string& kind,
          const std::string& variant) {
  SelfCommunicator comm;
  const RigOptions options = OptionsOf(kind, variant);
  StepRig rig(comm, "none", options);
  SetBiases(rig);
  absl::StatusOr<hdf5::File> opened = hdf5::File::Create(path);
  Check(opened.status());
  hdf5::File& file = *opened;
  WriteConfig(file, options, kind, variant);
  Check(file.SetDouble("/", "lr", kLr));
  Check(file.SetInt("/", "steps", kSteps));
  WriteTensors(rig, file, "/before", false);
  const HostBatch first = rig.Batch(0);
  const auto sequences = static_cast<int64_t>(first.samples.size());
  const std::vector<float> logits = rig.Logits(first);
  Check(file.WriteAll("/logits", {sequences, StepRig::kSeq, StepRig::kVocab},
                      logits.data()));
  std::vector<double> losses, sums;
  for (int64_t step = 0; step < kSteps; ++step) {
    const HostBatch batch = rig.Batch(step);
    const std::string group = "/batch/" + std::to_string(step);
    Check(file.WriteAll(group + "/inputs", {sequences, StepRig::kSeq},
                        batch.inputs.data()));
    Check(file.WriteAll(group + "/targets", {sequences, StepRig::kSeq},
                        batch.targets.data()));
    const StepResult result = *rig.executor().TrainStep(batch, step + 1, kLr);
    losses.push_back(result.loss);
    sums.insert(sums.end(), result.layer_sums.begin(), result.layer_sums.end());
    if (step == 0) WriteTensors(rig, file, "/gradient", true);
  }
  Check(file.WriteAll("/losses", {kSteps}, losses.data()));
  const auto per_step = static_cast<int64_t>(sums.size()) / kSteps;
  if (per_step > 0) {
    Check(file.WriteAll("/sums", {kSteps, per_step}, sums.data()));
  }
  WriteTensors(rig, file, "/after", false);
  Check(file.Close());
}

}  // namespace
}  // namespace delink::testing

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: dump_model FILE KIND VARIANT\n");
    return 2;
  }
  delink::testing::Dump(argv[1], argv[2], argv[3]);
  return 0;
}
