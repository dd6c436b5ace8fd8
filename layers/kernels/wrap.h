// A table of kernels that wraps another one and adds something to every call.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink {

template <typename Wrapper, auto kEntry>
struct Wrapped;

template <typename Wrapper, typename Args,
          void (*Kernels::*kEntry)(Stream&, const Args&)>
struct Wrapped<Wrapper, kEntry> {
  static void Call(Stream& stream, const Args& args) {
    Wrapper::template Call<kEntry>(stream, args);
  }
};

// Each entry calls Wrapper::Call<&Kernels::ENTRY>(stream, args). Scratch sizes
// are those of `inner`.
template <typename Wrapper>
Kernels WrapKernels(const Kernels& inner) {
#define DELINK_WRAPPED(entry, Function) \
  .entry = Wrapped<Wrapper, &Kernels::entry>::Call,
#define DELINK_INNER(entry, Function) .entry = inner.entry,
  return {DELINK_KERNELS(DELINK_WRAPPED) DELINK_SCRATCH_BYTES(DELINK_INNER)};
#undef DELINK_WRAPPED
#undef DELINK_INNER
}

}  // namespace delink
