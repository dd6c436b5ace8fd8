// Two tensors over four ranks, of which two own one each and two the other.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "framework/module/mover.h"
#include "tests/framework/module/mover_ends.h"

namespace delink::testing {

class MoveTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  MoveTest() {
    for (const char* name : {"a", "b"}) {
      Scope(registry_).Layer(0, "").Param(name, {.shape = {kRows, 512}});
    }
  }

  Layout LayoutOf(int zero) const {
    return Layout::Create(registry_, 0, {},
                          {.mesh = {.data = kRanks}, .zero = zero});
  }
  static std::vector<Move> MovesOf(const Layout& layout) {
    std::vector<Move> moves;
    for (const LogicalTensor& tensor : layout.tensors()) {
      moves.push_back(
          {.field = {Field::Kind::kMaster}, .from = &tensor, .to = {&tensor}});
    }
    return moves;
  }
  static void Check(const Layout& layout, TestSink& sink) {
    for (const LogicalTensor& tensor : layout.tensors()) {
      sink.Check(tensor,
                 [&](int64_t number) { return ValueOf(tensor.name, number); });
    }
  }

  static constexpr int64_t kRows = 10;
  ParamRegistry registry_;
};

}  // namespace delink::testing
