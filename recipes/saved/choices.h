// Multiple-choice questions in a JSONL file, and their options as tokens.
//
// A line is an object with `question` (text), `options` (two texts or more) and
// `answer` (the index of the right one, from 0); other keys are let pass, and
// so are lines of white space.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"

namespace delink {

struct ChoiceQuestion {
  int64_t line = 0;  // of the file, from 1
  std::string question;
  std::vector<std::string> options;
  int64_t answer = 0;
};

// InvalidArgument: names the first lines that are wrong, each with what is.
absl::StatusOr<std::vector<ChoiceQuestion>> ReadChoices(
    const std::string& path);

// The question and an option, as the model reads them.
struct ChoiceTokens {
  std::vector<int32_t> tokens;
  int64_t option = 0;      // how many of the last are the option's; at least 1
  bool truncated = false;  // the question's first tokens were left out
};

// As lm-evaluation-harness has it: white space at the end of the question goes
// to the option; both are encoded together, and what comes after as many tokens
// as the question alone has is the option. Where the tokenizer has a begin of
// sequence, that is in front of both; a question without tokens becomes
// prefix_token(). At most `positions` + 1 tokens, the last ones.
// InvalidArgument: the option has no token of its own, or more than
// `positions`.
absl::StatusOr<ChoiceTokens> EncodeChoice(const Tokenizer& tokenizer,
                                          const std::string& question,
                                          const std::string& option,
                                          int64_t positions);

}  // namespace delink
