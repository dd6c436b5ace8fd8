// The tape by itself: linear functions of x, whose gradients are known numbers.
#include "framework/autograd/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "layers/ops/add.h"
#include "tests/testing/visit_runner.h"

namespace delink::tape_test {
namespace {

using testing::MemoryMode;
using testing::VisitRunner;

constexpr int64_t kSize = 5;

// to = by * from; may be the same.
void Multiply(const Tape& t, const Tensor& from, const Tensor& to, double by) {
  if (t.device().kind() == DeviceKind::kMeta) return;
  for (int64_t i = 0; i < from.elements(); ++i) {
    static_cast<double*>(to.data())[i] =
        by * static_cast<const double*>(from.data())[i];
  }
}

// y = factor * x; backward reads the value of x, so that saves are put to use.
Var Scale(Var x, double factor) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  Multiply(tape, x.value(), y.value(), factor);
  tape.Record({.name = "scale",
               .inputs = {x},
               .outputs = {y},
               .saves = {x},
               .input = [=](Backward& back) {
                 if (!x.needs_grad()) return;
                 const Tensor scratch = back.Scratch(x.shape(), x.dtype());
                 Multiply(x.tape(), x.value(), scratch, 0.0);  // NaN if lost
                 const Tensor dx = back.NewGrad(x);
                 Multiply(x.tape(), back.grad(y), dx, factor);
                 if (x.tape().device().kind() == DeviceKind::kMeta) return;
                 for (int64_t i = 0; i < dx.elements(); ++i) {
                   static_cast<double*>(dx.data())[i] +=
                       static_cast<const double*>(scratch.data())[i];
                 }
               }});
  return y;
}

// The same in the memory of x, forward and backward.
Var ScaleInPlace(Var x, double factor) {
  Tape& tape = x.tape();
  const Var y = tape.Overwrite(x);
  EXPECT_EQ(y.data(), x.data());
  Multiply(tape, x.value(), y.value(), factor);
  tape.Record({.name = "scale_in_place",
               .inputs = {x},
               .outputs = {y},
               .input = [=](Backward& back) {
                 const Tensor dx = back.ReuseGrad(y, x);
                 Multiply(x.tape(), dx, dx, factor);
               }});
  return y;
}

// As Scale, but its value can be made again.
Var Remade(Var x, double factor) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  Multiply(tape, x.value(), y.value(), factor);
  tape.Record({.name = "remade",
               .inputs = {x},
               .outputs = {y},
               .saves = {x},
               .input =
                   [=](Backward& back) {
                     Multiply(x.tape(), back.grad(y), back.NewGrad(x), factor);
                   },
               .remake =
                   [=](Backward&, const Tensor& again) {
                     Multiply(x.tape(), x.value(), again, factor);
                   }});
  return y;
}

// y = x * x, elementwise: its gradient is wrong unless the value of x is right.
Var Square(Var x) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  const auto times = [x](const Tensor& from, const Tensor& to, double by) {
    if (x.tape().device().kind() == DeviceKind::kMeta) return;
    for (int64_t i = 0; i < to.elements(); ++i) {
      static_cast<double*>(to.data())[i] =
          by * static_cast<const double*>(x.data())[i] *
          static_cast<const double*>(from.data())[i];
    }
  };
  times(x.value(), y.value(), 1);
  tape.Record({.name = "square",
               .inputs = {x},
               .outputs = {y},
               .saves = {x},
               .input = [=](Backward& back) {
                 times(back.grad(y), back.NewGrad(x), 2);
               }});
  return y;
}

// What weight closures saw: the gradient of y, the value of x.
using Seen = std::vector<std::vector<double>>;

