// The batches of a run: which rank reads which samples of which step. It is a
// pure function of the position in the data and the layout. So any number of
// ranks reads the same samples in the same order, and a resumed run continues
// where it stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "data/loader/blend.h"
#include "data/loader/loader.h"
#include "framework/step/engine/executor.h"

namespace delink {

// How a global batch is divided: data rank r takes the M B sequences from
// r M B on; its micro-batch m is the B sequences of these from m B on. All
// pipeline stages of a data rank take the same sequences.
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
// are the next ones of `blend`. `sources`: a loader for each of its sources.
absl::StatusOr<HostBatch> ReadBatch(const std::vector<Loader>& sources,
                                    const BatchCut& cut, int64_t first,
                                    Blend blend);

// The batches of a run in order, each read while the step before it runs.
class BatchAhead {
 public:
  explicit BatchAhead(const std::vector<Loader>& sources) : sources_(sources) {}

  // As ReadBatch. Returns at once if this batch was read ahead.
  absl::StatusOr<HostBatch> Take(const BatchCut& cut, int64_t first,
                                 const Blend& blend);
  // Reads the batch that probably follows the one described by the arguments.
  // Take reports its errors.
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

// The same for a single pass over one corpus: samples from `end` on do not
// count.
absl::StatusOr<HostBatch> ReadBatchUntil(const Loader& loader,
                                         const BatchCut& cut, int64_t first,
                                         int64_t end);

}  // namespace delink
