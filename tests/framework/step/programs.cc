#include "tests/framework/step/programs.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/step/plan/assemble.h"
#include "framework/step/program/shape_table.h"
#include "framework/step/proof/well_formed.h"
#include "offload/plan/residency.h"
#include "offload/plan/stored_slots.h"
#include "parallel/pipeline/interleaved.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "parallel/pipeline/zero_bubble.h"
#include "tests/testing/halves.h"

namespace delink::step_test {
namespace {

// The first slab of a part and how blocks share it.
enum class Sharing { kAll, kGroups, kCycle, kNone };

int32_t Representative(Sharing sharing, int32_t block, int32_t blocks,
                       int32_t k) {
  switch (sharing) {
    case Sharing::kAll:
      return 0;
    case Sharing::kGroups:
      return block * k / blocks;
    case Sharing::kCycle:
      return block % k;
    case Sharing::kNone:
      break;
  }
  return block;
}

// Numbers slabs in the order in which the layers use them, or at random.
void NumberSlabs(Dice& dice, ProgramShape* shape) {
  std::vector<int32_t> number(shape->slabs);
  std::iota(number.begin(), number.end(), 0);
  if (dice.Coin()) {
    for (int32_t i = shape->slabs - 1; i > 0; --i) {
      std::swap(number[i], number[dice.Below(i + 1)]);
    }
  }
  for (auto& slabs : shape->slabs_of_layer) {
    for (int32_t& slab : slabs) slab = number[slab];
    std::sort(slabs.begin(), slabs.end());
  }
}

// As models are, or any.
void DrawSlotClasses(Dice& dice, ProgramShape* shape) {
  if (dice.Coin()) return;
  const int32_t classes = dice.Between(1, 4);
  for (int32_t layer = 0; layer < shape->layers; ++layer) {
    shape->slot_class.push_back(dice.Below(std::min(classes, shape->layers)));
  }
}

void DrawGathers(Dice& dice, ProgramShape* shape) {
  const int32_t kind = dice.Below(3);
  shape->gathers.resize(shape->slabs);
  for (int32_t s = 0; s < shape->slabs; ++s) {
    shape->gathers[s] = kind == 2 ? dice.Coin() : kind == 1;
  }
}

// Slabs with sharded gradients, whose whole gradients share memory.
void DrawWholes(Dice dice, ProgramShape* shape) {
  const int32_t classes = std::min(dice.Below(4), shape->slabs);
  for (int32_t s = 0; s < shape->slabs && classes > 0; ++s) {
    shape->whole_class.push_back(dice.Between(-1, classes - 1));
  }
}

}  // namespace

Program Parse(const ProgramShape& shape, const std::string& text,
              PassKind kind) {
  const std::map<std::string, Op> ops = {
      {"F", Op::kForward},       {"Loss", Op::kLoss},
      {"B", Op::kBackward},      {"BI", Op::kBackwardInput},
      {"Fetch", Op::kFetch},     {"BW", Op::kBackwardWeight},
      {"Gather", Op::kGather},   {"Take", Op::kTake},
      {"Evict", Op::kEvict},     {"Release", Op::kRelease},
      {"Norm", Op::kNorm},       {"Reduce", Op::kReduce},
      {"Update", Op::kUpdate},   {"Save", Op::kSave},
      {"Squares", Op::kSquares}, {"Inspect", Op::kInspect},
      {"Probe", Op::kProbe},     {"Sum", Op::kSum},
      {"Send", Op::kSend},       {"Recv", Op::kRecv},
      {"Store", Op::kStoreSlot}, {"Load", Op::kLoadSlot}};
  const bool forward_only = !MayHave(kind, Op::kBackward);
  const ShapeTable table(shape);
  Program program{.shape = shape, .kind = kind};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t open = word.find('(');
    const auto op = ops.find(word.substr(0, open));
    DELINK_CHECK(op != ops.end()) << word;
    Instruction i{.op = op->second};
    const std::string flags =
        open == std::string::npos ? "" : word.substr(word.find(')') + 1);
    if (flags.find('r') != std::string::npos) i.flags |= kRecompute;
    if (flags.find('p') != std::string::npos) i.flags |= kApart;
    if (flags.find('g') != std::string::npos) i.flags |= kOfGradient;
    if (flags.find('s') != std::string::npos) i.flags |= kOfState;
    if (flags.find('u') != std::string::npos) i.flags |= kOfUpdated;
    if (forward_only && (i.op == Op::kForward || i.op == Op::kLoss)) {
      i.flags = kForwardOnly;
    }
    const std::string in =
        open == std::string::npos ? "" : word.substr(open + 1);
    if (in.find(',') != std::string::npos) {
      i.layer = std::stoi(in);
      i.micro_batch = in[in.find(',') + 1] - 'a';
      if (i.op == Op::kProbe) i.slab = std::stoi(in.substr(in.rfind(',') + 1));
    } else if (i.op == Op::kLoss) {
      i.layer = shape.layers - 1;
      i.micro_batch = in[0] - 'a';
    } else if (i.op != Op::kNorm && i.op != Op::kSum) {
      i.slab = std::stoi(in);
    }
    i.lane = i.op == Op::kReduce ? Lane::kNetwork : table.LaneOf(i);
    program.instructions.push_back(i);
  }
  return program;
}

