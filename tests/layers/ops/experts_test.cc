// The ops of a mixture of experts.
#include "layers/ops/experts.h"

#include <gtest/gtest.h>

#include <vector>

#include "layers/ops/add.h"
#include "layers/ops/gelu.h"
#include "tests/testing/gradcheck.h"

namespace delink::experts_test {
namespace {

using ops::RouteConfig;
using testing::ExpectGradients;
using Params = std::vector<Param*>;

struct Sizes {
  int64_t D = 6, E = 5, F = 3;
};

// x + experts(gelu(x)), as a block has it; params: router, up, down, and,
// except for kSwiGlu, biases of up and down.
Var Mixture(Var x, const Params& p, const RouteConfig& c,
            ExpertActivation activation) {
  const Var in = ops::Gelu(x, GeluForm::kErf);
  const ops::Routing r = ops::Route(ops::RouterLogits(in, *p[0]), c, nullptr);
  const bool biases = p.size() > 3;
  const Var h = ops::GroupedLinear(ops::Dispatch(in, r), r, *p[1],
                                   biases ? p[3] : nullptr);
  const Var rows =
      ops::GroupedLinear(ops::ActivateExperts(h, r, activation), r, *p[2],
                         biases ? p[4] : nullptr, /*gated=*/true);
  return x + ops::Combine(rows, r, x.shape());
}

void ExpectMixture(const Sizes& s, const RouteConfig& c,
                   ExpertActivation activation = ExpertActivation::kSwiGlu) {
  SCOPED_TRACE(::testing::Message()
               << s.E << " experts, " << c.top_k << " chosen, prototypes "
               << c.form.prototypes << ", sigmoid " << c.form.sigmoid
               << ", capacity " << c.capacity);
  const bool gated = activation == ExpertActivation::kSwiGlu;
  const int64_t up = gated ? 2 * s.F : s.F;
  std::vector<Shape> params = {{s.E, s.D}, {s.E, up, s.D}, {s.E, s.D, s.F}};
  if (!gated) params.insert(params.end(), {{s.E, up}, {s.E, s.D}});
  ExpectGradients(
      {.x = {2, 4, s.D}, .params = params, .op = [=](Var x, const Params& p) {
         return Mixture(x, p, c, activation);
       }});
}

TEST(Experts, GradientsOfEveryRouter) {
  ExpectMixture({}, {.top_k = 2});
  ExpectMixture({}, {.top_k = 2, .form = {.normalise = true}});
  ExpectMixture({}, {.top_k = 5});  // all of them
  ExpectMixture({.E = 1}, {.top_k = 1});
  ExpectMixture({.E = 8}, {.top_k = 3,
                           .form = {.sigmoid = true,
                                    .normalise = true,
                                    .groups = 4,
                                    .top_groups = 2,
                                    .scale = 2.5}});
  ExpectMixture({.E = 6}, {.top_k = 3, .form = {.prototypes = 3}});
  ExpectMixture({.E = 6},
                {.top_k = 4, .form = {.prototypes = 2, .normalise = true}});
  // More experts than choices: some have no token.
  ExpectMixture({.E = 40, .F = 1}, {.top_k = 1});
}

TEST(Experts, GradientsOfEveryActivation) {
  ExpectMixture({}, {.top_k = 2}, ExpertActivation::kGeluTanh);
  ExpectMixture({}, {.top_k = 2}, ExpertActivation::kGeluErf);
}

TEST(Experts, GradientsOfWhatIsKept) {
  ExpectMixture({}, {.top_k = 2, .capacity = 0.5});
  ExpectMixture({}, {.top_k = 2, .capacity = 0.5, .drop_by_position = true});
  ExpectMixture({.E = 2}, {.top_k = 1, .capacity = 0.01},
                ExpertActivation::kGeluTanh);
}

}  // namespace
}  // namespace delink::experts_test
