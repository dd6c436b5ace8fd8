// Ends of moves whose values are functions of a tensor's name and the number of
// a value, and random moves between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/mover.h"
#include "tests/framework/module/random_layouts.h"

namespace delink::testing {

// A whole number that f32 has exactly, also three times it.
inline double ValueOf(const std::string& tensor, int64_t number) {
  uint64_t x = std::hash<std::string>()(tensor) + static_cast<uint64_t>(number);
  x *= 0x9E3779B97F4A7C15;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return static_cast<double>(x >> 44);
}

// By whose name values are: of a link, those of what it is to.
inline const std::string& OwnerOf(const LogicalTensor& tensor) {
  return tensor.link.empty() ? tensor.name : tensor.link;
}

struct EndOptions {
  StateExtent grid = StateExtent::kElements;  // of what is no vector
  bool sharded = false;
  DType type = DType::kF32;
  int64_t grain = 1;  // of a sink
  bool copies = false;
};

// The values of one plane that a rank has.
class TestEnd {
 public:
  TestEnd(const Layout& layout, int rank, const EndOptions& options)
      : layout_(layout), rank_(rank), options_(options) {}

  const EndOptions& options() const { return options_; }
  StateExtent GridOf(const LogicalTensor& tensor) const {
    return tensor.shape.rank() < 2 ? StateExtent::kElements : options_.grid;
  }
  Shape ShapeOf(const LogicalTensor& tensor) const {
    return StateShape(tensor.shape, GridOf(tensor));
  }
  Descriptor Places(const LogicalTensor& tensor) const {
    return DescriptorOf(layout_, tensor, GridOf(tensor), options_.sharded);
  }

 protected:
  // Those of a parameter, as they lie there; NaN is what is not here.
  std::vector<double>& ValuesOf(const LogicalTensor& tensor,
                                const Extent& extent) {
    std::vector<double>& values = values_[{extent.slab, extent.param}];
    values.resize(static_cast<size_t>(tensor.shape.elements()),
                  std::numeric_limits<double>::quiet_NaN());
    return values;
  }
  void CheckIsHere(const Extent& extent) const {
    DELINK_CHECK_EQ(extent.rank, rank_);
  }

  const Layout& layout_;
  const int rank_;
  const EndOptions options_;
  std::map<std::pair<int, size_t>, std::vector<double>> values_;
};

class TestSource : public ValueSource, public TestEnd {
 public:
  using TestEnd::TestEnd;
  // What reads of a tensor of this name say.
  void Fail(std::string tensor, absl::Status status) {
    failing_ = std::move(tensor);
    status_ = std::move(status);
  }

  DType type(const Field&) const override { return options_.type; }
  Descriptor Has(const Field&, const LogicalTensor& tensor) const override {
    return Places(tensor);
  }
  Descriptor Owners(const Field&, const LogicalTensor& tensor) const override {
    return OwnersOf(layout_, tensor, GridOf(tensor));
  }
  absl::Status Read(const Field&, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override {
    if (tensor.name == failing_) return status_;
    if (options_.type == DType::kF64) {
      CopyOut(tensor, extent, static_cast<double*>(values));
    } else {
      CopyOut(tensor, extent, static_cast<float*>(values));
    }
    return absl::OkStatus();
  }

  // As it lies there, row by row.
  template <typename T>
  void CopyOut(const LogicalTensor& tensor, const Extent& extent, T* out) {
    CheckIsHere(extent);
    const std::vector<double>& here = Fill(tensor, extent);
    ForEachElement(extent, [&](int64_t, int64_t, int64_t offset) {
      *out++ = static_cast<T>(At(here, offset));
    });
  }

 private:
  const std::vector<double>& Fill(const LogicalTensor& tensor,
                                  const Extent& extent) {
    const bool fresh = !values_.contains({extent.slab, extent.param});
    std::vector<double>& values = ValuesOf(tensor, extent);
    if (!fresh) return values;
    const int64_t columns = WholeOf(ShapeOf(tensor)).columns;
    for (const Extent& place : Places(tensor)) {
      if (place.rank != rank_) continue;
      ForEachElement(place, [&](int64_t row, int64_t column, int64_t offset) {
        At(values, offset) = ValueOf(OwnerOf(tensor), row * columns + column);
      });
    }
    return values;
  }

  std::string failing_;
  absl::Status status_;
};

class TestSink : public ValueSink, public TestEnd {
 public:
  using TestEnd::TestEnd;
  void Fail(std::string tensor, absl::Status status) {
    failing_ = std::move(tensor);
    status_ = std::move(status);
  }
  int64_t written() const { return written_; }
  int64_t copied() const { return copied_; }

