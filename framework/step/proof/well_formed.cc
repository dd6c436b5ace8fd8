#include "framework/step/proof/well_formed.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Which fields an operation has, and which flags it may carry.
struct Fields {
  bool known = true;
  bool visit = false;  // layer in [first, last], micro_batch
  bool slab = false;
  uint8_t flags = 0;
  int32_t first = 0;
  int32_t last = 0;
};

Fields FieldsOf(Op op, int32_t layers) {
  switch (op) {
    case Op::kForward:
      return {.visit = true,
              .flags = kRecompute | kForwardOnly,
              .last = layers - 2};
    case Op::kLoss:
      return {.visit = true,
              .flags = kForwardOnly,
              .first = layers - 1,
              .last = layers - 1};
    case Op::kBackward:
      return {.visit = true, .flags = kRecompute | kApart, .last = layers - 2};
    case Op::kBackwardInput:
      return {
          .visit = true, .flags = kRecompute, .first = 1, .last = layers - 2};
    case Op::kBackwardWeight:
    case Op::kStoreSlot:
    case Op::kLoadSlot:
      return {.visit = true, .first = 1, .last = layers - 2};
    case Op::kFetch:
    case Op::kEvict:
    case Op::kRelease:
      return {.slab = true, .flags = kOfGradient | kOfState | kOfUpdated};
    case Op::kTake:
      return {.slab = true, .flags = kOfGradient};
    case Op::kGather:
    case Op::kReduce:
    case Op::kSquares:
    case Op::kUpdate:
    case Op::kSave:
      return {.slab = true};
    case Op::kSend:
    case Op::kRecv:
      return {
          .visit = true, .flags = kOfGradient, .first = 1, .last = layers - 1};
    case Op::kInspect:
      return {.visit = true, .last = layers - 2};
    case Op::kProbe:
      return {.visit = true, .slab = true, .first = 1, .last = layers - 2};
    case Op::kNorm:
    case Op::kSum:
      return {};
    default:
      return {.known = false};
  }
}

// Neighbouring chunks are of different stages, and every stage has as many.
absl::Status CheckChunks(const ProgramShape& shape) {
  const std::vector<int32_t>& chunks = shape.chunk_of_layer;
  if (chunks.empty() && shape.stages == 1) return absl::OkStatus();
  if (chunks.size() != static_cast<size_t>(shape.layers)) {
    return BadShape("chunk_of_layer has one entry a layer");
  }
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    const int32_t rise = chunks[layer] - (layer > 0 ? chunks[layer - 1] : 0);
    if (rise == 0 || (rise == 1 && layer > 0)) continue;
    return BadShape(absl::StrCat("layer ", layer, " is of chunk ",
                                 chunks[layer],
                                 "; chunks go from 0 up, none left out"));
  }
  const int32_t count = chunks.back() + 1;
  if (shape.stages < 1 || count % shape.stages != 0 ||
      (shape.stages == 1 && count > 1)) {
    return BadShape(
        absl::StrCat(count, " chunks do not make ", shape.stages, " stages"));
  }
  return absl::OkStatus();
}

