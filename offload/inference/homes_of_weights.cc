#include "offload/inference/homes_of_weights.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "offload/inference/streamed_weights.h"
#include "offload/plan/find_place.h"
#include "offload/plan/place.h"

namespace delink {
namespace {

// The device memory of the rank that takes most.
absl::StatusOr<int64_t> DeviceBytes(const std::shared_ptr<const Layout>& layout,
                                    DType dtype) {
  const std::unique_ptr<Device> device = NewMetaDevice();
  int64_t most = 0;
  for (int rank = 0; rank < layout->ranks(); ++rank) {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> store,
                            ParamStore::Create(*device, layout, rank,
                                               {.dtype = dtype,
                                                .gradients = false,
                                                .states = {},
                                                .master = MasterForm::kNone}));
    most = std::max(
        most, store->bytes(Plane::kWeight) + StreamedWeights::BytesOf(*store));
  }
  return most;
}

}  // namespace

absl::StatusOr<Layout> WithHomesOfWeights(const Layout& layout,
                                          OffloadRules rules, DType dtype) {
  if (!rules.any()) return layout;
  rules.all = {.weights = rules.all.weights};
  for (OffloadRow& row : rules.rows) {
    row.wishes = {.weights = row.wishes.weights};
  }
  AutoPlace place;
  const int64_t slabs = BlockSlabs(layout);
  if (rules.device && slabs > 0) {
    const auto cost = [&](const AutoPlace& found) -> absl::StatusOr<PlaceCost> {
      PlaceCost of;
      DELINK_ASSIGN_OR_RETURN(
          of.device,
          DeviceBytes(std::make_shared<const Layout>(
                          layout.WithTiers(PlaceSlabs(layout, rules, found))),
                      dtype));
      return of;
    };
    DELINK_ASSIGN_OR_RETURN(
        const FoundPlace found,
        FindPlace({.device = *rules.device / 2, .updates = {Tier::kDevice}},
                  slabs, cost));
    place = found.place;
  }
  return layout.WithTiers(PlaceSlabs(layout, rules, place));
}

}  // namespace delink