  DType type(const Field&) const override { return options_.type; }
  Descriptor Wants(const Field&, const LogicalTensor& tensor) const override {
    return Places(tensor);
  }
  int64_t grain(const Field&, const LogicalTensor&) const override {
    return options_.grain;
  }

  // To each value is added the greatest of its block.
  static double Kept(const std::string& source, const LogicalTensor& tensor,
                     int64_t number, int64_t grain) {
    const int64_t first = (tensor.offset + number) / grain * grain;
    double greatest = 0;
    for (int64_t i = std::max(first, tensor.offset); i < first + grain; ++i) {
      if (i >= tensor.offset + tensor.shape.elements()) break;
      greatest = std::max(greatest, ValueOf(source, i - tensor.offset));
    }
    return ValueOf(source, number) + greatest;
  }
  void AsKept(const Field&, const LogicalTensor& tensor, const Extent& extent,
              void* values) const override {
    if (options_.type == DType::kF64) {
      Keep(tensor, extent, static_cast<double*>(values));
    } else {
      Keep(tensor, extent, static_cast<float*>(values));
    }
  }

  absl::Status Write(const Field&, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override {
    if (tensor.name == failing_) return status_;
    written_ += extent.rect.elements();
    if (options_.type == DType::kF64) {
      CopyIn(tensor, extent, static_cast<const double*>(values));
    } else {
      CopyIn(tensor, extent, static_cast<const float*>(values));
    }
    return absl::OkStatus();
  }
  bool Copy(ValueSource& source, const Field&, const LogicalTensor& from,
            const Extent& extent, const LogicalTensor& to,
            const Extent& target) override {
    if (!options_.copies) return false;
    std::vector<double> values(static_cast<size_t>(extent.rect.elements()));
    dynamic_cast<TestSource&>(source).CopyOut(from, extent, values.data());
    CopyIn(to, target, values.data());
    copied_ += target.rect.elements();
    return true;
  }

  // What has been written is all that is wanted of `tensor`, each value once
  // and as `value(number)` says.
  template <typename Value>
  void Check(const LogicalTensor& tensor, Value value) {
    const int64_t columns = WholeOf(ShapeOf(tensor)).columns;
    for (const Extent& place : Places(tensor)) {
      if (place.rank != rank_) continue;
      const std::vector<double>& here = ValuesOf(tensor, place);
      ForEachElement(place, [&](int64_t row, int64_t column, int64_t offset) {
        ASSERT_EQ(At(here, offset), value(row * columns + column))
            << tensor.name << " " << row << ", " << column;
        --arrived_;
      });
    }
  }
  // After Check of all tensors: what came besides.
  int64_t besides() const { return arrived_; }

 private:
  template <typename T>
  void Keep(const LogicalTensor& tensor, const Extent& extent,
            T* values) const {
    const int64_t grain = options_.grain;
    const int64_t n = extent.rect.elements();
    for (int64_t i = 0; i < n;) {
      const int64_t at = tensor.offset + extent.offset + i;
      const int64_t end = grain == 1 ? i + 1 : i + grain - at % grain;
      T* const last = values + std::min(end, n);
      const T greatest = *std::max_element(values + i, last);
      std::for_each(values + i, last, [&](T& value) { value += greatest; });
      i = end;
    }
  }

  template <typename T>
  void CopyIn(const LogicalTensor& tensor, const Extent& extent,
              const T* values) {
    CheckIsHere(extent);
    if (options_.grain > 1) CheckGrain(tensor, extent);
    std::vector<double>& here = ValuesOf(tensor, extent);
    ForEachElement(extent, [&](int64_t, int64_t, int64_t offset) {
      DELINK_CHECK(std::isnan(At(here, offset))) << "a value came twice";
      At(here, offset) = static_cast<double>(*values++);
      ++arrived_;
    });
  }

  void CheckGrain(const LogicalTensor& tensor, const Extent& extent) const {
    DELINK_CHECK_EQ(extent.rect.columns, 1);
    for (const int64_t end :
         {extent.offset, extent.offset + extent.rect.rows}) {
      DELINK_CHECK(end == 0 || end == tensor.shape.elements() ||
                   (tensor.offset + end) % options_.grain == 0);
    }
  }

  std::string failing_;
  absl::Status status_;
  int64_t written_ = 0, copied_ = 0, arrived_ = 0;
};

// Two layouts, and moves from tensors of one to those of the other that have
// their shape.
class RandomMoves {
 public:
  RandomMoves(Dice& dice, int most_ranks)
      : model_(AnyModel(dice)),
        tensor_(dice.Maybe()),
        from_(AnyLayout(model_, dice, most_ranks, tensor_)),
        to_(AnyLayout(model_, dice, most_ranks, tensor_)) {
    source_.sharded = dice.Maybe();
    target_.sharded = dice.Maybe();
    target_.copies = dice.Below(4) == 0;
    if (dice.Maybe()) source_.type = target_.type = DType::kF64;
    const int form = tensor_ ? 0 : dice.Below(3);
    if (form == 1) target_.grain = int64_t{8} << dice.Below(6);
    if (form == 2) {
      source_.grid = target_.grid =
          dice.Maybe() ? StateExtent::kRows : StateExtent::kColumns;
    }
    most_ = target_.grain * dice.Between(1, 50);
    changes_ = dice.Below(3) == 0;
    std::map<const LogicalTensor*, std::vector<const LogicalTensor*>> targets;
    for (const LogicalTensor& to : to_.tensors()) {
      if (to.link.empty() && dice.Below(3) == 0) {
        targets[&OneLike(to, dice)].push_back(&to);
      }
    }
    for (auto& [from, to] : targets) {
      moves_.push_back({.field = {Field::Kind::kState, "m"},
                        .from = from,
                        .to = std::move(to)});
      if (changes_) moves_.back().change = &ByThree;
    }
  }
  RandomMoves(const RandomMoves&) = delete;
  RandomMoves& operator=(const RandomMoves&) = delete;

