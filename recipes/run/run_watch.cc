#include "recipes/run/run_watch.h"

#include "parallel/signals.h"

namespace delink {
namespace {

// A vote to save counts as much as more votes to stop than there are ranks.
constexpr double kSaveVote = 1 << 24;

}  // namespace

void RunWatch::Begin(Lane, int64_t, std::string_view) {}

double RunWatch::Vote() {
  const double stop = StopSignal() != 0 ? 1 : 0;
  return SaveRequests() > saves_ ? stop + kSaveVote : stop;
}

Asked RunWatch::AskedBy(double votes) {
  const auto count = static_cast<int64_t>(votes);
  const auto save = static_cast<int64_t>(kSaveVote);
  return {.stop = count % save > 0, .save = count >= save};
}

void RunWatch::Saved(const Asked& asked) {
  // Also those that came meanwhile: the signal reaches ranks one after the
  // other.
  if (asked.save) saves_ = SaveRequests();
}

}  // namespace delink
