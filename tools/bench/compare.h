// Two reports side by side.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/bench.h"

namespace delink::bench {

struct Change {
  std::string what;  // "gelu forward 1024 x 3072 f32"
  // After over before: of seconds, or, on another machine, of what part of
  // the machine's peak was left unused, as peaks before over after.
  double ratio = 1;
  double spread = 0;  // what the ratio may differ from 1 by chance

  bool slower() const { return ratio > 1 + spread; }
  bool faster() const { return ratio < 1 / (1 + spread); }
};

struct Comparison {
  bool same_machine = false;
  std::vector<Change> changes;       // of all that both have, in our order
  std::vector<std::string> missing;  // that only `before` has
};

Comparison Compare(const BenchReport& before, const BenchReport& now);

// What got slower, what faster, and how much stayed as it was.
std::string ToText(const Comparison& comparison, const BenchReport& before,
                   const BenchReport& now);

}  // namespace delink::bench
