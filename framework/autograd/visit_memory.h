// Where the tensors of one visit live.
//
// A visit is one layer at work on one micro-batch. Its tape asks for memory in
// an order that depends only on the layer and the batch's shape, so the memory
// of a visit is planned once and the plan is replayed. A measuring run on the
// meta device records which pieces are asked for, how long each is used and
// which of them backward reads. The plan gives every piece an offset. Real
// visits take the offsets in order and allocate nothing.
//
//   kEval     forward with dropout off, nothing kept
//   kForward  forward as in training, nothing kept (the first pass under
//             recompute)
//   kRecord   forward as in training; keeps what backward reads in the slot
//   kBackward, or two halves, between which other visits may run:
//   kBackwardInput   gradients of inputs; keeps those that the second half
//                    reads in this phase's own slot
//   kBackwardWeight  gradients of parameters
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/device/backend.h"

namespace delink {

enum class Phase : uint8_t {
  kEval,
  kForward,
  kRecord,
  kBackward,
  kBackwardInput,
  kBackwardWeight
};
inline constexpr int kPhases = 6;

// kSlot: kept from forward to backward of the visit, or from the first half of
// backward to the second. kWorkspace: reused as soon as its last reader is
// done. kBoundary: the layer's output, which belongs to the next layer's slot.
enum class Region : uint8_t { kSlot, kWorkspace, kBoundary };

struct Placement {
  Region region = Region::kWorkspace;
  int64_t offset = 0;  // bytes from the start of the region
  int64_t bytes = 0;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct PhasePlan {
  std::vector<Placement> placements;  // in the order they are asked for
  int64_t slot_bytes = 0;
  int64_t workspace_bytes = 0;
  friend bool operator==(const PhasePlan&, const PhasePlan&) = default;
};

using VisitPlan = std::array<PhasePlan, kPhases>;  // indexed by Phase

// A tape asks it for memory. Ids count up from 0 in each phase. Time passes in
// ticks, one for each op.
class VisitMemory {
 public:
  struct Block {
    void* data = nullptr;
    int id = -1;
  };
  virtual ~VisitMemory() = default;
  virtual void Begin(Phase phase) = 0;
  virtual Block Take(int64_t bytes) = 0;
  // The block is read or written at this tick.
  virtual void Use(int id) = 0;
  // The block is read by a later phase.
  virtual void Save(int id) = 0;
  // The block is the visit's output.
  virtual void MarkOutput(int id) = 0;
  virtual void Tick() = 0;
};

// Hands out addresses of the meta device and writes the plan.
class MeasuringMemory final : public VisitMemory {
 public:
  void Begin(Phase phase) override;
  Block Take(int64_t bytes) override;
  void Use(int id) override;
  void Save(int id) override;
  void MarkOutput(int id) override;
  void Tick() override { ++tick_; }

  // The plan of the phase under way.
  PhasePlan Plan() const;

 private:
  struct Piece {
    int64_t bytes = 0;
    int64_t first = 0, last = 0;  // ticks, inclusive
    bool saved = false;
    bool output = false;
  };
  std::vector<Piece> pieces_;
  int64_t tick_ = 0;
};

// Replays a plan over memory that somebody else owns.
class PlannedMemory final : public VisitMemory {
 public:
  struct Bases {
    void* slot = nullptr;
    void* workspace = nullptr;
    void* boundary = nullptr;
  };
  explicit PlannedMemory(const VisitPlan& plan) : plan_(&plan) {}
  // Where the regions of the next visit are.
  void Bind(const Bases& bases) { bases_ = bases; }

  void Begin(Phase phase) override;
  Block Take(int64_t bytes) override;
  void Use(int) override {}
  void Save(int) override {}
  void MarkOutput(int) override {}
  void Tick() override {}

 private:
  const VisitPlan* plan_;
  const PhasePlan* phase_ = nullptr;
  Bases bases_;
  size_t next_ = 0;
};

// Takes every piece from the device and keeps it until destruction: for tests,
// tools and generation, where shapes change from call to call.
class HeapMemory final : public VisitMemory {
 public:
  explicit HeapMemory(Device& device) : device_(&device) {}
  ~HeapMemory() override;
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;

  void Begin(Phase) override {}
  // Running out of memory is fatal here.
  Block Take(int64_t bytes) override;
  void Use(int) override {}
  void Save(int) override {}
  void MarkOutput(int) override {}
  void Tick() override {}

 private:
  struct Piece {
    void* data;
    int64_t bytes;
  };
  Device* device_;
  std::vector<Piece> pieces_;
};

}  // namespace delink
