#include "framework/module/store_place.h"

#include <algorithm>

#include "framework/base/check.h"
#include "framework/module/state_layout.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

// Held values of an extent that are contiguous in the parameter.
struct PlaceRun {
  int64_t first = 0, count = 0;   // of the parameter's values
  int64_t packed = 0;             // values of the extent before it
  int64_t scale = 0, scales = 0;  // 8-bit: scales before it, its own scales
};

int64_t SizeOf(const StateCodec& codec) {
  return SizeOf(codec.storage, codec.exact);
}

char* ValueAt(const StorePlace& place, int64_t value) {
  return place.values + (value - place.held.begin) * SizeOf(place.codec);
}

float* ScaleAt(const StorePlace& place, int64_t value) {
  return place.scales + ((place.element + value) / kBlock8 -
                         (place.element + place.held.begin) / kBlock8);
}

std::vector<PlaceRun> RunsOf(const StorePlace& place, const Extent& extent) {
  const bool one = IsOneRun(extent);
  const int64_t rows = one ? 1 : extent.rect.rows;
  const int64_t count = one ? extent.rect.elements() : extent.rect.columns;
  std::vector<PlaceRun> runs;
  int64_t scale = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = extent.offset + row * extent.pitch;
    const int64_t begin = std::max(first, place.held.begin);
    const int64_t end = std::min(first + count, place.held.end);
    if (begin >= end) continue;
    runs.push_back({.first = begin,
                    .count = end - begin,
                    .packed = row * count + (begin - first),
                    .scale = scale});
    if (!place.is_8_bit()) continue;
    runs.back().scales = ScalesOf(place.element + begin, place.element + end);
    scale += runs.back().scales;
  }
  return runs;
}

// Host memory for the stored form of an extent; none if that is the exact form.
struct Staging {
  Staging(const StorePlace& place, const Extent& extent)
      : runs(RunsOf(place, extent)) {
    if (place.codec.storage == StateStorage::kExact) return;
    values.resize(
        static_cast<size_t>(extent.rect.elements() * SizeOf(place.codec)));
    if (runs.empty()) return;
    scales.resize(static_cast<size_t>(runs.back().scale + runs.back().scales));
  }
  std::vector<PlaceRun> runs;
  std::vector<char> values;
  std::vector<float> scales;
};

}  // namespace

bool StorePlace::Holds(const Extent& extent) const {
  const int64_t last = extent.offset + (extent.rect.rows - 1) * extent.pitch +
                       extent.rect.columns;
  return extent.rect.elements() == 0 ||
         (extent.offset >= held.begin && last <= held.end);
}

bool StorePlace::HasWholeBlocks(const Extent& extent) const {
  const int64_t begin = extent.offset;
  const int64_t end = begin + extent.rect.elements();
  return IsOneRun(extent) &&
         ((element + begin) % kBlock8 == 0 || begin == held.begin) &&
         ((element + end) % kBlock8 == 0 || end == held.end);
}

void ReadPlace(Device& device, Stream& stream, const StorePlace& place,
               const Extent& extent, void* values) {
  Staging staging(place, extent);
  const bool exact = place.codec.storage == StateStorage::kExact;
  char* const stored =
      exact ? static_cast<char*>(values) : staging.values.data();
  const int64_t size = SizeOf(place.codec);
  for (const PlaceRun& run : staging.runs) {
    device.CopyToHost(stream, stored + run.packed * size,
                      ValueAt(place, run.first), run.count * size);
    if (run.scales == 0) continue;
    device.CopyToHost(stream, staging.scales.data() + run.scale,
                      ScaleAt(place, run.first),
                      run.scales * SizeOf(DType::kF32));
  }
  stream.Synchronize();
  if (exact) return;
  for (const PlaceRun& run : staging.runs) {
    place.codec.Decode(place.element + run.first, run.count,
                       stored + run.packed * size,
                       staging.scales.data() + run.scale,
                       static_cast<float*>(values) + run.packed);
  }
}

