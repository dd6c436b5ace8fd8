// Compares two reports.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/bench.h"

namespace delink::bench {

struct Change {
  std::string what;  // "gelu forward 1024 x 3072 f32"
  // Seconds now over before. If the machines differ, the fraction of each
  // machine's own peak, before over now.
  double ratio = 1;
  double spread = 0;  // how far the ratio may be from 1 by chance

  bool slower() const { return ratio > 1 + spread; }
  bool faster() const { return ratio < 1 / (1 + spread); }
};

struct Comparison {
  bool same_machine = false;
  std::vector<Change> changes;       // of all that both have, in `now`'s order
  std::vector<std::string> missing;  // measured only in `before`
};

Comparison Compare(const BenchReport& before, const BenchReport& now);

// Lists what is slower and what is faster, and counts what has not changed.
std::string ToText(const Comparison& comparison, const BenchReport& before,
                   const BenchReport& now);

}  // namespace delink::bench
