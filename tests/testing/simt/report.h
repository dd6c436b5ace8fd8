// How the emulated device ends the process when a kernel, or the host, did what
// a device would not forgive.
#pragma once

#include <cstdint>
#include <string>

namespace delink::simt {

// Prints what happened, where on the device (when a kernel runs) and the source
// line of `pc`, a return address in the code at fault; aborts.
[[noreturn]] void Report(const std::string& what, const void* pc = nullptr);

// Function, file and line of an address of this program, as far as binutils'
// addr2line can tell.
std::string SourceLine(const void* pc);
// Name of a function of this program.
std::string FunctionName(const void* function);

std::string Hex(uintptr_t value);

}  // namespace delink::simt
