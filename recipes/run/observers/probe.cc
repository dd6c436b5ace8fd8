#include "recipes/run/observers/probe.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

GradientsProbed ProbeFacts(const RunMoment& at, StageRun& stage,
                           const std::vector<SlabAgreement>& slabs) {
  const Agreement all = Sum(slabs);
  GradientsProbed probed{
      .at = at,
      .rho = Rho(slabs),
      .times_unrelated = all.apart > 0 ? all.together / all.apart : 0};
  // By part: what people compare is attention with the MLP.
  std::map<std::string, std::vector<SlabAgreement>> parts;
  for (const SlabAgreement& slab : slabs) {
    const Layout& layout = stage.store().layout();
    const int logical = At(layout.program_slabs(), slab.slab).logical;
    parts[At(layout.slabs(), logical).part].push_back(slab);
  }
  for (const auto& [part, some] : parts) {
    probed.rho_of.emplace_back(part, Rho(some));
  }
  return probed;
}

}  // namespace

absl::Status MaybeProbe(const RunSetup& run, Recorder& recorder,
                        StageRun& stage, const TriedStep& tried,
                        RunPosition& at) {
  const int64_t every = run.recipe().ProbeEvery(at.stage());
  if (every == 0 || at.step() % every != 0 || !stage.shares() ||
      tried.result.skipped) {
    return absl::OkStatus();
  }
  DELINK_ASSIGN_OR_RETURN(const std::vector<SlabAgreement> slabs,
                          stage.executor().Probe(*tried.batch, at.step()));
  const Agreement all = Sum(slabs);
  if (!std::isfinite(all.together + all.apart)) return absl::OkStatus();
  at.AddProbe(all);
  return recorder.Tell(ProbeFacts(recorder.Now(at), stage, slabs));
}

}  // namespace delink