  int ranks() const { return std::max(from_.ranks(), to_.ranks()); }
  const std::vector<Move>& moves() const { return moves_; }
  TestSource SourceOf(int rank) const { return {from_, rank, source_}; }
  TestSink SinkOf(int rank) const { return {to_, rank, target_}; }
  absl::Status Go(ValueSource& source, ValueSink& sink,
                  Communicator& comm) const {
    return MoveValues(source, sink, moves_, comm, most_);
  }

  // That all that this rank wants has come.
  void Check(TestSink& sink) const {
    for (const Move& move : moves_) {
      for (const LogicalTensor* to : move.to) {
        sink.Check(*to, [&](int64_t number) {
          return Expected(OwnerOf(*move.from), *to, number);
        });
      }
    }
    EXPECT_EQ(sink.besides(), 0);
    EXPECT_TRUE(target_.copies || sink.copied() == 0);
  }

  // What ranks want and have not, each value once a rank, in bytes.
  int64_t LeastToCross() const {
    const TestSource source = SourceOf(0);
    const TestSink sink = SinkOf(0);
    int64_t least = 0;
    for (const Move& move : moves_) {
      std::map<int, std::vector<char>> missing;  // by rank
      const Rect whole = WholeOf(source.ShapeOf(*move.from));
      const auto mark = [&](const Extent& extent, char is_missing) {
        std::vector<char>& values = missing[extent.rank];
        values.resize(static_cast<size_t>(whole.elements()), 0);
        ForEachElement(extent, [&](int64_t row, int64_t column, int64_t) {
          At(values, row * whole.columns + column) = is_missing;
        });
      };
      for (const LogicalTensor* to : move.to) {
        for (const Extent& extent : sink.Wants(move.field, *to)) {
          mark(extent, 1);
        }
      }
      for (const Extent& extent : source.Has(move.field, *move.from)) {
        mark(extent, 0);
      }
      for (const auto& [rank, values] : missing) {
        least += std::count(values.begin(), values.end(), 1);
      }
    }
    return least * SizeOf(source_.type);
  }

 private:
  static Model AnyModel(Dice& dice) {
    Model model;
    Declare(model, dice, 16);
    return model;
  }
  static void ByThree(std::span<double> values) {
    for (double& value : values) value /= 3;
  }

  const LogicalTensor& OneLike(const LogicalTensor& to, Dice& dice) const {
    std::vector<const LogicalTensor*> like;
    for (const LogicalTensor& from : from_.tensors()) {
      if (LocalName(from.name) == LocalName(to.name)) like.push_back(&from);
    }
    return *At(like, dice.Below(static_cast<int>(like.size())));
  }

  double Expected(const std::string& source, const LogicalTensor& to,
                  int64_t number) const {
    if (!changes_) return ValueOf(source, number);
    const double third = TestSink::Kept(source, to, number, target_.grain) / 3;
    if (target_.type == DType::kF64) return third;
    return static_cast<double>(static_cast<float>(third));
  }

  Model model_;
  bool tensor_;
  Layout from_, to_;
  EndOptions source_, target_;
  int64_t most_ = 1;
  bool changes_ = false;
  std::vector<Move> moves_;
};

}  // namespace delink::testing
