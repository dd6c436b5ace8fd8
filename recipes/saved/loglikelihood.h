// `delink eval --loglikelihood`: a model's log-likelihood of texts, token by
// token.
//
// A line of the file is an object. With `context` and `continuation`, the
// tokens of the continuation are scored after the context, encoded as in
// recipes/saved/choices.h. With `text`, all its tokens are scored, after
// prefix_token(). A text longer than the model's context is scored in windows,
// each with all the context that fits. The last tokens of each window are
// scored, every token once, as in loglikelihood_rolling of
// lm-evaluation-harness. Other keys are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/choices.h"
#include "recipes/saved/together.h"

namespace delink {

struct TextPair {
  int64_t line = 0;    // of the file, from 1
  bool whole = false;  // `text`: the continuation is all of it
  std::string context, continuation;
};

// InvalidArgument: lists the first wrong lines, each with its problem.
absl::StatusOr<std::vector<TextPair>> ReadTextPairs(const std::string& path);

// The windows of a text's `ids`, each of at most `positions` + 1 tokens.
std::vector<ChoiceTokens> RollingWindows(const std::vector<int32_t>& ids,
                                         int32_t prefix_token,
                                         int64_t positions);

struct LoglikelihoodOptions {
  std::string checkpoint;  // what FindCheckpoint takes
  // Where the weights are (layout_sets.h).
  std::vector<std::string> sets = {};
  std::string pairs;          // the file
  DType dtype = DType::kF32;  // of weights and activations
  MakeDevice device;
};

struct ScoredToken {
  int32_t id = 0;
  std::string text;           // bytes, maybe only part of a character
  double log_likelihood = 0;  // nats
  bool greedy = false;        // no token is likelier
};

struct ScoredPair {
  int64_t line = 0;
  std::vector<ScoredToken> tokens;  // of the continuation
  bool truncated = false;           // the context was truncated

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

// Collective. The ranks divide the texts; the result is bit-identical for any
// number of data ranks. InvalidArgument: wrong lines, or continuations longer
// than the model's context, with their line numbers.
absl::StatusOr<LoglikelihoodEvaluation> EvaluateLoglikelihood(
    const LoglikelihoodOptions& options, const ModelList& models,
    Communicator& comm);

// A line for people; a JSON object, with a newline; a JSON object for each line
// of the file.
std::string ToText(const LoglikelihoodEvaluation& evaluation);
std::string ToJson(const LoglikelihoodEvaluation& evaluation);
std::string ToJsonLines(const LoglikelihoodEvaluation& evaluation);

}  // namespace delink
