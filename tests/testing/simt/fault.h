// Accesses that the processor refuses: the host at the device's memory, a
// thread of a kernel at the end of its stack.
#pragma once

namespace delink::simt {

// What the process does on SIGSEGV from now on: it says so, and aborts. Faults
// of other kinds go where they went.
void InstallFaultHandler();

}  // namespace delink::simt
