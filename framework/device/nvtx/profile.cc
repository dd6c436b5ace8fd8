#include "framework/device/profile.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace delink {
namespace {

// Called before any other NVTX call: the first call finds the profiler and
// writes state, which another thread's call would otherwise read in a race.
void Initialize() {
  [[maybe_unused]] static const bool once = [] {
    nvtxInitialize(nullptr);
    return true;
  }();
}

}  // namespace

ProfileRange::ProfileRange(const char* name) {
  Initialize();
  nvtxRangePushA(name);
}
ProfileRange::~ProfileRange() { nvtxRangePop(); }

void NameThread(const char* name) {
  Initialize();
  nvtxNameOsThreadA(static_cast<uint32_t>(syscall(SYS_gettid)), name);
}

void NameCudaStream(CUstream_st* stream, const char* name) {
  Initialize();
  nvtxNameCudaStreamA(stream, name);
}

}  // namespace delink