// As Scale, with a parameter: its weight closure notes in `seen` what it reads,
// which the input closure may read too, or not.
enum class Reads { kWeight, kBoth };
Var Watched(Var x, double factor, Seen* seen, Reads reads = Reads::kWeight) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  Multiply(tape, x.value(), y.value(), factor);
  const auto input = [=](Backward& back) {
    if (!x.needs_grad()) return;
    Multiply(x.tape(), back.grad(y), back.NewGrad(x), factor);
  };
  const auto weight = [=](Backward& back) {
    // In use while this op is: over whatever the tape takes for free.
    const Tensor scratch = back.Scratch(x.shape(), x.dtype());
    if (x.tape().device().kind() == DeviceKind::kMeta) return;
    for (int64_t i = 0; i < kSize; ++i) {
      static_cast<double*>(scratch.data())[i] = 1e30;
    }
    for (const Tensor& read : {back.grad(y), x.value()}) {
      const auto* const values = static_cast<const double*>(read.data());
      seen->emplace_back(values, values + kSize);
    }
  };
  const bool only_weight = reads == Reads::kWeight;
  const std::vector<Var> none;
  tape.Record({.name = "watched",
               .inputs = {x},
               .outputs = {y},
               .weight_saves = only_weight ? std::vector{x} : none,
               .saves = only_weight ? none : std::vector{x},
               .input = input,
               .weight = weight},
              /*trains=*/true);
  return y;
}

// A contribution that is ready in forward, as a loss has it.
Var Precomputed(Var x, double factor) {
  Tape& tape = x.tape();
  const Var dx = tape.Output(x.shape(), x.dtype());
  if (tape.device().kind() != DeviceKind::kMeta) {
    for (int64_t i = 0; i < kSize; ++i) {
      static_cast<double*>(dx.data())[i] = factor * static_cast<double>(i + 1);
    }
  }
  tape.Record({.name = "precomputed",
               .inputs = {x},
               .saves = {dx},
               .input = [=](Backward& back) { back.UseGrad(dx, x); }});
  return Var();
}

// dx for dy = 1, 2, 3, ... Expects y = factor * x along the way. As in the
// executor, dx is the memory of dy.
void ExpectFactor(const VisitRunner::Layer& f, double factor) {
  for (const MemoryMode memory : {MemoryMode::kHeap, MemoryMode::kPlanned}) {
    SCOPED_TRACE(ToString(memory));
    const std::unique_ptr<Device> device = NewCpuDevice();
    VisitRunner visit(
        {.device = device.get(), .memory = memory, .layer = f, .x = {kSize}});
    std::vector<double> x = {3, -1, 4, 1, -5}, y(kSize), d = {1, 2, 3, 4, 5};
    const Tensor boundary(d.data(), DType::kF64, {kSize});
    visit.Forward(Phase::kRecord, {}, Tensor(x.data(), DType::kF64, {kSize}),
                  Tensor(y.data(), DType::kF64, {kSize}));
    visit.Backward(boundary, boundary);
    for (int64_t i = 0; i < kSize; ++i) {
      EXPECT_EQ(y[i], factor * x[i]);
      EXPECT_EQ(d[i], factor * static_cast<double>(i + 1));
    }
  }
}

TEST(Tape, ResidualsReuseTheGradientsMemory) {
  const VisitRunner::Layer block = [](Var x) {
    x = x + Scale(x, 2);
    return x + Scale(x, 3);
  };
  ExpectFactor(block, 12);
  const std::unique_ptr<Device> device = NewCpuDevice();
  VisitRunner visit({.device = device.get(),
                     .memory = MemoryMode::kPlanned,
                     .layer = block,
                     .x = {kSize}});
  // Per residual: a scratch and one gradient, added to dy in place.
  EXPECT_EQ(At(visit.plan(), Phase::kBackward).placements.size(), 4U);
}

TEST(Tape, InPlace) {
  ExpectFactor([](Var x) { return ScaleInPlace(Scale(x, 2), 3); }, 6);
  ExpectFactor(
      [](Var x) {
        const Var y = ScaleInPlace(ScaleInPlace(x + x, 3), 5);
        return Scale(y, 7) + Scale(y, 2);
      },
      270);
  // The gradient of y is also that of c, whose op comes later.
  ExpectFactor(
      [](Var x) {
        const Var c = Scale(x, 5);
        const Var y = ScaleInPlace(Scale(x, 2), 3);
        return y + c;
      },
      11);
  // What was read before it changed: its reader's share comes on top.
  ExpectFactor(
      [](Var x) {
        const Var a = Scale(x, 2);
        const Var s = a + x;
        return s + ScaleInPlace(a, 3);
      },
      9);
}

