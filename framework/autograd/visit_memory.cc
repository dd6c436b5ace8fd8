#include "framework/autograd/visit_memory.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink {
namespace {

constexpr uintptr_t kFirstMeasuredAddress = uintptr_t{1} << 61;

struct Interval {
  int64_t first, last, begin, end;  // ticks, bytes
};

// The lowest aligned offset at which `bytes` fit beside everything that lives
// at the same time.
int64_t LowestOffset(const std::vector<Interval>& placed, int64_t first,
                     int64_t last, int64_t bytes) {
  std::vector<std::pair<int64_t, int64_t>> busy;
  for (const Interval& other : placed) {
    if (other.first <= last && first <= other.last) {
      busy.emplace_back(other.begin, other.end);
    }
  }
  std::sort(busy.begin(), busy.end());
  int64_t offset = 0;
  for (const auto& [begin, end] : busy) {
    if (offset + bytes <= begin) break;
    offset = std::max(offset, AlignUp(end));
  }
  return offset;
}

}  // namespace

void MeasuringMemory::Begin(Phase) {
  pieces_.clear();
  tick_ = 0;
}

VisitMemory::Block MeasuringMemory::Take(int64_t bytes) {
  const int id = static_cast<int>(pieces_.size());
  pieces_.push_back({.bytes = bytes, .first = tick_, .last = tick_});
  const uintptr_t at =
      kFirstMeasuredAddress + (static_cast<uintptr_t>(id) << 40);
  return {reinterpret_cast<void*>(at), id};
}

void MeasuringMemory::Use(int id) { pieces_[id].last = tick_; }
void MeasuringMemory::Save(int id) { pieces_[id].saved = true; }
void MeasuringMemory::MarkOutput(int id) { pieces_[id].output = true; }

PhasePlan MeasuringMemory::Plan() const {
  PhasePlan plan;
  std::vector<Interval> placed;
  for (const Piece& piece : pieces_) {
    Placement at{.bytes = piece.bytes};
    if (piece.saved) {
      // An output that backward reads too is kept, and copied out.
      at.region = Region::kSlot;
      at.offset = plan.slot_bytes;
      plan.slot_bytes += AlignUp(piece.bytes);
    } else if (piece.output) {
      at.region = Region::kBoundary;
    } else {
      at.offset = LowestOffset(placed, piece.first, piece.last, piece.bytes);
      placed.push_back(
          {piece.first, piece.last, at.offset, at.offset + piece.bytes});
      plan.workspace_bytes =
          std::max(plan.workspace_bytes, AlignUp(at.offset + piece.bytes));
    }
    plan.placements.push_back(at);
  }
  return plan;
}

void PlannedMemory::Begin(Phase phase) {
  phase_ = &At(*plan_, phase);
  next_ = 0;
}

VisitMemory::Block PlannedMemory::Take(int64_t bytes) {
  DELINK_CHECK(phase_ != nullptr);
  DELINK_CHECK_LT(next_, phase_->placements.size())
      << "the visit asks for more than it was measured to";
  const Placement& at = phase_->placements[next_];
  DELINK_CHECK_EQ(at.bytes, bytes) << "piece " << next_ << " of the visit";
  void* base = nullptr;
  switch (at.region) {
    case Region::kSlot:
      base = bases_.slot;
      break;
    case Region::kWorkspace:
      base = bases_.workspace;
      break;
    case Region::kBoundary:
      base = bases_.boundary;
      break;
  }
  DELINK_CHECK(base != nullptr) << "region of piece " << next_;
  return {static_cast<char*>(base) + at.offset, static_cast<int>(next_++)};
}

HeapMemory::~HeapMemory() {
  for (const Piece& piece : pieces_) device_->Free(piece.data, piece.bytes);
}

VisitMemory::Block HeapMemory::Take(int64_t bytes) {
  absl::StatusOr<void*> data = device_->Allocate(bytes, "tensors");
  DELINK_CHECK(data.ok()) << std::string(data.status().message());
  pieces_.push_back({*data, bytes});
  return {*data, static_cast<int>(pieces_.size()) - 1};
}

}  // namespace delink
