// Updates as a host's lane does them: over threads of their own, past the
// caches, in sub-groups. None of it changes a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/device/cpu/pooled_stream.h"
#include "framework/optim/find_kernels.h"
#include "tests/framework/module/toy_model.h"
#include "tests/framework/optim/adamw_forms.h"
#include "tests/framework/optim/optimizer_kinds.h"

namespace delink::testing::host_update_test {
namespace {

constexpr UpdateControl kControl = {
    .lr = 0.02, .clip_value = 0.9, .clip_factor = 0.7};

bool IsRounded(const Form& form) {
  return form.master == MasterForm::kNone ||
         form.moments == StateStorage::kBF16;
}

std::string Name(const Form& form) {
  return "master " + std::to_string(static_cast<int>(form.master)) +
         ", moments " + std::to_string(static_cast<int>(form.moments));
}

class HostUpdateTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  const OptimKernels& kernels_ =
      *FindOptimKernels(DeviceKind::kCpu, DType::kF32);
};

TEST_F(HostUpdateTest, AnyNumberOfThreadsHasTheSameBits) {
  for (const Form form : AllForms()) {
    for (const int64_t n : {1, 33, 16'385, 70'001}) {
      const AdamWForms start(form, n, 64, 64);
      AdamWForms expected = start;
      kernels_.adamw(*stream_, expected.Args(0, n, &kControl));
      for (const int threads : {1, 2, 3, 5}) {
        ThreadPool pool(threads);
        const auto pooled = NewPooledStream(*device_, pool);
        AdamWForms planes = start;
        kernels_.adamw(*pooled, planes.Args(0, n, &kControl));
        ASSERT_TRUE(planes.SameAs(expected))
            << n << " elements, " << threads << " threads, " << Name(form);
      }
    }
  }
}

// So large that it comes from memory, which a small one is held against.
TEST_F(HostUpdateTest, ALargeRangeHasTheSameBits) {
  constexpr int64_t kLarge = (int64_t{1} << 20) + 77;
  ThreadPool pool(2);
  const auto pooled = NewPooledStream(*device_, pool);
  AdamWForms expected({.master = MasterForm::kSplit}, kLarge);
  AdamWForms planes = expected;
  ASSERT_TRUE(cpu::AdamWF32With(0, expected.Args(0, kLarge, &kControl)));
  kernels_.adamw(*pooled, planes.Args(0, kLarge, &kControl));
  EXPECT_TRUE(planes.SameAs(expected));
}

// Planes that begin anywhere, of every small size: vector bodies, what is left
// behind them, and lines that are stored whole or in part.
TEST_F(HostUpdateTest, EveryInstructionSetAndStoreHasTheSameBits) {
  for (const Form form : AllForms()) {
    for (const int64_t begin : {0, 1, 3, 7, 13}) {
      // Number 64 of its parameter; some cross the end of a block.
      const AdamWForms start(form, begin + 700, 200, 64 - begin);
      for (int64_t n = 1; n <= 700; n += n < 70 ? 1 : 211) {
        AdamWForms expected = start;
        const auto run = [&](int set, AdamWForms* planes, int traffic) {
          return cpu::AdamWF32With(
              set, planes->Args(begin, begin + n, &kControl), traffic);
        };
        ASSERT_TRUE(run(0, &expected, 0));
        for (const int set : {0, 1, 2}) {
          for (const int traffic : {0, 1, 2}) {
            AdamWForms planes = start;
            if (!run(set, &planes, traffic)) continue;
            ASSERT_TRUE(planes.SameAs(expected))
                << n << " elements from " << begin << ", instructions " << set
                << ", traffic " << traffic << ", " << Name(form);
          }
        }
      }
    }
  }
}

// What is a tail in one call is in the body of another.
TEST_F(HostUpdateTest, TailsRoundAsBodiesDo) {
  constexpr int64_t kAll = 140;
  for (const Form form : AllForms()) {
    if (form.moments == StateStorage::kBlock8) continue;  // scales of blocks
    for (const int set : {0, 1, 2}) {
      for (const int traffic : {0, 1, 2}) {
        const AdamWForms start(form, kAll, 0, 64);
        AdamWForms whole = start;
        if (!cpu::AdamWF32With(set, whole.Args(0, kAll, &kControl), traffic)) {
          continue;
        }
        for (int64_t cut = 1; cut <= 70; ++cut) {
          if (IsRounded(form) && cut % 8 != 0) continue;
          AdamWForms pieces = start;
          for (const auto& [from, to] :
               {std::pair{int64_t{0}, cut}, std::pair{cut, kAll}}) {
            AdamWArgs args = pieces.Args(from, to, &kControl);
            if (!IsRounded(form)) args.numbers.first = 0;  // draws nothing
            cpu::AdamWF32With(set, args, traffic);
          }
          ASSERT_TRUE(pieces.SameAs(whole))
              << "cut at " << cut << ", instructions " << set << ", "
              << Name(form);
        }
      }
    }
  }
}

// Steps of a slab whose ranges are updated one after the other.
class SubGroups : public HostUpdateTest {
 protected:
  static constexpr int64_t kElements = 3000;
  static constexpr int kSteps = 4;