Planner HalvesPlanner(bool recompute, int32_t behind) {
  return PlannerOf(testing::HalvesBehind(behind), recompute);
}

Sample DrawSample(Dice& dice) {
  Sample sample;
  ProgramShape& shape = sample.shape;
  std::ostringstream text;
  shape.layers = dice.Between(3, 12);
  shape.micro_batches = dice.Between(1, 8);
  shape.ranks = dice.Below(16) == 0 ? dice.Between(1, 512) : dice.Between(1, 8);
  const int32_t blocks = shape.layers - 2;
  text << shape.layers << " layers, " << shape.micro_batches
       << " micro-batches, " << shape.ranks << " ranks, parts";
  shape.slabs_of_layer.resize(shape.layers);
  shape.slabs_of_layer[0] = {0};
  shape.slabs = 1;
  for (int32_t parts = dice.Between(1, 3); parts > 0; --parts) {
    const auto sharing = static_cast<Sharing>(dice.Below(4));
    const int32_t k = dice.Between(1, blocks);
    int32_t count = 0;
    for (int32_t b = 0; b < blocks; ++b) {
      const int32_t r = Representative(sharing, b, blocks, k);
      shape.slabs_of_layer[b + 1].push_back(shape.slabs + r);
      count = std::max(count, r + 1);
    }
    shape.slabs += count;
    text << " "
         << "agcn"[static_cast<int>(sharing)] << k;
  }
  const bool tied = dice.Coin();
  if (tied) shape.slabs_of_layer.back().push_back(0);
  if (!tied || dice.Coin()) {
    shape.slabs_of_layer.back().push_back(shape.slabs++);
  }
  NumberSlabs(dice, &shape);
  DrawGathers(dice, &shape);
  DrawSlotClasses(dice, &shape);
  DrawWholes(dice, &shape);
  sample.options = {.order = dice.Coin() ? MicroBatchOrder::kLayerMajor
                                         : MicroBatchOrder::kMicroBatchMajor,
                    .recompute = dice.Coin()};
  text << (tied ? ", tied" : "")
       << (sample.options.order == MicroBatchOrder::kLayerMajor
               ? ", layer-major"
               : "")
       << (sample.options.recompute ? ", recompute" : "");
  sample.text = text.str();
  return sample;
}

// As many copies of each class as one instruction works on, and up to two more.
static void DrawCopyClasses(Dice& dice, ProgramShape* shape) {
  shape->copies.clear();
  const std::vector<int32_t>& updated =
      shape->copy_class[static_cast<size_t>(PlaneSet::kUpdated)];
  for (std::vector<int32_t>& classes : shape->copy_class) {
    const auto first = static_cast<int32_t>(shape->copies.size());
    const int32_t count = dice.Below(3);
    if (count == 0) continue;
    for (int32_t s = 0; s < shape->slabs; ++s) {
      const int32_t drawn = dice.Between(-1, count - 1);
      // Updates have copies of weights where visits have.
      const bool may = &classes != &updated ||
                       CopyClassOf(*shape, PlaneSet::kWeight, s) >= 0;
      classes.push_back(drawn < 0 || !may ? -1 : first + drawn);
    }
    shape->copies.resize(first + count, 1);
    for (const std::vector<int32_t>& slabs : shape->slabs_of_layer) {
      std::vector<int32_t> wanted(shape->copies.size(), 0);
      for (const int32_t s : slabs) {
        if (classes[s] >= 0) ++wanted[classes[s]];
      }
      for (size_t c = 0; c < wanted.size(); ++c) {
        shape->copies[c] = std::max(shape->copies[c], wanted[c]);
      }
    }
  }
  for (int32_t& copies : shape->copies) copies += dice.Below(3);
}