TEST(Tape, InPlaceTakesNoMemory) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  VisitRunner visit({.device = device.get(),
                     .memory = MemoryMode::kPlanned,
                     .layer = [](Var x) { return ScaleInPlace(x + x, 3); },
                     .x = {kSize}});
  EXPECT_EQ(At(visit.plan(), Phase::kRecord).placements.size(), 1U);
  // The sum of the two contributions to x.
  EXPECT_LE(At(visit.plan(), Phase::kBackward).placements.size(), 1U);
}

// dx of the sum of y, and what a visit keeps between forward and backward.
struct Outcome {
  std::vector<double> y, dx;
  int64_t slot_bytes = 0, workspace_bytes = 0;  // the latter of backward
};

Outcome RunGraph(const VisitRunner::Layer& f, MemoryMode memory,
                 bool halves = false) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  VisitRunner visit(
      {.device = device.get(), .memory = memory, .layer = f, .x = {kSize}});
  std::vector<double> x = {3, -1, 4, 1, -5};
  Outcome outcome{.y = std::vector<double>(kSize),
                  .dx = std::vector<double>(kSize, 1.0)};
  const Tensor boundary(outcome.dx.data(), DType::kF64, {kSize});
  visit.Forward(Phase::kRecord, {}, Tensor(x.data(), DType::kF64, {kSize}),
                Tensor(outcome.y.data(), DType::kF64, {kSize}));
  if (halves) {
    visit.BackwardInput(boundary, boundary);
    const std::vector<double> dx =
        std::exchange(outcome.dx, std::vector<double>(kSize, std::nan("")));
    visit.BackwardWeight();
    outcome.dx = dx;
  } else {
    visit.Backward(boundary, boundary);
  }
  if (memory == MemoryMode::kPlanned) {
    const VisitPlan& plan = visit.plan();
    outcome.slot_bytes = At(plan, Phase::kRecord).slot_bytes;
    outcome.workspace_bytes = At(plan, Phase::kBackward).workspace_bytes;
  }
  return outcome;
}

// What can be made again is not kept: alone, of what was made again itself, and
// read by several ops.
TEST(Tape, RemadeValuesAreRightAndNotKept) {
  using Make = Var (*)(Var, double);
  const std::vector<std::function<Var(Var, Make)>> graphs = {
      [](Var x, Make make) { return Square(make(x, 2)); },
      [](Var x, Make make) { return Square(make(make(x, 2), 3)); },
      [](Var x, Make make) {
        const Var h = make(Scale(x, 2), 3);
        return Square(h) + (Square(Scale(h, 2)) + Square(h));
      },
      // The layer's own output.
      [](Var x, Make make) {
        const Var y = make(x, 2);
        Square(y);
        return y;
      }};
  for (size_t i = 0; i < graphs.size(); ++i) {
    SCOPED_TRACE(i);
    for (const MemoryMode memory : {MemoryMode::kHeap, MemoryMode::kPlanned}) {
      SCOPED_TRACE(ToString(memory));
      const auto with = [&](Make make) {
        return RunGraph([&](Var x) { return graphs[i](x, make); }, memory);
      };
      const Outcome kept = with(Scale), remade = with(Remade);
      EXPECT_EQ(remade.y, kept.y);
      EXPECT_EQ(remade.dx, kept.dx);
      if (memory == MemoryMode::kHeap) continue;
      EXPECT_LT(remade.slot_bytes, kept.slot_bytes);
    }
  }
}

