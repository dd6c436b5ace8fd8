// Steps of ranks that work on the same visits, with their weights or their
// tokens cut, against those of one rank: in f64, where another order of the
// same sums is all that may differ.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/step/engine/host_batch.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing {

inline constexpr double kTensorRate = 1e-3;
inline constexpr int64_t kTensorSteps = 3;
// A sum of n numbers is off by at most n 2^-53 of the sum of their sizes. The
// longest here are of a few hundred (tokens, vocabulary), and some fifty ops
// stand one behind the other: 100 x 50 x 2^-53, below 1e-12 of the largest
// element of a tensor.
inline constexpr double kNear = 1e-12;
// AdamW divides by the gradient's size, or by 1e-8 where that is more: a step
// is off by at most the rate times kNear x (largest gradient) / 1e-8.
inline constexpr double kNearWeight = kTensorSteps * kTensorRate * kNear / 1e-8;

struct TensorCase {
  int tensor = 1, context = 1, data = 1, pipeline = 1, expert = 1;
  bool sequence = true;
  std::string kind = "gpt";
  std::string share = "none";
  double expert_room = 0;
  bool expert_overlap = false;
  int expert_nodes = 1;
  RigOptions options = {};  // what is named above apart

  int ranks() const { return tensor * context * data * pipeline; }
};
std::ostream& operator<<(std::ostream& out, const TensorCase& of);

// On of.ranks() threads.
void OnRanks(const TensorCase& of,
             const std::function<void(Communicator&)>& rank_main);

// Of f64; of one rank alone, where nothing is said of others.
RigOptions OptionsOf(const TensorCase& of);
std::unique_ptr<StepRig> AloneOf(Communicator& self, const TensorCase& of);
// A collective over of.ranks() ranks.
std::unique_ptr<StepRig> TogetherOf(Communicator& world, const TensorCase& of);

// What one rank alone finds, by tensor all of it.
struct OneRank {
  struct Gradients {
    StepResult result;
    std::vector<double> norms;
    std::map<std::string, std::vector<double>> values;
  };
  Gradients gradients;
  std::vector<StepResult> steps;
  std::vector<LossRecord> losses;
  std::vector<double> weight_norms;
  std::map<std::string, std::vector<double>> weights;
};
OneRank RunAlone(const TensorCase& of);

// What a test makes of batch 0, of any of a rank's rows.
using BatchEdit = std::function<void(HostBatch&)>;
// A collective: expects the gradients, and no gradients at all under ZeRO.
void ExpectGradients(StepRig& rig, const OneRank::Gradients& expected,
                     const BatchEdit& edit = nullptr);
OneRank::Gradients GradientsOf(StepRig& alone, const BatchEdit& edit = nullptr);
// A collective over of.ranks() ranks: expects gradients, norms, updates and
// evaluations as they were, and that it takes what its account says.
void ExpectStepsOfOneRank(Communicator& world, const TensorCase& of,
                          const OneRank& expected);

}  // namespace delink::testing
