// Lines about steps for people, and the format of their numbers.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

struct StepDone;

// "step 120/488  loss 4.3210  3 min 05 s left  12.3 k tokens/s  pseudo ...":
// the most important parts first, as many as fit in `width`.
std::string Format(const StepDone& step, int width = 1 << 20);
// The same after a bar, "[##........]  24%  step ...", if there is room for
// one.
std::string FormatLive(const StepDone& step, int width);
// "1 h 02 min", "3 min 05 s", "12 s".
std::string FormatSeconds(double seconds);
// "12.3 k", "1.20 M": three digits.
std::string FormatCount(double count);
// "1.20 MFLOP", "200 FLOP".
std::string FormatFlops(double flops);

// Resident and peak resident bytes of this process.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace delink
