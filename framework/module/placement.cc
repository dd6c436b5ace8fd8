#include "framework/module/placement.h"

#include <algorithm>
#include <numeric>

namespace delink {

PlacementTable PlacementTable::DataParallel(const std::vector<Slab>& slabs,
                                            const std::vector<bool>& whole,
                                            int zero, int ranks) {
  PlacementRow row;
  row.state.sharded = zero >= 1 && ranks > 1;
  PlacementTable table{std::vector<PlacementRow>(slabs.size(), row)};
  if (!row.state.sharded) return table;
  std::vector<size_t> order(slabs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return slabs[a].elements > slabs[b].elements;
  });
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  for (const size_t s : order) {
    if (!whole[s]) continue;
    const auto least = std::min_element(load.begin(), load.end());
    *least += slabs[s].elements;
    table.rows[s].owner = static_cast<int>(least - load.begin());
  }
  return table;
}

}  // namespace delink
