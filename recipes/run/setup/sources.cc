#include "recipes/run/setup/sources.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// The folder of a source's validation corpus; empty: none.
std::string ValidationOf(const DataSource& source) {
  if (!source.validation.empty()) return source.validation;
  const std::string beside =
      (std::filesystem::path(source.train).parent_path() / "validation")
          .string();
  return IsDirectory(beside) ? beside : "";
}

const SourceCount* Find(const std::vector<SourceCount>& counts,
                        const std::string& corpus) {
  for (const SourceCount& count : counts) {
    if (count.corpus == corpus) return &count;
  }
  return nullptr;
}

absl::Status CheckCount(const SourceCount& count, int64_t samples) {
  if (0 <= count.begin && count.begin <= count.samples &&
      count.samples <= samples) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has ", count.samples, " of ", samples,
                   " samples of source ", count.name, ", of them ", count.begin,
                   " before its blend began, which is impossible; another "
                   "program wrote it"));
}

}  // namespace

absl::StatusOr<Sources> Sources::Open(const Recipe& recipe) {
  Sources sources;
  for (const DataSource& config : recipe.data.Sources()) {
    DELINK_RETURN_IF_ERROR(sources.OpenOne(config, recipe));
  }
  DELINK_RETURN_IF_ERROR(sources.CheckAlike());
  return sources;
}

absl::Status Sources::OpenOne(const DataSource& config, const Recipe& recipe) {
  LoaderOptions options{.seq = recipe.data.seq,
                        .seed = static_cast<uint64_t>(recipe.run.seed),
                        .shuffle = recipe.data.shuffle};
  DELINK_ASSIGN_OR_RETURN(const Corpus train, Corpus::Open(config.train));
  DELINK_ASSIGN_OR_RETURN(Loader loader, Loader::Create(train, options));
  configs_.push_back(config);
  train_.push_back(std::move(loader));
  validation_.emplace_back();
  const std::string folder = ValidationOf(config);
  if (folder.empty()) return absl::OkStatus();
  if (!IsDirectory(folder)) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     ": no such corpus folder to validate on; build the corpus "
                     "with --validation above 0, or name another in "
                     "data.validation"));
  }
  DELINK_ASSIGN_OR_RETURN(const Corpus validation, Corpus::Open(folder));
  if (train.tokenizer_bytes() != validation.tokenizer_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.train, " and ", folder,
                     " were built with different tokenizers; build both in one "
                     "call of delink data build"));
  }
  options.shuffle = false;
  DELINK_ASSIGN_OR_RETURN(validation_.back(),
                          Loader::Create(validation, options));
  return absl::OkStatus();
}

absl::Status Sources::CheckAlike() const {
  for (size_t i = 1; i < size(); ++i) {
    if (corpus(i).tokenizer_bytes() != corpus(0).tokenizer_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sources ", name(0), " (", configs_[0].train, ", ",
          corpus(0).vocab_size(), " tokens) and ", name(i), " (",
          configs_[i].train, ", ", corpus(i).vocab_size(),
          " tokens) were built with different tokenizers; build one with the "
          "other's: delink data build --tokenizer ",
          JoinPath(configs_[0].train, "tokenizer.model")));
    }
    for (size_t j = 0; j < i; ++j) {
      if (corpus(j).digest() != corpus(i).digest()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "sources ", name(j), " (", configs_[j].train, ") and ", name(i), " (",
          configs_[i].train,
          ") are the same corpus; keep one, with a larger weight"));
    }
  }
  if (std::none_of(validation_.begin(), validation_.end(),
                   [](const auto& loader) { return loader.has_value(); })) {
    return absl::InvalidArgumentError(
        absl::StrCat("no source has a validation corpus; build one with "
                     "--validation, or give a source the key `validation`"));
  }
  return absl::OkStatus();
}

std::string Sources::digests() const {
  std::string all;
  for (const Loader& loader : train_) {
    absl::StrAppend(&all, all.empty() ? "" : ",", loader.corpus().digest());
  }
  return all;
}

std::string Sources::ValidatedOn(int64_t sequences) const {
  std::vector<std::string> parts;
  for (const std::optional<Loader>& loader : validation_) {
    if (!loader.has_value()) continue;
    parts.push_back(
        absl::StrCat(std::min(loader->samples_per_epoch(), sequences), " ",
                     loader->corpus().digest()));
  }
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, ",");
}

absl::StatusOr<Blend> Sources::Place(const std::vector<double>& weights,
                                     const SavedRun* saved) const {
  DELINK_CHECK_EQ(weights.size(), size());
  std::vector<SourceCount> counts;
  if (saved != nullptr) counts = saved->Counts();
  std::vector<BlendSource> sources;
  for (size_t i = 0; i < size(); ++i) {
    BlendSource source{.epoch = train_[i].samples_per_epoch(),
                       .repeat = *configs_[i].repeat,
                       .weight = weights[i]};
    if (const SourceCount* count = Find(counts, corpus(i).digest())) {
      DELINK_RETURN_IF_ERROR(CheckCount(*count, saved->samples));
      source.consumed = count->samples;
      source.begin = count->begin;
      source.share = count->share;
    } else if (std::any_of(counts.begin(), counts.end(),
                           [&](const auto& c) { return c.name == name(i); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "was trained on another corpus than ", configs_[i].train,
          " (their digests differ); resume with the same corpus, at any path",
          size() > 1 ? ", or give the new one another name" : ""));
    }
    sources.push_back(source);
  }
  return Blend(std::move(sources));
}

std::vector<SourceState> Sources::StatesAt(const Blend& blend) const {
  std::vector<SourceState> states;
  for (size_t i = 0; i < size(); ++i) {
    const BlendSource& source = blend.sources()[i];
    states.push_back({.name = name(i),
                      .folder = corpus(i).dir(),
                      .corpus = corpus(i).digest(),
                      .corpus_tokens = corpus(i).tokens(),
                      .validated = validation_[i].has_value(),
                      .at = source,
                      .tokens = source.consumed * train_[i].seq()});
  }
  return states;
}

std::vector<SourceCount> Sources::Counts(
    const Blend& blend, const std::vector<SourceCount>& before) const {
  std::vector<SourceCount> counts;
  const int64_t seq = train_.front().seq();
  for (size_t i = 0; i < size(); ++i) {
    const BlendSource& source = blend.sources()[i];
    counts.push_back({.name = name(i),
                      .corpus = corpus(i).digest(),
                      .samples = source.consumed,
                      .tokens = source.consumed * seq,
                      .epochs = source.epochs(),
                      .begin = source.begin,
                      .share = source.share});
  }
  for (const SourceCount& count : before) {
    if (Find(counts, count.corpus) != nullptr) continue;
    counts.push_back(count);
    counts.back().share = 0;
  }
  return counts;
}

}  // namespace delink
