#include "framework/step/program/slot_scan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/check.h"

namespace delink {
namespace {

constexpr int32_t kNothing = -1;

// A use of a number: from one instruction to another, both included.
struct Stay {
  int32_t begin = 0;
  int32_t end = std::numeric_limits<int32_t>::max();
};

// Numbers of a pool, the lowest free one first.
class NumberPool {
 public:
  int32_t Take() { return Take({}); }
  // For all of `stays`, of which the first begins now.
  int32_t Take(const std::vector<Stay>& stays) {
    auto number = free_.begin();
    while (number != free_.end() && !Fits(*number, stays)) ++number;
    const int32_t taken = number == free_.end() ? size_++ : *number;
    if (number != free_.end()) free_.erase(number);
    for (const Stay& stay : stays) reserved_[taken][stay.begin] = stay.end;
    return taken;
  }
  // At the beginning of a later stay.
  void TakeAgain(int32_t number) {
    DELINK_CHECK_EQ(free_.erase(number), size_t{1}) << "a slot is not free";
  }
  void Free(int32_t number) { free_.insert(number); }
  int32_t size() const { return size_; }

 private:
  bool Fits(int32_t number, const std::vector<Stay>& stays) const {
    const auto found = reserved_.find(number);
    if (found == reserved_.end()) return true;
    const std::map<int32_t, int32_t>& others = found->second;
    return std::none_of(stays.begin(), stays.end(), [&](const Stay& stay) {
      const auto next = others.upper_bound(stay.end);
      return next != others.begin() && std::prev(next)->second >= stay.begin;
    });
  }

  std::set<int32_t> free_;
  // By number: begins and ends of its stays, if the program stores slots.
  std::map<int32_t, std::map<int32_t, int32_t>> reserved_;
  int32_t size_ = 0;
};

class SlotScan {
 public:
  SlotScan(const Program& program, Analysis* analysis)
      : program_(program),
        shape_(program.shape),
        out_(*analysis),
        has_backward_(shape_.layers,
                      std::vector<bool>(shape_.micro_batches, false)) {
    const int32_t classes = SlotClasses(shape_);
    pools_.resize(classes + (shape_.stages > 1 ? 1 : 0));
    held_.resize(classes);
    stored_.resize(classes);
    for (int32_t layer = 0; layer < shape_.layers; ++layer) {
      const bool here = StageOf(shape_, layer) == program.stage;
      out_.pool_of.push_back(here ? SlotClassOf(shape_, layer) : classes);
    }
    const std::vector<int32_t> none(shape_.micro_batches, kNothing);
    out_.slot_of.assign(shape_.layers, none);
    out_.held_of.assign(shape_.layers, none);
    out_.stored_of.assign(shape_.layers, none);
    out_.boundary_of.assign(ChunkOf(shape_, shape_.layers - 1) + 1, none);
    for (const Instruction& i : program.instructions) {
      if (i.op == Op::kBackward || i.op == Op::kBackwardWeight) {
        has_backward_[i.layer][i.micro_batch] = true;
      }
    }
  }

  void Run() {
    if (!shape_.copies.empty()) ScanCopies();
    if (!shape_.whole_class.empty()) ScanWholes();
    FindStays();
    for (const Instruction& i : program_.instructions) {
      if (i.op == Op::kForward) Forward(i.layer, i.micro_batch);
      if (i.op == Op::kLoss) Loss(i);
      if (i.op == Op::kBackward) Backward(i.layer, i.micro_batch);
      if (i.op == Op::kBackwardInput) Hold(i.layer, i.micro_batch);
      if (i.op == Op::kBackwardWeight) LetGo(i.layer, i.micro_batch);
      if (i.op == Op::kSend) Send(i);
      if (i.op == Op::kRecv) Receive(i);
      if (i.op == Op::kStoreSlot) Store(i.layer, i.micro_batch);
      if (i.op == Op::kLoadSlot) Load(i.layer, i.micro_batch);
    }
    for (const NumberPool& pool : pools_) out_.slots.push_back(pool.size());
    for (const NumberPool& pool : held_) out_.held.push_back(pool.size());
    for (const NumberPool& pool : stored_) out_.stored.push_back(pool.size());
    out_.boundaries = boundaries_.size();
  }

