// Whether this is `tools/test.sh --full`, in which tests that take turns at a
// few of many rows run all of them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace delink::testing {

inline bool IsFullTest() { return std::getenv("DELINK_FULL_TESTS") != nullptr; }

// All rows in a full test, else the first and each `every`-th after it.
template <typename Row>
std::vector<Row> FullOrEvery(size_t every, const std::vector<Row>& rows) {
  if (IsFullTest()) return rows;
  std::vector<Row> some;
  for (size_t i = 0; i < rows.size(); i += every) some.push_back(rows[i]);
  return some;
}

}  // namespace delink::testing