// The halves of backward give what the whole does, and weight closures read the
// same in the same order.
void ExpectHalves(const std::function<Var(Var, Seen*)>& graph) {
  for (const MemoryMode memory : {MemoryMode::kHeap, MemoryMode::kPlanned}) {
    SCOPED_TRACE(ToString(memory));
    Seen in_whole, in_halves;
    const Outcome whole =
        RunGraph([&](Var x) { return graph(x, &in_whole); }, memory);
    const Outcome halves =
        RunGraph([&](Var x) { return graph(x, &in_halves); }, memory, true);
    EXPECT_EQ(halves.y, whole.y);
    EXPECT_EQ(halves.dx, whole.dx);
    EXPECT_EQ(in_halves, in_whole);
  }
}

TEST(Tape, HalvesOfBackward) {
  // The values that are read are made again, in each half that reads them.
  ExpectHalves([](Var x, Seen* seen) {
    const Var h = Remade(Remade(Scale(x, 2), 3), 5);
    return Watched(h, 2, seen) + (Square(h) + Watched(h, 7, seen));
  });
  ExpectHalves([](Var x, Seen* seen) {
    return Watched(Remade(Scale(x, 2), 3), 2, seen, Reads::kBoth);
  });
  // Nobody reads the gradient of the one, nor asks for that of the other.
  ExpectHalves([](Var x, Seen* seen) {
    Watched(x, 2, seen);
    return Scale(Watched(x.tape().Input(x.value(), false), 3, seen), 2);
  });
}

TEST(Tape, HalvesOfARandomGraph) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const RngKey key = KeyFromSeed(seed);
    ExpectHalves([&](Var x, Seen* seen) {
      std::vector<Var> values = {x};
      for (uint64_t op = 0; op < 12; ++op) {
        const auto r = Philox(key, op, 0);
        const Var a = values[r[0] % values.size()];
        const Var b = values[r[1] % values.size()];
        switch (r[2] % 6) {
          case 0:
            values.push_back(Watched(a, 3, seen));
            break;
          case 1:
            values.push_back(Remade(a, -2));
            break;
          case 2:
            values.push_back(ScaleInPlace(a + b, 0.5));
            break;
          case 3:
            values.push_back(Scale(a, -2));
            break;
          default:
            values.push_back(a + b);
        }
      }
      return values.back();
    });
  }
}

TEST(Tape, HalvesKeepWhatWeightClosuresRead) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  Seen seen;
  VisitRunner visit({.device = device.get(),
                     .memory = MemoryMode::kPlanned,
                     .layer =
                         [&](Var x) {
                           const Var h = Remade(Watched(x, 2, &seen), 3);
                           return x + Watched(Scale(h, 5), 7, &seen);
                         },
                     .x = {kSize}});
  const VisitPlan& plan = visit.plan();
  const int64_t value = AlignUp(kSize * SizeOf(DType::kF64));
  EXPECT_EQ(At(plan, Phase::kBackward).slot_bytes, 0);
  EXPECT_EQ(At(plan, Phase::kBackwardInput).slot_bytes, 2 * value);
  // dy, kept; four gradients, a scratch and h. The sum is in the memory of dy.
  EXPECT_EQ(At(plan, Phase::kBackwardInput).placements.size(), 7U);
  EXPECT_EQ(At(plan, Phase::kBackwardWeight).slot_bytes, 0);
  // The scratch of one op.
  EXPECT_EQ(At(plan, Phase::kBackwardWeight).workspace_bytes, value);
}

