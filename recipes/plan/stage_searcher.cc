#include "recipes/plan/stage_searcher.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr Recompute kRecomputes[] = {
    Recompute::kNone, Recompute::kNormActivation, Recompute::kBlock};
// Attempts to place a candidate, for each that may be placed.
constexpr int64_t kAttempts = 2;

}  // namespace

StageSearcher::StageSearcher(const RunEnv& env, size_t index,
                             const PlannedMachine& machine,
                             const KnownRates& rates,
                             const SearchOptions& options)
    : env_(env),
      index_(index),
      machine_(machine),
      rates_(rates),
      options_(options) {
  result_.name = env.recipe->stages[index].name;
}

absl::StatusOr<StageSearch> StageSearcher::Run(
    const std::optional<StageForm>& own) {
  Enumerate();
  if (candidates_.empty()) return std::move(result_);
  const Recipe any =
      WithForm(*env_.recipe, index_, FormOf(candidates_.front()));
  RunEnv env = env_;
  env.recipe = &any;
  DELINK_ASSIGN_OR_RETURN(StepBound bound,
                          StepBound::Create(env, index_, machine_));
  DELINK_ASSIGN_OR_RETURN(FormPlanner planner,
                          FormPlanner::Create(env, index_, machine_, rates_));
  for (Candidate& of : candidates_) of.least = bound.OfWork(of.recompute);
  if (own.has_value() && options_.rules) {
    DELINK_RETURN_IF_ERROR(PlanOwn(*own, bound, planner));
  }
  DELINK_RETURN_IF_ERROR(SearchResident(bound, planner));
  DELINK_RETURN_IF_ERROR(SearchOffload(planner));
  return std::move(result_);
}

StageForm StageSearcher::FormOf(const Candidate& of) const {
  StageForm form = cores_[of.core].form;
  form.parallel.zero = of.zero;
  form.parallel.shard = of.shard;
  form.recompute = of.recompute;
  return form;
}

// All ways to shard it and to recompute.
void StageSearcher::AddForms(const StageForm& core, bool whole) {
  // With offload, a candidate for each way to shard.
  constexpr int64_t kEach = std::ssize(kRecomputes) + 1;
  const size_t own = cores_.size();
  for (const StageForm& form :
       ShardedFormsOf(core, whole, machine_.ranks_per_node)) {
    result_.candidates += kEach;
    const absl::StatusOr<Recipe> fitted = FitForm(env_, index_, form);
    if (!fitted.ok()) {
      result_.refused += kEach;
      auto& [count, text] = result_.reasons[KeyOfError(fitted.status())];
      if (count == 0) text = TextOfError(fitted.status());
      count += kEach;
      continue;
    }
    if (own == cores_.size()) {
      cores_.push_back({core, fitted->Accumulation(index_)});
    }
    for (const Recompute recompute : kRecomputes) {
      candidates_.push_back({.core = own,
                             .mesh = meshes_.size(),
                             .zero = form.parallel.zero,
                             .shard = form.parallel.shard,
                             .recompute = recompute});
    }
  }
}

void StageSearcher::Enumerate() {
  const Recipe& recipe = *env_.recipe;
  const bool experts = std::ranges::any_of(
      env_.registry->decls,
      [](const ParamDecl& decl) { return decl.spec.split == Split::kExpert; });
  const bool whole = env_.optimizer->whole_tensors() != WholeTensors::kNone;
  for (const ParallelConfig& mesh :
       MeshesOf(recipe.stages[index_].parallel, machine_.ranks, experts)) {
    ++result_.layouts;
    const size_t before = candidates_.size();
    const Recipe laid_out = WithForm(recipe, index_, {.parallel = mesh});
    for (const StageForm& core : CoresOf(laid_out, index_, env_.nodes)) {
      AddForms(core, whole);
    }
    if (candidates_.size() == before) {
      ++result_.refused_layouts;
    } else {
      meshes_.push_back({.first = before, .last = candidates_.size()});
    }
    Progress("checked candidate", static_cast<size_t>(result_.candidates), 0);
  }
}

