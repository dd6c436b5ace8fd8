#include "framework/sharing/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/delink.h"
#include "tests/framework/module/toy_model.h"

namespace delink::calibrate_test {
namespace {

using ::testing::HasSubstr;
using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;
using testing::Write;

constexpr int64_t kWidth = 17;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The gradient of element `i` of a slab in a batch.
using Gradient = std::function<float(int slab, int64_t i)>;

Gradient Random(int batch) {
  const RngKey key = Fold(KeyFromSeed(11), static_cast<uint64_t>(batch));
  return [key](int slab, int64_t i) {
    return static_cast<float>(Normal(Fold(key, static_cast<uint64_t>(slab)),
                                     static_cast<uint64_t>(i)));
  };
}

// As reduction leaves it: what is in other ranks' shards is anything, but of
// slabs that one rank updates.
void SetGradients(ParamStore& store, const Gradient& gradient) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    const bool all = store.placement(slab).owner != kNoOwner;
    const Range own = ShardRange(store.slabs()[s], store.rank(), store.ranks());
    Write<float>(store, slab, Plane::kGradient, [&](int64_t i) {
      const bool known = all || (i >= own.begin && i < own.end);
      return known ? gradient(slab, i) : kNaN;
    });
  }
}

void FillState(ParamStore& store) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    for (const Plane plane : {Plane::kState0, Plane::kState1}) {
      const RngKey key = Fold(Fold(KeyFromSeed(3), static_cast<uint64_t>(s)),
                              static_cast<uint64_t>(plane));
      Write<float>(store, static_cast<int>(s), plane, [key](int64_t i) {
        return static_cast<float>(Normal(key, static_cast<uint64_t>(i)));
      });
    }
    store.updates()[s] = 40 + static_cast<int64_t>(s);
  }
}

// Two stores of a toy model before and after a switch, on one rank.
class Toy {
 public:
  Toy(Device& device, int blocks, const std::string& before,
      const std::string& after, Communicator& comm, int zero = 0)
      : comm_(comm) {
    testing::DeclareToy(registry_, blocks, kWidth);
    const auto map = [&](const std::string& text) {
      return ResolveSharing(*ParseShareSpec(text), registry_, blocks).value();
    };
    const testing::StoreOptions options{.rank = comm.rank(),
                                        .ranks = comm.size()};
    from = MakeStore(device, registry_, blocks, map(before), zero, options);
    FillState(*from);
    to = MakeStore(device, registry_, blocks, map(after), zero, options);
    origins = *RelationOf(registry_, blocks, map(before), map(after));
  }

  void Switch(StatePolicy policy) {
    const absl::Status status = Delink(*from, *to, policy, comm_);
    DELINK_CHECK(status.ok()) << status.ToString();
  }
  Calibration Start(double clip = 0) {
    return Calibration::Create(*to, origins, clip);
  }
  void Add(Calibration& calibration, const Gradient& gradient,
           double tokens = 1) {
    SetGradients(*to, gradient);
    const absl::Status status = calibration.AddBatch(*to, tokens, comm_);
    DELINK_CHECK(status.ok()) << status.ToString();
  }

 private:
  Communicator& comm_;
  ParamRegistry registry_;

 public:
  std::unique_ptr<ParamStore> from, to;
  std::vector<SlabOrigin> origins;
};

