// Initialises parameters.
#include <algorithm>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/rng.h"
#include "framework/module/init_values.h"
#include "framework/module/param_store.h"
#include "framework/module/store_values.h"

namespace delink {
namespace {

// Generates one extent of a parameter on the host, a piece at a time.
template <typename T>
void InitExtent(StoreValues& store, const LogicalTensor& tensor,
                const Extent& extent, const Init& init, RngKey key) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  const int64_t columns = WholeOf(tensor.shape).columns;
  std::vector<T> values;
  const auto write = [&](const CopyStep& piece) {
    const Rect& rect = piece.from.rect;
    values.resize(static_cast<size_t>(rect.elements()));
    const int64_t rows = rect.columns == columns ? 1 : rect.rows;
    const int64_t run = rect.elements() / rows;
    for (int64_t r = 0; r < rows; ++r) {
      InitValues(init, key, (rect.row + r) * columns + rect.column, run,
                 values.data() + r * run);
    }
    return store.Write({Field::Kind::kParameters}, tensor, piece.from,
                       values.data());
  };
  const absl::Status status =
      CutIntoPieces({extent, {{extent, 0}}}, kPiece, Grain{}, write);
  DELINK_CHECK(status.ok()) << status.ToString();
}

void InitAll(const ParamStore& store, StoreValues& values, uint64_t seed,
             const LogicalTensor& tensor, const Init& init) {
  const RngKey key = InitKey(seed, tensor.name);
  const auto init_extent = store.options().dtype == DType::kF64
                               ? InitExtent<double>
                               : InitExtent<float>;
  for (const Extent& extent :
       values.Wants({Field::Kind::kParameters}, tensor)) {
    if (extent.rank != store.rank()) continue;
    init_extent(values, tensor, extent, init, key);
  }
}

}  // namespace

void ParamStore::InitWeights(uint64_t seed) {
  StoreValues values(*this);
  for (const LogicalTensor& tensor : layout_->tensors()) {
    if (!tensor.link.empty()) continue;
    InitAll(*this, values, seed, tensor, layout_->SpecOf(tensor).init);
  }
}

void ParamStore::InitTensor(uint64_t seed, const LogicalTensor& tensor,
                            const Init& init) {
  StoreValues values(*this);
  InitAll(*this, values, seed, tensor, init);
}

}  // namespace delink
