// `delink eval --choices`: how often the option that a model finds likeliest is
// the right one.
//
// An option is scored by the sum of the log-probabilities of its tokens after
// the question, as lm-evaluation-harness scores `multiple_choice` tasks
// (recipes/saved/choices.h says where the option begins). Four scores compare
// options of different lengths; names are the harness's where it has them:
//
//   acc         the sum itself
//   acc_norm    per character of the option: the headline
//   acc_bytes   per byte of its UTF-8
//   acc_tokens  per token
//
// Of equal options the first is picked. Characters are code points. The
// delimiter counts among the tokens, but not as a character.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/choices.h"
#include "recipes/saved/together.h"

namespace delink {

enum class ChoiceScore : uint8_t { kSum, kCharacters, kBytes, kTokens };
inline constexpr int kChoiceScores = 4;
inline constexpr const char* kChoiceScoreNames[kChoiceScores] = {
    "acc", "acc_norm", "acc_bytes", "acc_tokens"};

struct ChoicesOptions {
  std::string checkpoint;  // what FindCheckpoint takes
  // Where the weights are (layout_sets.h).
  std::vector<std::string> sets = {};
  std::string choices;          // the file
  std::string delimiter = " ";  // between a question and its options
  DType dtype = DType::kF32;    // of weights and activations
  MakeDevice device;
};

struct ScoredOption {
  double log_likelihood = 0;  // nats
  int64_t tokens = 0, characters = 0, bytes = 0;
  bool truncated = false;  // the question was truncated

  double score(ChoiceScore by) const;
};

struct ScoredQuestion {
  int64_t line = 0;
  int64_t answer = 0;
  std::vector<ScoredOption> options;
  std::array<int64_t, kChoiceScores> picked = {};  // by score
};

struct ChoiceEvaluation {
  std::string checkpoint;  // the step folder
  int64_t step = 0;
  std::string stage;
  std::vector<ScoredQuestion> questions;  // in the order of the file
  int64_t truncated = 0;  // questions that did not fit in front of an option

  double accuracy(ChoiceScore by) const;
  // The standard error of the accuracy; NaN for a single question.
  double standard_error(ChoiceScore by) const;
};

// Collective. The ranks divide the options; the result is bit-identical for any
// number of data ranks. InvalidArgument: wrong lines, or options longer than
// the model's context, with their line numbers.
absl::StatusOr<ChoiceEvaluation> EvaluateChoices(const ChoicesOptions& options,
                                                 const ModelList& models,
                                                 Communicator& comm);

// A few lines for people; a JSON object, with a newline; a JSON object per
// question, a line each.
std::string ToText(const ChoiceEvaluation& evaluation);
std::string ToJson(const ChoiceEvaluation& evaluation);
std::string ToJsonLines(const ChoiceEvaluation& evaluation);

}  // namespace delink
