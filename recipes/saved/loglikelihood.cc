#include "recipes/saved/loglikelihood.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/json_lines.h"
#include "recipes/saved/token_batches.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

// What is wrong with a line; empty when nothing is, and `to` is filled.
std::string Parse(const nlohmann::json& row, TextPair* to) {
  std::string problem;
  to->whole = row.contains("text");
  if (to->whole) {
    if (row.contains("context") || row.contains("continuation")) {
      return "has a `text` and also a `context` or `continuation`; leave out "
             "the `text` or the others";
    }
    to->continuation = TextMember(row, "text", &problem);
    return problem;
  }
  to->context = TextMember(row, "context", &problem);
  to->continuation = TextMember(row, "continuation", &problem);
  return problem;
}

absl::StatusOr<std::vector<ChoiceTokens>> Encode(const TextPair& pair,
                                                 const Tokenizer& tokenizer,
                                                 int64_t positions) {
  if (pair.whole) {
    DELINK_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                            tokenizer.Encode(pair.continuation));
    return RollingWindows(ids, tokenizer.prefix_token(), positions);
  }
  DELINK_ASSIGN_OR_RETURN(
      const ChoiceTokens tokens,
      EncodeChoice(tokenizer, pair.context, pair.continuation, positions));
  return std::vector<ChoiceTokens>{tokens};
}

void AddTokens(const ChoiceTokens& sequence, const Tokenizer& tokenizer,
               ScoredPair* to) {
  to->truncated |= sequence.truncated;
  for (auto id = sequence.tokens.end() - sequence.option;
       id != sequence.tokens.end(); ++id) {
    to->tokens.push_back(
        {.id = *id, .text = std::string(tokenizer.TokenBytes(*id))});
  }
}

// The sequences to score, pair by pair. Fills the pairs except for scores.
absl::StatusOr<std::vector<ChoiceTokens>> ReadSequences(
    const LoglikelihoodOptions& options, const SavedModel& saved,
    std::vector<ScoredPair>* scored) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<TextPair> pairs,
                          ReadTextPairs(options.pairs));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          saved.MakeTokenizer());
  const int64_t positions = saved.recipe().model->max_seq;
  std::vector<ChoiceTokens> all;
  for (const TextPair& pair : pairs) {
    absl::StatusOr<std::vector<ChoiceTokens>> sequences =
        Encode(pair, *tokenizer, positions);
    if (!sequences.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.pairs, ":", pair.line, ": the ",
                       pair.whole ? "text " : "continuation ",
                       sequences.status().message()));
    }
    scored->push_back({.line = pair.line});
    for (ChoiceTokens& sequence : *sequences) {
      AddTokens(sequence, *tokenizer, &scored->back());
      all.push_back(std::move(sequence));
    }
  }
  return all;
}

// For each token its log-likelihood and whether it is greedy (0 or 1), for this
// rank's share of the sequences; 0 for the others.
absl::StatusOr<std::vector<double>> ScoreTokens(
    SavedModel& saved, const Together& together,
    const std::vector<ChoiceTokens>& sequences) {
  std::vector<size_t> begins;
  size_t tokens = 0;
  for (const ChoiceTokens& sequence : sequences) {
    begins.push_back(tokens);
    tokens += static_cast<size_t>(sequence.option);
  }
  std::vector<double> scores(2 * tokens);
  DELINK_RETURN_IF_ERROR(ScoreTokenBatches(
      saved, together, sequences,
      [&](const TokenBatch& batch, const HostBatch& host, ForwardPass& pass,
          bool counts) {
        const std::vector<ForwardPass::TokenScore> found = pass.Scores(host);
        if (!counts) return;
        size_t next = 0;
        for (const size_t sequence : batch.sequences) {
          double* to = scores.data() + 2 * begins[sequence];
          for (int64_t i = 0; i < sequences[sequence].option; ++i) {
            *to++ = found[next].log_likelihood;
            *to++ = found[next++].greedy ? 1 : 0;
          }
        }
      }));
  return scores;
}

// Sequences are in the order of the pairs, and so are their tokens.
void Fill(const std::vector<double>& scores, std::vector<ScoredPair>* pairs) {
  size_t next = 0;
  for (ScoredPair& pair : *pairs) {
    for (ScoredToken& token : pair.tokens) {
      token.log_likelihood = scores[next++];
      token.greedy = scores[next++] != 0;
    }
  }
}

// The number of pairs whose tokens are all greedy.
int64_t Greedy(const LoglikelihoodEvaluation& e) {
  return std::ranges::count_if(e.pairs, &ScoredPair::greedy);
}

}  // namespace

