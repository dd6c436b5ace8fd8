#include "recipes/run/setup/run_watch.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "parallel/watch/signals.h"

namespace delink {
namespace {

// Added for a vote to save; a vote to stop adds 1. It exceeds the number of
// ranks, so that the sum of all votes shows whether there are votes of each.
constexpr double kSaveVote = 1 << 24;

}  // namespace

absl::StatusOr<std::unique_ptr<RunWatch>> RunWatch::Start(World& world,
                                                          Options options) {
  DELINK_ASSIGN_OR_RETURN(
      std::unique_ptr<Watchdog> watchdog,
      Watchdog::Start(
          world.comm(),
          {.folder = std::move(options.folder),
           .patience = std::chrono::seconds(options.patience),
           .alike = !options.pipeline,
           .end = [&world](std::string_view m) { world.Abort(1, m); }}));
  std::unique_ptr<RunWatch> watch(new RunWatch(std::move(watchdog)));
  if (world.size() > 1) watch->signals_.emplace();
  return watch;
}

std::unique_ptr<Watchdog> RunWatch::StartEarly(World& world) {
  if (world.size() == 1 || world.local_size() < world.size()) return nullptr;
  std::string folder;
  if (world.rank() == 0) {
    std::error_code error;
    folder = std::filesystem::temp_directory_path(error) / "delink-XXXXXX";
    if (error || mkdtemp(folder.data()) == nullptr) folder.clear();
  }
  const auto agreed = BroadcastString(world.comm(), folder, 0);
  if (!agreed.ok() || agreed->empty()) return nullptr;
  auto watchdog = Watchdog::Start(
      world.comm(),
      {.folder = *agreed, .end = [&world, agreed](std::string_view message) {
         RemoveAll(*agreed).IgnoreError();
         world.Abort(1, message);
       }});
  return watchdog.ok() ? *std::move(watchdog) : nullptr;
}

void RunWatch::Begin(Lane lane, int64_t step, std::string_view what) {
  watchdog_->heartbeat().Begin(lane, step, what);
}

void RunWatch::Wait(int64_t step, std::string_view what) {
  watchdog_->heartbeat().Wait(step, what);
}

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
  // Includes signals that arrived meanwhile: ranks get a signal one after the
  // other.
  if (asked.save) saves_ = SaveRequests();
}

}  // namespace delink
