#include "recipes/saved/prompts.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/json_lines.h"

namespace delink {
namespace {

// The value's text for a message. Nested values may be too deep to print.
std::string Shown(const nlohmann::json& value) {
  return value.is_structured() ? "of another kind" : JsonText(value);
}

// A member that may be missing. If it is wrong, sets `problem`, unless it is
// set already.
void ReadWhole(const nlohmann::json& row, const char* key, int64_t least,
               int64_t* to, std::string* problem) {
  const auto found = row.find(key);
  if (found == row.end()) return;
  // A number too large for 64 bits reads as a negative one.
  if (found->is_number_integer() && found->get<int64_t>() >= least) {
    *to = found->get<int64_t>();
  } else if (problem->empty()) {
    *problem =
        absl::StrCat("has `", key, "` ", Shown(*found),
                     ", but it must be a whole number of at least ", least);
  }
}

void ReadNumber(const nlohmann::json& row, const char* key, double least,
                double most, double* to, std::string* problem) {
  const auto found = row.find(key);
  if (found == row.end()) return;
  const double value = found->is_number() ? found->get<double>() : least - 1;
  if (value >= least && value <= most) {
    *to = value;
  } else if (problem->empty()) {
    *problem =
        absl::StrCat("has `", key, "` ", Shown(*found),
                     ", but it must be a number of at least ", least,
                     most <= 1 ? absl::StrCat(" and at most ", most) : "");
  }
}

void ReadUntil(const nlohmann::json& row, std::vector<std::string>* to,
               std::string* problem) {
  const auto found = row.find("until");
  if (found == row.end()) return;
  const auto take = [&](const nlohmann::json& one) {
    to->push_back(one.is_string() ? one.get<std::string>() : "");
    if (to->back().empty() && problem->empty()) {
      *problem = "has an `until` that is not a text or is empty";
    }
  };
  if (!found->is_array()) return take(*found);
  for (const nlohmann::json& one : *found) take(one);
}

// What is wrong with a line; empty when nothing is, and `to` is filled.
std::string Parse(const nlohmann::json& row, Prompt* to) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PromptOptions& options = to->options;
  auto seed = static_cast<int64_t>(options.seed);
  std::string problem;
  to->text = TextMember(row, "prompt", &problem);
  ReadUntil(row, &to->until, &problem);
  ReadWhole(row, "tokens", 1, &options.tokens, &problem);
  ReadWhole(row, "top_k", 0, &options.sampling.top_k, &problem);
  ReadWhole(row, "seed", 0, &seed, &problem);
  ReadNumber(row, "temperature", 0, kInfinity, &options.sampling.temperature,
             &problem);
  ReadNumber(row, "top_p", 1e-9, 1, &options.sampling.top_p, &problem);
  options.seed = static_cast<uint64_t>(seed);
  return problem;
}

// Where the first of `ends` begins in `text`; npos: nowhere.
size_t FirstOf(const std::vector<std::string>& ends, const std::string& text) {
  size_t first = std::string::npos;
  for (const std::string& end : ends) first = std::min(first, text.find(end));
  return first;
}

}  // namespace

absl::StatusOr<std::vector<Prompt>> ReadPrompts(const std::string& path,
                                                const PromptOptions& options) {
  std::vector<Prompt> prompts;
  DELINK_RETURN_IF_ERROR(
      ReadJsonLines(path, "has no prompts; each is a line {\"prompt\": ...}",
                    [&](int64_t line, const nlohmann::json& row) {
                      prompts.push_back({.line = line, .options = options});
                      return Parse(row, &prompts.back());
                    }));
  return prompts;
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const std::string& text) {
  DELINK_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                          tokenizer.EncodeDocument(text));
  if (ids.empty()) ids.push_back(tokenizer.prefix_token());
  return ids;
}

absl::StatusOr<Continuation> ContinuePrompt(
    const Prompt& prompt, const Tokenizer& tokenizer, Sequential& model,
    ParamStore& store, int64_t positions, ForwardRanks* ranks) {
  DELINK_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                          EncodePrompt(tokenizer, prompt.text));
  Continuation to{.ended_by = "tokens"};
  const int64_t room = positions - prompt.options.tokens;
  // If a prompt cannot fit at all, the generator keeps its newer half.
  to.truncated =
      static_cast<int64_t>(ids.size()) > (room > 0 ? room : positions);
  if (to.truncated && room > 0) ids.erase(ids.begin(), ids.end() - room);
  Generator generator(model, store,
                      {.sampling = prompt.options.sampling,
                       .seed = prompt.options.seed,
                       .positions = positions,
                       .vocab = tokenizer.vocab_size(),
                       .ranks = ranks});
  generator.Prompt(ids);
  StreamDecoder decoder(tokenizer);
  while (to.tokens < prompt.options.tokens) {
    const int32_t id = generator.Next();
    ++to.tokens;
    if (tokenizer.EndsText(id)) {
      to.ended_by = "end_of_document";
      break;
    }
    to.text += decoder.Push(id);
    const size_t end = FirstOf(prompt.until, to.text);
    if (end == std::string::npos) continue;
    to.text.resize(end);
    to.ended_by = "until";
    return to;
  }
  to.text += decoder.Finish();
  return to;
}

std::string ToJson(const Prompt& prompt, const Continuation& continuation) {
  const nlohmann::ordered_json row{{"line", prompt.line},
                                   {"text", continuation.text},
                                   {"tokens", continuation.tokens},
                                   {"ended_by", continuation.ended_by},
                                   {"truncated", continuation.truncated}};
  return JsonText(row) + "\n";
}

}  // namespace delink
