// Writes what a small gpt computes to an HDF5 file, for torch_oracle.py to
// compare with: weights, a batch, logits, loss, gradients, and the weights
// after ten AdamW steps.
//
//   dump_gpt FILE VARIANT      VARIANT: layer_norm, rms_norm or untied
#include <cstdio>
#include <string>

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
  for (const LogicalTensor& t : rig.store().logical_tensors()) {
    if (!t.link.empty()) continue;
    const std::vector<float> values =
        gradients ? rig.Gradient(t.name) : rig.Weight(t.name);
    Check(file.WriteAll(group + "/" + t.name, Dims(t.shape), values.data()));
  }
}

RigOptions OptionsOf(const std::string& variant) {
  RigOptions options{.clip = 1.0, .adamw = {.decay = 0.1}};
  if (variant == "rms_norm") {
    options.norm = GptConfig::Norm::kRmsNorm;
    options.activation = GptConfig::Activation::kGeluErf;
    options.bias = false;
  }
  if (variant == "untied") options.tied = false;
  return options;
}

void Dump(const std::string& path, const std::string& variant) {
  SelfCommunicator comm;
  StepRig rig(comm, "none", OptionsOf(variant));
  absl::StatusOr<hdf5::File> opened = hdf5::File::Create(path);
  Check(opened.status());
  hdf5::File& file = *opened;
  const GptConfig& c = rig.config();
  Check(file.SetText("/", "variant", variant));
  Check(file.SetInt("/", "layers", c.layers));
  Check(file.SetInt("/", "heads", c.heads));
  Check(file.SetInt("/", "kv_heads", c.kv_heads));
  Check(file.SetDouble("/", "norm_eps", c.norm_eps));
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
  if (argc != 3) {
    std::fprintf(stderr, "usage: dump_gpt FILE VARIANT\n");
    return 2;
  }
  delink::testing::Dump(argv[1], argv[2]);
  return 0;
}
