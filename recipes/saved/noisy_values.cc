#include "recipes/saved/noisy_values.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/module/init_values.h"
#include "framework/module/mover.h"
#include "framework/module/rect.h"

namespace delink {

absl::Status NoisyValues::Add(const LogicalTensor& tensor, int64_t count) {
  DELINK_CHECK(type({}) == DType::kF32);
  const Extent whole = before_.Owners({}, tensor).at(0);
  std::vector<float> values(static_cast<size_t>(std::min(count, kMovePiece)));
  double sum = 0, squares = 0;
  for (int64_t begin = 0; begin < count; begin += kMovePiece) {
    const int64_t end = std::min(count, begin + kMovePiece);
    for (const Rect& rect : Cut(whole.rect, {begin, end})) {
      DELINK_RETURN_IF_ERROR(
          before_.Read({}, tensor, Part(whole, rect), values.data()));
      for (int64_t i = 0; i < rect.elements(); ++i) {
        const double x = values[static_cast<size_t>(i)];
        sum += x;
        squares += x * x;
      }
    }
  }
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  noise_[tensor.name] =
      factor_ * std::sqrt(std::max(squares / n - mean * mean, 0.0));
  return absl::OkStatus();
}

absl::Status NoisyValues::Read(const Field& field, const LogicalTensor& tensor,
                               const Extent& extent, void* values) {
  DELINK_RETURN_IF_ERROR(before_.Read(field, tensor, extent, values));
  const auto at = noise_.find(tensor.name);
  if (field.kind != Field::Kind::kParameters || at == noise_.end()) {
    return absl::OkStatus();
  }
  const Rect& rect = extent.rect;
  const int64_t columns = WholeOf(tensor.shape).columns;
  DELINK_CHECK(rect.rows == 1 || rect.columns == columns);
  std::vector<float> noise(static_cast<size_t>(rect.elements()));
  InitValues(Init::Normal(at->second),
             Fold(Fold(KeyFromSeed(seed_), "noise"), tensor.name),
             rect.row * columns + rect.column, rect.elements(), noise.data());
  auto* const out = static_cast<float*>(values);
  for (size_t i = 0; i < noise.size(); ++i) out[i] += noise[i];
  return absl::OkStatus();
}

}  // namespace delink
