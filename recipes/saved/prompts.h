// `delink generate --prompts`: prompts in a JSONL file, and what follows each.
//
// A line is an object with `prompt` (text); besides, in the place of what the
// command line says, `tokens`, `temperature`, `top_k`, `top_p`, `seed`, and
// `until`: a text or a list of them, before the first of which the continuation
// ends. Other keys are let pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "recipes/saved/forward_ranks.h"
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

// `options`: of prompts that do not say. InvalidArgument: names the first lines
// that are wrong, each with what is.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(const std::string& path,
                                                const PromptOptions& options);

struct Continuation {
  std::string text;
  int64_t tokens = 0;  // that were drawn
  // "until", "end_of_document" (whatever EndsText has) or "tokens".
  std::string ended_by;
  bool truncated = false;  // the beginning of the prompt was left out
};

// What `prompt` starts with, as ids: begin_of_sequence(), the text, or
// prefix_token() where that is nothing.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const std::string& text);

// `ranks` as Generator::Options has it. Of a prompt that does not fit into
// `positions` together with the tokens to add, the last tokens are taken, where
// there is room for one at least.
absl::StatusOr<Continuation> ContinuePrompt(
    const Prompt& prompt, const Tokenizer& tokenizer, Sequential& model,
    ParamStore& store, int64_t positions, ForwardRanks* ranks = nullptr);

// A JSON object, with a newline.
std::string ToJson(const Prompt& prompt, const Continuation& continuation);

}  // namespace delink