// GELU, say, is made again for the product's weight only.
TEST(Tape, TheFirstHalfMakesNothingAgainForTheSecond) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  Seen seen;
  int made = 0;
  const auto counted = [&made](Var x) {
    Tape& tape = x.tape();
    const Var y = tape.Output(x.shape(), x.dtype());
    Multiply(tape, x.value(), y.value(), 2);
    tape.Record({.name = "counted",
                 .inputs = {x},
                 .outputs = {y},
                 .saves = {x},
                 .input = [=](Backward& back) { back.PassGrad(y, x); },
                 .remake =
                     [=, &made](Backward&, const Tensor& again) {
                       ++made;
                       Multiply(x.tape(), x.value(), again, 2);
                     }});
    return y;
  };
  VisitRunner visit(
      {.device = device.get(),
       .layer = [&](Var x) { return Watched(counted(x), 7, &seen); },
       .x = {kSize}});
  std::vector<double> x(kSize, 3.0), d(kSize, 1.0);
  const Tensor boundary(d.data(), DType::kF64, {kSize});
  visit.Forward(Phase::kRecord, {}, Tensor(x.data(), DType::kF64, {kSize}),
                Tensor());
  visit.BackwardInput(boundary, boundary);
  EXPECT_EQ(made, 0);
  visit.BackwardWeight();
  EXPECT_EQ(made, 1);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1], std::vector<double>(kSize, 6.0));
}

TEST(TapeDeathTest, InPlaceRefusesWhatOthersRead) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const auto run = [&](const VisitRunner::Layer& f) {
    VisitRunner visit({.device = device.get(), .layer = f, .x = {kSize}});
    std::vector<double> x(kSize);
    visit.Forward(Phase::kRecord, {}, Tensor(x.data(), DType::kF64, {kSize}),
                  Tensor());
  };
  EXPECT_DEATH(run([](Var x) { return ScaleInPlace(x, 2); }),
               "the input of a layer is not to change");
  EXPECT_DEATH(run([](Var x) {
                 const Var y = x + x;
                 Scale(y, 2);
                 return ScaleInPlace(y, 3);
               }),
               "scale saved what is to be overwritten");
  EXPECT_DEATH(run([](Var x) {
                 Seen seen;
                 const Var y = x + x;
                 Watched(y, 2, &seen);
                 return ScaleInPlace(y, 3);
               }),
               "watched saved what is to be overwritten");
}

TEST(Tape, InputThatNobodyReadsGetsZeros) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  HeapMemory memory(*device);
  Tape tape({.device = device.get(), .stream = stream.get()}, memory);
  tape.BeginForward(Phase::kRecord, {});
  std::vector<double> data(kSize, 2.0), dx(kSize, 9.0), dy(kSize, 1.0);
  const Var x = tape.Input(Tensor(data.data(), DType::kF64, {kSize}), true);
  const Var z = tape.Input(Tensor(data.data(), DType::kF64, {kSize}), true);
  const Var y = Scale(z, 3);
  tape.Finish(y, Tensor());
  tape.RunBackward(y, Tensor(dy.data(), DType::kF64, {kSize}), x,
                   Tensor(dx.data(), DType::kF64, {kSize}));
  EXPECT_EQ(dx, std::vector<double>(kSize, 0.0));
}

TEST(Tape, LossHandsOnWhatForwardComputed) {
  for (const MemoryMode memory : {MemoryMode::kHeap, MemoryMode::kPlanned}) {
    const std::unique_ptr<Device> device = NewCpuDevice();
    VisitRunner visit({.device = device.get(),
                       .memory = memory,
                       .layer =
                           [](Var x) {
                             // Two losses over one value, and one over x.
                             const Var h = Scale(x, 2);
                             Precomputed(h, 10);
                             Precomputed(h, 100);
                             return Precomputed(x, 1);
                           },
                       .x = {kSize},
                       .loss = true});
    std::vector<double> x(kSize, 1.0), dx(kSize);
    visit.Forward(Phase::kRecord, {}, Tensor(x.data(), DType::kF64, {kSize}),
                  Tensor());
    visit.Backward(Tensor(), Tensor(dx.data(), DType::kF64, {kSize}));
    for (int64_t i = 0; i < kSize; ++i) {
      EXPECT_EQ(dx[i], 221 * static_cast<double>(i + 1));
    }
  }
}

