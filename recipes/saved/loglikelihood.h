// `delink eval --loglikelihood`: what a model gives texts, token by token.
//
// A line of the file is an object: `context` and `continuation`, of which the
// tokens of the second are scored after the first, with the seam of
// recipes/saved/choices.h; or `text`, all of whose tokens are scored. That one
// begins after prefix_token() and goes on, where it is longer than the model's
// context, in windows of which each has all the context that fits: the last
// tokens of a window are scored, every token once, as lm-evaluation-harness
// does in loglikelihood_rolling. Other keys are let pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/choices.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct TextPair {
  int64_t line = 0;    // of the file, from 1
  bool whole = false;  // `text`: the continuation is all of it
  std::string context, continuation;
};

// InvalidArgument: names the first lines that are wrong, each with what is.
absl::StatusOr<std::vector<TextPair>> ReadTextPairs(const std::string& path);

// The windows of `ids`, a text's, each of at most `positions` + 1 tokens.
std::vector<ChoiceTokens> RollingWindows(const std::vector<int32_t>& ids,
                                         int32_t prefix_token,
                                         int64_t positions);

struct LoglikelihoodOptions {
  std::string checkpoint;  // what FindCheckpoint takes
  // Where the weights are (layout_sets.h).
  std::vector<std::string> sets = {};
  std::string pairs;          // the file
  DType dtype = DType::kF32;  // of weights and activations
  // Where to compute, for a checkpoint of that recipe; null: on the CPU.
  std::function<absl::StatusOr<std::unique_ptr<Device>>(const Recipe&)> device;
};

struct ScoredToken {
  int32_t id = 0;
  std::string text;           // bytes, of a character maybe some
  double log_likelihood = 0;  // nats
  bool greedy = false;        // no token is likelier
};

struct ScoredPair {
  int64_t line = 0;
  std::vector<ScoredToken> tokens;  // of the continuation
  bool truncated = false;           // the context in front of them was

  double log_likelihood() const;
  bool greedy() const;  // all tokens are
};

struct LoglikelihoodEvaluation {
  std::string checkpoint;  // the step folder
  int64_t step = 0;
  std::string stage;
  std::vector<ScoredPair> pairs;  // in the order of the file

  int64_t tokens() const;
  double log_likelihood() const;  // of all
};

// Collective; the ranks share the texts out, and the result is the same bit for
// bit for any number of them. InvalidArgument: lines that are wrong, or a
// continuation that is longer than the model's context, by their numbers.
absl::StatusOr<LoglikelihoodEvaluation> EvaluateLoglikelihood(
    const LoglikelihoodOptions& options, const ModelList& models,
    Communicator& comm);

// A line for people; a JSON object, with a newline; and one for each line of
// the file.
std::string ToText(const LoglikelihoodEvaluation& evaluation);
std::string ToJson(const LoglikelihoodEvaluation& evaluation);
std::string ToJsonLines(const LoglikelihoodEvaluation& evaluation);

}  // namespace delink
