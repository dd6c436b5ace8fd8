#include "framework/sharing/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "absl/strings/str_format.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"
#include "framework/sharing/gradient_pieces.h"

namespace delink {
namespace {

// Elements on the host at once, of all slabs of a family together; but at least
// kMinPiece for each slab, so that copies are not too small.
constexpr int64_t kPiece = int64_t{1} << 18;
constexpr int64_t kMinPiece = 4096;

using SlabTensors = std::vector<const LogicalTensor*>;  // by parameter

// The tensors that are not links, by logical slab.
std::vector<SlabTensors> TensorsOf(const Layout& layout) {
  std::vector<SlabTensors> tensors;
  for (const Slab& slab : layout.slabs()) {
    tensors.emplace_back(slab.params.size());
  }
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    At(tensors, tensor.slab)[tensor.param] = &tensor;
  }
  return tensors;
}

// The sum over ranks, in their order, for any kind of ranks.
absl::Status SumOverRanks(Communicator& comm, std::vector<double>& sums) {
  const auto ranks = static_cast<size_t>(comm.size());
  if (ranks == 1) return absl::OkStatus();
  const size_t chunk = (sums.size() + ranks - 1) / ranks;
  std::vector<double> all(chunk * ranks);
  std::copy(sums.begin(), sums.end(), all.begin());
  std::vector<double> mine(chunk);
  const auto count = static_cast<int64_t>(chunk);
  DELINK_RETURN_IF_ERROR(comm.ReduceScatter(all.data(), mine.data(), count,
                                            DType::kF64, ReduceOp::kSum)
                             ->Wait());
  std::copy(mine.begin(), mine.end(),
            all.begin() + comm.rank() * static_cast<std::ptrdiff_t>(chunk));
  DELINK_RETURN_IF_ERROR(
      comm.AllGather(all.data(), count, DType::kF64)->Wait());
  std::copy_n(all.begin(), sums.size(), sums.begin());
  return absl::OkStatus();
}

// The optimizer's clip factor for a gradient of this norm (FinishNorm).
double ClipFactor(double clip, double norm, double tokens) {
  const double mean_norm = norm / tokens;
  const double factor =
      clip > 0 ? std::min(1.0, clip / (mean_norm + 1e-6)) : 1.0;
  return factor / tokens;
}

double Dot(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

Calibration Calibration::Create(const ParamStore& to,
                                std::vector<SlabOrigin> origins, double clip) {
  const std::vector<Slab>& slabs = to.layout().slabs();
  DELINK_CHECK_EQ(origins.size(), slabs.size());
  DELINK_CHECK(to.has(Plane::kGradient));
  DELINK_CHECK_GE(clip, 0);
  Calibration c;
  c.clip_ = clip;
  std::map<int, size_t> family_of;  // by old slab
  for (size_t s = 0; s < origins.size(); ++s) {
    const auto [at, first] =
        family_of.emplace(origins[s].slab, c.families_.size());
    if (first) {
      Family& added = c.families_.emplace_back();
      for (const SlabParam& param : slabs[s].params) {
        added.params.push_back(EntriesOf(to.registry().decl(param.decl).spec));
      }
      added.parts = added.PartOf(added.params.size());
    }
    Family& family = c.families_[at->second];
    c.place_.emplace_back(at->second, family.slabs.size());
    family.slabs.push_back(static_cast<int>(s));
  }
  size_t count = 0;
  for (Family& family : c.families_) {
    family.first = count;
    count += family.parts * (1 + 2 * family.slabs.size());
  }
  c.sums_.assign(count, 0.0);
  c.origins_ = std::move(origins);
  return c;
}

size_t Calibration::Family::PartOf(size_t param) const {
  int64_t parts = 0;
  for (size_t p = 0; p < param; ++p) parts += params[p].count;
  return static_cast<size_t>(parts);
}

size_t Calibration::SumIndex(const Family& family, size_t part) {
  return family.first + part;
}

size_t Calibration::ProductIndex(const Family& family, size_t member,
                                 size_t part) {
  return family.first + (1 + 2 * member) * family.parts + part;
}

size_t Calibration::MemberIndex(const Family& family, size_t member,
                                size_t part) {
  return family.first + (2 + 2 * member) * family.parts + part;
}

absl::Status Calibration::AddFamily(const ParamStore& to, const Family& family,
                                    Communicator& comm,
                                    std::vector<double>& sums) const {
  const std::vector<SlabTensors> tensors = TensorsOf(to.layout());
  const size_t members = family.slabs.size();
  const int64_t most =
      std::max(kMinPiece, kPiece / static_cast<int64_t>(members));
  std::vector<double> together;
  size_t part = 0;
  for (size_t p = 0; p < family.params.size(); ++p) {
    const Entries& entries = family.params[p];
    SlabTensors alike;
    for (const int slab : family.slabs) {
      alike.push_back(At(tensors, slab)[p]);
    }
    for (int64_t e = 0; e < entries.count; ++e, ++part) {
      const Rect rect{.row = e * entries.rows,
                      .rows = entries.rows,
                      .columns = entries.columns};
      GradientPieces g(to, alike, rect, most, comm);
      while (true) {
        DELINK_ASSIGN_OR_RETURN(const bool more, g.Next());
        if (!more) break;
        together.assign(g.size(), 0.0);
        for (size_t m = 0; m < members; ++m) {
          for (size_t i = 0; i < g.size(); ++i) together[i] += g.Of(m)[i];
        }
        sums[SumIndex(family, part)] += Dot(together, together);
        for (size_t m = 0; m < members; ++m) {
          sums[ProductIndex(family, m, part)] += Dot(g.Of(m), together);
          sums[MemberIndex(family, m, part)] += Dot(g.Of(m), g.Of(m));
        }
      }
    }
  }
  return absl::OkStatus();
}

double Calibration::NormBefore(const std::vector<double>& sums) const {
  double total = 0;
  for (const Family& family : families_) {
    for (size_t p = 0; p < family.parts; ++p) {
      total += sums[SumIndex(family, p)];
    }
  }
  return std::sqrt(total);
}

double Calibration::NormAfter(const std::vector<double>& sums) const {
  double total = 0;
  for (const Family& family : families_) {
    for (size_t m = 0; m < family.slabs.size(); ++m) {
      for (size_t p = 0; p < family.parts; ++p) {
        total += sums[MemberIndex(family, m, p)];
      }
    }
  }
  return std::sqrt(total);
}

absl::Status Calibration::AddBatch(const ParamStore& to, double tokens,
                                   Communicator& comm) {
  DELINK_CHECK_EQ(to.layout().slabs().size(), origins_.size());
  DELINK_CHECK_EQ(comm.size(), to.ranks());
  std::vector<double> sums(sums_.size(), 0.0);
  if (!IsMeta(to.device().kind())) {
    for (const Family& family : families_) {
      DELINK_RETURN_IF_ERROR(AddFamily(to, family, comm, sums));
    }
  }
  DELINK_RETURN_IF_ERROR(SumOverRanks(comm, sums));
  const double norm_before = NormBefore(sums), norm_after = NormAfter(sums);
  if (!(tokens > 0) || !std::isfinite(norm_before) ||
      !std::isfinite(norm_after)) {
    return absl::OkStatus();
  }
  const double old_factor = ClipFactor(clip_, norm_before, tokens);
  const double new_factor = ClipFactor(clip_, norm_after, tokens);
  const double before = old_factor * old_factor;
  const double across = new_factor * old_factor;
  const double after = new_factor * new_factor;
  for (const Family& family : families_) {
    for (size_t p = 0; p < family.parts; ++p) {
      sums_[SumIndex(family, p)] += before * sums[SumIndex(family, p)];
      for (size_t m = 0; m < family.slabs.size(); ++m) {
        sums_[ProductIndex(family, m, p)] +=
            across * sums[ProductIndex(family, m, p)];
        sums_[MemberIndex(family, m, p)] +=
            after * sums[MemberIndex(family, m, p)];
      }
    }
  }
  before_ += before;
  across_ += across;
  after_ += after;
  ++batches_;
  return absl::OkStatus();
}

Calibration::Factors Calibration::FactorsOf(int slab, size_t param,
                                            int64_t entry) const {
  DELINK_CHECK_GT(batches_, 0);
  const auto s = static_cast<size_t>(slab);
  const auto [f, member] = place_[s];
  const Family& family = families_[f];
  DELINK_CHECK(entry < At(family.params, param).count);
  const size_t part = family.PartOf(param) + static_cast<size_t>(entry);
  const double together = sums_[SumIndex(family, part)];
  if (together > 0) {
    return {.first = sums_[ProductIndex(family, member, part)] / together,
            .second = sums_[MemberIndex(family, member, part)] / together};
  }
  const double share =
      static_cast<double>(origins_[s].after) / origins_[s].before;
  return {.first = share * (across_ / before_),
          .second = share * share * (after_ / before_)};
}

absl::Status Calibration::Apply(ParamStore& to, Communicator& comm) const {
  DELINK_CHECK_EQ(to.layout().slabs().size(), origins_.size());
  if (batches_ == 0) {
    return absl::FailedPreconditionError(
        "state policy calibrated: no batch had a finite gradient and targets "
        "to count, so the moments cannot be calibrated; use reset or scale");
  }
  std::vector<Move> moves;
  for (const LogicalTensor& tensor : to.layout().tensors()) {
    if (!tensor.link.empty()) continue;
    const SlabParam& param =
        At(to.layout().slabs(), tensor.slab).params[tensor.param];
    const ParamDecl& decl = to.registry().decl(param.decl);
    const int64_t entries = EntriesOf(decl.spec).count;
    for (const StateSpec& spec : to.states()) {
      std::vector<double> factors;
      for (int64_t e = 0; e < entries; ++e) {
        const Factors both = FactorsOf(tensor.slab, tensor.param, e);
        factors.push_back(spec.degree == 1 ? both.first : both.second);
      }
      const auto is_one = [](double factor) { return factor == 1.0; };
      if (std::ranges::all_of(factors, is_one)) continue;
      const StateExtent grid = spec.Of(KindOf(decl, to.blocks())).extent;
      const int64_t each = StateShape(tensor.shape, grid).elements() / entries;
      Move& move = moves.emplace_back();
      move.field = {.kind = Field::Kind::kState, .state = spec.name};
      move.from = &tensor;
      move.to = {&tensor};
      move.change = [=](std::span<double> values, int64_t first) {
        auto value = values.begin();
        while (value != values.end()) {
          const int64_t at = first + (value - values.begin());
          const int64_t left = each - at % each;
          const double factor = At(factors, at / each);
          const auto end =
              value + std::min<int64_t>(left, values.end() - value);
          for (; value != end; ++value) *value *= factor;
        }
      };
    }
  }
  StoreValues values(to);
  return MoveValues(values, values, moves, comm);
}

std::string Calibration::Summary() const {
  struct Spread {
    double least = INFINITY, most = -INFINITY;
    void Add(double x) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
    std::string ToString() const {
      if (most - least <= 1e-6 * std::abs(most)) {
        return absl::StrFormat("%.3g", most);
      }
      return absl::StrFormat("%.3g to %.3g", least, most);
    }
  };
  Spread first, second, scale_first, scale_second;
  for (size_t s = 0; s < origins_.size(); ++s) {
    if (!origins_[s].changed()) continue;
    const std::vector<Entries>& params = families_[place_[s].first].params;
    for (size_t p = 0; p < params.size(); ++p) {
      for (int64_t e = 0; e < params[p].count; ++e) {
        const Factors factors = FactorsOf(static_cast<int>(s), p, e);
        first.Add(factors.first);
        second.Add(factors.second);
      }
    }
    const double share =
        static_cast<double>(origins_[s].after) / origins_[s].before;
    scale_first.Add(share);
    scale_second.Add(share * share);
  }
  return absl::StrFormat(
      "over %d batches m x %s and v x %s; scale would take %s and %s", batches_,
      first.ToString(), second.ToString(), scale_first.ToString(),
      scale_second.ToString());
}

}  // namespace delink
