#include "tools/bench/update_suite.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "offload/rates/param_forms.h"

namespace delink::bench {
namespace {

// The ways that are measured in turn.
enum Way { kFused, kThreePasses, kMemory, kMemoryPastCaches, kWays };

// Seconds of each way, by turn.
struct TurnSeconds {
  std::vector<double> of[kWays];
};

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

void RunWay(UpdateCase& update, Way way, ThreadPool& pool) {
  switch (way) {
    case kFused:
      return update.Fused(pool);
    case kThreePasses:
      return update.ThreePasses(pool);
    default:
      return update.MoveAlone(pool, way == kMemoryPastCaches);
  }
}

Timing RatioOfTurns(const std::vector<double>& over,
                    const std::vector<double>& of) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.size(); ++i) ratios.push_back(over[i] / of[i]);
  return Summarise(std::move(ratios));
}

UpdateTimes TimesOf(const TurnSeconds& samples, Way memory) {
  return {.fused = Summarise(samples.of[kFused]),
          .three_passes = Summarise(samples.of[kThreePasses]),
          .memory = Summarise(samples.of[memory]),
          .ratio = RatioOfTurns(samples.of[kThreePasses], samples.of[kFused]),
          .of_memory = RatioOfTurns(samples.of[memory], samples.of[kFused])};
}

UpdateMeasure MeasureCase(UpdateCase& update, int threads, int64_t turns) {
  ThreadPool pool(threads);
  TurnSeconds wall, processor;
  for (int64_t turn = -1; turn < turns; ++turn) {
    for (int way = 0; way < kWays; ++way) {
      const double before = ProcessorSeconds();
      const auto begin = std::chrono::steady_clock::now();
      RunWay(update, static_cast<Way>(way), pool);
      const double took = Since(begin);
      const double worked = (ProcessorSeconds() - before) / threads;
      if (turn < 0) continue;  // pages and threads are new
      wall.of[way].push_back(took);
      processor.of[way].push_back(worked);
    }
  }
  // The faster one by CPU time, which other processes disturb least.
  const bool past_caches = Summarise(processor.of[kMemoryPastCaches]).median <
                           Summarise(processor.of[kMemory]).median;
  const Way memory = past_caches ? kMemoryPastCaches : kMemory;
  return {.threads = threads,
          .bytes = update.bytes(),
          .past_caches = past_caches,
          .wall = TimesOf(wall, memory),
          .processor = TimesOf(processor, memory)};
}

}  // namespace

absl::StatusOr<std::vector<UpdateMeasure>> MeasureUpdates(
    const UpdateOptions& options,
    const std::function<void(const std::string&)>& progress) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  std::vector<UpdateMeasure> measures;
  for (const MasterForm master :
       {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone}) {
    for (const StateStorage moments :
         {StateStorage::kExact, StateStorage::kBF16, StateStorage::kBlock8}) {
      const UpdateForm form = {.master = master, .moments = moments};
      progress(absl::StrCat("measuring updates, master ",
                            offload::WordOf(master), ", moments ",
                            offload::WordOf(moments)));
      DELINK_ASSIGN_OR_RETURN(
          const std::unique_ptr<UpdateCase> update,
          UpdateCase::Create(*device, form, options.parameters));
      for (const int threads : options.threads) {
        UpdateMeasure measure = MeasureCase(*update, threads, options.turns);
        measure.form = form;
        measure.parameters = options.parameters;
        measures.push_back(std::move(measure));
      }
    }
  }
  return measures;
}

}  // namespace delink::bench
