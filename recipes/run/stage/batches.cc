#include "recipes/run/stage/batches.h"

#include <algorithm>
#include <utility>

#include "data/loader/documents.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Its rows do not count until they are read.
HostBatch EmptyBatch(const BatchCut& cut) {
  const auto tokens = static_cast<size_t>(cut.local() * cut.seq);
  return {.inputs = std::vector<int32_t>(tokens, 0),
          .targets = std::vector<int32_t>(tokens, kNotCounted),
          .samples = {},
          .positions = std::vector<int32_t>(cut.masked ? tokens : 0, 0)};
}

absl::Status ReadRow(const Loader& loader, int64_t sample, const BatchCut& cut,
                     int64_t row, HostBatch* batch) {
  int32_t* const inputs = &batch->inputs[row * cut.seq];
  int32_t* const targets = &batch->targets[row * cut.seq];
  DELINK_RETURN_IF_ERROR(loader.Read(sample, inputs, targets));
  if (cut.masked) {
    MaskDocuments(loader.corpus().end_of_document(), cut.seq, inputs, targets,
                  &batch->positions[row * cut.seq]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostBatch> ReadBatch(const std::vector<Loader>& sources,
                                    const BatchCut& cut, int64_t first,
                                    Blend blend) {
  HostBatch batch = EmptyBatch(cut);
  blend.Skip(cut.rank * cut.local());
  for (int64_t i = 0; i < cut.local(); ++i) {
    batch.samples.push_back(first + cut.rank * cut.local() + i);
    const Blend::Draw draw = blend.Next();
    DELINK_RETURN_IF_ERROR(
        ReadRow(sources[draw.source], draw.sample, cut, i, &batch));
  }
  return batch;
}

absl::StatusOr<HostBatch> BatchAhead::Take(const BatchCut& cut, int64_t first,
                                           const Blend& blend) {
  std::optional<Read> read = std::exchange(read_, std::nullopt);
  if (!read.has_value() || read->cut != cut || read->first != first ||
      read->blend != blend) {
    return ReadBatch(sources_, cut, first, blend);
  }
  return std::move(read->batch);
}

void BatchAhead::ReadAhead(const BatchCut& cut, int64_t first, Blend blend) {
  blend.Skip(cut.global());
  if (!blend.Has(cut.global())) return;
  first += cut.global();
  read_ = Read{cut, first, blend, ReadBatch(sources_, cut, first, blend)};
}

absl::StatusOr<HostBatch> ReadBatchUntil(const Loader& loader,
                                         const BatchCut& cut, int64_t first,
                                         int64_t end) {
  HostBatch batch = EmptyBatch(cut);
  for (int64_t i = 0; i < cut.local(); ++i) {
    const int64_t sample = first + cut.rank * cut.local() + i;
    batch.samples.push_back(sample);
    if (sample >= end) continue;
    DELINK_RETURN_IF_ERROR(ReadRow(loader, sample, cut, i, &batch));
  }
  return batch;
}

}  // namespace delink
