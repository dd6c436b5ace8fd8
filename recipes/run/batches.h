// The batches of a run: which rank reads which samples of which step. A pure
// function of the position in the data and the layout, so that any number of
// ranks reads the same samples in the same order, and a resumed run goes on
// where it stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "data/loader/blend.h"
#include "data/loader/loader.h"
#include "framework/step/executor.h"

namespace delink {

// How a global batch is cut: data rank r takes sequences [r M B, (r + 1) M B),
// its micro-batch m the B sequences from m B on. All stages of a pipeline take
// those of their data rank.
struct BatchCut {
  int64_t rank = 0;           // along the data axis
  int64_t ranks = 1;          // of it
  int64_t micro_batches = 1;  // M
  int64_t micro_batch = 1;    // B
  int64_t seq = 1;            // T
  bool masked = false;        // documents; see data/loader/documents.h
  int64_t local() const { return micro_batches * micro_batch; }
  int64_t global() const { return local() * ranks; }
  friend bool operator==(const BatchCut&, const BatchCut&) = default;
};

// This rank's share of the global samples [first, first + cut.global()), which
// are the next ones of `blend`. A loader for each of its sources.
absl::StatusOr<HostBatch> ReadBatch(const std::vector<Loader>& sources,
                                    const BatchCut& cut, int64_t first,
                                    Blend blend);

// The batches of a run one by one, each read while the step before is at work.
class BatchAhead {
 public:
  explicit BatchAhead(const std::vector<Loader>& sources) : sources_(sources) {}

  // As ReadBatch; at once where this is the batch that was read ahead.
  absl::StatusOr<HostBatch> Take(const BatchCut& cut, int64_t first,
                                 const Blend& blend);
  // Reads what is likely taken after the batch that these say; Take reports
  // what goes wrong.
  void ReadAhead(const BatchCut& cut, int64_t first, Blend blend);

 private:
  struct Read {
    BatchCut cut;
    int64_t first;
    Blend blend;
    absl::StatusOr<HostBatch> batch;
  };
  const std::vector<Loader>& sources_;
  std::optional<Read> read_;
};

// The same of one corpus, that is gone through once: samples at `end` and after
// count nothing.
absl::StatusOr<HostBatch> ReadBatchUntil(const Loader& loader,
                                         const BatchCut& cut, int64_t first,
                                         int64_t end);

}  // namespace delink
