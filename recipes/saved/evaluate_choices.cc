#include "recipes/saved/evaluate_choices.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/at.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/token_batches.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

int64_t Characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

// The tokens of the options, and where their scores go.
struct ChoiceWork {
  std::vector<ChoiceTokens> choices;
  std::vector<ScoredOption*> to;
};

absl::StatusOr<ChoiceWork> Encode(const ChoicesOptions& options,
                                  const Tokenizer& tokenizer, int64_t positions,
                                  const std::vector<ChoiceQuestion>& questions,
                                  std::vector<ScoredQuestion>* scored) {
  ChoiceWork work;
  for (size_t q = 0; q < questions.size(); ++q) {
    const ChoiceQuestion& question = questions[q];
    ScoredQuestion& to = (*scored)[q];
    to.line = question.line;
    to.answer = question.answer;
    to.options.resize(question.options.size());
    for (size_t i = 0; i < question.options.size(); ++i) {
      const std::string& option = question.options[i];
      absl::StatusOr<ChoiceTokens> choice =
          EncodeChoice(tokenizer, question.question,
                       absl::StrCat(options.delimiter, option), positions);
      if (!choice.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(options.choices, ":", question.line, ": options[", i,
                         "] ", choice.status().message()));
      }
      to.options[i] = {.tokens = choice->option,
                       .characters = Characters(option),
                       .bytes = static_cast<int64_t>(option.size()),
                       .truncated = choice->truncated};
      work.choices.push_back(*std::move(choice));
      work.to.push_back(&to.options[i]);
    }
  }
  return work;
}

// The log-likelihoods of this rank's share of the batches; 0 for the others.
absl::StatusOr<std::vector<double>> ScoreShare(
    SavedModel& saved, const Together& together,
    const std::vector<ChoiceTokens>& choices) {
  std::vector<double> scores(choices.size());
  DELINK_RETURN_IF_ERROR(ScoreTokenBatches(
      saved, together, choices,
      [&](const TokenBatch& batch, const HostBatch& host, ForwardPass& pass,
          bool counts) {
        const std::vector<LossRecord> losses = pass.Losses(host);
        if (!counts) return;
        for (size_t i = 0; i < losses.size(); ++i) {
          scores[batch.sequences[i]] = -losses[i].loss_sum;
        }
      }));
  return scores;
}

void Pick(ScoredQuestion* question) {
  for (int by = 0; by < kChoiceScores; ++by) {
    const auto better = [&](const ScoredOption& a, const ScoredOption& b) {
      const auto score = static_cast<ChoiceScore>(by);
      return a.score(score) < b.score(score);
    };
    At(question->picked, by) =
        std::max_element(question->options.begin(), question->options.end(),
                         better) -
        question->options.begin();
  }
}

absl::StatusOr<ChoiceWork> ReadWork(const ChoicesOptions& options,
                                    const SavedModel& saved,
                                    ChoiceEvaluation* evaluation) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<ChoiceQuestion> questions,
                          ReadChoices(options.choices));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          saved.MakeTokenizer());
  evaluation->questions.resize(questions.size());
  return Encode(options, *tokenizer, saved.recipe().model->max_seq, questions,
                &evaluation->questions);
}

}  // namespace

double ScoredOption::score(ChoiceScore by) const {
  switch (by) {
    case ChoiceScore::kSum:
      return log_likelihood;
    case ChoiceScore::kCharacters:
      return log_likelihood / static_cast<double>(characters);
    case ChoiceScore::kBytes:
      return log_likelihood / static_cast<double>(bytes);
    case ChoiceScore::kTokens:
      return log_likelihood / static_cast<double>(tokens);
  }
  return 0;
}

double ChoiceEvaluation::accuracy(ChoiceScore by) const {
  const auto right = std::count_if(
      questions.begin(), questions.end(),
      [&](const ScoredQuestion& q) { return At(q.picked, by) == q.answer; });
  return static_cast<double>(right) / static_cast<double>(questions.size());
}

