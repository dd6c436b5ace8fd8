// Runs the target it is linked with; see fuzz_target.h.
//
//   DELINK_FUZZ_SECONDS  how long (2)
//   DELINK_FUZZ_SEED     another series of inputs (1)
//   DELINK_FUZZ_INPUT    run this file alone, to see a crash again
//
// The input at which the program dies is left in crash-PROGRAM in its folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "framework/base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutator.h"

// There in programs that have a sanitizer, which ends them by itself.
// NOLINTNEXTLINE(readability-identifier-naming): its name
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(
    void (*callback)());

namespace delink::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kLongestInput = 20;  // seconds

// What a dying program must find without looking for it.
std::string input;       // NOLINT: see above
std::string crash_path;  // NOLINT: see above

void SaveInput() {
  const int file =
      ::open(crash_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  const char said[] = "\nfuzz: the input is kept in ";
  for (const std::string_view text :
       {std::string_view(said), std::string_view(crash_path),
        std::string_view("\n")}) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) break;
  }
  if (::write(file, input.data(), input.size()) < 0) return;
  ::close(file);
}

void Die(int signal) {
  SaveInput();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

int64_t Number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

void WatchDeath(const char* program) {
  crash_path = program;
  crash_path = "crash-" + crash_path.substr(crash_path.rfind('/') + 1);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(SaveInput);
    ::signal(SIGALRM, Die);
    ::signal(SIGABRT, Die);
    return;
  }
  for (const int signal : {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    ::signal(signal, Die);
  }
  // What claims to be larger than this is refused, not allocated. The
  // sanitizers, which reserve far more, have a limit of their own.
  const rlimit limit = {.rlim_cur = rlim_t{4} << 30,
                        .rlim_max = rlim_t{4} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
}

// An exception that comes this far ends the program.
void RunInput() noexcept {
  ::alarm(kLongestInput);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
  ::alarm(0);
}

TEST(Fuzz, NeverCrashes) {
  if (const char* path = std::getenv("DELINK_FUZZ_INPUT")) {
    const auto bytes = ReadFile(path);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    input = *bytes;
    RunInput();
    return;
  }
  const auto end =
      Clock::now() + std::chrono::seconds(Number("DELINK_FUZZ_SECONDS", 2));
  const std::vector<std::string> seeds = Seeds();
  Mutator mutator(seeds, Words(),
                  static_cast<uint64_t>(Number("DELINK_FUZZ_SEED", 1)));
  size_t inputs = 0;
  while (Clock::now() < end || inputs <= seeds.size()) {
    input = mutator.Next();
    RunInput();
    ++inputs;
  }
  RecordProperty("inputs", std::to_string(inputs));
  std::cout << "ran " << inputs << " inputs\n";
}

}  // namespace
}  // namespace delink::fuzz

int main(int argc, char** argv) {
  // Files of the targets go to memory, where there is such a folder.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
  delink::fuzz::WatchDeath(argv[0]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
