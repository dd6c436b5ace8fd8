#include "parallel/watch/watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "parallel/watch/signals.h"

namespace delink {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick(100);
// A wait up to this is ordinary, and no reason to look at the others.
constexpr milliseconds kOrdinary(700);
// The same after a signal to stop, perhaps because a rank died: mpirun then
// leaves one second.
constexpr milliseconds kOrdinaryAtEnd(150);
// The time that the speaker has before the others act for it.
constexpr milliseconds kSpeakerTime(3000);
// A look reads one file per rank, so many ranks look less often.
constexpr milliseconds kLookPerRank(5);

std::string Where(const Sighting& seen) {
  const Sighting::Doing& compute = seen.compute;
  if (compute.what.empty()) return "starting";
  std::string text =
      absl::StrFormat("in step %d, %s%s", compute.step,
                      compute.waits ? "waiting for " : "", compute.what);
  // If lanes have their own thread, a rank does two things at a time.
  if (seen.network.step == compute.step && !seen.network.what.empty() &&
      seen.network.what != compute.what) {
    absl::StrAppend(&text, " (network lane: ", seen.network.what, ")");
  }
  return text;
}

std::vector<int> Those(const std::vector<Suspect>& ranks, auto&& guilty) {
  std::vector<int> found;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (guilty(ranks[i])) found.push_back(static_cast<int>(i));
  }
  return found;
}

// Those of `candidates` that are behind the others; empty if all are equal.
std::vector<int> Behind(const std::vector<Suspect>& ranks,
                        const std::vector<int>& candidates) {
  if (candidates.empty()) return {};
  const auto progress = [&](int rank) {
    const Sighting& seen = At(ranks, rank).seen;
    return std::pair(seen.compute.count, seen.network.count);
  };
  const auto least =
      progress(*std::ranges::min_element(candidates, {}, progress));
  std::vector<int> behind = candidates;
  std::erase_if(behind, [&](int rank) { return progress(rank) != least; });
  return behind.size() < candidates.size() ? behind : std::vector<int>();
}

// Those that the others wait for; empty if nothing tells them apart.
std::vector<int> Stuck(const std::vector<Suspect>& ranks, bool alike) {
  const std::vector<int> all =
      Those(ranks, [](const Suspect& r) { return !r.seen.left; });
  std::vector<int> suspects = Those(ranks, [](const Suspect& r) {
    return !r.seen.left && !r.seen.compute.waits;
  });
  if (suspects.empty()) suspects = all;
  if (alike) {
    std::vector<int> behind = Behind(ranks, suspects);
    if (!behind.empty()) return behind;
  }
  return suspects.size() < all.size() ? suspects : std::vector<int>();
}

std::string Accuse(const std::vector<Suspect>& ranks,
                   const std::vector<int>& culprits, const char* how,
                   bool where = true) {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(culprits.size(), kNamed); ++i) {
    const int rank = culprits[i];
    absl::StrAppend(&text, i == 0 ? "" : "; ", "rank ", rank, how,
                    where ? Where(At(ranks, rank).seen) : "");
  }
  if (culprits.size() > kNamed) {
    absl::StrAppend(&text, "; and ", culprits.size() - kNamed, " more");
  }
  return text;
}

// Where a living rank that is no culprit was: one that waits, if any does.
std::string Kept(const std::vector<Suspect>& ranks,
                 const std::vector<int>& culprits) {
  std::vector<int> living =
      Those(ranks, [](const Suspect& r) { return !r.seen.left; });
  std::erase_if(living, [&](int rank) {
    return std::ranges::binary_search(culprits, rank);
  });
  if (living.empty()) return "";
  const auto waits = std::ranges::find_if(
      living, [&](int rank) { return At(ranks, rank).seen.compute.waits; });
  const int rank = waits == living.end() ? living[0] : *waits;
  return absl::StrCat("; ", Accuse(ranks, {rank}, " was "));
}

// Where all ranks are, if none is to blame.
std::string WhereAllAre(const std::vector<Suspect>& ranks) {
  const std::string first = Where(ranks[0].seen);
  const bool together = std::ranges::all_of(ranks, [&](const Suspect& r) {
    return r.seen.left || Where(r.seen) == first;
  });
  if (together) return absl::StrCat("all are ", first);
  return Accuse(ranks,
                Those(ranks, [](const Suspect& r) { return !r.seen.left; }),
                " is ");
}

}  // namespace

