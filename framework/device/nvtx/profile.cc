#include "framework/device/profile.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace delink {

ProfileRange::ProfileRange(const char* name) { nvtxRangePushA(name); }
ProfileRange::~ProfileRange() { nvtxRangePop(); }

void NameThread(const char* name) {
  nvtxNameOsThreadA(static_cast<uint32_t>(syscall(SYS_gettid)), name);
}

void NameCudaStream(CUstream_st* stream, const char* name) {
  nvtxNameCudaStreamA(stream, name);
}

}  // namespace delink