double ChoiceEvaluation::standard_error(ChoiceScore by) const {
  // For values of 0 or 1, the mean gives the sample's variance.
  const double p = accuracy(by);
  return std::sqrt(p * (1 - p) / (static_cast<double>(questions.size()) - 1));
}

absl::StatusOr<ChoiceEvaluation> EvaluateChoices(const ChoicesOptions& options,
                                                 const ModelList& models,
                                                 Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(comm, options.checkpoint, models,
                                           options.dtype, options.sets));
  ChoiceEvaluation evaluation{.checkpoint = saved->path(),
                              .step = saved->header().step,
                              .stage = saved->run().stage};
  absl::StatusOr<ChoiceWork> work = ReadWork(options, *saved, &evaluation);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, work.status()));
  DELINK_ASSIGN_OR_RETURN(const Together together,
                          LoadTogether(*saved, options.device, comm));
  DELINK_ASSIGN_OR_RETURN(
      const std::vector<double> scores,
      SumOverRanks(comm, ScoreShare(*saved, together, work->choices)));
  for (size_t i = 0; i < scores.size(); ++i) {
    work->to[i]->log_likelihood = scores[i];
  }
  for (ScoredQuestion& question : evaluation.questions) {
    Pick(&question);
    evaluation.truncated += std::any_of(
        question.options.begin(), question.options.end(),
        [](const ScoredOption& option) { return option.truncated; });
  }
  return evaluation;
}

std::string ToText(const ChoiceEvaluation& e) {
  std::string text =
      absl::StrFormat("%s (step %d, stage %s): %d questions\n", e.checkpoint,
                      e.step, e.stage, e.questions.size());
  const char* const means[kChoiceScores] = {
      "by log-likelihood", "by log-likelihood per character",
      "by log-likelihood per byte", "by log-likelihood per token"};
  for (int i = 0; i < kChoiceScores; ++i) {
    const auto by = static_cast<ChoiceScore>(i);
    absl::StrAppendFormat(&text, "  %-10s %.4f", kChoiceScoreNames[i],
                          e.accuracy(by));
    if (e.questions.size() > 1) {
      absl::StrAppendFormat(&text, " +- %.4f", e.standard_error(by));
    }
    absl::StrAppend(&text, "  ", means[i], "\n");
  }
  if (e.truncated > 0) {
    absl::StrAppend(&text, "  ", e.truncated,
                    " question(s) were longer than the model's context; their "
                    "beginnings were cut off\n");
  }
  return text;
}

std::string ToJson(const ChoiceEvaluation& e) {
  Json all{{"checkpoint", e.checkpoint},
           {"step", e.step},
           {"stage", e.stage},
           {"questions", e.questions.size()},
           {"truncated", e.truncated}};
  for (int i = 0; i < kChoiceScores; ++i) {
    const auto by = static_cast<ChoiceScore>(i);
    all[kChoiceScoreNames[i]] = e.accuracy(by);
    // JSON has null for NaN.
    all[absl::StrCat(kChoiceScoreNames[i], "_stderr")] = e.standard_error(by);
  }
  return JsonText(all) + "\n";
}

std::string ToJsonLines(const ChoiceEvaluation& e) {
  std::string lines;
  for (const ScoredQuestion& question : e.questions) {
    Json row{{"line", question.line}, {"answer", question.answer}};
    for (size_t i = 0; i < kChoiceScores; ++i) {
      row["picked"][kChoiceScoreNames[i]] = question.picked[i];
    }
    for (const ScoredOption& option : question.options) {
      row["options"].push_back({{"log_likelihood", option.log_likelihood},
                                {"tokens", option.tokens},
                                {"characters", option.characters},
                                {"bytes", option.bytes},
                                {"truncated", option.truncated}});
    }
    absl::StrAppend(&lines, JsonText(row), "\n");
  }
  return lines;
}

}  // namespace delink
