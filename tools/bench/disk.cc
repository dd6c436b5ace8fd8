#include "tools/bench/disk.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/communicator.h"
#include "framework/device/huge_pages.h"
#include "offload/tiers/disk_tier.h"
#include "tools/bench/timing.h"

namespace delink::bench {
namespace {

using offload::DiskTier;

constexpr int64_t kParts = 8;  // of the file
// Parts of a direction under way, so that the disk never waits for the next.
constexpr size_t kUnderWay = 2;

// Which no disk compresses.
HostMemory RandomMemory(int64_t bytes) {
  HostMemory memory = AllocateHugePages(bytes);
  using Words = std::array<uint32_t, 4>;
  auto* const words = static_cast<Words*>(memory.get());
  const int64_t count = bytes / static_cast<int64_t>(sizeof(Words));
  for (int64_t i = 0; i < count; ++i) {
    words[i] = Philox({}, static_cast<uint64_t>(i), 0);
  }
  return memory;
}

// One direction over `count` parts from `first` on, again and again.
struct Flow {
  bool write = false;
  int64_t first = 0, count = kParts;
};

class Disk {
 public:
  Disk(DiskTier& tier, char* memory, double seconds)
      : tier_(tier), memory_(memory), seconds_(seconds) {}

  // Moves all parts once, and more until the time is over. Bytes/s.
  absl::StatusOr<double> Measure(const Flow& flow) const {
    const auto start = std::chrono::steady_clock::now();
    std::deque<std::unique_ptr<Pending>> under_way;
    absl::Status status;
    int64_t begun = 0;
    for (;;) {
      const bool more =
          status.ok() && (begun < flow.count || Since(start) < seconds_);
      if (more) under_way.push_back(Begin(flow, begun++));
      if (under_way.empty()) break;
      if (more && under_way.size() < kUnderWay) continue;
      status.Update(under_way.front()->Wait());
      under_way.pop_front();
    }
    DELINK_RETURN_IF_ERROR(status);
    return static_cast<double>(begun * part()) / Since(start);
  }

  absl::StatusOr<DiskSpeed> Sample() const {
    DiskSpeed speed;
    DELINK_ASSIGN_OR_RETURN(speed.write, Measure({.write = true}));
    DELINK_ASSIGN_OR_RETURN(speed.read, Measure({}));
    absl::StatusOr<double> read;
    std::thread reader([&] { read = Measure({.count = kParts / 2}); });
    const absl::StatusOr<double> write =
        Measure({.write = true, .first = kParts / 2, .count = kParts / 2});
    reader.join();
    DELINK_ASSIGN_OR_RETURN(speed.both_read, read);
    DELINK_ASSIGN_OR_RETURN(speed.both_write, write);
    return speed;
  }

 private:
  int64_t part() const { return tier_.bytes() / kParts; }

  std::unique_ptr<Pending> Begin(const Flow& flow, int64_t i) const {
    const int64_t at = (flow.first + i % flow.count) * part();
    const offload::DiskRegion region = {.offset = at,
                                        .bytes = part(),
                                        .memory = memory_ + at,
                                        .slab = "of the benchmark"};
    return flow.write ? tier_.Write(region) : tier_.Read(region);
  }

  DiskTier& tier_;
  char* const memory_;
  const double seconds_;
};

std::string TemporaryFolder() {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path(error);
  return error ? "." : path.string();
}

}  // namespace

absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& where, bool quick) {
  const std::string folder = where.empty() ? TemporaryFolder() : where;
  const int64_t bytes = (quick ? 2 : 128) * kMebibyte;
  const HostMemory memory = RandomMemory(bytes);
  char* const start = static_cast<char*>(memory.get());
  const auto tier =
      DiskTier::Create({.folders = {folder},
                        .bytes = bytes,
                        .piece = std::min(kMebibyte, bytes / kParts),
                        .buffers = {{start, static_cast<size_t>(bytes)}}});
  if (!tier.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        tier.status().message(), "; name another folder by --scratch"));
  }
  const Disk disk(**tier, start, quick ? 0.002 : 0.2);
  // Writing where nothing was yet takes longer.
  DELINK_RETURN_IF_ERROR(disk.Sample().status());
  std::array<DiskSpeed, 3> samples;
  for (DiskSpeed& sample : samples) {
    DELINK_ASSIGN_OR_RETURN(sample, disk.Sample());
  }
  DiskSpeed speed{
      .folder = folder, .direct = (*tier)->direct(), .bytes = bytes};
  for (double DiskSpeed::*const rate :
       {&DiskSpeed::write, &DiskSpeed::read, &DiskSpeed::both_write,
        &DiskSpeed::both_read}) {
    std::ranges::nth_element(samples, samples.begin() + 1, {}, rate);
    speed.*rate = samples[1].*rate;
  }
  return speed;
}

}  // namespace delink::bench
