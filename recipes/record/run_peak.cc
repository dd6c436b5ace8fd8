#include "recipes/record/run_peak.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/cuda/open_library.h"
#include "parallel/launch/launcher.h"
#include "recipes/record/environment.h"
#include "recipes/record/machine_peak.h"

namespace delink {
namespace {

nlohmann::json ReadKept(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  nlohmann::json kept = text.ok() ? ParseJson(*text) : nlohmann::json::object();
  return kept.is_object() ? kept : nlohmann::json::object();
}

double KeptPeak(const std::string& path, const std::string& key) {
  const nlohmann::json kept = ReadKept(path);
  const auto it = kept.find(key);
  return it != kept.end() && it->is_number() ? it->get<double>() : 0;
}

// Where a rank's peak is kept.
struct Place {
  std::string path, key;
};

Place PlaceOf(const Device& device, DType dtype, int threads) {
  const std::string folder = cuda::CacheFolder();
  return {.path = folder.empty() ? "" : JoinPath(folder, "matmul_peak.json"),
          .key = absl::StrCat(HostName(), ", ", ProcessorName(), ", ",
                              device.name(), ", ", threads, " thread(s), ",
                              absl::string_view(ToString(dtype)))};
}

// Whether this process has not measured the peak yet; true once per process and
// peak, even with several runs, or with ranks that are threads.
bool IsUnmeasured(const Place& place) {
  static Mutex mutex;
  static std::set<std::pair<std::string, std::string>> measured;
  const MutexLock lock(mutex);
  return measured.insert({place.path, place.key}).second;
}

}  // namespace

double BestPeak(const std::string& path, const std::string& key,
                double measured) {
  const double before = KeptPeak(path, key);
  if (path.empty() || measured <= before) return std::max(before, measured);
  nlohmann::json kept = ReadKept(path);
  kept[key] = measured;
  // If it cannot be stored, the peak is for this run only.
  if (MakeDirectories(ParentPath(path)).ok()) {
    WriteFileAtomically(path, JsonText(kept, 1) + "\n").IgnoreError();
  }
  return measured;
}

double RankPeak(Device& device, DType dtype, int threads, bool anew) {
  const Place place = PlaceOf(device, dtype, threads);
  const double kept = KeptPeak(place.path, place.key);
  const bool measure = anew && IsUnmeasured(place);
  if (kept > 0 && !measure) return kept;
  // On the first measurement a CPU may be busy with something else.
  const int times = kept > 0 || IsCuda(device.kind()) ? 1 : 4;
  double best = 0;
  for (int i = 0; i < times; ++i) {
    best = std::max(best, RunMatmulPeak(device, dtype));
  }
  return BestPeak(place.path, place.key, best);
}

absl::StatusOr<RunPeak> RunPeak::Measure(World& world, Device& device,
                                         DType dtype, int threads) {
  const double mine = RankPeak(device, dtype, threads, /*anew=*/true);
  DELINK_ASSIGN_OR_RETURN(const double all,
                          AllReduceScalar(world.comm(), mine, ReduceOp::kSum));
  if (IsCuda(device.kind())) return RunPeak(all, nullptr);
  // Assumes that all ranks are equally fast.
  return RunPeak(all, [place = PlaceOf(device, dtype, threads), dtype,
                       ranks = world.size()] {
    return ranks * BestPeak(place.path, place.key, MeasureMatmulPeak(dtype));
  });
}

bool RunPeak::Reached(double flops) {
  constexpr int kPause = 100;
  if (pause_ > 0) --pause_;
  if (flops <= flops_ || pause_ > 0 || !again_) return false;
  pause_ = kPause;
  const double again = again_();
  if (again <= flops_) return false;
  flops_ = again;
  return true;
}

}  // namespace delink