absl::StatusOr<double> StageSearcher::Least(const Candidate& of,
                                            StepBound& bound) {
  std::optional<double>& least =
      cores_[of.core].least[of.recompute == Recompute::kBlock ? 1 : 0];
  if (!least.has_value()) {
    DELINK_ASSIGN_OR_RETURN(least, bound.Of(FormOf(of)));
  }
  return *least;
}

double StageSearcher::Tenth() const {
  if (!options_.rules || result_.best.size() < options_.best) {
    return std::numeric_limits<double>::infinity();
  }
  return result_.best.back().step.seconds;
}

// By rules 1 and 2.
bool StageSearcher::NotNeeded(const Candidate& of) const {
  const auto same = fits_.find({of.core, of.zero, of.shard});
  if (same != fits_.end() && same->second < of.recompute) return true;
  if (of.zero != 2) return false;
  const auto less = fits_.find({of.core, 1, 0});
  return less != fits_.end() && less->second <= of.recompute;
}

bool StageSearcher::large() const {
  return options_.rules && std::ssize(candidates_) > options_.exhaustive;
}

absl::Status StageSearcher::Plan(Candidate& of, FormPlanner& planner) {
  of.done = true;
  ++planned_;
  DELINK_ASSIGN_OR_RETURN(
      PlannedForm planned,
      planner.Resident(FormOf(of), cores_[of.core].micro_batches,
                       options_.rules));
  Mesh& mesh = meshes_[of.mesh];
  if (planned.fits) {
    const double beyond = planned.found.step.seconds - of.least;
    mesh.beyond = mesh.beyond > 0 ? std::min(mesh.beyond, beyond) : beyond;
  }
  Take(of, std::move(planned));
  return absl::OkStatus();
}

// Whether any fits with few micro-batches, of those with the smallest
// micro-batch and recomputed blocks: for each way to shard, the first.
absl::Status StageSearcher::TryLeanest(Mesh& mesh, FormPlanner& planner) {
  std::map<std::pair<int64_t, int64_t>, size_t> leanest;
  const auto micro_batch = [this](const Candidate& of) {
    return cores_[of.core].form.micro_batch;
  };
  for (size_t c = mesh.first; c < mesh.last; ++c) {
    const Candidate& of = candidates_[c];
    if (of.recompute != Recompute::kBlock) continue;
    if (of.zero == 2 || of.shard > 0) continue;
    const auto [at, fresh] = leanest.try_emplace({of.zero, of.shard}, c);
    if (micro_batch(of) < micro_batch(candidates_[at->second])) at->second = c;
  }
  mesh.tried = mesh.closed = true;
  for (const auto& [sharding, c] : leanest) {
    Candidate& of = candidates_[c];
    DELINK_ASSIGN_OR_RETURN(
        PlannedForm planned,
        planner.FewResident(FormOf(of), cores_[of.core].micro_batches));
    if (planned.fits) {
      mesh.closed = false;
      break;
    }
    of.done = true;
    Take(of, std::move(planned));
  }
  return absl::OkStatus();
}

absl::Status StageSearcher::PlanOwn(StageForm own, StepBound& bound,
                                    FormPlanner& planner) {
  const auto like = [&](const Candidate& of) {
    return cores_[of.core].form.micro_batch == own.micro_batch &&
           of.recompute == own.recompute && of.zero == own.parallel.zero &&
           ToString(FormOf(of)) == ToString(own);
  };
  auto at = std::ranges::find_if(candidates_, like);
  if (at == candidates_.end() && own.parallel.zero == 0) {
    own.parallel.zero = 1;  // rule 2
    at = std::ranges::find_if(candidates_, like);
  }
  if (at == candidates_.end()) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(at->least, Least(*at, bound));
  at->exact = true;
  return Plan(*at, planner);
}