void WritePlace(Device& device, Stream& stream, const StorePlace& place,
                const Extent& extent, const void* values) {
  DELINK_CHECK(!place.is_8_bit() || place.HasWholeBlocks(extent))
      << "a block of " << kBlock8 << " values is cut";
  Staging staging(place, extent);
  const bool exact = place.codec.storage == StateStorage::kExact;
  const char* const stored =
      exact ? static_cast<const char*>(values) : staging.values.data();
  const int64_t size = SizeOf(place.codec);
  for (const PlaceRun& run : staging.runs) {
    if (!exact) {
      place.codec.Encode(place.element + run.first, run.count,
                         static_cast<const float*>(values) + run.packed,
                         staging.values.data() + run.packed * size,
                         staging.scales.data() + run.scale);
    }
    device.CopyFromHost(stream, ValueAt(place, run.first),
                        stored + run.packed * size, run.count * size);
    if (run.scales == 0) continue;
    device.CopyFromHost(stream, ScaleAt(place, run.first),
                        staging.scales.data() + run.scale,
                        run.scales * SizeOf(DType::kF32));
  }
  stream.Synchronize();
}

void BlockParts::Write(Device& device, Stream& stream, const StorePlace& place,
                       const Extent& extent, const float* values) {
  const auto write = [&](Range range, const float* from) {
    const Extent run{.rect = {.rows = 1, .columns = range.size()},
                     .offset = range.begin,
                     .pitch = range.size()};
    WritePlace(device, stream, place, run, from);
  };
  // The range of the block that holds a value.
  const auto block_of = [&](int64_t value) {
    const int64_t first =
        (place.element + value) / kBlock8 * kBlock8 - place.element;
    return Range{std::max(first, place.held.begin),
                 std::min(first + kBlock8, place.held.end)};
  };
  for (const PlaceRun& run : RunsOf(place, extent)) {
    const int64_t end = run.first + run.count;
    const float* from = values + run.packed;
    for (int64_t at = run.first; at < end;) {
      Range here = block_of(at);
      if (here.begin == at && here.end <= end) {
        // All whole blocks at once.
        const Range last = block_of(end - 1);
        here.end = last.end <= end ? last.end : last.begin;
        write(here, from);
      } else {
        Block& block = blocks_[ScaleAt(place, at)];
        block.values.resize(static_cast<size_t>(here.size()));
        const int64_t stop = std::min(here.end, end);
        std::copy_n(from, stop - at, block.values.begin() + at - here.begin);
        block.count += stop - at;
        if (block.count == here.size()) {
          write(here, block.values.data());
          blocks_.erase(ScaleAt(place, at));
        }
        here.end = stop;
      }
      from += here.end - at;
      at = here.end;
    }
  }
}

bool CopyPlace(Device& device, Stream& stream, const StorePlace& from,
               const Extent& extent, const StorePlace& to,
               const Extent& target) {
  DELINK_CHECK(from.codec == to.codec);
  DELINK_CHECK_EQ(extent.rect.rows, target.rect.rows);
  DELINK_CHECK_EQ(extent.rect.columns, target.rect.columns);
  const bool one = IsOneRun(extent) && IsOneRun(target);
  const int64_t rows = one ? 1 : extent.rect.rows;
  const int64_t count = one ? extent.rect.elements() : extent.rect.columns;
  if (to.is_8_bit()) {
    const int64_t first = to.element + target.offset;
    const int64_t before = from.element + extent.offset;
    if ((before - first) % kBlock8 != 0 || !from.HasWholeBlocks(extent) ||
        !to.HasWholeBlocks(target)) {
      return false;
    }
    device.Copy(stream, ScaleAt(to, target.offset),
                ScaleAt(from, extent.offset),
                ScalesOf(first, first + count) * SizeOf(DType::kF32));
  }
  const int64_t size = SizeOf(to.codec);
  device.CopyRows(stream, {.to = ValueAt(to, target.offset),
                           .to_pitch = (one ? count : target.pitch) * size,
                           .from = ValueAt(from, extent.offset),
                           .from_pitch = (one ? count : extent.pitch) * size,
                           .bytes = count * size,
                           .rows = rows});
  stream.Synchronize();
  return true;
}

}  // namespace delink
