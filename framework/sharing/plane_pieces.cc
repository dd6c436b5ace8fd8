#include "framework/sharing/plane_pieces.h"

#include <vector>

#include "framework/base/check.h"

namespace delink {
namespace {

template <typename T>
void Read(Stream& stream, Device& device, const void* from,
          std::span<double> values) {
  std::vector<T> staging(values.size());
  device.CopyToHost(stream, staging.data(), from,
                    static_cast<int64_t>(staging.size() * sizeof(T)));
  stream.Synchronize();
  std::copy(staging.begin(), staging.end(), values.begin());
}

template <typename T>
void Write(Stream& stream, Device& device, void* to,
           std::span<const double> values) {
  std::vector<T> staging(values.size());
  std::transform(values.begin(), values.end(), staging.begin(),
                 [](double value) { return static_cast<T>(value); });
  device.CopyFromHost(stream, to, staging.data(),
                      static_cast<int64_t>(staging.size() * sizeof(T)));
  stream.Synchronize();
}

}  // namespace

void ReadPiece(Stream& stream, const ParamStore& store, int slab, Plane plane,
               Range piece, std::span<double> values) {
  DELINK_CHECK_EQ(static_cast<int64_t>(values.size()), piece.size());
  Device& device = store.device();
  if (values.empty() || IsMeta(device.kind())) return;
  const void* const from = store.at(slab, plane, piece.begin);
  if (store.dtype(plane) == DType::kF64) {
    Read<double>(stream, device, from, values);
  } else {
    DELINK_CHECK(store.dtype(plane) == DType::kF32);
    Read<float>(stream, device, from, values);
  }
}

void ChangeElements(Stream& stream, ParamStore& store, int slab, Plane plane,
                    Range range,
                    const std::function<void(std::span<double>)>& change) {
  Device& device = store.device();
  if (IsMeta(device.kind())) return;
  std::vector<double> values;
  ForEachPiece(range, kPieceElements, [&](Range piece) {
    values.resize(static_cast<size_t>(piece.size()));
    ReadPiece(stream, store, slab, plane, piece, values);
    change(values);
    void* const to = store.at(slab, plane, piece.begin);
    if (store.dtype(plane) == DType::kF64) {
      Write<double>(stream, device, to, values);
    } else {
      Write<float>(stream, device, to, values);
    }
  });
}

}  // namespace delink
