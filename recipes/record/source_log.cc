#include "recipes/record/source_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/log.h"
#include "recipes/record/progress.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

std::string Percent(double share) {
  return absl::StrFormat("%.1f%%", 100 * share);
}

std::string NameOf(const std::vector<SourceState>& sources, size_t i) {
  return sources.size() == 1 ? "the corpus " + sources[i].folder
                             : "source " + sources[i].name;
}

// "web 66.7%, code 33.3%"
std::string Shares(const std::vector<SourceState>& sources) {
  std::string text;
  for (const SourceState& source : sources) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", source.name, " ",
                    Percent(source.at.share));
  }
  return text;
}

// Logs how the sources differ from those in a checkpoint's counts.
void SayWhatIsOther(const std::vector<SourceState>& sources,
                    const std::vector<SourceCount>& counts) {
  bool changed = false;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto count =
        std::ranges::find(counts, sources[i].corpus, &SourceCount::corpus);
    if (count == counts.end()) {
      DELINK_LOG(kInfo) << NameOf(sources, i)
                        << " is new to the run: it begins at its first sample";
    } else if (count->share != sources[i].at.share && count->share > 0) {
      changed = true;
    }
  }
  for (const SourceCount& count : counts) {
    if (std::ranges::find(sources, count.corpus, &SourceState::corpus) !=
        sources.end()) {
      continue;
    }
    changed = changed || count.share > 0;
    DELINK_LOG(kInfo) << "source " << count.name
                      << " is not in the recipe: its " << count.samples
                      << " samples stay counted, and it "
                      << "continues from there if it returns";
  }
  if (changed) {
    DELINK_LOG(kInfo) << "the blend differs from the checkpoint's; from "
                      << "here on " << Shares(sources);
  }
}

}  // namespace

void SourceLog::Begin(const std::vector<SourceState>& sources,
                      const std::vector<SourceCount>& counts) {
  sources_ = sources;
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i) {
    const SourceState& source = sources[i];
    const auto tokens = static_cast<double>(source.corpus_tokens);
    DELINK_LOG(kInfo) << NameOf(sources, i) << ": " << Percent(source.at.share)
                      << " of the samples; " << FormatCount(tokens)
                      << " tokens, read "
                      << absl::StrFormat("%.2f", source.at.epochs()) << " times"
                      << (source.validated ? "" : "; not validated on");
  }
  if (!counts.empty()) SayWhatIsOther(sources, counts);
}

void SourceLog::OnStep(const std::vector<SourceState>& sources) {
  const std::vector<SourceState> before = std::exchange(sources_, sources);
  bool changed = false, any = false;
  for (size_t i = 0; i < sources.size(); ++i) {
    const BlendSource& was = before[i].at;
    const BlendSource& is = sources[i].at;
    changed = changed || was.share != is.share;
    any = any || is.share > 0;
    if (is.ended() && !was.ended()) {
      DELINK_LOG(kInfo) << NameOf(sources, i) << " has ended: all its "
                        << is.epoch
                        << " samples have been read, and repeat = false";
    }
    if (was.consumed <= was.epoch && is.consumed > is.epoch) {
      DELINK_LOG(kInfo) << NameOf(sources, i) << " has ended: all its "
                        << is.epoch
                        << " samples have been read; from here on they are "
                        << "repeated, each epoch in another order";
    }
  }
  if (changed && any) {
    DELINK_LOG(kInfo) << "from here on the samples are " << Shares(sources);
  }
}

std::string ConsumedText(const std::vector<SourceState>& sources) {
  std::string text;
  for (const SourceState& source : sources) {
    absl::StrAppend(
        &text, text.empty() ? "" : ", ", source.name, " ",
        FormatCount(static_cast<double>(source.tokens)),
        absl::StrFormat(" tokens (%.2f epochs)", source.at.epochs()));
  }
  return text;
}

Json ConsumedJson(const std::vector<SourceState>& sources) {
  Json all = Json::object();
  for (const SourceState& source : sources) {
    all[source.name] = {{"samples", source.at.consumed},
                        {"tokens", source.tokens},
                        {"epochs", source.at.epochs()}};
  }
  return all;
}

Json SourcesJson(const std::vector<SourceState>& sources) {
  Json all = Json::array();
  for (const SourceState& source : sources) {
    all.push_back({{"name", source.name},
                   {"corpus", source.corpus},
                   {"share", source.at.share},
                   {"epoch_samples", source.at.epoch},
                   {"repeat", source.at.repeat},
                   {"samples", source.at.consumed},
                   {"tokens", source.tokens},
                   {"epochs", source.at.epochs()}});
  }
  return all;
}

}  // namespace delink