absl::Status StageSearcher::SearchResident(StepBound& bound,
                                           FormPlanner& planner) {
  using Next = std::pair<double, size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  const auto add = [&](size_t c) {
    const Candidate& of = candidates_[c];
    queue.emplace(of.least + meshes_[of.mesh].beyond, c);
  };
  for (size_t c = 0; c < candidates_.size(); ++c) add(c);
  const auto spent = [&] { return planned_ >= options_.plans; };
  int64_t tried = 0;  // layouts
  while (!queue.empty()) {
    const size_t c = queue.top().second;
    queue.pop();
    Candidate& of = candidates_[c];
    Mesh& mesh = meshes_[of.mesh];
    if (of.least < Tenth() && large() && !mesh.tried && !spent()) {
      DELINK_RETURN_IF_ERROR(TryLeanest(mesh, planner));
      Progress("tried layout", static_cast<size_t>(++tried), meshes_.size());
    }
    if (of.done) continue;
    if (of.least >= Tenth()) {
      ++result_.slower;
    } else if (options_.rules && NotNeeded(of)) {
      ++result_.not_needed;
    } else if (large() && (mesh.closed || spent())) {
      ++result_.untried;
    } else if (!of.exact) {
      DELINK_ASSIGN_OR_RETURN(const double exact, Least(of, bound));
      of.least = std::max(of.least, exact);
      of.exact = true;
      add(c);
    } else {
      DELINK_RETURN_IF_ERROR(Plan(of, planner));
      Progress("planned candidate", candidates_.size() - queue.size(),
               candidates_.size());
    }
  }
  return absl::OkStatus();
}

void StageSearcher::Take(Candidate& of, PlannedForm planned) {
  FoundForm& found = planned.found;
  if (!planned.fits) {
    of.bytes = planned.bytes;
    ++result_.unfit;
    if (!result_.nearest.has_value() ||
        planned.bytes < result_.nearest->bytes) {
      result_.nearest = {.form = found.form,
                         .bytes = planned.bytes,
                         .at_least = planned.at_least};
    }
    return;
  }
  ++result_.simulated;
  found.least = of.least;
  if (!found.form.offload.any()) {
    const auto [at, fresh] =
        fits_.try_emplace({of.core, of.zero, of.shard}, of.recompute);
    if (!fresh) at->second = std::min(at->second, of.recompute);
  }
  std::vector<FoundForm>& best = result_.best;
  const auto at = std::ranges::upper_bound(
      best, found.step.seconds, {},
      [](const FoundForm& other) { return other.step.seconds; });
  best.insert(at, std::move(found));
  if (best.size() > options_.best) best.pop_back();
}

absl::Status StageSearcher::SearchOffload(FormPlanner& planner) {
  std::vector<std::tuple<int64_t, double, size_t>> order;  // bytes, least
  for (size_t c = 0; c < candidates_.size(); c += std::size(kRecomputes)) {
    const Candidate& resident = candidates_[c + 2];
    const Candidate& stores = candidates_[c + 1];
    const auto fits = [&](int64_t zero, int64_t shard) {
      return fits_.contains({resident.core, zero, shard});
    };
    if (fits(resident.zero, resident.shard) ||
        (resident.zero == 2 && fits(1, 0))) {
      ++result_.not_needed;
    } else if (stores.least >= Tenth()) {
      ++result_.slower;
    } else {
      order.emplace_back(resident.bytes > 0
                             ? resident.bytes
                             : std::numeric_limits<int64_t>::max(),
                         stores.least, c + 1);
    }
  }
  std::ranges::sort(order);
  int64_t placed = 0, attempts = 0;
  for (const auto& [bytes, least, c] : order) {
    Candidate& of = candidates_[c];
    if (of.least >= Tenth()) {
      ++result_.slower;
    } else if (placed >= options_.placements ||
               attempts >= options_.placements * kAttempts) {
      ++result_.untried;
    } else {
      DELINK_ASSIGN_OR_RETURN(
          PlannedForm planned,
          planner.Offloaded(FormOf(of), cores_[of.core].micro_batches));
      ++attempts;
      placed += planned.fits ? 1 : 0;
      Take(of, std::move(planned));
      Progress("placed candidate", static_cast<size_t>(attempts), order.size());
    }
  }
  return absl::OkStatus();
}

void StageSearcher::Progress(const char* what, size_t done, size_t all) const {
  if (!options_.progress) return;
  std::string text =
      absl::StrFormat("stage %s: %s %d", result_.name, what, done);
  if (all > 0) absl::StrAppendFormat(&text, " of %d", all);
  if (!result_.best.empty()) {
    absl::StrAppendFormat(&text, ", best %.4g s",
                          result_.best.front().step.seconds);
  }
  options_.progress(text);
}

}  // namespace delink
