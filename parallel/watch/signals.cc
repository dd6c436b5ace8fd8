#include "parallel/watch/signals.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "framework/base/mutex.h"

namespace delink {
namespace {

constexpr std::array kCaught = {SIGINT, SIGTERM, SIGUSR1};

std::atomic<int> stop_signal = 0;
std::atomic<int64_t> save_requests = 0;
static_assert(std::atomic<int>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

Mutex mutex;
int catchers ABSL_GUARDED_BY(mutex) = 0;
std::array<struct sigaction, kCaught.size()> before ABSL_GUARDED_BY(mutex);

// A handler may do little: atomics, signal and raise are allowed.
void Handle(int signal) {
  if (signal == SIGUSR1) {
    save_requests.fetch_add(1);
    return;
  }
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, signal)) return;
  // The second request. Delivered when this handler returns.
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

SignalCatcher::SignalCatcher() {
  const MutexLock lock(mutex);
  if (catchers++ > 0) return;
  stop_signal = 0;
  save_requests = 0;
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;  // files are read and written in peace
  for (size_t i = 0; i < kCaught.size(); ++i) {
    sigaction(kCaught[i], &action, &before[i]);
  }
}

SignalCatcher::~SignalCatcher() {
  const MutexLock lock(mutex);
  if (--catchers > 0) return;
  for (size_t i = 0; i < kCaught.size(); ++i) {
    sigaction(kCaught[i], &before[i], nullptr);
  }
}

void LetWritesFail() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void EndOfBrokenPipe() {
  signal(SIGPIPE, SIG_DFL);
  raise(SIGPIPE);
  std::abort();  // reached only if SIGPIPE is blocked
}

int StopSignal() { return stop_signal; }

int64_t SaveRequests() { return save_requests; }

std::string SignalName(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace delink
