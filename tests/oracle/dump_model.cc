// Writes what a small gpt or llama computes to an HDF5 file, for
// torch_oracle.py to compare with: weights, a batch, logits, loss, gradients,
// and the weights after ten AdamW steps.
//
//   dump_model FILE KIND VARIANT
//
// Variants of gpt: layer_norm, rms_norm, untied; of llama: llama2, llama3,
// qwen2, qwen3, mistral.
#include <cstdio>
#include <string>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/comm/self_communicator.h"
#include "framework/hdf5/hdf5.h"
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

RigOptions OptionsOf(const std::string& kind, const std::string& variant) {
  RigOptions options =
      kind == "llama" ? LlamaOptions(variant) : GptOptions(variant);
  options.clip = 1.0;
  options.adamw.decay = 0.1;
  return options;
}

// What the weights do not tell.
void WriteConfig(hdf5::File& file, const RigOptions& options) {
  Check(file.SetInt("/", "layers", options.layers));
  Check(file.SetInt("/", "heads", StepRig::kHeads));
  if (!options.llama.has_value()) {
    Check(file.SetInt("/", "kv_heads", StepRig::kKvHeads));
    Check(file.SetDouble("/", "norm_eps", GptConfig().norm_eps));
    return;
  }
  const LlamaConfig& c = *options.llama;
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

void Dump(const std::string& path, const std::string& kind,
          const std::string& variant) {
  SelfCommunicator comm;
  const RigOptions options = OptionsOf(kind, variant);
  StepRig rig(comm, "none", options);
  absl::StatusOr<hdf5::File> opened = hdf5::File::Create(path);
  Check(opened.status());
  hdf5::File& file = *opened;
  Check(file.SetText("/", "kind", kind));
  Check(file.SetText("/", "variant", variant));
  WriteConfig(file, options);
  Check(file.SetDouble("/", "lr", kLr));
  Check(file.SetInt("/", "steps", kSteps));
  WriteTensors(rig, file, "/before", false);
  const HostBatch first = rig.Batch(0);
  const auto sequences = static_cast<int64_t>(first.samples.size());
  const std::vector<float> logits = rig.Logits(first);
  Check(file.WriteAll("/logits", {sequences, StepRig::kSeq, StepRig::kVocab},
                      logits.data()));
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const HostBatch batch = rig.Batch(step);
    const std::string group = "/batch/" + std::to_string(step);
    Check(file.WriteAll(group + "/inputs", {sequences, StepRig::kSeq},
                        batch.inputs.data()));
    Check(file.WriteAll(group + "/targets", {sequences, StepRig::kSeq},
                        batch.targets.data()));
    losses.push_back(rig.executor().TrainStep(batch, step + 1, kLr)->loss);
    if (step == 0) WriteTensors(rig, file, "/gradient", true);
  }
  Check(file.WriteAll("/losses", {kSteps}, losses.data()));
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