Verdict Judge(const std::vector<Suspect>& ranks, milliseconds waited,
              milliseconds patience, bool alike) {
  Verdict verdict;
  const std::string resume = "; go on from the last checkpoint with --resume";
  verdict.culprits = Those(ranks, [](const Suspect& r) { return r.seen.dead; });
  if (!verdict.culprits.empty()) {
    verdict.message =
        absl::StrCat(Accuse(ranks, verdict.culprits, " is gone: it was "),
                     Kept(ranks, verdict.culprits), resume);
  } else if (patience.count() == 0 || waited < patience) {
    return verdict;
  } else {
    const auto time =
        absl::StrFormat("%.3g s", static_cast<double>(waited.count()) / 1000);
    verdict.culprits =
        Those(ranks, [](const Suspect& r) { return r.silent && !r.seen.left; });
    bool where = true;
    const char* how = " gives no sign of life, stopped or cut off: it was ";
    if (verdict.culprits.empty()) {
      // The others have not waited so long for a rank that left just now.
      verdict.culprits = Those(
          ranks, [](const Suspect& r) { return r.seen.left && r.silent; });
      how = " has ended";
      where = false;
    }
    if (verdict.culprits.empty()) {
      verdict.culprits = Stuck(ranks, alike);
      how = " is stuck: it is ";
      where = true;
    }
    verdict.message =
        verdict.culprits.empty()
            ? absl::StrCat("no rank has made progress for ", time, ": ",
                           WhereAllAre(ranks),
                           "; look at the network between them", resume)
            : absl::StrCat(Accuse(ranks, verdict.culprits, how, where),
                           "; the others waited ", time, " (run.watchdog)",
                           Kept(ranks, verdict.culprits), resume);
  }
  while (std::ranges::binary_search(verdict.culprits, verdict.speaker)) {
    ++verdict.speaker;
  }
  return verdict;
}

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Start(Communicator& comm,
                                                          Options options) {
  absl::Status status;
  if (comm.rank() == 0) {
    // Remove files that dead ranks left.
    status = RemoveAll(options.folder);
    if (status.ok()) status = MakeDirectories(options.folder);
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, status));
  auto heartbeat = Heartbeat::Create(options.folder, comm.rank());
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, heartbeat.status()));
  std::unique_ptr<Watchdog> dog(new Watchdog(
      comm.rank(), comm.size(), std::move(options), *std::move(heartbeat)));
  if (comm.size() == 1) return dog;
  dog->pulses_.resize(static_cast<size_t>(comm.size()));
  dog->thread_ = std::thread([raw = dog.get()] { raw->Loop(); });
  return dog;
}

Watchdog::~Watchdog() {
  heartbeat_->Leave();
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Loop() {
  progress_ = last_tick_ = last_look_ = Clock::now();
  MutexLock lock(mutex_);
  while (!stop_) {
    lock.WaitFor(changed_, kTick);
    if (!stop_ && Tick(Clock::now())) return;
  }
}

std::vector<Suspect> Watchdog::Look(Clock::time_point now) {
  // Beats come every tick; a machine under load skips some.
  const auto silence =
      std::clamp(options_.patience / 2, 10 * kTick, milliseconds(seconds(10)));
  std::vector<Suspect> ranks;
  for (int rank = 0; rank < ranks_; ++rank) {
    Suspect suspect{.seen = ReadHeartbeat(options_.folder, rank)};
    Pulse& pulse = At(pulses_, rank);
    if (pulse.beats != suspect.seen.beats) {
      pulse = {.beats = suspect.seen.beats, .since = now};
    }
    suspect.silent = now - pulse.since >= silence;
    ranks.push_back(std::move(suspect));
  }
  return ranks;
}

// Whether the run was ended.
bool Watchdog::Tick(Clock::time_point now) {
  heartbeat_->Beat();
  const int64_t begun = heartbeat_->begun();
  // If this process was itself stopped, or starved, elapsed time means nothing.
  const bool slept = now - last_tick_ > 10 * kTick;
  last_tick_ = now;
  if (begun != begun_ || slept) {
    begun_ = begun;
    progress_ = now;
    guilty_since_ = {};
    std::ranges::fill(pulses_, Pulse());
    return false;
  }
  const auto waited = duration_cast<milliseconds>(now - progress_);
  const bool ending = StopSignal() != 0;
  if (waited < (ending ? kOrdinaryAtEnd : kOrdinary)) return false;
  if (!ending && now - last_look_ < ranks_ * kLookPerRank) return false;
  last_look_ = now;
  const Verdict verdict =
      Judge(Look(now), waited, options_.patience, options_.alike);
  if (verdict.message.empty()) return false;
  if (guilty_since_ == Clock::time_point()) guilty_since_ = now;
  const bool speaks = rank_ == verdict.speaker;
  if (!speaks && now - guilty_since_ < kSpeakerTime) return false;
  // The end that follows is no accident of this rank.
  heartbeat_->Leave();
  options_.end(verdict.message);
  return true;
}

}  // namespace delink
