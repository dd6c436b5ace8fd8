// The meta device computes nothing: its addresses point to no memory.
#include "framework/optim/find_kernels.h"

namespace delink::meta {
namespace {

template <typename Args>
void Nothing(Stream&, const Args&) {}

#define DELINK_NOTHING(entry, Function, Args) .entry = Nothing,
constexpr OptimKernels kTable = {DELINK_OPTIM_KERNELS(DELINK_NOTHING)};
#undef DELINK_NOTHING

}  // namespace

const OptimKernels* OptimTable(DType) { return &kTable; }

}  // namespace delink::meta