TEST(Tape, CountsWork) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  VisitRunner visit({.device = device.get(), .layer = [](Var x) {
                       const Var y = x.tape().Output(x.shape(), x.dtype());
                       x.tape().Record({.inputs = {x},
                                        .outputs = {y},
                                        .flops = 3,
                                        .backward_flops = 5,
                                        .weight_flops = 2});
                       return y;
                     }});
  std::vector<double> x(kSize);
  visit.Forward(Phase::kEval, {}, Tensor(x.data(), DType::kF64, {kSize}),
                Tensor());
  EXPECT_EQ(visit.tape().flops(), 3);
  EXPECT_EQ(visit.tape().backward_flops(), 5);
  EXPECT_EQ(visit.tape().weight_flops(), 2);
}

// Any graph of sums and multiples is a multiple of x; the factor says what the
// gradient is, exactly.
TEST(Tape, RandomGraphs) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const RngKey key = KeyFromSeed(seed);
    double factor = 0;
    const auto graph = [&](Var x) {
      std::vector<Var> values = {x};
      std::vector<double> factors = {1};
      for (uint64_t op = 0; op < 9; ++op) {
        const auto r = Philox(key, op, 0);
        const size_t i = r[0] % values.size(), j = r[1] % values.size();
        if (r[2] % 3 == 0) {
          values.push_back(Scale(values[i], -2));
          factors.push_back(-2 * factors[i]);
        } else {
          values.push_back(values[i] + values[j]);
          factors.push_back(factors[i] + factors[j]);
        }
      }
      factor = factors.back();
      return values.back();
    };
    const std::unique_ptr<Device> device = NewCpuDevice();
    const std::unique_ptr<Stream> stream = device->NewStream();
    HeapMemory memory(*device);
    Tape tape({.device = device.get(), .stream = stream.get()}, memory);
    std::vector<double> zeros(kSize);
    tape.BeginForward(Phase::kEval, {});
    graph(tape.Input(Tensor(zeros.data(), DType::kF64, {kSize}), true));
    ExpectFactor(graph, factor);
  }
}

TEST(TapeDeathTest, BackwardNeedsARecording) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  std::vector<double> x(kSize);
  const Tensor tensor(x.data(), DType::kF64, {kSize});
  EXPECT_DEATH(
      {
        VisitRunner visit({.device = device.get(),
                           .layer = [](Var v) { return Scale(v, 2); }});
        visit.Forward(Phase::kForward, {}, tensor, Tensor());
        visit.Backward(tensor, tensor);
      },
      "nothing was recorded");
}

TEST(TapeDeathTest, HalvesComeOneAfterTheOther) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  std::vector<double> x(kSize);
  const Tensor tensor(x.data(), DType::kF64, {kSize});
  VisitRunner visit(
      {.device = device.get(), .layer = [](Var v) { return Scale(v, 2); }});
  visit.Forward(Phase::kRecord, {}, tensor, Tensor());
  EXPECT_DEATH(visit.BackwardWeight(), "there was no first half");
  visit.BackwardInput(tensor, tensor);
  EXPECT_DEATH(visit.BackwardInput(tensor, tensor), "nothing was recorded");
  visit.BackwardWeight();
  EXPECT_DEATH(visit.BackwardWeight(), "there was no first half");
}

// In the whole it would go unnoticed.
TEST(TapeDeathTest, AWeightClosureGivesNoGradientOfAnInput) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const auto late = [](Var x) {
    const Var y = x.tape().Output(x.shape(), x.dtype());
    x.tape().Record({.name = "late",
                     .inputs = {x},
                     .outputs = {y},
                     .weight = [=](Backward& back) { back.PassGrad(y, x); }},
                    /*trains=*/true);
    return y;
  };
  std::vector<double> x(kSize);
  const Tensor tensor(x.data(), DType::kF64, {kSize});
  for (const bool halves : {false, true}) {
    EXPECT_DEATH(
        {
          VisitRunner visit({.device = device.get(), .layer = late});
          visit.Forward(Phase::kRecord, {}, tensor, Tensor());
          if (halves) visit.BackwardInput(tensor, tensor);
          halves ? visit.BackwardWeight() : visit.Backward(tensor, tensor);
        },
        "late: gradients of inputs are the input closure's");
  }
}

}  // namespace
}  // namespace delink::tape_test
