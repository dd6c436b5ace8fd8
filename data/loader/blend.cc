#include "data/loader/blend.h"

#include <cmath>
#include <utility>

#include "framework/base/check.h"

namespace delink {
namespace {

// The share of each source; 0 for those that have ended.
std::vector<double> Shares(const std::vector<BlendSource>& sources) {
  double sum = 0;
  for (const BlendSource& source : sources) {
    DELINK_CHECK(std::isfinite(source.weight) && source.weight >= 0)
        << source.weight;
    if (!source.ended()) sum += source.weight;
  }
  std::vector<double> shares;
  for (const BlendSource& source : sources) {
    shares.push_back(source.ended() || sum == 0 ? 0 : source.weight / sum);
  }
  return shares;
}

}  // namespace

Blend::Blend(std::vector<BlendSource> sources) : sources_(std::move(sources)) {
  Begin();
}

// Continues the blend if the shares are unchanged, else begins it anew.
void Blend::Begin() {
  const std::vector<double> shares = Shares(sources_);
  bool same = true;
  for (size_t i = 0; i < sources_.size(); ++i) {
    DELINK_CHECK_GT(sources_[i].epoch, 0);
    same = same && sources_[i].share == shares[i];
  }
  samples_ = 0;
  int64_t present = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    BlendSource& source = sources_[i];
    if (!same) source.begin = source.consumed;
    source.share = shares[i];
    if (!InBlend(source)) continue;
    samples_ += source.consumed - source.begin;
    ++present;
  }
  slack_ = present < 2 ? 0 : 1.0 / static_cast<double>(2 * present - 2);
}

void Blend::SetWeights(const std::vector<double>& weights) {
  DELINK_CHECK_EQ(weights.size(), sources_.size());
  for (size_t i = 0; i < weights.size(); ++i) sources_[i].weight = weights[i];
  Begin();
}

Blend::Draw Blend::Next() {
  DELINK_CHECK(Has(1)) << "every source has ended";
  const auto now = static_cast<double>(samples_ + 1);
  size_t next = sources_.size();
  double soonest = 0;
  size_t last = sources_.size();  // the source that lags most
  double most = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const BlendSource& source = sources_[i];
    if (!InBlend(source)) continue;
    const auto count = static_cast<double>(source.consumed - source.begin);
    const double lag = now * source.share - count;
    if (last == sources_.size() || lag > most) {
      last = i;
      most = lag;
    }
    if (lag < slack_) continue;
    const double due = (count + 1 - slack_) / source.share;
    if (next == sources_.size() || due < soonest) {
      next = i;
      soonest = due;
    }
  }
  // There is always an eligible source, except for rounding of the shares.
  if (next == sources_.size()) next = last;
  BlendSource& source = sources_[next];
  const Draw draw{.source = next, .sample = source.consumed};
  ++source.consumed;
  ++samples_;
  if (source.ended()) Begin();
  return draw;
}

void Blend::Skip(int64_t samples) {
  for (int64_t i = 0; i < samples; ++i) Next();
}

bool Blend::Has(int64_t samples) const {
  int64_t left = 0;
  for (const BlendSource& source : sources_) {
    if (!InBlend(source)) continue;
    if (source.repeat) return true;
    left += source.epoch - source.consumed;
  }
  return left >= samples;
}

Blend Blend::Endless() const {
  Blend endless = *this;
  for (BlendSource& source : endless.sources_) source.repeat = true;
  if (!endless.Has(1)) endless.Begin();
  return endless;
}

}  // namespace delink
