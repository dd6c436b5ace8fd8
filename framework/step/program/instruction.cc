#include "framework/step/program/instruction.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace delink {
namespace {

// 0 is a, 25 z, 26 aa, as spreadsheets name columns.
std::string Letters(int32_t micro_batch) {
  if (micro_batch < 0) return "?";
  std::string letters;
  for (int64_t n = int64_t{micro_batch} + 1; n > 0; n = (n - 1) / 26) {
    letters.push_back(static_cast<char>('a' + (n - 1) % 26));
  }
  std::reverse(letters.begin(), letters.end());
  return letters;
}

std::string Number(int32_t value) {
  return value < 0 ? "?" : std::to_string(value);
}

}  // namespace

const char* ToString(Op op) {
  switch (op) {
    case Op::kGather:
      return "Gather";
    case Op::kFetch:
      return "Fetch";
    case Op::kTake:
      return "Take";
    case Op::kEvict:
      return "Evict";
    case Op::kRelease:
      return "Release";
    case Op::kForward:
      return "F";
    case Op::kLoss:
      return "Loss";
    case Op::kBackward:
      return "B";
    case Op::kBackwardInput:
      return "BI";
    case Op::kBackwardWeight:
      return "BW";
    case Op::kSend:
      return "Send";
    case Op::kRecv:
      return "Recv";
    case Op::kStoreSlot:
      return "Store";
    case Op::kLoadSlot:
      return "Load";
    case Op::kReduce:
      return "Reduce";
    case Op::kSquares:
      return "Squares";
    case Op::kNorm:
      return "Norm";
    case Op::kUpdate:
      return "Update";
    case Op::kSave:
      return "Save";
    case Op::kInspect:
      return "Inspect";
    case Op::kProbe:
      return "Probe";
    case Op::kSum:
      return "Sum";
  }
  return "?";
}

const char* ToString(Lane lane) {
  switch (lane) {
    case Lane::kCompute:
      return "compute";
    case Lane::kNetwork:
      return "network";
    case Lane::kGather:
      return "gather";
    case Lane::kToNext:
      return "to-next";
    case Lane::kFromPrevious:
      return "from-previous";
    case Lane::kToPrevious:
      return "to-previous";
    case Lane::kFromNext:
      return "from-next";
    case Lane::kIn:
      return "in";
    case Lane::kOut:
      return "out";
    case Lane::kUpdatesIn:
      return "updates-in";
    case Lane::kUpdatesOut:
      return "updates-out";
    case Lane::kUpdates:
      return "updates";
    case Lane::kHost:
      return "host";
  }
  return "?";
}

bool IsToDevice(Lane lane) {
  return lane == Lane::kIn || lane == Lane::kUpdatesIn;
}
bool IsToHost(Lane lane) {
  return lane == Lane::kOut || lane == Lane::kUpdatesOut;
}

const char* ToString(PassKind kind) {
  switch (kind) {
    case PassKind::kStep:
      return "a step";
    case PassKind::kGradients:
      return "a pass for gradients alone";
    case PassKind::kEvaluation:
      return "an evaluation";
    case PassKind::kProbe:
      return "a probe";
    case PassKind::kDiagnosis:
      return "a diagnosis";
  }
  return "?";
}

bool IsOfPlanes(const Instruction& instruction) {
  return instruction.op == Op::kFetch || instruction.op == Op::kTake ||
         instruction.op == Op::kEvict || instruction.op == Op::kRelease;
}

PlaneSet PlaneSetOf(const Instruction& instruction) {
  if ((instruction.flags & kOfGradient) != 0) return PlaneSet::kGradient;
  if ((instruction.flags & kOfState) != 0) return PlaneSet::kState;
  return (instruction.flags & kOfUpdated) != 0 ? PlaneSet::kUpdated
                                               : PlaneSet::kWeight;
}

uint8_t FlagOf(PlaneSet planes) {
  constexpr uint8_t kFlags[] = {0, kOfGradient, kOfState, kOfUpdated};
  return kFlags[static_cast<size_t>(planes)];
}

bool IsOfWeights(PlaneSet planes) {
  return planes == PlaneSet::kWeight || planes == PlaneSet::kUpdated;
}
bool IsOfUpdates(PlaneSet planes) {
  return planes == PlaneSet::kState || planes == PlaneSet::kUpdated;
}

bool IsVisit(const Instruction& instruction) {
  return instruction.op == Op::kForward || instruction.op == Op::kLoss ||
         instruction.op == Op::kBackward ||
         instruction.op == Op::kBackwardInput ||
         instruction.op == Op::kBackwardWeight;
}

bool HasGradients(const Instruction& instruction) {
  return instruction.op == Op::kBackwardWeight ||
         (HasInputGradient(instruction) &&
          instruction.op != Op::kBackwardInput);
}

bool HasInputGradient(const Instruction& instruction) {
  return instruction.op == Op::kBackward ||
         instruction.op == Op::kBackwardInput ||
         (instruction.op == Op::kLoss &&
          (instruction.flags & kForwardOnly) == 0);
}

bool RunsAgain(const Instruction& instruction) {
  return instruction.op != Op::kForward &&
         (instruction.flags & kRecompute) != 0;
}