absl::StatusOr<std::vector<TextPair>> ReadTextPairs(const std::string& path) {
  std::vector<TextPair> pairs;
  DELINK_RETURN_IF_ERROR(ReadJsonLines(
      path,
      "has no pairs; each is a line {\"context\": ..., \"continuation\": ...}",
      [&](int64_t line, const nlohmann::json& row) {
        pairs.push_back({.line = line});
        return Parse(row, &pairs.back());
      }));
  return pairs;
}

std::vector<ChoiceTokens> RollingWindows(const std::vector<int32_t>& ids,
                                         int32_t prefix_token,
                                         int64_t positions) {
  std::vector<int32_t> all = {prefix_token};
  all.insert(all.end(), ids.begin(), ids.end());
  const auto count = static_cast<int64_t>(ids.size());
  std::vector<ChoiceTokens> windows;
  for (int64_t scored = 0; scored < count;) {
    const int64_t end = std::min(count, scored + positions);
    const int64_t begin = std::max<int64_t>(0, end - positions);
    windows.push_back({.tokens = {all.begin() + begin, all.begin() + end + 1},
                       .option = end - scored});
    scored = end;
  }
  return windows;
}

double ScoredPair::log_likelihood() const {
  double sum = 0;
  for (const ScoredToken& token : tokens) sum += token.log_likelihood;
  return sum;
}

bool ScoredPair::greedy() const {
  return std::all_of(tokens.begin(), tokens.end(),
                     [](const ScoredToken& token) { return token.greedy; });
}

int64_t LoglikelihoodEvaluation::tokens() const {
  int64_t count = 0;
  for (const ScoredPair& pair : pairs) {
    count += static_cast<int64_t>(pair.tokens.size());
  }
  return count;
}

double LoglikelihoodEvaluation::log_likelihood() const {
  double sum = 0;
  for (const ScoredPair& pair : pairs) sum += pair.log_likelihood();
  return sum;
}

absl::StatusOr<LoglikelihoodEvaluation> EvaluateLoglikelihood(
    const LoglikelihoodOptions& options, const ModelList& models,
    Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(comm, options.checkpoint, models,
                                           options.dtype, options.sets));
  LoglikelihoodEvaluation evaluation{.checkpoint = saved->path(),
                                     .step = saved->header().step,
                                     .stage = saved->run().stage};
  const absl::StatusOr<std::vector<ChoiceTokens>> sequences =
      ReadSequences(options, *saved, &evaluation.pairs);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, sequences.status()));
  DELINK_ASSIGN_OR_RETURN(const Together together,
                          LoadTogether(*saved, options.device, comm));
  DELINK_ASSIGN_OR_RETURN(
      const std::vector<double> scores,
      SumOverRanks(comm, ScoreTokens(*saved, together, *sequences)));
  Fill(scores, &evaluation.pairs);
  return evaluation;
}

std::string ToText(const LoglikelihoodEvaluation& e) {
  const auto tokens = static_cast<double>(std::max<int64_t>(e.tokens(), 1));
  return absl::StrFormat(
      "%s (step %d, stage %s): log-likelihood %.6f nats a token over %d tokens "
      "of %d texts, %d of them greedy\n",
      e.checkpoint, e.step, e.stage, e.log_likelihood() / tokens, e.tokens(),
      e.pairs.size(), Greedy(e));
}

std::string ToJson(const LoglikelihoodEvaluation& e) {
  const auto truncated = std::ranges::count_if(e.pairs, &ScoredPair::truncated);
  const Json all{
      {"checkpoint", e.checkpoint}, {"step", e.step},
      {"stage", e.stage},           {"pairs", e.pairs.size()},
      {"tokens", e.tokens()},       {"greedy", Greedy(e)},
      {"truncated", truncated},     {"log_likelihood", e.log_likelihood()}};
  return JsonText(all) + "\n";
}

std::string ToJsonLines(const LoglikelihoodEvaluation& e) {
  std::string lines;
  for (const ScoredPair& pair : e.pairs) {
    Json row{{"line", pair.line},
             {"log_likelihood", pair.log_likelihood()},
             {"greedy", pair.greedy()},
             {"truncated", pair.truncated},
             {"tokens", Json::array()}};
    for (const ScoredToken& token : pair.tokens) {
      row["tokens"].push_back({{"id", token.id},
                               {"text", token.text},
                               {"log_likelihood", token.log_likelihood},
                               {"greedy", token.greedy}});
    }
    absl::StrAppend(&lines, JsonText(row), "\n");
  }
  return lines;
}

}  // namespace delink
