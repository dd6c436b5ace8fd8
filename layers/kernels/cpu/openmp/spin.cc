#include "layers/kernels/cpu/spin.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace delink::cpu {
namespace {

// Rounds of GCC's libgomp, each some tens of nanoseconds (docs/benchmarks.md,
// "Threads that wait").
constexpr char kRounds[] = "3000";
// LLVM's libomp counts milliseconds; its own default is 200.
constexpr char kMilliseconds[] = "1";

}  // namespace

void SpinBriefly(char** argv) {
  for (const char* name :
       {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"}) {
    if (std::getenv(name) != nullptr) return;
  }
  // The loop above finds these, so the process does not restart again.
  setenv("GOMP_SPINCOUNT", kRounds, /*overwrite=*/0);
  setenv("KMP_BLOCKTIME", kMilliseconds, /*overwrite=*/0);
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(program.c_str(), argv);
}

}  // namespace delink::cpu
