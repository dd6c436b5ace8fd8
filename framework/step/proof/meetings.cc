#include "framework/step/proof/meetings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

template <typename Predicate>
std::vector<int32_t> Where(const Program& program, const Predicate& matches) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (matches(program.instructions[i])) {
      found.push_back(static_cast<int32_t>(i));
    }
  }
  return found;
}

// The collectives of a lane that are of both.
absl::Status CompareLane(const Collectives& collectives,
                         const RankProgram& first, const RankProgram& other,
                         Lane lane) {
  const auto of = [&](const RankProgram& rank, const RankProgram& with) {
    return Where(*rank.program, [&](const Instruction& i) {
      return i.lane == lane && collectives.IsOf(rank.program->stage, i) &&
             collectives.IsOf(with.program->stage, i);
    });
  };
  const std::vector<int32_t> expected = of(first, other);
  const std::vector<int32_t> found = of(other, first);
  for (size_t k = 0; k < std::max(expected.size(), found.size()); ++k) {
    const auto text = [k](const RankProgram& rank,
                          const std::vector<int32_t>& indices) {
      return k < indices.size()
                 ? ToString(rank.program->instructions[indices[k]])
                 : std::string("nothing");
    };
    if (text(first, expected) == text(other, found)) continue;
    const std::string where =
        k < found.size()
            ? NameOf(other, found[k])
            : absl::StrCat("rank ", other.rank, ": end of the program");
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": collective ", k, " of the ", ToString(lane), " lane is ",
        text(first, expected), " on rank ", first.rank, " and ",
        text(other, found),
        " here; collectives of a lane must have one order on all ranks"));
  }
  return absl::OkStatus();
}

absl::Status CompareLanes(const Collectives& collectives,
                          const RankProgram& first, const RankProgram& other) {
  for (int lane = 0; lane < kLanes; ++lane) {
    DELINK_RETURN_IF_ERROR(
        CompareLane(collectives, first, other, static_cast<Lane>(lane)));
  }
  return absl::OkStatus();
}

// What `from` sends to `to`, gradients or inputs.
absl::Status CompareTransfers(const RankProgram& from, const RankProgram& to,
                              uint8_t flags) {
  const auto of = [&](const RankProgram& rank, Op op, const RankProgram& with) {
    return Where(*rank.program, [&](const Instruction& i) {
      return i.op == op && i.flags == flags &&
             PartnerOf(*rank.program, i) == with.program->stage;
    });
  };
  const std::vector<int32_t> sent = of(from, Op::kSend, to);
  const std::vector<int32_t> received = of(to, Op::kRecv, from);
  for (size_t k = 0; k < std::max(sent.size(), received.size()); ++k) {
    if (k >= sent.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          NameOf(to, received[k]), ": rank ", from.rank, " has no ",
          ToString(OppositeOf(to.program->instructions[received[k]]))));
    }
    const Instruction expected =
        OppositeOf(from.program->instructions[sent[k]]);
    std::string wrong = absl::StrCat(" has no ", ToString(expected));
    if (k < received.size()) {
      const Instruction& there = to.program->instructions[received[k]];
      if (ToString(there) == ToString(expected)) continue;
      wrong =
          absl::StrCat(" receives ", ToString(there),
                       " there; what two ranks exchange has one order on both");
    }
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(from, sent[k]), ": rank ", to.rank, wrong));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameOf(const RankProgram& rank, int32_t index) {
  return absl::StrCat("rank ", rank.rank, ": instruction ", index, ", ",
                      ToString(rank.program->instructions[index]));
}

bool IsTransfer(const Instruction& i) {
  return i.op == Op::kSend || i.op == Op::kRecv;
}

Instruction OppositeOf(Instruction transfer) {
  transfer.op = transfer.op == Op::kSend ? Op::kRecv : Op::kSend;
  return transfer;
}

int32_t PartnerOf(const Program& program, const Instruction& transfer) {
  const int32_t before = StageOf(program.shape, transfer.layer - 1);
  return before == program.stage ? StageOf(program.shape, transfer.layer)
                                 : before;
}

Collectives::Collectives(const ProgramShape& shape)
    : gathers_(shape.gathers), table_(shape) {
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    stage_of_.push_back(StageOf(shape, layer));
  }
}

bool Collectives::IsOf(int32_t stage, const Instruction& i) const {
  if (i.op == Op::kNorm || i.op == Op::kSum) return true;
  if (i.op == Op::kProbe) {
    return table_.VisitGroupSize(i.slab) > 1 && stage_of_[i.layer] == stage;
  }
  const bool exchanges =
      i.op == Op::kReduce || (i.op == Op::kGather && gathers_[i.slab]) ||
      (i.op == Op::kFetch && table_.LaneOf(i) == Lane::kGather);
  return exchanges && table_.IsHere(stage, i.slab);
}

absl::Status CheckMeetings(const std::vector<Column>& columns) {
  const Column& first = columns.front();
  const Collectives collectives(first.front().program->shape);
  ComparedPrograms lanes, transfers;
  for (const Column& column : columns) {
    for (size_t stage = 0; stage < column.size(); ++stage) {
      // In a column against the stages before, then against the first column's.
      for (size_t before = 0; before < stage; ++before) {
        if (!lanes.AreNew(column[before], column[stage])) continue;
        DELINK_RETURN_IF_ERROR(
            CompareLanes(collectives, column[before], column[stage]));
      }
      if (&column != &first && lanes.AreNew(first[stage], column[stage])) {
        DELINK_RETURN_IF_ERROR(
            CompareLanes(collectives, first[stage], column[stage]));
      }
    }
    for (const RankProgram& from : column) {
      for (const RankProgram& to : column) {
        if (&from == &to || !transfers.AreNew(from, to)) continue;
        for (const uint8_t flags : {uint8_t{0}, uint8_t{kOfGradient}}) {
          DELINK_RETURN_IF_ERROR(CompareTransfers(from, to, flags));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace delink
