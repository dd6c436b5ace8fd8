#include "recipes/saved/choices.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/json_lines.h"

namespace delink {
namespace {

constexpr char kWhiteSpace[] = " \t\n\v\f\r";

// What is wrong with a line; empty when nothing is, and `to` is filled.
std::string Parse(const nlohmann::json& row, ChoiceQuestion* to) {
  std::string problem;
  to->question = TextMember(row, "question", &problem);
  if (!problem.empty()) return problem;
  const auto options = row.find("options");
  if (options == row.end() || !options->is_array() || options->size() < 2) {
    return "has no `options`, which must be a list of at least two texts";
  }
  for (const nlohmann::json& option : *options) {
    const bool text = option.is_string();
    to->options.push_back(text ? option.get<std::string>() : "");
    if (to->options.back().empty()) {
      return absl::StrCat("options[", to->options.size() - 1, "] is ",
                          text ? "empty" : "no text");
    }
  }
  const auto answer = row.find("answer");
  if (answer == row.end() || !answer->is_number_integer()) {
    return "has no `answer`, which must be a whole number";
  }
  const auto count = static_cast<int64_t>(to->options.size());
  to->answer = answer->get<int64_t>();
  // A number too large for 64 bits reads as a negative one.
  if (to->answer < 0 || to->answer >= count) {
    return absl::StrCat("has the answer ", answer->dump(), ", but ", count,
                        " options, counted from 0");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<ChoiceQuestion>> ReadChoices(
    const std::string& path) {
  std::vector<ChoiceQuestion> questions;
  DELINK_RETURN_IF_ERROR(ReadJsonLines(
      path,
      "has no questions; each is a line {\"question\": ..., \"options\": "
      "[...], \"answer\": 0}",
      [&](int64_t line, const nlohmann::json& row) {
        questions.push_back({.line = line});
        return Parse(row, &questions.back());
      }));
  return questions;
}

absl::StatusOr<ChoiceTokens> EncodeChoice(const Tokenizer& tokenizer,
                                          const std::string& question,
                                          const std::string& option,
                                          int64_t positions) {
  const size_t end = question.find_last_not_of(kWhiteSpace);
  const std::string context =
      question.substr(0, end == std::string::npos ? 0 : end + 1);
  DELINK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                          tokenizer.EncodeDocument(context));
  DELINK_ASSIGN_OR_RETURN(const std::vector<int32_t> whole,
                          tokenizer.EncodeDocument(question + option));
  if (whole.size() <= tokens.size()) {
    return absl::InvalidArgumentError(
        "adds no token to the text before it, because the tokenizer joins the "
        "two");
  }
  ChoiceTokens choice{.option =
                          static_cast<int64_t>(whole.size() - tokens.size())};
  if (choice.option > positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", choice.option, " tokens, but the model reads ",
                     positions, " at once"));
  }
  tokens.insert(tokens.end(), whole.end() - choice.option, whole.end());
  if (static_cast<int64_t>(tokens.size()) == choice.option) {
    tokens.insert(tokens.begin(), tokenizer.prefix_token());
  }
  const auto most = static_cast<size_t>(positions) + 1;
  if (tokens.size() > most) {
    choice.truncated = true;
    tokens.erase(tokens.begin(),
                 tokens.end() - static_cast<std::ptrdiff_t>(most));
  }
  choice.tokens = std::move(tokens);
  return choice;
}

}  // namespace delink