// Of the slabs whose weights have copies for visits.
static void DrawShards(Dice& dice, ProgramShape* shape) {
  const ShapeTable table(*shape);
  for (int32_t s = 0; s < shape->slabs; ++s) {
    const bool may = CopyClassOf(*shape, PlaneSet::kWeight, s) >= 0 &&
                     table.StagesWith(s) == 1;
    shape->shards.push_back(may && dice.Coin());
    // Other ranks may have the same shard.
    if (shape->shards[s]) shape->gathers[s] = dice.Coin();
  }
  if (std::ranges::find(shape->shards, true) == shape->shards.end()) {
    shape->shards.clear();
  }
}

void DrawCopies(Dice& dice, Sample* sample) {
  ProgramShape& shape = sample->shape;
  while (shape.copies.empty()) DrawCopyClasses(dice, &shape);
  if (dice.Coin()) DrawShards(dice, &shape);
  bool any = false;
  for (int32_t s = 0; s < shape.slabs; ++s) {
    const bool may = CopyClassOf(shape, PlaneSet::kWeight, s) >= 0 &&
                     CopyClassOf(shape, PlaneSet::kGradient, s) >= 0 &&
                     CopyClassOf(shape, PlaneSet::kUpdated, s) < 0;
    shape.host_updates.push_back(may && dice.Coin());
    any = any || shape.host_updates.back();
  }
  if (!any) shape.host_updates.clear();
  for (int32_t s = 0; s < shape.slabs; ++s) {
    const bool may = HasCopiesForUpdates(shape, s) && !HostUpdates(shape, s);
    shape.late_updates.push_back(may && dice.Coin());
  }
  sample->text += shape.shards.empty() ? ", copies" : ", copies and shards";
}

Sample DrawWithCopies(Dice& dice) {
  Sample sample = DrawSample(dice);
  DrawCopies(dice, &sample);
  return sample;
}

Program WithCopies(const Program& program, Dice& dice) {
  return AddResidency(program, [&](const std::vector<int32_t>& uses) {
    return static_cast<size_t>(dice.Below(static_cast<int32_t>(uses.size())));
  });
}

Program WithSomeStored(const Program& program, Dice& dice) {
  StoreOptions options{.beside = dice.Below(3)};
  const bool all = dice.Coin();
  for (int32_t layer = 0; layer < program.shape.layers; ++layer) {
    options.layers.push_back(all || dice.Coin());
  }
  return AddStores(program, options, [&](const std::vector<int32_t>& uses) {
    return static_cast<size_t>(dice.Below(static_cast<int32_t>(uses.size())));
  });
}

Sample DrawPipeline(Dice& dice) {
  Sample sample = DrawSample(dice);
  ProgramShape& shape = sample.shape;
  shape.stages = dice.Between(2, std::min(8, shape.layers));
  const bool twice = 2 * shape.stages <= shape.layers && dice.Coin();
  const int32_t chunks = twice ? 2 * shape.stages : shape.stages;
  if (twice) {  // a multiple
    const int32_t most = std::max(1, 8 / shape.stages);
    shape.micro_batches = shape.stages * dice.Between(1, most);
  }
  std::vector<int32_t> first(shape.layers - 1);  // of a chunk, or not
  std::fill_n(first.begin(), chunks - 1, 1);
  for (size_t i = first.size() - 1; i > 0; --i) {
    std::swap(first[i], first[dice.Below(static_cast<int32_t>(i) + 1)]);
  }
  shape.chunk_of_layer = {0};
  sample.text += "; " + std::to_string(shape.stages) + " stages, " +
                 std::to_string(shape.micro_batches) +
                 " micro-batches, layers by chunk 0";
  for (const int32_t rise : first) {
    shape.chunk_of_layer.push_back(shape.chunk_of_layer.back() + rise);
    sample.text += " " + std::to_string(shape.chunk_of_layer.back());
  }
  return sample;
}

