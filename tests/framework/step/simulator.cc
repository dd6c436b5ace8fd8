#include "tests/framework/step/simulator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/framework/step/cells.h"
#include "tests/framework/step/rank_simulator.h"

namespace delink::step_test {
namespace {

// All of them.
class Joint {
 public:
  Joint(const std::vector<Program>& stages,
        const std::vector<Analysis>& analyses, Dice& dice)
      : shape_(stages.front().shape),
        stages_(static_cast<int>(stages.size())),
        dice_(dice) {
    const size_t places = shape_.shards.empty() || shape_.ranks == 1 ? 1 : 2;
    for (size_t r = 0; r < places * stages.size(); ++r) {
      const size_t stage = r % stages.size();
      ranks_.push_back(
          std::make_unique<Simulation>(stages[stage], analyses[stage], dice));
    }
  }

  std::string Run() {
    while (!std::all_of(ranks_.begin(), ranks_.end(),
                        [](const auto& rank) { return rank->IsThrough(); })) {
      std::vector<Places> ways = running_;
      FindStarts(&ways);
      if (ways.empty()) return "the lanes wait for each other";
      const size_t way = Choose(ways);
      if (way < running_.size()) {
        End(ways[way]);
        running_.erase(running_.begin() + static_cast<int64_t>(way));
        continue;
      }
      for (const auto& [rank, lane] : ways[way]) {
        const std::string error = ranks_[rank]->Begin(lane);
        if (!error.empty()) return error;
      }
      if (!AreOfOneStep(ways[way])) return "shards of several steps meet";
      running_.push_back(ways[way]);
    }
    return "";
  }

 private:
  using Places = std::vector<std::pair<int, int>>;  // rank, lane

  // Whether `b` of another rank is what `a` does together with it.
  static bool Meets(const Instruction& a, const Instruction& b) {
    const auto moves = [](Op op) { return op == Op::kSend || op == Op::kRecv; };
    return (a.op == b.op) != (moves(a.op) && moves(b.op)) &&
           a.layer == b.layer && a.slab == b.slab &&
           a.micro_batch == b.micro_batch && a.flags == b.flags;
  }
  int StageOf(int rank) const { return rank % stages_; }
  int PlaceOf(int rank) const { return rank / stages_; }
  bool HasSlab(int rank, int32_t slab) const {
    for (int32_t l = 0; l < shape_.layers; ++l) {
      const auto& slabs = shape_.slabs_of_layer[l];
      if (StageAt(shape_, l) == StageOf(rank) &&
          std::find(slabs.begin(), slabs.end(), slab) != slabs.end()) {
        return true;
      }
    }
    return false;
  }
  // The ranks that do it at one time with `rank`.
  std::vector<int> Partners(int rank, const Instruction& i) const {
    std::vector<int> partners;
    const bool collective =
        i.op == Op::kReduce || i.op == Op::kGather || GathersAt(shape_, i);
    for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
      const bool together = PlaceOf(other) == PlaceOf(rank);
      bool meets = i.op == Op::kNorm || i.op == Op::kSum ||
                   (collective && HasSlab(other, i.slab));
      // A probe is of one place's micro-batch.
      if (i.op == Op::kReduce && ranks_[rank]->Probes()) meets &= together;
      if (i.op == Op::kSend || i.op == Op::kRecv) {
        meets = together && (StageAt(shape_, i.layer) == StageOf(other) ||
                             StageAt(shape_, i.layer - 1) == StageOf(other));
      }
      if (meets && other != rank) partners.push_back(other);
    }
    return partners;
  }

  bool AreOfOneStep(const Places& gather) const {
    return std::all_of(gather.begin(), gather.end(), [&](const auto& at) {
      const auto& [rank, lane] = gather.front();
      return ranks_[at.first]->VersionOfShard(at.second) ==
             ranks_[rank]->VersionOfShard(lane);
    });
  }

  // Where all who do together what the lane does next stand; none where
  // somebody is not ready.
  Places Meeting(int rank, int lane) const {
    const Simulation& own = *ranks_[rank];
    Places places = {{rank, lane}};
    for (const int other : Partners(rank, own.At(lane))) {
      const Simulation& with = *ranks_[other];
      int at = 0;
      while (at < kLanes &&
             !(with.IsReady(at) && with.StepAt(at) == own.StepAt(lane) &&
               Meets(own.At(lane), with.At(at)))) {
        ++at;
      }
      if (at == kLanes) return {};
      places.emplace_back(other, at);
    }
    return places;
  }

  void FindStarts(std::vector<Places>* ways) const {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      for (int lane = 0; lane < kLanes; ++lane) {
        if (!ranks_[rank]->IsReady(lane)) continue;
        Places places = Meeting(rank, lane);
        if (!places.empty()) ways->push_back(std::move(places));
      }
    }
  }

  // Lanes of a high weight run ahead as far as they can.
  size_t Choose(const std::vector<Places>& ways) const {
    const auto weight = [&](const Places& way) {
      return ranks_[way.front().first]->WeightOf(way.front().second);
    };
    int32_t total = 0;
    for (const Places& way : ways) total += weight(way);
    int32_t left = dice_.Below(total);
    size_t k = 0;
    while ((left -= weight(ways[k])) >= 0) ++k;
    return k;
  }

  void End(const Places& places) {
    for (const auto& [rank, lane] : places) {
      if (ranks_[rank]->At(lane).op != Op::kRecv) continue;
      for (const auto& [other, at] : places) {
        if (other != rank) ranks_[rank]->TakeFrom(*ranks_[other], lane);
      }
    }
    for (const auto& [rank, lane] : places) ranks_[rank]->Finish(lane);
  }

  const ProgramShape& shape_;
  const int stages_;
  Dice& dice_;
  std::vector<std::unique_ptr<Simulation>> ranks_;
  std::vector<Places> running_;
};

}  // namespace

std::string Simulate(const std::vector<Program>& stages,
                     const std::vector<Analysis>& analyses, Dice& dice) {
  return Joint(stages, analyses, dice).Run();
}

std::string Simulate(const Program& program, const Analysis& analysis,
                     Dice& dice) {
  return Simulate(std::vector<Program>{program},
                  std::vector<Analysis>{analysis}, dice);
}

}  // namespace delink::step_test
