// `delink eval`: the loss of a checkpoint on a corpus. Forward only, dropout
// off, by default in fp32 whatever the run's precision, summed in double.
// Memory holds the weights and what one layer needs. Host-resident weights
// reduce the device memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/together.h"

namespace delink {

struct EvaluateOptions {
  std::string checkpoint;  // what FindCheckpoint takes
  // Overrides of its recipe: where the weights are (layout_sets.h).
  std::vector<std::string> sets = {};
  std::string data;  // corpus folder; if it has both sides, validation
  // Batches of the recipe's data.batch sequences, from the corpus's start; 0:
  // all.
  int64_t batches = 0;
  DType dtype = DType::kF32;  // of weights and activations
  MakeDevice device;
};

struct Evaluation {
  std::string checkpoint;  // the step folder
  int64_t step = 0;
  std::string stage;
  double loss = 0;     // mean over tokens, nats
  int64_t tokens = 0;  // counted targets
  int64_t sequences = 0;

  double perplexity() const { return std::exp(loss); }
};

// Collective. The ranks divide the sequences; the result is bit-identical for
// any number of data ranks. If the checkpoint's layout or `sets` has tensor,
// pipeline or expert ranks or zero = 3, and so many ranks or a multiple were
// started, the weights are sharded over them (SavedModel::LayoutFor). Tensor
// ranks, and experts on several ranks if a token has more than two, round
// differently.
// InvalidArgument: a corpus with more tokens than the checkpoint's vocabulary,
// or of another tokenizer.
absl::StatusOr<Evaluation> Evaluate(const EvaluateOptions& options,
                                    const ModelList& models,
                                    Communicator& comm);

// A line for people; a JSON object, with a newline.
std::string ToText(const Evaluation& evaluation);
std::string ToJson(const Evaluation& evaluation);

}  // namespace delink
