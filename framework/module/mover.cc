#include "framework/module/mover.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Changes `rect` of a grid with so many columns, packed.
template <typename T>
void ChangeAll(const Move& move, const Rect& rect, int64_t columns,
               char* values) {
  constexpr int64_t kAtOnce = 4096;
  const int64_t rows = rect.columns == columns ? 1 : rect.rows;
  const int64_t run = rect.elements() / rows;
  auto* some = reinterpret_cast<T*>(values);
  std::vector<double> exact;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t number = (rect.row + row) * columns + rect.column;
    for (int64_t first = 0; first < run; first += kAtOnce) {
      const int64_t count = std::min(kAtOnce, run - first);
      exact.assign(some, some + count);
      move.change(exact, number + first);
      some = std::transform(exact.begin(), exact.end(), some,
                            [](double value) { return static_cast<T>(value); });
    }
  }
}

// The grain of all tensors of the sink that get the same values.
Grain GrainOf(const ValueSink& sink, const Move& move) {
  Grain grain;
  for (const LogicalTensor* to : move.to) {
    DELINK_CHECK(to->shape == move.from->shape) << to->name;
    const int64_t size = sink.grain(move.field, *to);
    if (to == move.to.front()) {
      grain = {
          .size = size, .first = to->offset, .elements = to->shape.elements()};
    }
    DELINK_CHECK_EQ(size, grain.size) << to->name;
    DELINK_CHECK(size == 1 || to->offset == grain.first) << to->name;
  }
  return grain;
}

// One rank's part in all moves.
class Mover {
 public:
  Mover(ValueSource& source, ValueSink& sink, Communicator& comm, int64_t most)
      : source_(source), sink_(sink), comm_(comm), most_(most) {}

  // The transport's status; transfers may be pending until FinishAll.
  absl::Status Go(const Move& move);
  absl::Status FinishAll();

  // Whether any step of any rank crossed ranks.
  bool crosses() const { return crosses_; }
  // The status of this rank's reads and writes.
  const absl::Status& status() const { return status_; }

 private:
  // What the pieces of a move have in common.
  struct Form {
    const Move* move = nullptr;
    Grain grain;
    int64_t columns = 0;  // of the tensor's grid; 1: pieces are ranges of it
  };
  // A piece in host memory.
  struct Passage {
    Form form;
    CopyStep piece;
    std::unique_ptr<char[]> values;
    size_t room = 0;
    std::vector<std::unique_ptr<Pending>> transfers;
  };

  bool IsHere(const Extent& extent) const {
    return extent.rank == comm_.rank();
  }
  absl::Status Pass(const Form& form, CopyStep piece);
  void CopyHere(const Move& move, CopyStep& step);
  void Read(Passage& passage);
  absl::Status ReadRanges(const Passage& passage, char* values);
  void Send(Passage& passage);
  void Write(const Passage& passage);
  absl::Status Finish(Passage& passage);

  ValueSource& source_;
  ValueSink& sink_;
  Communicator& comm_;
  const int64_t most_;
  bool crosses_ = false;
  absl::Status status_;
  // Used in turn: one is filled while the other is sent. All ranks take the
  // pieces in one order, so a rank that waits for a piece waits for a rank that
  // has posted it or is busy: there is no deadlock.
  Passage passages_[2];
  size_t turn_ = 0;
};

absl::Status Mover::Go(const Move& move) {
  DELINK_CHECK(source_.type(move.field) == sink_.type(move.field));
  Descriptor owners = source_.Owners(move.field, *move.from);
  Descriptor before = source_.Has(move.field, *move.from);
  std::vector<Descriptor> after;
  for (const LogicalTensor* to : move.to) {
    after.push_back(sink_.Wants(move.field, *to));
  }
  Grain grain = GrainOf(sink_, move);
  std::vector<Descriptor*> all = {&owners, &before};
  for (Descriptor& wanted : after) all.push_back(&wanted);
  const Shape& shape = move.from->shape;
  if (grain.size > 1 &&
      !std::all_of(all.begin(), all.end(), [&](const Descriptor* extents) {
        return IsInGrains(*extents, shape, grain);
      })) {
    grain = {};
  }
  if (grain.size > 1) {
    for (Descriptor* extents : all) *extents = AsRanges(*extents, shape);
  }
  int64_t columns = 1;
  for (const Extent& owner : owners) {
    columns = std::max(columns, owner.rect.column + owner.rect.columns);
  }
  CopyPlan plan = PlanCopyOn(comm_.rank(), owners, before, after);
  DELINK_CHECK(plan.complete)
      << move.from->name << ": the sink wants what the source has nowhere";
  crosses_ = crosses_ || plan.crosses;
  const auto pass = [&](CopyStep piece) {
    return Pass({.move = &move, .grain = grain, .columns = columns},
                std::move(piece));
  };
  for (CopyStep& step : plan.steps) {
    if (IsHere(step.from) && !move.change) CopyHere(move, step);
    if (step.to.empty()) continue;
    DELINK_RETURN_IF_ERROR(CutIntoPieces(step, most_, grain, pass));
  }
  return absl::OkStatus();
}