  // In `groups` calls a step, cut where blocks are; `moves`: each call takes
  // itself for a step.
  AdamWForms Updated(Form form, int64_t groups, Stream& stream, bool moves) {
    AdamWForms planes(form, kElements, 64, 128);
    int64_t count = 0;
    for (int step = 1; step <= kSteps; ++step) {
      int64_t begin = 0;
      for (int64_t group = 1; group <= groups; ++group) {
        const int64_t end =
            group == groups
                ? kElements
                : (64 + kElements * group / groups) / kBlock8 * kBlock8 - 64;
        AdamWArgs args = planes.Args(begin, end, &kControl);
        args.update = moves ? ++count : step;
        kernels_.adamw(stream, args);
        begin = end;
      }
    }
    return planes;
  }
};

TEST_F(SubGroups, ShareTheCountOfTheirStep) {
  ThreadPool pool(3);
  const auto pooled = NewPooledStream(*device_, pool);
  for (const Form form : AllForms()) {
    const AdamWForms whole = Updated(form, 1, *stream_, /*moves=*/false);
    for (const int64_t groups : {2, 3, 7}) {
      EXPECT_TRUE(Updated(form, groups, *stream_, false).SameAs(whole));
      EXPECT_TRUE(Updated(form, groups, *pooled, false).SameAs(whole));
    }
    EXPECT_FALSE(Updated(form, 2, *stream_, /*moves=*/true).SameAs(whole))
        << "a count that moves within a step would not be seen: " << Name(form);
  }
}

// Over a store whose largest slabs are more than one thread takes at a time.
class HostOptimizerTest : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  HostOptimizerTest() { DeclareToy(registry_, /*blocks=*/2, /*width=*/131); }

  struct Run {
    std::unique_ptr<SlabOptimizer> optimizer = GetParam().make();
    std::vector<char> scratch;
    std::unique_ptr<ParamStore> store;
  };

  Run NewRun() {
    Run run;
    run.store = MakeStore(*device_, registry_, 2, {}, /*zero=*/0,
                          {.states = run.optimizer->states(),
                           .whole_tensors = run.optimizer->whole_tensors()});
    run.store->InitWeights(1);
    run.scratch.resize(
        static_cast<size_t>(run.optimizer->ScratchBytes(*run.store)));
    run.optimizer->set_scratch(run.scratch.data());
    return run;
  }

  void Update(Run& run, int slab, int64_t t, Stream& stream) {
    const UpdateControl control{.lr = 0.01, .clip_factor = 0.3};
    Write<float>(*run.store, slab, Plane::kGradient, [=](int64_t i) {
      return static_cast<float>(
          Normal(Fold(KeyFromSeed(3), static_cast<uint64_t>(t)),
                 static_cast<uint64_t>(i)));
    });
    run.optimizer->Update(stream, *run.store, slab, &control, t);
  }

  // Three steps, each of all slabs.
  Run Trained(Stream& stream) {
    Run run = NewRun();
    for (int64_t t = 1; t <= 3; ++t) {
      for (int slab = 0; slab < Slabs(run); ++slab) {
        Update(run, slab, t, stream);
      }
    }
    return run;
  }

  static std::vector<float> Weights(const Run& run, int slab) {
    return Read<float>(*run.store, slab, Plane::kWeight);
  }

  int Slabs(const Run& run) const {
    return static_cast<int>(run.store->slabs().size());
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  ParamRegistry registry_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, HostOptimizerTest,
                         ::testing::ValuesIn(kOptimizerKinds),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

TEST_P(HostOptimizerTest, AnyNumberOfThreadsHasTheSameBits) {
  const Run expected = Trained(*stream_);
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const Run run = Trained(*NewPooledStream(*device_, pool));
    for (int slab = 0; slab < Slabs(run); ++slab) {
      ASSERT_EQ(Weights(run, slab), Weights(expected, slab))
          << threads << " threads";
    }
  }
}

// One optimizer for all slabs keeps no count of its own that the next slab's
// update would find moved.
TEST_P(HostOptimizerTest, SlabsOfAStepShareItsCount) {
  const Run together = Trained(*stream_);
  for (int slab = 0; slab < Slabs(together); ++slab) {
    Run alone = NewRun();
    for (int64_t t = 1; t <= 3; ++t) Update(alone, slab, t, *stream_);
    EXPECT_EQ(Weights(alone, slab), Weights(together, slab)) << slab;
  }
}

// While a pool is at work it is not to be asked: whoever does has used it.
TEST_P(HostOptimizerTest, UsesTheThreadsOfTheStream) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        const auto pooled = NewPooledStream(*device_, pool);
        Run run = NewRun();
        pool.ParallelFor(2, [&](int64_t i) {
          if (i > 0) return;
          for (int slab = 0; slab < Slabs(run); ++slab) {
            Update(run, slab, 1, *pooled);
          }
        });
      },
      "one loop at a time");
}

}  // namespace
}  // namespace delink::testing::host_update_test
