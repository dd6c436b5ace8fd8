#include "layers/kernels/cpu/spin.h"

#include <cstdlib>
#include <initializer_list>

namespace delink::cpu {
namespace {

// Rounds of GCC's libgomp, each some tens of nanoseconds (docs/benchmarks.md,
// "Threads that wait").
constexpr char kRounds[] = "3000";
// LLVM's libomp counts milliseconds; its own default is 200.
constexpr char kMilliseconds[] = "1";

}  // namespace

bool SpinBriefly() {
  for (const char* name :
       {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  setenv("GOMP_SPINCOUNT", kRounds, /*overwrite=*/0);
  setenv("KMP_BLOCKTIME", kMilliseconds, /*overwrite=*/0);
  return true;
}

}  // namespace delink::cpu