 private:
  // Takes the copy that has been free for longest: its last user is the first
  // to finish.
  void ScanCopies() {
    std::vector<std::deque<int32_t>> free;  // by class
    for (const int32_t copies : shape_.copies) {
      std::deque<int32_t>& numbers = free.emplace_back();
      for (int32_t c = 0; c < copies; ++c) numbers.push_back(c);
    }
    // By set of planes and slab.
    std::array<std::vector<int32_t>, kPlaneSets> at;
    at.fill(std::vector<int32_t>(shape_.slabs, kNothing));
    for (const Instruction& i : program_.instructions) {
      std::vector<int32_t>& of = out_.copies_of.emplace_back();
      if (!IsOfPlanes(i)) {
        for (const PlaneUse& use : PlanesUsed(shape_, i)) {
          const bool home = CopyClassOf(shape_, use.planes, use.slab) < 0;
          of.push_back(home ? kNothing
                            : at[static_cast<size_t>(use.planes)][use.slab]);
        }
        continue;
      }
      int32_t& number = at[static_cast<size_t>(PlaneSetOf(i))][i.slab];
      std::deque<int32_t>& numbers =
          free[CopyClassOf(shape_, PlaneSetOf(i), i.slab)];
      if (i.op == Op::kFetch || i.op == Op::kTake) {
        DELINK_CHECK(!numbers.empty()) << "no copy is free";
        number = numbers.front();
        numbers.pop_front();
      }
      of.push_back(number);
      if (i.op == Op::kRelease) numbers.push_back(number);
    }
  }

  // By slab: the last instruction that needs its whole gradient.
  std::vector<int32_t> LastWholeUses() const {
    std::vector<int32_t> last(shape_.slabs, kNothing);
    const std::vector<int32_t> sharers = SharersOf(shape_);
    for (size_t index = 0; index < program_.instructions.size(); ++index) {
      const Instruction& i = program_.instructions[index];
      for (const int32_t slab : WholesUsed(shape_, i)) {
        last[slab] = static_cast<int32_t>(index);
      }
      for (int32_t s = 0; s < shape_.slabs && i.op == Op::kSum; ++s) {
        if (sharers[s] > 1 && last[s] >= 0) {
          last[s] = static_cast<int32_t>(index);
        }
      }
    }
    return last;
  }

  // By slab: when it has memory for its whole gradient.
  std::vector<std::vector<Stay>> WholeStays() const {
    const std::vector<int32_t> last = LastWholeUses();
    std::vector<std::vector<Stay>> stays(shape_.slabs);
    // Slabs that need theirs no more: since the last visit that adds to
    // gradients, and before; and those that have some.
    std::set<int32_t> latest, ended, there;
    for (size_t index = 0; index < program_.instructions.size(); ++index) {
      const Instruction& i = program_.instructions[index];
      const auto at = static_cast<int32_t>(index);
      if (HasGradients(i) && !latest.empty()) {
        for (const int32_t slab : ended) {
          stays[slab].back().end = at - 1;
          there.erase(slab);
        }
        ended = std::exchange(latest, {});
      }
      for (const int32_t slab : WholesUsed(shape_, i)) {
        if (there.insert(slab).second) stays[slab].push_back({.begin = at});
        latest.erase(slab);
        ended.erase(slab);
        const bool part = i.op == Op::kReduce && ReducesParts(shape_, slab);
        if (part || last[slab] == at) latest.insert(slab);
      }
    }
    return stays;
  }

  void ScanWholes() {
    const std::vector<std::vector<Stay>> stays = WholeStays();
    std::vector<NumberPool> pools(WholeClasses(shape_));
    out_.whole_of.assign(shape_.slabs, kNothing);
    std::map<int32_t, std::vector<int32_t>> begins, ends;  // by instruction
    for (int32_t s = 0; s < shape_.slabs; ++s) {
      for (const Stay& stay : stays[s]) {
        begins[stay.begin].push_back(s);
        ends[stay.end].push_back(s);
      }
    }
    for (const auto& [begin, slabs] : begins) {
      while (!ends.empty() && ends.begin()->first < begin) {
        for (const int32_t s : ends.begin()->second) {
          pools[WholeClassOf(shape_, s)].Free(out_.whole_of[s]);
        }
        ends.erase(ends.begin());
      }
      for (const int32_t s : slabs) {
        NumberPool& pool = pools[WholeClassOf(shape_, s)];
        int32_t& number = out_.whole_of[s];
        if (number >= 0) {
          pool.TakeAgain(number);
        } else {
          number = pool.Take(stays[s]);
        }
      }
    }
    for (const NumberPool& pool : pools) out_.wholes.push_back(pool.size());
  }

