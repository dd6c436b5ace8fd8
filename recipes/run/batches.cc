#include "recipes/run/batches.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "framework/base/status_macros.h"

namespace delink {
namespace {
constexpr int32_t kNotCounted = -1;
}  // namespace

absl::StatusOr<HostBatch> ReadBatch(const Loader& loader, const BatchCut& cut,
                                    int64_t first) {
  return ReadBatchUntil(loader, cut, first,
                        std::numeric_limits<int64_t>::max());
}

absl::StatusOr<HostBatch> BatchAhead::Take(const BatchCut& cut, int64_t first) {
  std::optional<Read> read = std::exchange(read_, std::nullopt);
  if (!read.has_value() || read->cut != cut || read->first != first) {
    return ReadBatch(loader_, cut, first);
  }
  return std::move(read->batch);
}

void BatchAhead::ReadAhead(const BatchCut& cut, int64_t first) {
  read_ = Read{cut, first, ReadBatch(loader_, cut, first)};
}

absl::StatusOr<HostBatch> ReadBatchUntil(const Loader& loader,
                                         const BatchCut& cut, int64_t first,
                                         int64_t end) {
  const auto tokens = static_cast<size_t>(cut.local() * cut.seq);
  HostBatch batch{.inputs = std::vector<int32_t>(tokens, 0),
                  .targets = std::vector<int32_t>(tokens, kNotCounted),
                  .samples = {}};
  for (int64_t i = 0; i < cut.local(); ++i) {
    const int64_t sample = first + cut.rank * cut.local() + i;
    batch.samples.push_back(sample);
    if (sample >= end) continue;
    DELINK_RETURN_IF_ERROR(loader.Read(sample, &batch.inputs[i * cut.seq],
                                       &batch.targets[i * cut.seq]));
  }
  return batch;
}

}  // namespace delink
