#include "layers/kernels/meta/meta.h"

#include "framework/base/check.h"
#include "framework/device/backend.h"
#include "layers/kernels/work.h"
#include "layers/kernels/wrap.h"

namespace delink::meta {
namespace {

template <DType kType>
struct Noted {
  template <auto kEntry, typename Args>
  static void Call(Stream& stream, const Args& args) {
    WorkNotes* const notes = stream.notes();
    if (notes != nullptr && notes->noting()) notes->Add(WorkOf(args, kType));
  }
};

}  // namespace

Kernels Table(const Kernels& imitated, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return WrapKernels<Noted<DType::kF32>>(imitated);
    case DType::kF64:
      return WrapKernels<Noted<DType::kF64>>(imitated);
    default:
      DELINK_CHECK(dtype == DType::kBF16) << ToString(dtype);
      return WrapKernels<Noted<DType::kBF16>>(imitated);
  }
}

}  // namespace delink::meta
