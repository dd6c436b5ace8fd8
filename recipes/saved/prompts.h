// `delink generate --prompts`: prompts in a JSONL file, and what follows each.
//
// A line is an object with `prompt` (text). It may have `tokens`,
// `temperature`, `top_k`, `top_p` and `seed`, which override the command line,
// and `until`: a text or a list of texts; the continuation ends before the
// first that occurs. Other keys are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "parallel/inference/forward_ranks.h"
#include "recipes/saved/sampling.h"

namespace delink {

struct PromptOptions {
  int64_t tokens = 128;  // to add at most
  SamplingOptions sampling;
  uint64_t seed = 1;
};

struct Prompt {
  int64_t line = 0;  // of the file, from 1
  std::string text;
  std::vector<std::string> until;
  PromptOptions options;
};

// `options`: defaults of prompts. InvalidArgument: lists the first wrong lines,
// each with its problem.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(const std::string& path,
                                                const PromptOptions& options);

struct Continuation {
  std::string text;
  int64_t tokens = 0;  // that were drawn
  // "until", "end_of_document" (whatever EndsText has) or "tokens".
  std::string ended_by;
  bool truncated = false;  // the beginning of the prompt was left out
};

// The ids of a prompt: begin_of_sequence() and the text, or prefix_token() if
// these are empty.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const std::string& text);

// `ranks`: as in Generator::Options. If the prompt and the tokens to add do not
// fit into `positions`, only the prompt's last tokens are used, provided there
// is room for at least one.
absl::StatusOr<Continuation> ContinuePrompt(
    const Prompt& prompt, const Tokenizer& tokenizer, Sequential& model,
    ParamStore& store, int64_t positions, ForwardRanks* ranks = nullptr);

// A JSON object, with a newline.
std::string ToJson(const Prompt& prompt, const Continuation& continuation);

}  // namespace delink
