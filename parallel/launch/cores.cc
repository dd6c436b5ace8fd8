#include "parallel/launch/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Larger than any machine's; sched_getaffinity refuses a mask that is too
// small.
constexpr int kMaxCpus = 8192;
using Mask = std::array<int64_t, kMaxCpus / 64>;

bool Has(const Mask& mask, int cpu) {
  return ((static_cast<uint64_t>(mask[cpu / 64]) >> (cpu % 64)) & 1) != 0;
}

absl::StatusOr<Mask> MaskOf(pid_t process) {
  Mask mask{};
  if (sched_getaffinity(process, sizeof(mask),
                        reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    return absl::InternalError(
        absl::StrFormat("sched_getaffinity: %s", std::strerror(errno)));
  }
  return mask;
}

absl::Status Bind(const std::vector<int>& cpus) {
  Mask mask{};
  for (const int cpu : cpus) mask[cpu / 64] |= int64_t{1} << (cpu % 64);
  if (sched_setaffinity(0, sizeof(mask),
                        reinterpret_cast<const cpu_set_t*>(mask.data())) != 0) {
    return absl::InternalError(absl::StrFormat(
        "cannot bind to cpus %s: %s", CpuList(cpus), std::strerror(errno)));
  }
  return absl::OkStatus();
}

int ReadTopology(int cpu, const std::string& what, int otherwise) {
  std::ifstream file(
      absl::StrFormat("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what));
  int value = otherwise;
  return file >> value ? value : otherwise;
}

// Hardware threads of a core are adjacent, so that ranks do not share a core
// without need.
std::vector<int> CpusByCore(const Mask& mask) {
  std::vector<std::tuple<int, int, int>> order;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!Has(mask, cpu)) continue;
    order.emplace_back(ReadTopology(cpu, "physical_package_id", 0),
                       ReadTopology(cpu, "core_id", cpu), cpu);
  }
  std::ranges::sort(order);
  std::vector<int> cpus;
  for (const auto& [package, core, cpu] : order) cpus.push_back(cpu);
  return cpus;
}

// Processors' worth of time that the cgroup grants, rounded up; 0 for no limit.
int ReadQuota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  int64_t quota = 0;
  int64_t period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>((quota + period - 1) / period);
}

// Whether all ranks of `local` have the same mask.
absl::StatusOr<bool> SameEverywhere(Communicator& local, const Mask& mask) {
  std::vector<Mask> all(local.size());
  all[local.rank()] = mask;
  DELINK_RETURN_IF_ERROR(
      local.AllGather(all.data(), mask.size(), DType::kI64)->Wait());
  return std::ranges::all_of(all, [&](const Mask& m) { return m == mask; });
}

}  // namespace

CoreShare ShareOfCores(const std::vector<int>& pool, int rank, int size,
                       int quota, int threads) {
  const int64_t cpus = static_cast<int64_t>(pool.size());
  const int64_t begin = rank * cpus / size;
  const int64_t end = std::max((rank + 1) * cpus / size, begin + 1);
  CoreShare share{{pool.begin() + begin, pool.begin() + end}};
  share.threads = static_cast<int>(end - begin);
  if (quota > 0 && quota < cpus) {
    share = {pool, std::clamp(quota / size, 1, share.threads)};
  }
  if (threads > static_cast<int>(share.cpus.size())) share.cpus = pool;
  if (threads > 0) share.threads = threads;
  return share;
}

bool BoundByDefault(const Environment& environment) {
  return environment("OMPI_MCA_orte_bound_at_launch").has_value() &&
         !environment("OMPI_MCA_hwloc_base_binding_policy").has_value();
}

absl::StatusOr<CoreShare> TakeCores(Communicator& local, int threads) {
  const absl::StatusOr<Mask> own = MaskOf(0);
  absl::StatusOr<Mask> mask = own;
  if (own.ok() && BoundByDefault(ProcessEnvironment)) {
    mask = MaskOf(FindLauncher());
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(local, mask.status()));
  const std::vector<int> bound = CpusByCore(*own);
  const std::vector<int> pool = CpusByCore(*mask);
  DELINK_ASSIGN_OR_RETURN(const bool same, SameEverywhere(local, *mask));
  const int rank = same ? local.rank() : 0;
  const int size = same ? local.size() : 1;
  CoreShare share = ShareOfCores(pool, rank, size, ReadQuota(), threads);
  if (share.cpus != bound) DELINK_RETURN_IF_ERROR(Bind(share.cpus));
  return share;
}

std::string CpuList(const std::vector<int>& cpus) {
  std::vector<int> sorted = cpus;
  std::ranges::sort(sorted);
  std::string list;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) {
      ++last;
    }
    absl::StrAppend(&list, list.empty() ? "" : ",", sorted[i]);
    if (last > i) absl::StrAppend(&list, "-", sorted[last]);
    i = last + 1;
  }
  return list;
}

}  // namespace delink
