// Lines about steps as a person reads them, and the words for their numbers.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

struct StepDone;

// "step 120/488  loss 4.3210  3 min 05 s left  12.3 k tokens/s  pseudo ...":
// what matters most comes first. Of the parts as many as have room in `width`.
std::string Format(const StepDone& step, int width = 1 << 20);
// The same behind a bar, "[##........] 24%  step ...", where there is room for
// one.
std::string FormatLive(const StepDone& step, int width);
// "1 h 02 min", "3 min 05 s", "12 s".
std::string FormatSeconds(double seconds);
// "12.3 k", "1.20 M": with three digits.
std::string FormatCount(double count);
// "1.20 MFLOP", "200 FLOP".
std::string FormatFlops(double flops);

// Resident and peak resident bytes of this process.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace delink