absl::Status CheckSlotClasses(const ProgramShape& shape) {
  const std::vector<int32_t>& classes = shape.slot_class;
  if (classes.empty()) return absl::OkStatus();
  if (classes.size() != static_cast<size_t>(shape.layers)) {
    return BadShape("slot_class has one entry a layer");
  }
  for (const int32_t one : classes) {
    if (one < 0 || one >= shape.layers) {
      return BadShape(absl::StrCat("slot class ", one, " is not in [0, ",
                                   shape.layers, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCopies(const ProgramShape& shape) {
  const auto slabs = static_cast<size_t>(shape.slabs);
  for (const std::vector<int32_t>& classes : shape.copy_class) {
    if (!classes.empty() && classes.size() != slabs) {
      return BadShape("copy_class has one entry a slab, or none");
    }
    for (const int32_t one : classes) {
      if (one < -1 || one >= static_cast<int32_t>(shape.copies.size())) {
        return BadShape(absl::StrCat("copies have no class ", one));
      }
    }
  }
  if (!shape.shards.empty() && shape.shards.size() != slabs) {
    return BadShape("shards has one entry a slab, or none");
  }
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (!IsSharded(shape, slab)) continue;
    if (CopyClassOf(shape, PlaneSet::kWeight, slab) >= 0) continue;
    return BadShape(absl::StrCat("the weights of slab ", slab,
                                 " are sharded, but visits have no copies"));
  }
  if (!shape.whole_class.empty() && shape.whole_class.size() != slabs) {
    return BadShape("whole_class has one entry a slab, or none");
  }
  for (const int32_t one : shape.whole_class) {
    if (one < -1 || one >= shape.slabs) {
      return BadShape(absl::StrCat("whole gradients have no class ", one));
    }
  }
  for (const std::vector<bool>* const of :
       {&shape.host_updates, &shape.late_updates}) {
    if (!of->empty() && of->size() != slabs) {
      return BadShape("who updates has one entry a slab, or none");
    }
  }
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (!UpdatesLate(shape, slab)) continue;
    if (!HasCopiesForUpdates(shape, slab)) {
      return BadShape(absl::StrCat("slab ", slab,
                                   " is updated late, but nothing of it comes "
                                   "to the device for that"));
    }
    if (HostUpdates(shape, slab)) {
      return BadShape(
          absl::StrCat("slab ", slab, " is updated late and by the host"));
    }
  }
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (CopyClassOf(shape, PlaneSet::kUpdated, slab) < 0) continue;
    if (CopyClassOf(shape, PlaneSet::kWeight, slab) < 0 ||
        HostUpdates(shape, slab)) {
      return BadShape(absl::StrCat("the device updates copies of slab ", slab,
                                   ", whose weights have none for visits or "
                                   "are the host's to update"));
    }
  }
  if (shape.host_updates.empty()) return absl::OkStatus();
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (!shape.host_updates[slab]) continue;
    if (CopyClassOf(shape, PlaneSet::kWeight, slab) >= 0 &&
        CopyClassOf(shape, PlaneSet::kGradient, slab) >= 0) {
      continue;
    }
    return BadShape(absl::StrCat("the host updates slab ", slab,
                                 ", whose weights or gradient have no copies"));
  }
  return absl::OkStatus();
}

// Whether the instruction is one of the program's stage.
std::string StageError(const Program& program, const ShapeTable& table,
                       const Instruction& i) {
  const ProgramShape& shape = program.shape;
  if (i.op == Op::kSend || i.op == Op::kRecv) {
    if (shape.stages == 1) {
      return "is not part of a program of one pipeline stage";
    }
    // An input leaves the layer before, its gradient the layer itself.
    const bool leaves_before =
        (i.op == Op::kSend) != ((i.flags & kOfGradient) != 0);
    const int32_t before = StageOf(shape, i.layer - 1);
    const int32_t own = StageOf(shape, i.layer);
    if (before != own && (leaves_before ? before : own) == program.stage) {
      return "";
    }
    return absl::StrCat("stage ", program.stage, " does not do that: layer ",
                        i.layer - 1, " is of stage ", before, ", layer ",
                        i.layer, " of stage ", own);
  }
  if (i.layer >= 0 && StageOf(shape, i.layer) != program.stage) {
    return absl::StrCat("layer ", i.layer, " is of stage ",
                        StageOf(shape, i.layer), ", this is stage ",
                        program.stage);
  }
  if (i.slab >= 0 && !table.IsHere(program.stage, i.slab)) {
    return absl::StrCat("slab ", i.slab, " is of no layer of stage ",
                        program.stage);
  }
  return "";
}

// Of the ranks that work on the same visits.
absl::Status CheckVisitGroups(const ProgramShape& shape) {
  if (shape.tensor < 1 || shape.context < 1 ||
      shape.ranks % (int64_t{shape.tensor} * shape.context) != 0) {
    return BadShape(absl::StrCat(shape.ranks, " ranks of a stage are no ",
                                 shape.tensor, " x ", shape.context,
                                 " (tensor x context) x data"));
  }
  if (shape.expert < 1 || shape.ranks % shape.expert != 0) {
    return BadShape(absl::StrCat(shape.expert, " expert ranks do not divide ",
                                 shape.ranks, " ranks of a stage"));
  }
  const Mesh mesh = StageMesh(shape);
  const auto slabs = static_cast<size_t>(shape.slabs);
  if (!shape.slab_cuts.empty() && shape.slab_cuts.size() != slabs) {
    return BadShape("slab_cuts has one entry a slab");
  }
  for (const AxisCut cut : shape.slab_cuts) {
    const bool known = cut.axis == Axis::kTensor || cut.axis == Axis::kExpert;
    if (!known || cut.pieces < 1 || mesh.along(cut.axis) % cut.pieces != 0) {
      return BadShape(absl::StrCat("a slab of ", cut.pieces, " pieces over ",
                                   mesh.along(cut.axis), " ",
                                   ToString(cut.axis), " places"));
    }
  }
  if (!shape.update_exchanges.empty() &&
      shape.update_exchanges.size() != slabs) {
    return BadShape("update_exchanges has one entry a slab");
  }
  for (const std::vector<VisitExchange>& exchanges : shape.update_exchanges) {
    for (const VisitExchange& exchange : exchanges) {
      if (exchange.axis == Axis::kTensor && shape.tensor > 1) continue;
      return BadShape("an update exchanges over another axis than tensor");
    }
  }
  const auto layers = static_cast<size_t>(shape.layers);
  if (!shape.exchanges.empty() && shape.exchanges.size() != layers) {
    return BadShape("exchanges has one entry a layer");
  }
  for (const VisitExchanges& of_layer : shape.exchanges) {
    for (const std::vector<VisitExchange>& exchanges : of_layer) {
      for (const VisitExchange& exchange : exchanges) {
        const bool known = std::ranges::find(kVisitAxes, exchange.axis) !=
                           std::end(kVisitAxes);
        if (known && mesh.along(exchange.axis) > 1) continue;
        return BadShape("a visit exchanges over an axis of one rank");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BadShape(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("program shape: ", what));
}

absl::Status CheckShape(const ProgramShape& shape) {
  if (shape.layers < 2) {
    return BadShape(absl::StrCat(shape.layers,
                                 " layers; a model has at least a prologue "
                                 "and an epilogue"));
  }
  if (shape.micro_batches < 1 || shape.ranks < 1 || shape.slabs < 0) {
    return BadShape("needs at least one micro-batch and one rank");
  }
  if (shape.slabs_of_layer.size() != static_cast<size_t>(shape.layers) ||
      shape.gathers.size() != static_cast<size_t>(shape.slabs)) {
    return BadShape("slabs_of_layer has one entry a layer, gathers one a slab");
  }
  DELINK_RETURN_IF_ERROR(CheckChunks(shape));
  DELINK_RETURN_IF_ERROR(CheckVisitGroups(shape));
  DELINK_RETURN_IF_ERROR(CheckSlotClasses(shape));
  DELINK_RETURN_IF_ERROR(CheckCopies(shape));
  std::vector<bool> used(shape.slabs, false);
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    int32_t before = -1;
    for (const int32_t slab : shape.slabs_of_layer[layer]) {
      if (slab <= before || slab >= shape.slabs) {
        return BadShape(absl::StrCat("slab ", slab, " of layer ", layer,
                                     " is out of range or out of order"));
      }
      before = slab;
      used[slab] = true;
    }
  }
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (!used[slab]) {
      return BadShape(absl::StrCat("slab ", slab, " is used by no layer"));
    }
  }
  return absl::OkStatus();
}

bool MayHave(PassKind kind, Op op) {
  const bool step = kind == PassKind::kStep;
  switch (op) {
    case Op::kUpdate:
    case Op::kGather:
    case Op::kSave:
      return step;
    case Op::kBackward:
    case Op::kReduce:
    case Op::kTake:
    case Op::kEvict:
    case Op::kStoreSlot:
    case Op::kLoadSlot:
      return step || kind == PassKind::kGradients || kind == PassKind::kProbe;
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kSquares:
    case Op::kNorm:
      return step || kind == PassKind::kGradients;
    case Op::kInspect:
      return kind == PassKind::kDiagnosis;
    case Op::kProbe:
      return kind == PassKind::kProbe;
    case Op::kSum:
      return !step && kind != PassKind::kGradients;
    default:
      return true;
  }
}

std::vector<bool> LayersInHalves(const Program& program) {
  std::vector<bool> halves(program.shape.layers, false);
  for (const Instruction& i : program.instructions) {
    const bool half = i.op == Op::kBackwardInput || i.op == Op::kBackwardWeight;
    if (half && i.layer >= 0 && i.layer < program.shape.layers) {
      halves[i.layer] = true;
    }
  }
  return halves;
}

std::string FieldError(const Program& program, const ShapeTable& table,
                       const Instruction& i) {
  const ProgramShape& shape = program.shape;
  const Fields fields = FieldsOf(i.op, shape.layers);
  if (!fields.known) return "no engine can do that yet";
  if (static_cast<int>(i.lane) >= kLanes) return "its lane does not exist";
  constexpr uint8_t kBoth = kRecompute | kForwardOnly;
  constexpr unsigned kPlanes = kOfGradient | kOfState | kOfUpdated;
  const bool two_parts = std::popcount(i.flags & kPlanes) > 1;
  const bool no_gradient = i.op == Op::kTake && i.flags != kOfGradient;
  if ((i.flags & ~fields.flags) != 0 || i.flags == kBoth || two_parts ||
      no_gradient) {
    return absl::StrCat("it cannot have flags ", i.flags);
  }
  if ((i.flags & kRecompute) != 0 && i.layer == 0) {
    return "the prologue has no boundary to recompute from";
  }
  if (fields.visit) {
    if (i.layer < fields.first || i.layer > fields.last) {
      return absl::StrCat("layer ", i.layer, " is not in [", fields.first, ", ",
                          fields.last, "]");
    }
    if (i.micro_batch < 0 || i.micro_batch >= shape.micro_batches) {
      return absl::StrCat("micro-batch ", i.micro_batch, " is not in [0, ",
                          shape.micro_batches, ")");
    }
  } else if (i.layer != -1 || i.micro_batch != -1) {
    return "it has no layer and no micro-batch";
  }
  if (fields.slab ? i.slab < 0 || i.slab >= shape.slabs : i.slab != -1) {
    return fields.slab ? absl::StrCat("slab ", i.slab, " is not in [0, ",
                                      shape.slabs, ")")
                       : "it has no slab";
  }
  return StageError(program, table, i);
}

}  // namespace delink
