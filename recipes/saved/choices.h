// Multiple-choice questions in a JSONL file, and their options as tokens.
//
// A line is an object with `question` (text), `options` (two texts or more) and
// `answer` (the index of the right one, from 0); other keys and lines of white
// space are ignored.
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

// InvalidArgument: lists the first wrong lines, each with its problem.
absl::StatusOr<std::vector<ChoiceQuestion>> ReadChoices(
    const std::string& path);

// The question and an option, as the model reads them.
struct ChoiceTokens {
  std::vector<int32_t> tokens;
  int64_t option = 0;      // the last so many are the option's; >= 1
  bool truncated = false;  // the question's first tokens were left out
};

// As in lm-evaluation-harness. White space at the end of the question moves to
// the option. Both are encoded together; if the question alone has n tokens,
// the option is what follows the first n. If the tokenizer has a
// begin-of-sequence token, it precedes both. A question without tokens becomes
// prefix_token(). Keeps the last `positions` + 1 tokens at most.
// InvalidArgument: the option has no token of its own, or more than
// `positions`.
absl::StatusOr<ChoiceTokens> EncodeChoice(const Tokenizer& tokenizer,
                                          const std::string& question,
                                          const std::string& option,
                                          int64_t positions);

}  // namespace delink
