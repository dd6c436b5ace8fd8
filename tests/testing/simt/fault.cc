#include "tests/testing/simt/fault.h"

#include <signal.h>

#include <cstdint>
#include <string>

#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow.h"

namespace delink::simt {
namespace {

struct sigaction g_before;

void* ProgramCounter(void* context) {
  auto* const user = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  return reinterpret_cast<void*>(user->uc_mcontext.gregs[REG_RIP] + 1);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(user->uc_mcontext.pc + 4);
#endif
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (TheMachine().memory().IsDevice(info->si_addr)) {
    Report("host code touches memory of the device at " + Hex(address) + ", " +
               TheMachine().memory().Describe(address),
           ProgramCounter(context));
  }
  if (address - g_layout.stacks_begin < g_layout.stacks_bytes) {
    Report("a thread's local variables do not fit its stack",
           ProgramCounter(context));
  }
  if (t_in_kernel) {
    Report("a kernel touches memory at " + Hex(address) +
               ", in no allocation of the device",
           ProgramCounter(context));
  }
  sigaction(signal, &g_before, nullptr);  // and the access faults again
}

}  // namespace

void InstallFaultHandler() {
  // The handler needs a stack of its own when a thread's is full.
  static char stack[64 << 10];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &g_before);
}

}  // namespace delink::simt
