#include "framework/sharing/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/delink.h"
#include "tests/framework/module/toy_model.h"

namespace delink::calibrate_test {
namespace {

using ::testing::Each;
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
      const std::string& after, Communicator& comm, int zero = 0,
      WholeTensors whole_tensors = WholeTensors::kNone)
      : comm_(comm) {
    testing::DeclareToy(registry_, blocks, kWidth);
    const auto map = [&](const std::string& text) {
      return ResolveSharing(*ParseShareSpec(text), registry_, blocks).value();
    };
    const testing::StoreOptions options{.rank = comm.rank(),
                                        .ranks = comm.size(),
                                        .whole_tensors = whole_tensors};
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
  size_t params(size_t slab) const { return to->slabs()[slab].params.size(); }

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

TEST_F(ByHand, WithoutClipping) {
  Calibration c = Calibration::Create(*to_, origins_, 0);
  // G = (4, 1), |G|^2 = 17; <g, G> = 6 and 11; |g|^2 = 5 and 10.
  Add(c, {{1, 2}, {3, -1}}, 5);
  EXPECT_DOUBLE_EQ(c.FactorsOf(0, 0).first, 6.0 / 17);
  EXPECT_DOUBLE_EQ(c.FactorsOf(1, 0).first, 11.0 / 17);
  EXPECT_DOUBLE_EQ(c.FactorsOf(0, 0).second, 5.0 / 17);
  EXPECT_DOUBLE_EQ(c.FactorsOf(1, 0).second, 10.0 / 17);

  // The same of a tenth of the tokens counts a hundred times.
  // G = (2, 0), |G|^2 = 4; <g, G> = 0 and 4; |g|^2 = 1 and 5.
  Add(c, {{0, 1}, {2, -1}}, 0.5);
  EXPECT_DOUBLE_EQ(c.FactorsOf(0, 0).first, 6.0 / 417);
  EXPECT_DOUBLE_EQ(c.FactorsOf(1, 0).first, 411.0 / 417);
  EXPECT_DOUBLE_EQ(c.FactorsOf(0, 0).second, 105.0 / 417);
  EXPECT_DOUBLE_EQ(c.FactorsOf(1, 0).second, 510.0 / 417);
  EXPECT_EQ(c.batches(), 2);

  Write<float>(*from_, 0, Plane::kState0, [](int64_t) { return 417.0F; });
  Write<float>(*from_, 0, Plane::kState1, [](int64_t) { return 4170.0F; });
  from_->updates()[0] = 9;
  ASSERT_TRUE(Delink(*from_, *to_, StatePolicy::kCalibrated, self_).ok());
  ASSERT_TRUE(c.Apply(*to_, self_).ok());
  const auto values = [&](int slab, Plane plane) {
    std::vector<float> x = Read<float>(*to_, slab, plane);
    x.resize(2);
    return x;
  };
  EXPECT_THAT(values(0, Plane::kState0), Each(::testing::FloatEq(6)));
  EXPECT_THAT(values(1, Plane::kState0), Each(::testing::FloatEq(411)));
  EXPECT_THAT(values(0, Plane::kState1), Each(::testing::FloatEq(1050)));
  EXPECT_THAT(values(1, Plane::kState1), Each(::testing::FloatEq(5100)));
  EXPECT_THAT(to_->updates(), Each(9));
}

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

TEST_F(ByHand, WithClipping) {
  Calibration c = Calibration::Create(*to_, origins_, 1.5);
  // Means over 2 tokens: the norm is sqrt(17) / 2 = 2.06 before, which is
  // clipped, and sqrt(15) / 2 = 1.94 after, which is clipped less.
  Add(c, {{1, 2}, {3, -1}}, 2);
  const double before = 1.5 / (std::sqrt(17) / 2 + 1e-6);
  const double after = 1.5 / (std::sqrt(15) / 2 + 1e-6);
  const double ratio = after / before;
  EXPECT_DOUBLE_EQ(c.FactorsOf(0, 0).first, ratio * 6 / 17);
  EXPECT_DOUBLE_EQ(c.FactorsOf(1, 0).second, ratio * ratio * 10 / 17);
  // A second batch that clipping leaves alone after the switch only: G = (2,
  // 0), |G| = 2; sqrt(|g_0|^2 + |g_1|^2) = sqrt(2).
  Add(c, {{1, 0}, {1, 0}}, 1);
  const double b1 = before * before / 4, b2 = std::pow(1.5 / (2 + 1e-6), 2);
  EXPECT_DOUBLE_EQ(
      c.FactorsOf(0, 0).first,
      (before * after / 4 * 6 + std::sqrt(b2) * 1 * 2) / (b1 * 17 + b2 * 4));
  EXPECT_DOUBLE_EQ(c.FactorsOf(0, 0).second,
                   (after * after / 4 * 5 + 1) / (b1 * 17 + b2 * 4));
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

TEST_F(CalibrateTest, SharesAddUpToOneAndObeyCauchySchwarz) {
  for (const double clip : {0.0, 0.1}) {
    Toy toy = Model("all", "none");
    Calibration c = toy.Start(clip);
    // Layers that agree a little, so that the norm falls at the switch.
    for (int k = 0; k < 4; ++k) {
      toy.Add(
          c, [&](int slab, int64_t i) { return Random(k)(slab, i) + 0.5F; },
          k + 1);
    }
    std::map<std::pair<int, size_t>, double> shares;  // by origin, parameter
    for (size_t s = 0; s < toy.origins.size(); ++s) {
      for (size_t p = 0; p < toy.params(s); ++p) {
        const auto f = c.FactorsOf(static_cast<int>(s), p);
        EXPECT_LE(f.first * f.first, f.second * (1 + 1e-12));
        shares[{toy.origins[s].slab, p}] += f.first;
      }
    }
    EXPECT_EQ(shares.size(), 7u);
    for (const auto& [where, sum] : shares) {
      if (clip == 0) {
        EXPECT_NEAR(sum, 1, 1e-12);
      } else {
        EXPECT_GT(sum, 1.05) << "the clip factor grows at the switch";
      }
    }
  }
}

TEST_F(CalibrateTest, WhereLayersAgreeItIsScale) {
  const Gradient agree = [](int, int64_t i) {
    return 0.01F * static_cast<float>(i % 29) - 0.1F;
  };
  for (const auto& [blocks, after] :
       {std::pair{4, "none"}, std::pair{4, "groups:2"}, std::pair{6, "none"},
        std::pair{6, "groups:2"}}) {
    Toy calibrated = Model("all", after, blocks);
    calibrated.Switch(StatePolicy::kCalibrated);
    Calibration c = calibrated.Start();
    calibrated.Add(c, [&](int slab, int64_t i) {
      // The sum over the layers that share the new slab.
      return agree(slab, i) *
             static_cast<float>(At(calibrated.origins, slab).after);
    });
    ASSERT_TRUE(c.Apply(*calibrated.to, self_).ok());
    Toy scaled = Model("all", after, blocks);
    scaled.Switch(StatePolicy::kScale);
    for (size_t s = 0; s < scaled.to->slabs().size(); ++s) {
      for (const Plane plane : {Plane::kState0, Plane::kState1}) {
        const int slab = static_cast<int>(s);
        const auto a = Read<float>(*calibrated.to, slab, plane);
        const auto b = Read<float>(*scaled.to, slab, plane);
        // Powers of two divide exactly.
        if (blocks == 4) {
          EXPECT_EQ(a, b);
        } else {
          EXPECT_THAT(a, ::testing::Pointwise(::testing::FloatEq(), b));
        }
      }
      EXPECT_EQ(calibrated.to->updates()[s], scaled.to->updates()[s]);
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

// Several ranks: the same factors but for rounding, and with and without ZeRO
// the same bits, also where a rank has slabs for itself.
TEST_F(CalibrateTest, RanksAgreeWithOneAndWithEachOther) {
  using After = std::pair<const char*, WholeTensors>;
  for (const After& after : {After{"none", WholeTensors::kNone},
                             After{"groups:3", WholeTensors::kNone},
                             After{"none", WholeTensors::kAll}}) {
    Toy alone = Model("all", after.first);
    Calibration expected = alone.Start(3);
    for (int k = 0; k < 3; ++k) alone.Add(expected, Random(k), k + 1);
    for (const int ranks : {2, 4, 5}) {
      const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
        Toy whole(*device_, 6, "all", after.first, comm, 0, after.second);
        Toy sharded(*device_, 6, "all", after.first, comm, 1, after.second);
        std::map<Toy*, std::vector<double>> factors;
        for (Toy* toy : {&whole, &sharded}) {
          toy->Switch(StatePolicy::kCalibrated);
          Calibration c = toy->Start(3);
          for (int k = 0; k < 3; ++k) toy->Add(c, Random(k), k + 1);
          // Only one rank's shard is damaged; all leave the batch out.
          toy->Add(c, [](int slab, int64_t i) {
            return slab == 1 && i == 0 ? kNaN : 1.0F;
          });
          EXPECT_EQ(c.batches(), 3);
          for (size_t s = 0; s < toy->origins.size(); ++s) {
            for (size_t p = 0; p < toy->params(s); ++p) {
              const auto f = c.FactorsOf(static_cast<int>(s), p);
              const auto e = expected.FactorsOf(static_cast<int>(s), p);
              EXPECT_NEAR(f.first, e.first, 1e-12);
              EXPECT_NEAR(f.second, e.second, 1e-12);
              factors[toy].insert(factors[toy].end(), {f.first, f.second});
            }
          }
          DELINK_RETURN_IF_ERROR(c.Apply(*toy->to, comm));
        }
        EXPECT_EQ(factors[&whole], factors[&sharded]);
        for (size_t s = 0; s < whole.origins.size(); ++s) {
          const int slab = static_cast<int>(s);
          for (const Plane plane : {Plane::kState0, Plane::kState1}) {
            const auto all = Read<float>(*whole.to, slab, plane);
            const Range held = sharded.to->held(slab, plane);
            EXPECT_EQ(Read<float>(*sharded.to, slab, plane),
                      std::vector<float>(all.begin() + held.begin,
                                         all.begin() + held.end));
          }
        }
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

}  // namespace
}  // namespace delink::calibrate_test
