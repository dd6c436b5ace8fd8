#include "recipes/saved/choices.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr char kWhiteSpace[] = " \t\n\v\f\r";

// Enough to mend a file by, few enough to read.
constexpr int kProblemsShown = 10;

// What is wrong with a line; empty when nothing is, and `to` is filled.
std::string Parse(std::string_view line, ChoiceQuestion* to) {
  const nlohmann::json row = ParseJson(line);
  if (!row.is_object()) return "is no JSON object";
  const auto question = row.find("question");
  if (question == row.end() || !question->is_string()) {
    return "has no `question` that is a text";
  }
  to->question = question->get<std::string>();
  const auto options = row.find("options");
  if (options == row.end() || !options->is_array() || options->size() < 2) {
    return "has no `options` that are a list of two texts or more";
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
    return "has no `answer` that is a whole number";
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
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<ChoiceQuestion> questions;
  std::string problems;
  int wrong = 0;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(kWhiteSpace) == std::string_view::npos) continue;
    ChoiceQuestion question{.line = number};
    const std::string problem = Parse(line, &question);
    if (problem.empty()) {
      questions.push_back(std::move(question));
    } else if (++wrong <= kProblemsShown) {
      absl::StrAppend(&problems, wrong > 1 ? "\n" : "", path, ":", number,
                      ": the line ", problem);
    }
  }
  if (wrong > kProblemsShown) {
    absl::StrAppend(&problems, "\n", path, ": and ", wrong - kProblemsShown,
                    " more lines");
  }
  if (wrong > 0) return absl::InvalidArgumentError(problems);
  if (questions.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": has no questions; each is a line {\"question\": "
                     "..., \"options\": [...], \"answer\": 0}"));
  }
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
                          tokenizer.Encode(context));
  DELINK_ASSIGN_OR_RETURN(const std::vector<int32_t> whole,
                          tokenizer.Encode(question + option));
  if (whole.size() <= tokens.size()) {
    return absl::InvalidArgumentError(
        "adds no token to the question; the tokenizer joins the two");
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
    tokens.insert(tokens.begin(), tokenizer.end_of_document());
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
