#include "framework/sharing/plane_pieces.h"

#include <vector>

#include "framework/base/check.h"
#include "framework/tensor/bfloat16.h"

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

// Values `piece` of a parameter's state, of T, by way of doubles.
template <typename T>
void Change(Stream& stream, ParamStore& store, int slab, int state,
            size_t param, Range piece,
            const std::function<void(std::span<double>)>& change) {
  std::vector<T> staging(static_cast<size_t>(piece.size()));
  store.ReadState(stream, slab, state, param, piece, staging.data());
  std::vector<double> values(staging.begin(), staging.end());
  change(values);
  std::transform(values.begin(), values.end(), staging.begin(),
                 [](double value) { return static_cast<T>(value); });
  store.WriteState(stream, slab, state, param, piece, staging.data());
}

}  // namespace

void ReadPiece(Stream& stream, const ParamStore& store, int slab, Plane plane,
               Range piece, std::span<double> values) {
  DELINK_CHECK_EQ(static_cast<int64_t>(values.size()), piece.size());
  Device& device = store.device();
  if (values.empty() || IsMeta(device.kind())) return;
  const void* const from = store.at(slab, plane, piece.begin);
  switch (store.dtype(plane)) {
    case DType::kF64:
      return Read<double>(stream, device, from, values);
    case DType::kF32:
      return Read<float>(stream, device, from, values);
    default:
      DELINK_CHECK(store.dtype(plane) == DType::kBF16);
      return Read<BFloat16>(stream, device, from, values);
  }
}

void ChangeState(Stream& stream, ParamStore& store, int slab, int state,
                 size_t param,
                 const std::function<void(std::span<double>)>& change) {
  if (IsMeta(store.device().kind())) return;
  const auto piecewise = store.dtype(StatePlane(state)) == DType::kF64
                             ? Change<double>
                             : Change<float>;
  ForEachStatePiece(
      store.slab(slab).params[param].offset,
      store.state(slab, state, param).held, kPieceElements, [&](Range piece) {
        piecewise(stream, store, slab, state, param, piece, change);
      });
}

}  // namespace delink
