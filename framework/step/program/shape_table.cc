#include "framework/step/program/shape_table.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {

ShapeTable::ShapeTable(const ProgramShape& shape)
    : here_(shape.slabs, std::vector<bool>(shape.stages)) {
  DELINK_CHECK_EQ(shape.slabs_of_layer.size(), size_t(shape.layers));
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    for (const int32_t slab : shape.slabs_of_layer[layer]) {
      here_[slab][StageOf(shape, layer)] = true;
    }
  }
  const std::vector<int32_t> sharers = SharersOf(shape);
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    const std::vector<bool>& stages = here_[slab];
    const auto with = std::count(stages.begin(), stages.end(), true);
    const auto stages_with = static_cast<int32_t>(with);
    stages_with_.push_back(stages_with);
    updates_.push_back(HostUpdates(shape, slab)   ? Lane::kHost
                       : UpdatesLate(shape, slab) ? Lane::kUpdates
                                                  : Lane::kCompute);
    fetches_.push_back(IsSharded(shape, slab) ? Lane::kGather : Lane::kIn);
    const AxisCut cut = CutOf(shape, slab);
    group_size_.push_back(stages_with * shape.ranks / cut.pieces);
    visit_group_size_.push_back(StageMesh(shape).PlacesOfVisit(cut) /
                                cut.pieces);
    probed_.push_back(sharers[slab] > 1 &&
                      stages_with * visit_group_size_.back() > 1);
  }
}

int32_t ShapeTable::FirstStageOf(int32_t slab) const {
  const std::vector<bool>& stages = here_[slab];
  return static_cast<int32_t>(std::find(stages.begin(), stages.end(), true) -
                              stages.begin());
}

Lane ShapeTable::LaneOf(const Instruction& instruction) const {
  const bool gradient = (instruction.flags & kOfGradient) != 0;
  switch (instruction.op) {
    case Op::kReduce:
      return GroupSize(instruction.slab) > 1 ? Lane::kNetwork : Lane::kCompute;
    case Op::kGather:
      return Lane::kNetwork;
    case Op::kFetch:
    case Op::kTake:
      return PlaneSetOf(instruction) == PlaneSet::kWeight
                 ? fetches_[instruction.slab]
                 : Lane::kUpdatesIn;
    case Op::kLoadSlot:
      return Lane::kIn;
    case Op::kEvict:
      return IsOfUpdates(PlaneSetOf(instruction)) ? Lane::kUpdatesOut
                                                  : Lane::kOut;
    case Op::kStoreSlot:
      return Lane::kOut;
    case Op::kUpdate:
      return updates_[instruction.slab];
    case Op::kSend:
      return gradient ? Lane::kToPrevious : Lane::kToNext;
    case Op::kRecv:
      return gradient ? Lane::kFromNext : Lane::kFromPrevious;
    default:
      return Lane::kCompute;
  }
}

}  // namespace delink