// Removes from a step the places that the sink copies by itself.
void Mover::CopyHere(const Move& move, CopyStep& step) {
  if (!status_.ok()) return;
  std::erase_if(step.to, [&](const CopyStep::Place& place) {
    return IsHere(place.extent) &&
           sink_.Copy(source_, move.field, *move.from, step.from,
                      *At(move.to, place.target), place.extent);
  });
}

absl::Status Mover::Pass(const Form& form, CopyStep piece) {
  Passage& passage = At(passages_, turn_);
  turn_ = 1 - turn_;
  DELINK_RETURN_IF_ERROR(Finish(passage));
  const DType type = source_.type(form.move->field);
  const int64_t count = piece.from.rect.elements();
  const auto bytes = static_cast<size_t>(count * SizeOf(type));
  if (passage.room < bytes) {
    passage.values.reset();
    passage.values = std::make_unique_for_overwrite<char[]>(bytes);
    passage.room = bytes;
  }
  passage.form = form;
  passage.piece = std::move(piece);
  const int reader = passage.piece.from.rank;
  if (reader != comm_.rank()) {
    passage.transfers.push_back(
        comm_.Recv(passage.values.get(), count, type, reader, 0));
    return absl::OkStatus();
  }
  Read(passage);
  Send(passage);
  Write(passage);
  return absl::OkStatus();
}

void Mover::Read(Passage& passage) {
  if (!status_.ok()) return;
  const Move& move = *passage.form.move;
  const CopyStep& piece = passage.piece;
  char* const values = passage.values.get();
  status_ = passage.form.grain.size > 1
                ? ReadRanges(passage, values)
                : source_.Read(move.field, *move.from, piece.from, values);
  if (!status_.ok() || !move.change) return;
  const CopyStep::Place& place = piece.to.front();
  const LogicalTensor& to = *At(move.to, place.target);
  if (sink_.grain(move.field, to) == passage.form.grain.size) {
    sink_.AsKept(move.field, to, place.extent, values);
  }
  const DType type = sink_.type(move.field);
  DELINK_CHECK(type == DType::kF64 || type == DType::kF32)
      << "only exact values are changed";
  const auto change =
      type == DType::kF64 ? ChangeAll<double> : ChangeAll<float>;
  change(move, piece.from.rect, passage.form.columns, values);
}

// Reads a range of elements as rectangles of the tensor, as the source needs.
absl::Status Mover::ReadRanges(const Passage& passage, char* values) {
  const Move& move = *passage.form.move;
  const Rect whole = WholeOf(move.from->shape);
  Extent from = passage.piece.from;
  from.pitch = whole.columns;
  const int64_t size = SizeOf(source_.type(move.field));
  const int64_t first = passage.piece.from.rect.row;
  for (const Rect& rect :
       Cut(whole, {first, first + passage.piece.from.rect.rows})) {
    from.rect = rect;
    DELINK_RETURN_IF_ERROR(source_.Read(move.field, *move.from, from, values));
    from.offset += rect.elements();
    values += rect.elements() * size;
  }
  return absl::OkStatus();
}

void Mover::Send(Passage& passage) {
  const CopyStep& piece = passage.piece;
  const DType type = source_.type(passage.form.move->field);
  int last = comm_.rank();
  for (const CopyStep::Place& place : piece.to) {
    if (IsHere(place.extent) || place.extent.rank == last) continue;
    last = place.extent.rank;
    passage.transfers.push_back(comm_.Send(
        passage.values.get(), piece.from.rect.elements(), type, last, 0));
  }
}

void Mover::Write(const Passage& passage) {
  const Move& move = *passage.form.move;
  for (const CopyStep::Place& place : passage.piece.to) {
    if (!status_.ok()) return;
    if (!IsHere(place.extent)) continue;
    status_ = sink_.Write(move.field, *At(move.to, place.target), place.extent,
                          passage.values.get());
  }
}

// Waits for a passage, so that it may be used again.
absl::Status Mover::Finish(Passage& passage) {
  absl::Status transport;
  for (const std::unique_ptr<Pending>& transfer : passage.transfers) {
    transport.Update(transfer->Wait());
  }
  const bool received =
      !passage.transfers.empty() && !IsHere(passage.piece.from);
  passage.transfers.clear();
  if (transport.ok() && received) Write(passage);
  return transport;
}

absl::Status Mover::FinishAll() {
  absl::Status transport = Finish(At(passages_, turn_));
  transport.Update(Finish(At(passages_, 1 - turn_)));
  return transport;
}

}  // namespace

absl::Status MoveValues(ValueSource& source, ValueSink& sink,
                        std::span<const Move> moves, Communicator& comm,
                        int64_t most) {
  Mover mover(source, sink, comm, most);
  absl::Status transport;
  for (const Move& move : moves) {
    if (transport.ok()) transport = mover.Go(move);
  }
  transport.Update(mover.FinishAll());
  DELINK_RETURN_IF_ERROR(transport);
  if (!mover.crosses()) return mover.status();
  return AgreeOnStatus(comm, mover.status());
}

}  // namespace delink
