#include "tests/testing/simt/report.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/testing/simt/block.h"
#include "tests/testing/simt/shadow.h"

extern "C" char __executable_start;

namespace delink::simt {
namespace {

std::string Addr2Line(uintptr_t address, const char* flags) {
  const uintptr_t offset =
      address - reinterpret_cast<uintptr_t>(&__executable_start);
  // This process by its id: the shell's own /proc/self is another.
  std::ostringstream command;
  command << "addr2line " << flags << " -e \"$(readlink /proc/$PPID/exe)\" 0x"
          << std::hex << offset << " 2>/dev/null";
  FILE* const pipe = popen(command.str().c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char line[512];
  while (fgets(line, sizeof line, pipe) != nullptr) text += line;
  pclose(pipe);
  return text;
}

}  // namespace

std::string Hex(uintptr_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

std::string SourceLine(const void* pc) {
  // The call, not what follows it.
  return Addr2Line(reinterpret_cast<uintptr_t>(pc) - 1, "-f -C -i -p -s");
}

std::string FunctionName(const void* function) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(function);
  const std::string text = Addr2Line(address, "-f -C");
  const std::string name = text.substr(0, text.find('\n'));
  return name.empty() || name == "??" ? Hex(address) : name;
}

void Report(const std::string& what, const void* pc) {
  t_in_kernel = false;
  std::string text = "simt: " + what + "\n" + WhereOnDevice();
  if (pc != nullptr) text += "  at " + SourceLine(pc) + "\n";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace delink::simt