void DrawVisitGroups(Dice& dice, int32_t most, Sample* sample) {
  ProgramShape& shape = sample->shape;
  const int32_t places = most / shape.stages;
  do {
    shape.tensor = 1 << dice.Below(4);
    shape.context = dice.Between(1, 3);
    shape.ranks = shape.tensor * shape.context * dice.Between(1, 3);
  } while (shape.tensor * shape.context == 1 || shape.ranks > places);
  do {
    shape.expert = dice.Coin() ? 1 : dice.Between(1, shape.ranks);
  } while (shape.ranks % shape.expert != 0);
  shape.slab_cuts.clear();
  for (int32_t s = 0; s < shape.slabs; ++s) {
    if (shape.expert > 1 && dice.Coin()) {
      shape.slab_cuts.push_back({Axis::kExpert, shape.expert});
      continue;
    }
    int32_t pieces = 1;
    while (pieces < shape.tensor && dice.Below(3) > 0) pieces *= 2;
    shape.slab_cuts.push_back({.pieces = pieces});
  }
  const auto draw = [&] {
    std::vector<VisitExchange> exchanges;
    for (int32_t n = dice.Below(4); n > 0; --n) {
      VisitExchange exchange{
          .axis = dice.Coin() ? Axis::kTensor : Axis::kContext,
          .kind = static_cast<VisitExchange::Kind>(dice.Below(4)),
          .bytes = 8 * dice.Between(1, 1000)};
      if (shape.tensor == 1) exchange.axis = Axis::kContext;
      if (shape.context == 1) exchange.axis = Axis::kTensor;
      if (shape.expert > 1 && dice.Coin()) exchange.axis = Axis::kExpert;
      exchanges.push_back(exchange);
    }
    return exchanges;
  };
  shape.exchanges.assign(shape.layers, {});
  for (VisitExchanges& of_layer : shape.exchanges) {
    for (auto& exchanges : of_layer) exchanges = draw();
    // Forward is the same, whatever is kept of it.
    of_layer[static_cast<int>(Phase::kForward)] =
        of_layer[static_cast<int>(Phase::kRecord)];
  }
  shape.update_exchanges.clear();
  for (int32_t s = 0; shape.tensor > 1 && s < shape.slabs; ++s) {
    auto& exchanges = shape.update_exchanges.emplace_back(draw());
    for (VisitExchange& exchange : exchanges) exchange.axis = Axis::kTensor;
  }
  sample->text += ", tensor " + std::to_string(shape.tensor) + ", context " +
                  std::to_string(shape.context) + ", expert " +
                  std::to_string(shape.expert) + " of " +
                  std::to_string(shape.ranks) + " ranks";
}

std::vector<Program> PlanPipeline(const Sample& sample, PassKind kind,
                                  PipelineOrder order) {
  const StageSchedule schedule = [order](const ProgramShape& shape,
                                         int32_t stage) {
    const int32_t chunks = ChunkOf(shape, shape.layers - 1) + 1;
    if (order != PipelineOrder::kForwardsFirst &&
        order != PipelineOrder::kOneByOne) {
      if (chunks > shape.stages) return Interleaved(shape, stage);
      return order == PipelineOrder::kZeroBubble ? ZeroBubble(shape, stage)
                                                 : OneFOneB(shape, stage);
    }
    const bool all = order == PipelineOrder::kForwardsFirst;
    // More than stages would wait for each other where chunks come round.
    const int32_t group =
        chunks > shape.stages ? shape.stages : shape.micro_batches;
    const int32_t run = all ? group : 1;
    std::vector<Unit> units;
    for (int32_t begin = 0; begin < shape.micro_batches; begin += run) {
      const auto add = [&](Op op, int32_t chunk) {
        for (int32_t m = begin; m < begin + run; ++m) {
          units.push_back({.op = op, .chunk = chunk, .micro_batch = m});
        }
      };
      for (int32_t c = stage; c < chunks; c += shape.stages) {
        add(Op::kForward, c);
      }
      for (int32_t c = chunks - shape.stages + stage; c >= 0;
           c -= shape.stages) {
        add(Op::kBackward, c);
      }
    }
    return units;
  };
  const Planner planner = PlannerOf(schedule, sample.options.recompute);
  std::vector<Program> stages;
  for (int32_t stage = 0; stage < sample.shape.stages; ++stage) {
    stages.push_back(planner(kind, sample.shape, stage));
  }
  return stages;
}

Program ScatterLanes(const Program& program, Dice& dice) {
  Program scattered = program;
  for (Instruction& i : scattered.instructions) {
    i.lane = static_cast<Lane>(dice.Below(kLanes));
  }
  return scattered;
}

}  // namespace delink::step_test