std::string ToString(const Instruction& instruction) {
  std::string text = ToString(instruction.op);
  switch (instruction.op) {
    case Op::kNorm:
    case Op::kSum:
      break;
    case Op::kGather:
    case Op::kFetch:
    case Op::kTake:
    case Op::kEvict:
    case Op::kRelease:
    case Op::kReduce:
    case Op::kSquares:
    case Op::kUpdate:
    case Op::kSave:
      absl::StrAppend(&text, "(", Number(instruction.slab), ")");
      break;
    case Op::kLoss:
      absl::StrAppend(&text, "(", Letters(instruction.micro_batch), ")");
      break;
    case Op::kProbe:
      absl::StrAppend(&text, "(", Number(instruction.layer), ",",
                      Letters(instruction.micro_batch), ",",
                      Number(instruction.slab), ")");
      break;
    default:
      absl::StrAppend(&text, "(", Number(instruction.layer), ",",
                      Letters(instruction.micro_batch), ")");
  }
  if ((instruction.flags & kRecompute) != 0) text += "r";
  if ((instruction.flags & kApart) != 0) text += "p";
  if ((instruction.flags & kOfGradient) != 0) text += "g";
  if ((instruction.flags & kOfState) != 0) text += "s";
  if ((instruction.flags & kOfUpdated) != 0) text += "u";
  return text;
}

int32_t ChunkOf(const ProgramShape& shape, int32_t layer) {
  return shape.chunk_of_layer.empty() ? 0 : shape.chunk_of_layer[layer];
}

int32_t StageOf(const ProgramShape& shape, int32_t layer) {
  return ChunkOf(shape, layer) % shape.stages;
}

int32_t SlotClassOf(const ProgramShape& shape, int32_t layer) {
  if (!shape.slot_class.empty()) return shape.slot_class[layer];
  return layer == 0 ? 0 : layer + 1 < shape.layers ? 1 : 2;
}

int32_t SlotClasses(const ProgramShape& shape) {
  if (shape.slot_class.empty()) return 3;
  return *std::max_element(shape.slot_class.begin(), shape.slot_class.end()) +
         1;
}

int32_t CopyClassOf(const ProgramShape& shape, PlaneSet planes, int32_t slab) {
  const std::vector<int32_t>& classes =
      shape.copy_class[static_cast<size_t>(planes)];
  return classes.empty() ? -1 : classes[slab];
}

int32_t WholeClassOf(const ProgramShape& shape, int32_t slab) {
  return shape.whole_class.empty() ? -1 : shape.whole_class[slab];
}

int32_t WholeClasses(const ProgramShape& shape) {
  int32_t classes = 0;
  for (const int32_t one : shape.whole_class) {
    classes = std::max(classes, one + 1);
  }
  return classes;
}

bool ReducesParts(const ProgramShape& shape, int32_t slab) {
  return shape.reduces_parts && WholeClassOf(shape, slab) >= 0;
}

bool IsSharded(const ProgramShape& shape, int32_t slab) {
  return !shape.shards.empty() && shape.shards[slab];
}

bool GathersWeights(const ProgramShape& shape, const Instruction& instruction) {
  return instruction.op == Op::kFetch &&
         PlaneSetOf(instruction) == PlaneSet::kWeight &&
         IsSharded(shape, instruction.slab);
}

PlaneSet UpdatedSet(const ProgramShape& shape, int32_t slab) {
  return CopyClassOf(shape, PlaneSet::kUpdated, slab) >= 0 ||
                 IsSharded(shape, slab)
             ? PlaneSet::kUpdated
             : PlaneSet::kWeight;
}

bool HasCopiesForUpdates(const ProgramShape& shape, int32_t slab) {
  return CopyClassOf(shape, PlaneSet::kGradient, slab) >= 0 ||
         CopyClassOf(shape, PlaneSet::kState, slab) >= 0 ||
         CopyClassOf(shape, PlaneSet::kUpdated, slab) >= 0;
}

bool HostUpdates(const ProgramShape& shape, int32_t slab) {
  return !shape.host_updates.empty() && shape.host_updates[slab];
}

bool UpdatesLate(const ProgramShape& shape, int32_t slab) {
  return !shape.late_updates.empty() && shape.late_updates[slab];
}

AxisCut CutOf(const ProgramShape& shape, int32_t slab) {
  return shape.slab_cuts.empty() ? AxisCut{} : shape.slab_cuts[slab];
}

Mesh StageMesh(const ProgramShape& shape) {
  return {.tensor = shape.tensor,
          .context = shape.context,
          .data = shape.ranks / (shape.tensor * shape.context),
          .expert = shape.expert,
          .expert_nodes = shape.expert_nodes};
}

bool VisitsTogether(const ProgramShape& shape) {
  return shape.tensor > 1 || shape.context > 1 || shape.expert > 1;
}

std::vector<int32_t> SharersOf(const ProgramShape& shape) {
  std::vector<int32_t> sharers(shape.slabs, 0);
  for (int32_t layer = 1; layer + 1 < shape.layers; ++layer) {
    for (const int32_t slab : shape.slabs_of_layer[layer]) ++sharers[slab];
  }
  return sharers;
}

std::vector<int32_t> SharedSlabsOf(const ProgramShape& shape, int32_t layer) {
  std::vector<int32_t> shared;
  if (layer == 0 || layer + 1 == shape.layers) return shared;
  const std::vector<int32_t> sharers = SharersOf(shape);
  for (const int32_t slab : shape.slabs_of_layer[layer]) {
    if (sharers[slab] > 1) shared.push_back(slab);
  }
  return shared;
}

std::string ToString(const Program& program) {
  std::string text;
  for (const Instruction& instruction : program.instructions) {
    if (!text.empty()) text += " ";
    text += ToString(instruction);
  }
  return text;
}

}  // namespace delink
