#include "layers/kernels/cpu/x86/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/base/log.h"

namespace delink::cpu {
namespace {

bool ProcessorHasAmx() {
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kBf16) != 0 && (d & kTiles) != 0;
}

int AskLinux() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // of the state that is saved
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0
                                                                     : errno;
}

}  // namespace

bool MayUseTiles(AskForTiles ask) {
  const int error = ask();
  if (error == 0) return true;
  DELINK_LOG(kWarning)
      << "the processor has AMX, but the kernel refuses it to this "
         "process (arch_prctl: "
      << std::strerror(error) << "); bf16 uses AVX-512";
  return false;
}

bool HasAmx() {
  static const bool has = ProcessorHasAmx() && MayUseTiles(AskLinux);
  return has;
}

}  // namespace delink::cpu
