#include "recipes/run/source_log.h"

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

}  // namespace

SourceLog::SourceLog(const Sources& sources, const Blend& blend,
                     std::vector<SourceCount> before)
    : sources_(&sources), blend_(blend), before_(std::move(before)) {}

std::string SourceLog::Name(size_t i) const {
  return sources_->size() == 1 ? "the corpus " + sources_->corpus(i).dir()
                               : "source " + sources_->name(i);
}

std::string SourceLog::Shares() const {
  std::string text;
  for (size_t i = 0; i < sources_->size(); ++i) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", sources_->name(i), " ",
                    Percent(blend_.sources()[i].share));
  }
  return text;
}

void SourceLog::Begin() const {
  const std::vector<BlendSource>& all = blend_.sources();
  for (size_t i = 0; i < all.size() && all.size() > 1; ++i) {
    const auto tokens = static_cast<double>(sources_->corpus(i).tokens());
    DELINK_LOG(kInfo) << Name(i) << ": " << Percent(all[i].share)
                      << " of the samples; " << FormatCount(tokens)
                      << " tokens, read "
                      << absl::StrFormat("%.2f", all[i].epochs()) << " times"
                      << (sources_->validation(i) ? "" : "; not validated on");
  }
  if (before_.empty()) return;
  bool changed = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto count =
        std::find_if(before_.begin(), before_.end(), [&](const SourceCount& c) {
          return c.corpus == sources_->corpus(i).digest();
        });
    if (count == before_.end()) {
      DELINK_LOG(kInfo) << Name(i) << " is new to the run: it begins at 0";
    } else if (count->share != all[i].share && count->share > 0) {
      changed = true;
    }
  }
  for (const SourceCount& count : before_) {
    bool here = false;
    for (size_t i = 0; i < all.size(); ++i) {
      here = here || count.corpus == sources_->corpus(i).digest();
    }
    if (here) continue;
    changed = changed || count.share > 0;
    DELINK_LOG(kInfo) << "source " << count.name
                      << " is not in the recipe: its " << count.samples
                      << " samples stay counted, and it goes "
                      << "on from there when it comes back";
  }
  if (changed) {
    DELINK_LOG(kInfo) << "the blend is another than in the checkpoint; from "
                      << "here on " << Shares();
  }
}

void SourceLog::OnStep(const Blend& blend) {
  const Blend before = std::exchange(blend_, blend);
  bool changed = false;
  for (size_t i = 0; i < sources_->size(); ++i) {
    const BlendSource& was = before.sources()[i];
    const BlendSource& is = blend_.sources()[i];
    changed = changed || was.share != is.share;
    if (is.ended() && !was.ended()) {
      DELINK_LOG(kInfo) << Name(i) << " has ended: all its " << is.epoch
                        << " samples have been read, and repeat = false";
    }
    if (was.consumed <= was.epoch && is.consumed > is.epoch) {
      DELINK_LOG(kInfo) << Name(i) << " has ended: all its " << is.epoch
                        << " samples have been read, and are from here on "
                        << "repeated, each epoch in another order";
    }
  }
  if (changed && blend_.Has(1)) {
    DELINK_LOG(kInfo) << "from here on the samples are " << Shares();
  }
}

std::string SourceLog::Consumed() const {
  std::string text;
  for (size_t i = 0; i < sources_->size(); ++i) {
    const BlendSource& source = blend_.sources()[i];
    absl::StrAppend(&text, text.empty() ? "" : ", ", sources_->name(i), " ",
                    FormatCount(static_cast<double>(
                        source.consumed * sources_->train()[i].seq())),
                    absl::StrFormat(" tokens (%.2f epochs)", source.epochs()));
  }
  return text;
}

Json ConsumedJson(const Sources& sources, const Blend& blend) {
  Json all = Json::object();
  for (const SourceCount& count : sources.Counts(blend, {})) {
    all[count.name] = {{"samples", count.samples},
                       {"tokens", count.tokens},
                       {"epochs", count.epochs}};
  }
  return all;
}

Json SourcesJson(const Sources& sources, const Blend& blend) {
  Json all = Json::array();
  const std::vector<SourceCount> counts = sources.Counts(blend, {});
  for (size_t i = 0; i < sources.size(); ++i) {
    all.push_back({{"name", counts[i].name},
                   {"corpus", counts[i].corpus},
                   {"share", counts[i].share},
                   {"epoch_samples", blend.sources()[i].epoch},
                   {"repeat", blend.sources()[i].repeat},
                   {"samples", counts[i].samples},
                   {"tokens", counts[i].tokens},
                   {"epochs", counts[i].epochs}});
  }
  return all;
}

}  // namespace delink