class CalibrateTest : public ::testing::Test {
 protected:
  Toy Model(const std::string& before, const std::string& after,
            int blocks = 6) {
    return Toy(*device_, blocks, before, after, self_);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  SelfCommunicator self_;
};

// Two blocks of two weights, numbers that can be followed by hand.
class ByHand : public ::testing::Test {
 protected:
  ByHand() {
    for (int i = 0; i < 2; ++i) {
      Scope(registry_)
          .Layer(i + 1, "blocks/" + std::to_string(i))
          .Part("mlp")
          .Param("up", {.shape = {2}});
    }
    const SharingMap all = testing::ShareAll(2, {"mlp"});
    from_ = MakeStore(*device_, registry_, 2, all);
    to_ = MakeStore(*device_, registry_, 2, {});
    origins_ = *RelationOf(registry_, 2, all, {});
  }
  void Add(Calibration& calibration, const float (&g)[2][2], double tokens) {
    SetGradients(*to_, [&](int slab, int64_t i) { return g[slab][i]; });
    ASSERT_TRUE(calibration.AddBatch(*to_, tokens, self_).ok());
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  SelfCommunicator self_;
  ParamRegistry registry_;
  std::unique_ptr<ParamStore> from_, to_;
  std::vector<SlabOrigin> origins_;
};

TEST_F(ByHand, EachStateByItsDegree) {
  const testing::StoreOptions options{
      .states = {{.name = "squares", .degree = 2},
                 {.name = "momentum", .degree = 1}}};
  from_ = MakeStore(*device_, registry_, 2, testing::ShareAll(2, {"mlp"}), 0,
                    options);
  to_ = MakeStore(*device_, registry_, 2, {}, 0, options);
  Calibration c = Calibration::Create(*to_, origins_, 0);
  Add(c, {{1, 2}, {3, -1}}, 5);
  for (const Plane plane : {Plane::kState0, Plane::kState1}) {
    Write<float>(*from_, 0, plane, [](int64_t) { return 17.0F; });
  }
  ASSERT_TRUE(Delink(*from_, *to_, StatePolicy::kCalibrated, self_).ok());
  ASSERT_TRUE(c.Apply(*to_, self_).ok());
  EXPECT_FLOAT_EQ(Read<float>(*to_, 1, Plane::kState0)[0], 10);
  EXPECT_FLOAT_EQ(Read<float>(*to_, 1, Plane::kState1)[0], 11);
}

// Straight from the formulas, slab by slab.
std::vector<std::vector<Calibration::Factors>> Expected(
    const Toy& toy, const std::vector<Gradient>& batches,
    const std::vector<double>& tokens, double clip) {
  const std::vector<Slab>& slabs = toy.to->slabs();
  std::vector<std::vector<long double>> across, apart, together;
  for (const Slab& slab : slabs) {
    for (auto* sums : {&across, &apart, &together}) {
      sums->emplace_back(slab.params.size(), 0.0L);
    }
  }
  for (size_t k = 0; k < batches.size(); ++k) {
    long double old_norm = 0, new_norm = 0;
    std::vector<std::array<long double, 3>> of;  // by slab and parameter
    for (size_t s = 0; s < slabs.size(); ++s) {
      size_t siblings = 0;
      for (const SlabOrigin& o : toy.origins) {
        siblings += o.slab == toy.origins[s].slab ? 1 : 0;
      }
      for (const SlabParam& param : slabs[s].params) {
        std::array<long double, 3> x = {};
        for (int64_t i = param.offset; i < param.offset + param.elements; ++i) {
          const long double g = batches[k](static_cast<int>(s), i);
          long double sum = 0;
          for (size_t t = 0; t < slabs.size(); ++t) {
            if (toy.origins[t].slab != toy.origins[s].slab) continue;
            sum += batches[k](static_cast<int>(t), i);
          }
          x[0] += g * sum, x[1] += g * g, x[2] += sum * sum;
        }
        of.push_back(x);
        new_norm += x[1];
        old_norm += x[2] / static_cast<long double>(siblings);
      }
    }
    const long double n = tokens[k];
    const auto factor = [&](long double squares) {
      const long double norm = std::sqrt(squares) / n + 1e-6L;
      return (clip > 0 ? std::min(1.0L, clip / norm) : 1.0L) / n;
    };
    const long double c_old = factor(old_norm), c_new = factor(new_norm);
    auto at = of.begin();
    for (size_t s = 0; s < slabs.size(); ++s) {
      for (size_t p = 0; p < slabs[s].params.size(); ++p, ++at) {
        across[s][p] += c_new * c_old * (*at)[0];
        apart[s][p] += c_new * c_new * (*at)[1];
        together[s][p] += c_old * c_old * (*at)[2];
      }
    }
  }
  std::vector<std::vector<Calibration::Factors>> factors(slabs.size());
  for (size_t s = 0; s < slabs.size(); ++s) {
    for (size_t p = 0; p < slabs[s].params.size(); ++p) {
      factors[s].push_back(
          {.first = static_cast<double>(across[s][p] / together[s][p]),
           .second = static_cast<double>(apart[s][p] / together[s][p])});
    }
  }
  return factors;
}

TEST_F(CalibrateTest, IsWhatTheFormulasSay) {
  for (const auto& [before, after] :
       {std::pair{"all", "none"}, std::pair{"all", "groups:3"},
        std::pair{"groups:2", "none"}, std::pair{"all", "cycle:4"},
        std::pair{"attention=all", "attention=groups:2"}}) {
    for (const double clip : {0.0, 0.5, 10.0}) {
      Toy toy = Model(before, after);
      Calibration c = toy.Start(clip);
      const std::vector<Gradient> batches = {Random(1), Random(2), Random(3)};
      const std::vector<double> tokens = {1, 7, 20};
      for (size_t k = 0; k < batches.size(); ++k) {
        toy.Add(c, batches[k], tokens[k]);
      }
      const auto expected = Expected(toy, batches, tokens, clip);
      for (size_t s = 0; s < expected.size(); ++s) {
        for (size_t p = 0; p < expected[s].size(); ++p) {
          const auto got = c.FactorsOf(static_cast<int>(s), p);
          EXPECT_NEAR(got.first, expected[s][p].first, 1e-11);
          EXPECT_NEAR(got.second, expected[s][p].second, 1e-11);
        }
      }
    }
  }
}

TEST_F(CalibrateTest, WhereLayersAreUnrelatedTheSecondMomentLosesOnlyN) {
  Toy toy = Model("all", "none");
  Calibration c = toy.Start();
  for (int k = 0; k < 8; ++k) toy.Add(c, Random(k));
  for (size_t s = 0; s < toy.origins.size(); ++s) {
    if (!toy.origins[s].changed()) continue;
    const Calibration::Factors f = c.FactorsOf(static_cast<int>(s), 0);
    const int64_t draws = 8 * toy.to->slabs()[s].params[0].elements;
    const double error = 5 / std::sqrt(static_cast<double>(draws));
    EXPECT_NEAR(f.first * 6, 1, 3 * error) << toy.to->slabs()[s].name;
    EXPECT_NEAR(f.second * 6, 1, 2 * error) << toy.to->slabs()[s].name;
  }
  EXPECT_THAT(c.Summary(), HasSubstr("scale would take 0.167 and 0.0278"));
}

TEST_F(CalibrateTest, SlabsThatWereNotCutFollowTheClipFactorOnly) {
  for (const double clip : {0.0, 1e6, 2.0}) {
    Toy toy = Model("all", "none");
    toy.Switch(StatePolicy::kCalibrated);
    const int embed = SlabNamed(*toy.to, "embed/embedding");
    const auto m = Read<float>(*toy.to, embed, Plane::kState0);
    Calibration c = toy.Start(clip);
    toy.Add(c, Random(0));
    ASSERT_TRUE(c.Apply(*toy.to, self_).ok());
    if (clip == 2.0) {
      // One batch: a is the ratio of the factors, b its square.
      const auto f = c.FactorsOf(embed, 0);
      EXPECT_GT(f.first, 1.01);
      EXPECT_NEAR(f.second, f.first * f.first, 1e-12);
      EXPECT_NE(Read<float>(*toy.to, embed, Plane::kState0), m);
    } else {
      EXPECT_EQ(Read<float>(*toy.to, embed, Plane::kState0), m);
    }
  }
}

// A part that no batch reached: as `scale`, uneven sets included.
TEST_F(CalibrateTest, WithoutAGradientLayersCountAsAgreeing) {
  Toy toy = Model("all", "cycle:4");
  Calibration c = toy.Start();
  const Gradient random = Random(0);
  toy.Add(c, [&](int slab, int64_t i) {
    const std::string& part = toy.to->slab(slab).part;
    return part == "mlp" ? 0.0F : random(slab, i);
  });
  for (const auto& [name, n] :
       {std::pair{"blocks/0/mlp", 3.0}, std::pair{"blocks/3/mlp", 6.0}}) {
    const auto f = c.FactorsOf(SlabNamed(*toy.to, name), 0);
    EXPECT_DOUBLE_EQ(f.first, 1 / n);
    EXPECT_DOUBLE_EQ(f.second, 1 / (n * n));
  }
}

TEST_F(CalibrateTest, LeavesOutBatchesThatSayNothing) {
  Toy toy = Model("all", "none");
  toy.Switch(StatePolicy::kCalibrated);
  const int slab = SlabNamed(*toy.to, "blocks/3/mlp");
  const auto before = Read<float>(*toy.to, slab, Plane::kState1);
  Calibration c = toy.Start();
  toy.Add(c, Random(0), 0);
  toy.Add(c, [&](int s, int64_t i) {
    return s == slab && i == 5 ? kNaN : Random(0)(s, i);
  });
  EXPECT_EQ(c.batches(), 0);
  const absl::Status status = c.Apply(*toy.to, self_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read<float>(*toy.to, slab, Plane::kState1), before);
  toy.Add(c, Random(1));
  EXPECT_EQ(c.batches(), 1);
  EXPECT_TRUE(c.Apply(*toy.to, self_).ok());
}

TEST_F(CalibrateTest, TakesNoDeviceMemory) {
  Toy toy = Model("all", "none");
  const int64_t allocations = device_->allocations();
  Calibration c = toy.Start();
  toy.Add(c, Random(0));
  ASSERT_TRUE(c.Apply(*toy.to, self_).ok());
  EXPECT_EQ(device_->allocations(), allocations);
}

// Where one rank's shard is damaged, all leave the batch out.
TEST_F(CalibrateTest, RanksLeaveOutTheSameBatches) {
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    Toy toy(*device_, 6, "all", "none", comm, /*zero=*/1);
    Calibration c = toy.Start();
    toy.Add(c, Random(0));
    toy.Add(c, [](int slab, int64_t i) {
      return slab == 1 && i == 0 ? kNaN : 1.0F;
    });
    EXPECT_EQ(c.batches(), 1);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace delink::calibrate_test
