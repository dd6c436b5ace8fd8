#include "framework/module/state_layout.h"

#include <algorithm>
#include <limits>

#include "framework/device/backend.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

constexpr int64_t kValueAlignment = 64;  // values, and bytes of scales

// The piece of one parameter, placed at layout->bytes. The slab has `elements`
// of the parameter and, if its state is factored, `statistics` values. For
// elementwise state the rank has room for [begin, end), padding included.
StateLayout::Piece Place(const ParamDecl& decl, int64_t elements,
                         int64_t statistics, StateFormat format, DType exact,
                         int64_t begin, int64_t end, StateLayout* layout) {
  StateLayout::Piece piece{.format = format, .at = layout->bytes};
  if (format.extent == StateExtent::kElements) {
    piece.first = begin;
    piece.held = {std::min(begin, elements), std::min(end, elements)};
    layout->bytes +=
        AlignUp(end - begin, kValueAlignment) * SizeOf(format.storage, exact);
    return piece;
  }
  DELINK_CHECK(format.storage == StateStorage::kExact);
  const bool has_any = begin < std::min(end, elements);
  DELINK_CHECK(statistics == 0 || !has_any || (begin == 0 && end >= elements))
      << decl.name << " is cut, but its statistics are of whole rows";
  piece.held = {0, has_any ? statistics : 0};
  layout->bytes += AlignUp(piece.held.size(), kValueAlignment) * SizeOf(exact);
  return piece;
}

}  // namespace

std::vector<Rect> StatisticsOf(const std::vector<Rect>& rects,
                               const Shape& shape, StateExtent grid) {
  if (rects.size() == 1 && rects[0] == WholeOf(shape)) {
    return {WholeOf(StateShape(shape, grid))};
  }
  std::vector<Rect> statistics;
  for (const Rect& rect : rects) {
    if (rect.elements() == 0) continue;
    const int64_t height = shape[-2], row = rect.row % height;
    const bool is_part = row + rect.rows <= height;
    DELINK_CHECK(is_part || (row == 0 && rect.rows % height == 0))
        << "a part of several matrices of " << shape;
    Rect here{.row = rect.row / height,
              .rows = is_part ? 1 : rect.rows / height,
              .column = rect.column,
              .columns = rect.columns};
    if (grid == StateExtent::kRows) {
      here.column = row;
      here.columns = is_part ? rect.rows : height;
    }
    // Those of one matrix are a vector: one column.
    if (shape.rank() == 2) here = {here.column, here.columns, 0, 1};
    // Rectangles with the same columns have the same statistics of these.
    if (statistics.empty() || statistics.back() != here) {
      statistics.push_back(here);
    }
  }
  return statistics;
}

int64_t SizeOf(StateStorage storage, DType exact) {
  switch (storage) {
    case StateStorage::kExact:
      break;
    case StateStorage::kBF16:
      return SizeOf(DType::kBF16);
    case StateStorage::kBlock8:
      return SizeOf(DType::kU8);
  }
  return SizeOf(exact);
}

int64_t ScalesOf(int64_t begin, int64_t end) {
  if (begin >= end) return 0;
  return (end + kBlock8 - 1) / kBlock8 - begin / kBlock8;
}

StateLayout LayOutState(const LocalSlab& local, const ParamRegistry& registry,
                        int blocks, const StateSpec& spec, DType exact,
                        int64_t begin, int64_t room) {
  const Slab& slab = local.slab;
  StateLayout layout;
  const size_t params = slab.params.size();
  for (size_t p = 0; p < params; ++p) {
    const SlabParam& param = slab.params[p];
    const ParamDecl& decl = registry.decl(param.decl);
    const int64_t next = p + 1 < params ? slab.params[p + 1].offset
                                        : std::numeric_limits<int64_t>::max();
    const int64_t from = std::max(begin, param.offset);
    const int64_t to = std::max(from, std::min(begin + room, next));
    const StateFormat format = spec.Of(KindOf(decl, blocks));
    int64_t statistics = 0;
    if (format.extent == StateExtent::kRows ||
        format.extent == StateExtent::kColumns) {
      for (const Rect& rect :
           StatisticsOf(local.rects[p], decl.spec.shape, format.extent)) {
        statistics += rect.elements();
      }
    }
    layout.pieces.push_back(Place(decl, param.elements, statistics, format,
                                  exact, from - param.offset, to - param.offset,
                                  &layout));
  }
  for (size_t p = 0; p < params; ++p) {
    StateLayout::Piece& piece = layout.pieces[p];
    if (piece.format.storage != StateStorage::kBlock8) continue;
    piece.scales = layout.bytes;
    const int64_t offset = slab.params[p].offset;
    const int64_t scales =
        ScalesOf(offset + piece.held.begin, offset + piece.held.end);
    layout.bytes += AlignUp(scales * SizeOf(DType::kF32), kValueAlignment);
  }
  return layout;
}

}  // namespace delink