  // If slots are stored: between which instructions each is on the device.
  void FindStays() {
    const std::vector<Instruction>& list = program_.instructions;
    if (std::none_of(list.begin(), list.end(), [](const Instruction& i) {
          return i.op == Op::kStoreSlot;
        })) {
      return;
    }
    stays_.assign(shape_.layers,
                  std::vector<std::vector<Stay>>(shape_.micro_batches));
    Instruction sent;  // the last input
    for (size_t index = 0; index < list.size(); ++index) {
      const Instruction& i = list[index];
      const auto at = static_cast<int32_t>(index);
      const auto begin = [&](int32_t layer) {
        stays_[layer][i.micro_batch].push_back({.begin = at});
      };
      const auto end = [&](const Instruction& of) {
        stays_[of.layer][of.micro_batch].back().end = at;
      };
      const bool forward = i.op == Op::kForward;
      const bool input = (i.flags & kOfGradient) == 0;
      if (forward && i.layer == 0) begin(0);
      if (forward) begin(i.layer + 1);
      const bool comes = i.op == Op::kRecv && input;
      if (comes || i.op == Op::kLoadSlot) begin(i.layer);
      if (forward && !has_backward_[i.layer][i.micro_batch]) end(i);
      if (i.op == Op::kSend && input) {
        if (sent.layer >= 0) end(sent);
        sent = i;
      }
      if (i.op == Op::kLoss || i.op == Op::kBackward ||
          i.op == Op::kBackwardWeight || i.op == Op::kStoreSlot) {
        end(i);
      }
    }
  }

  void TakeSlot(int32_t layer, int32_t m) {
    int32_t& slot = out_.slot_of[layer][m];
    DELINK_CHECK_EQ(slot, kNothing);
    NumberPool& pool = pools_[out_.pool_of[layer]];
    slot = stays_.empty() ? pool.Take() : pool.Take(stays_[layer][m]);
  }
  void FreeSlot(int32_t layer, int32_t m) {
    DELINK_CHECK_NE(out_.slot_of[layer][m], kNothing);
    pools_[out_.pool_of[layer]].Free(out_.slot_of[layer][m]);
  }
  int32_t& BoundaryOf(int32_t layer, int32_t m) {
    return out_.boundary_of[ChunkOf(shape_, layer)][m];
  }

  void Forward(int32_t layer, int32_t m) {
    if (layer == 0) TakeSlot(0, m);
    TakeSlot(layer + 1, m);
    if (!has_backward_[layer][m]) FreeSlot(layer, m);
  }
  void Store(int32_t layer, int32_t m) {
    out_.stored_of[layer][m] = stored_[SlotClassOf(shape_, layer)].Take();
    FreeSlot(layer, m);
  }
  void Load(int32_t layer, int32_t m) {
    stored_[SlotClassOf(shape_, layer)].Free(out_.stored_of[layer][m]);
    pools_[out_.pool_of[layer]].TakeAgain(out_.slot_of[layer][m]);
  }
  void Loss(const Instruction& loss) {
    FreeSlot(loss.layer, loss.micro_batch);
    if (HasGradients(loss)) {
      BoundaryOf(loss.layer, loss.micro_batch) = boundaries_.Take();
    }
  }
  void Backward(int32_t layer, int32_t m) {
    FreeSlot(layer, m);
    if (layer == 0) boundaries_.Free(BoundaryOf(0, m));
  }
  void Hold(int32_t layer, int32_t m) {
    out_.held_of[layer][m] = held_[SlotClassOf(shape_, layer)].Take();
  }
  void LetGo(int32_t layer, int32_t m) {
    held_[SlotClassOf(shape_, layer)].Free(out_.held_of[layer][m]);
    FreeSlot(layer, m);
  }
  void Receive(const Instruction& i) {
    if ((i.flags & kOfGradient) != 0) {
      BoundaryOf(i.layer - 1, i.micro_batch) = boundaries_.Take();
    } else {
      TakeSlot(i.layer, i.micro_batch);
    }
  }
  void Send(const Instruction& i) {
    const bool gradient = (i.flags & kOfGradient) != 0;
    Instruction& before = sent_[gradient ? 1 : 0];
    if (before.layer >= 0 && gradient) {
      boundaries_.Free(BoundaryOf(before.layer, before.micro_batch));
    } else if (before.layer >= 0) {
      FreeSlot(before.layer, before.micro_batch);
    }
    before = i;
  }

  const Program& program_;
  const ProgramShape& shape_;
  Analysis& out_;
  std::vector<std::vector<bool>> has_backward_;
  std::vector<NumberPool> pools_, held_, stored_;
  std::vector<std::vector<std::vector<Stay>>> stays_;  // by layer, micro-batch
  NumberPool boundaries_;
  Instruction sent_[2];  // the last input, the last gradient
};

}  // namespace

void ScanSlots(const Program& program, Analysis* analysis) {
  SlotScan(program, analysis).Run();
}

}  // namespace delink
