// Each rule of the validator, by hand, with its message; and programs that no
// planner writes yet but that are right.
#include "framework/step/proof/validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/step/plan/basic.h"
#include "tests/framework/step/programs.h"

namespace delink::validator_test {
namespace {

using step_test::Parse;
using ::testing::HasSubstr;

// Prologue with slab 0, a block with slab 1, epilogue with slab 2.
ProgramShape Small(int32_t micro_batches, bool gathers = false) {
  return {.layers = 3,
          .slabs = 3,
          .slabs_of_layer = {{0}, {1}, {2}},
          .gathers = std::vector<bool>(3, gathers),
          .micro_batches = micro_batches};
}

std::string Error(const Program& program) {
  const absl::Status status = ValidateProgram(program);
  EXPECT_TRUE(status.ok() ||
              status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string Error(const std::string& text, bool gathers = false,
                  int32_t micro_batches = 1) {
  return Error(Parse(Small(micro_batches, gathers), text));
}

std::string Error(const std::vector<Program>& programs) {
  return std::string(ValidatePrograms(programs).message());
}

// A delinked model whose weights are on the host.
TEST(ValidatorTest, OffloadedProgramIsRight) {
  ProgramShape shape = Small(2);
  shape.copy_class[0] = {0, 0, -1};
  shape.copies = {2};
  const std::string text =
      "Fetch(0) F(0,a) F(0,b) Fetch(1) Release(0) F(1,a) F(1,b) Loss(a) "
      "Loss(b) Reduce(2) B(1,a) B(1,b) Reduce(1) Fetch(0) B(0,a) B(0,b) "
      "Reduce(0) Squares(0) Squares(1) Squares(2) Norm Update(0) Evict(0) "
      "Release(0) Update(1) Evict(1) ";
  EXPECT_EQ(Error(Parse(shape, text + "Release(1) Update(2)")), "");
  EXPECT_EQ(Error(Parse(shape, text + "Update(2)")),
            "end of the program: Release(1) is missing in the step");
}

TEST(ValidatorTest, LateGathersAreRight) {
  EXPECT_EQ(Error("Gather(0) F(0,a) Gather(1) F(1,a) Gather(2) Loss(a) "
                  "Reduce(2) B(1,a) Reduce(1) B(0,a) Reduce(0) Squares(0) "
                  "Squares(1) Squares(2) Norm Update(0) Update(1) Update(2)",
                  true),
            "");
}

TEST(ValidatorTest, ForwardRules) {
  EXPECT_EQ(Error("F(1,a)"),
            "instruction 0, F(1,a): its slot is empty: F(0,a) must come before "
            "it");
  EXPECT_EQ(Error("F(0,a) F(0,a)"),
            "instruction 1, F(0,a): has already run in this step");
  EXPECT_EQ(Error("Release(1) F(0,a) F(1,a)"),
            "instruction 0, Release(1): the weights of slab 1 are at home: "
            "there are no copies");
}

TEST(ValidatorTest, BackwardRules) {
  EXPECT_EQ(Error("F(0,a) F(1,a) B(1,a)"),
            "instruction 2, B(1,a): its gradient boundary is empty: Loss(a) "
            "must come before it");
  EXPECT_EQ(Error("F(0,a) F(1,a)r Loss(a) B(1,a)"),
            "instruction 3, B(1,a): recompute is not set here, unlike in "
            "F(1,a)");
  EXPECT_EQ(Error("F(0,a) F(0,b) F(1,a) F(1,b) Loss(a) Loss(b) B(1,b) B(1,a)",
                  false, 2),
            "instruction 7, B(1,a): backward of layer 1 has already visited "
            "B(1,b); micro-batches must ascend");
}

TEST(ValidatorTest, HalvesOfBackwards) {
  const std::string ends = "B(0,a) B(0,b) Reduce(0) Reduce(2) ";
  const std::string behind =
      "Reduce(1) Squares(0) Squares(1) Squares(2) Norm Update(0) Update(1) "
      "Update(2)";
  const auto error = [](const std::string& text) {
    return Error("F(0,a) F(0,b) F(1,a) F(1,b) Loss(a) Loss(b) " + text, false,
                 2);
  };
  EXPECT_EQ(error("BI(1,b) BI(1,a) " + ends + "BW(1,a) BW(1,b) " + behind), "");
  EXPECT_EQ(error("BI(1,a) B(1,b) B(0,a) BW(1,a)"),
            "instruction 9, BW(1,a): backward of layer 1 has already visited "
            "B(1,b); micro-batches must ascend");
  EXPECT_EQ(error("BW(1,a)"),
            "instruction 6, BW(1,a): what it reads is not held: BI(1,a) must "
            "come before it");
  EXPECT_EQ(error("BI(1,a) B(1,a)"),
            "instruction 7, B(1,a): BI(1,a) has already run in this step; a "
            "backward is whole or in two halves");
  EXPECT_EQ(error("B(1,a) BI(0,a)"),
            "instruction 7, BI(0,a): layer 0 is not in [1, 1]");
  const Program probe =
      Parse(Small(1), "F(0,a) F(1,a) Loss(a) BI(1,a)", PassKind::kProbe);
  EXPECT_EQ(Error(probe),
            "instruction 3, BI(1,a): a probe has no such instruction");
}

TEST(ValidatorTest, StoredSlots) {
  EXPECT_EQ(Error("F(0,a) F(1,a) Store(1,a) Loss(a) Reduce(2) Load(1,a) "
                  "B(1,a) Reduce(1) B(0,a) Reduce(0) Squares(0) Squares(1) "
                  "Squares(2) Norm Update(0) Update(1) Update(2)"),
            "");
  EXPECT_EQ(Error("F(0,a) Store(1,a)"),
            "instruction 1, Store(1,a): the slot is not filled: F(1,a) must "
            "come before it");
  EXPECT_EQ(Error("F(0,a) F(1,a) Load(1,a)"),
            "instruction 2, Load(1,a): the slot is not away: Store(1,a) must "
            "come before it");
  EXPECT_EQ(Error("F(0,a) F(1,a) Store(1,a) Loss(a) B(1,a)"),
            "instruction 4, B(1,a): its slot is away: Load(1,a) must come "
            "before it");
  EXPECT_EQ(Error("F(0,a) F(1,a) Loss(a) B(1,a) Store(1,a)"),
            "instruction 4, Store(1,a): the slot is wanted no more: the "
            "backward of layer 1 must come after it");
}

TEST(ValidatorTest, GradientRules) {
  const std::string visits = "F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) ";
  EXPECT_EQ(Error("F(0,a) F(1,a) Loss(a) Reduce(1)"),
            "instruction 3, Reduce(1): the gradient is not complete: B(1,a) "
            "must come before it");
  EXPECT_EQ(Error(visits + "Reduce(1) Reduce(1)"),
            "instruction 6, Reduce(1): the slab is already reduced in this "
            "step");
  EXPECT_EQ(Error(visits + "Reduce(2) Squares(1)"),
            "instruction 6, Squares(1): the gradient is not reduced: "
            "Reduce(1) must come before it");
  const std::string reduced = visits + "Reduce(2) Reduce(1) Reduce(0) ";
  EXPECT_EQ(Error(reduced + "Squares(2) Squares(0) Norm"),
            "instruction 10, Norm: the squares of slab 1 are not summed: "
            "Squares(1) must come before it");
  const std::string squared = reduced + "Squares(2) Squares(1) Squares(0) ";
  EXPECT_EQ(Error(squared + "Update(1) Norm"),
            "instruction 11, Update(1): the norm is not known: Norm must come "
            "before it");
  EXPECT_EQ(Error(squared + "Norm Update(1) Update(1)"),
            "instruction 13, Update(1): the slab is already updated in this "
            "step");
}

TEST(ValidatorTest, WeightRules) {
  const std::string reduced =
      "F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) Reduce(0) Reduce(1) Reduce(2) "
      "Squares(0) Squares(1) Squares(2) Norm ";
  EXPECT_EQ(Error(reduced + "Update(0) Gather(0) Update(1) Update(2) Gather(2)",
                  true),
            "instruction 1, F(1,a) of the next step: the weights of slab 1 are "
            "not whole: Gather(1) must come before it");
  EXPECT_EQ(Error(reduced + "Gather(0)"),
            "instruction 12, Gather(0): the weights are whole");
  EXPECT_EQ(Error(reduced + "Gather(0)", true),
            "instruction 12, Gather(0): the weights are whole: Update(0) must "
            "come before it");
}

TEST(ValidatorTest, SaveRules) {
  const std::string reduced =
      "F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) Reduce(0) Reduce(1) Reduce(2) "
      "Squares(0) Squares(1) Squares(2) Norm ";
  EXPECT_EQ(Error(reduced + "Save(0) Update(0) Save(1) Update(1) Save(2) "
                            "Update(2)"),
            "");
  EXPECT_EQ(Error(reduced + "Update(0) Save(0) Update(1) Save(1) Update(2) "
                            "Save(2)"),
            "");
  EXPECT_THAT(Error(reduced + "Save(0) Update(0) Update(1) Save(1) Update(2)"),
              HasSubstr("instruction 15, Save(1): some slabs are saved before "
                        "their update and some after it"));
  EXPECT_EQ(Error(reduced + "Save(0) Save(0)"),
            "instruction 13, Save(0): the slab is already saved in this step");
}

TEST(ValidatorTest, ForwardOnlyRules) {
  Program program = PlanEvaluation(Small(2));
  EXPECT_EQ(Error(program), "");
  program.instructions[1].flags = 0;
  EXPECT_EQ(Error(program),
            "instruction 1, F(1,a): the visits of an evaluation are "
            "forward-only");
  program = PlanStep(Small(1), {});
  program.instructions[0].flags = kForwardOnly;
  EXPECT_EQ(Error(program),
            "instruction 0, F(0,a): the visits of a step are not "
            "forward-only");
  program = PlanEvaluation(Small(2));
  program.instructions.push_back({.op = Op::kNorm});
  EXPECT_EQ(Error(program),
            "instruction 7, Norm: an evaluation has no such instruction");
}

TEST(ValidatorTest, SumRules) {
  const auto error = [](const std::string& text) {
    return Error(Parse(Small(1), text, PassKind::kEvaluation));
  };
  EXPECT_EQ(error("F(0,a) F(1,a) Loss(a) Sum"), "");
  EXPECT_EQ(error("F(0,a) F(1,a) Sum Loss(a)"),
            "instruction 2, Sum: Loss(a) must come before it");
}

TEST(ValidatorTest, ProbeRules) {
  // Two blocks share slab 1; slab 2 is the first one's alone.
  const ProgramShape shape{.layers = 4,
                           .slabs = 4,
                           .slabs_of_layer = {{0}, {1, 2}, {1}, {3}},
                           .gathers = std::vector<bool>(4, false)};
  const auto error = [&](const std::string& text) {
    return Error(
        Parse(shape, "F(0,a) F(1,a) F(2,a) Loss(a) " + text, PassKind::kProbe));
  };
  EXPECT_EQ(error("B(2,a)p Probe(2,a,1) B(1,a)p Probe(1,a,1) B(0,a) Sum"), "");
  EXPECT_EQ(error("B(2,a)"),
            "instruction 4, B(2,a): it does not keep apart the gradients to be "
            "probed");
  EXPECT_EQ(error("B(2,a)p B(1,a)p"),
            "instruction 5, B(1,a)p: it takes the place of a gradient kept "
            "apart: Probe(2,a,1) must come before it");
  EXPECT_EQ(error("Probe(2,a,1)"),
            "instruction 4, Probe(2,a,1): no such gradient is kept apart here: "
            "it comes once, behind B(2,a)");
  EXPECT_EQ(error("B(2,a)p Probe(2,a,1) B(1,a)p B(0,a) Sum"),
            "instruction 8, Sum: Probe(1,a,1) must come before it");
  EXPECT_EQ(error("B(2,a)p Probe(2,a,1) B(1,a)p Probe(1,a,1) B(0,a)p"),
            "instruction 8, B(0,a)p: it keeps gradients apart that nobody "
            "probes");
  EXPECT_EQ(Error(Parse(shape, "F(0,a) F(1,a) F(2,a) Loss(a) B(2,a)p")),
            "instruction 4, B(2,a)p: it keeps gradients apart that nobody "
            "probes");
  EXPECT_EQ(error("B(2,a)p Reduce(1)"),
            "instruction 5, Reduce(1): a probe reduces none but what blocks of "
            "several stages share");
}

TEST(ValidatorTest, AProbeReducesWhatStagesShare) {
  // Three blocks share slab 1, the first two on the first stage; slab 2 is
  // shared there, slab 3 is that of embedding and head.
  const ProgramShape shape{.layers = 5,
                           .slabs = 4,
                           .slabs_of_layer = {{3}, {1, 2}, {1, 2}, {0, 1}, {3}},
                           .gathers = std::vector<bool>(4, false),
                           .chunk_of_layer = {0, 0, 0, 1, 1},
                           .stages = 2};
  const auto error = [&](const std::string& text) {
    return Error(Parse(shape,
                       "F(0,a) F(1,a) F(2,a) Send(3,a) Recv(3,a)g B(2,a)p "
                       "Probe(2,a,1) Probe(2,a,2) B(1,a)p " +
                           text,
                       PassKind::kProbe));
  };
  EXPECT_EQ(error("Probe(1,a,1) Probe(1,a,2) B(0,a) Reduce(1) Sum"), "");
  EXPECT_EQ(error("Probe(1,a,1) Probe(1,a,2) Reduce(1) B(0,a) Sum"), "");
  EXPECT_EQ(error("Probe(1,a,1) Probe(1,a,2) B(0,a) Sum"),
            "instruction 12, Sum: Reduce(1) must come before it");
  EXPECT_EQ(error("Probe(1,a,2) B(0,a) Reduce(1) Probe(1,a,1) Sum"),
            "instruction 11, Reduce(1): the gradient is not complete: "
            "Probe(1,a,1) must come before it");
  for (const std::string other : {"2", "3"}) {
    EXPECT_EQ(error("Probe(1,a,1) Probe(1,a,2) B(0,a) Reduce(" + other + ")"),
              "instruction 12, Reduce(" + other +
                  "): a probe reduces none but what blocks of several stages "
                  "share");
  }
}

TEST(ValidatorTest, InspectRules) {
  const auto error = [](const std::string& text) {
    return Error(Parse(Small(1), text, PassKind::kDiagnosis));
  };
  EXPECT_EQ(error("F(0,a) Inspect(0,a) F(1,a) Inspect(1,a) Loss(a) Sum"), "");
  EXPECT_EQ(error("Inspect(0,a)"),
            "instruction 0, Inspect(0,a): there is nothing to look at: F(0,a) "
            "must come before it");
  EXPECT_EQ(error("F(0,a) F(1,a) Inspect(0,a)"),
            "instruction 2, Inspect(0,a): what it looks at is gone: F(1,a) "
            "must come after it");
  EXPECT_EQ(error("F(0,a) F(1,a) Inspect(1,a) Loss(a) Sum"),
            "instruction 4, Sum: Inspect(0,a) must come before it");
}

// A step whose updates are gone is none, and gradients alone have none.
TEST(ValidatorTest, GradientsAreNoStep) {
  Program program = PlanGradients(Small(2), {});
  EXPECT_EQ(Error(program), "");
  program.kind = PassKind::kStep;
  EXPECT_EQ(Error(program),
            "end of the program: Update(0) is missing in the step");
  program = PlanStep(Small(2), {});
  program.kind = PassKind::kGradients;
  EXPECT_THAT(Error(program), HasSubstr("Update(0): a pass for gradients "
                                        "alone has no such instruction"));
  program = PlanGradients(Small(2), {});
  program.instructions.pop_back();
  EXPECT_EQ(Error(program), "end of the program: Norm is missing in the step");
}

TEST(ValidatorTest, FieldsAndShapes) {
  const auto error = [](const Instruction& i) {
    return Error(Program{.shape = Small(1), .instructions = {i}});
  };
  EXPECT_EQ(error({.op = Op::kForward, .layer = 2, .micro_batch = 0}),
            "instruction 0, F(2,a): layer 2 is not in [0, 1]");
  EXPECT_EQ(error({.op = Op::kForward, .layer = 0, .micro_batch = 1}),
            "instruction 0, F(0,b): micro-batch 1 is not in [0, 1)");
  EXPECT_EQ(error({.op = Op::kReduce, .slab = 3}),
            "instruction 0, Reduce(3): slab 3 is not in [0, 3)");
  EXPECT_EQ(error({.op = Op::kNorm, .slab = 1}),
            "instruction 0, Norm: it has no slab");
  EXPECT_EQ(error({.op = Op::kNorm, .flags = kRecompute}),
            "instruction 0, Normr: it cannot have flags 1");
  EXPECT_EQ(error({.op = Op::kForward,
                   .flags = kRecompute,
                   .layer = 0,
                   .micro_batch = 0}),
            "instruction 0, F(0,a)r: the prologue has no boundary to recompute "
            "from");
  EXPECT_EQ(error({.op = Op::kSend, .layer = 1, .micro_batch = 0}),
            "instruction 0, Send(1,a): is not part of a program of one "
            "pipeline stage");
  Program program = PlanStep(Small(1), {});
  program.shape.slabs = 4;
  program.shape.gathers.resize(4);
  EXPECT_EQ(Error(program), "program shape: slab 3 is used by no layer");
  program.shape.slabs_of_layer[1] = {3, 1};
  EXPECT_EQ(Error(program),
            "program shape: slab 1 of layer 1 is out of range or out of order");
  program.shape.layers = 1;
  EXPECT_THAT(Error(program), HasSubstr("a prologue and an epilogue"));
}

TEST(ValidatorTest, ChunksMakeStages) {
  const auto error = [](std::vector<int32_t> chunks, int32_t stages) {
    Program program{.shape = Small(1)};
    program.shape.chunk_of_layer = std::move(chunks);
    program.shape.stages = stages;
    return Error(program);
  };
  EXPECT_EQ(error({0, 1}, 2),
            "program shape: chunk_of_layer has one entry a layer");
  EXPECT_EQ(error({0, 1, 0}, 2),
            "program shape: layer 2 is of chunk 0; chunks go from 0 up, none "
            "left out");
  EXPECT_THAT(error({1, 1, 2}, 2), HasSubstr("layer 0 is of chunk 1"));
  EXPECT_THAT(error({0, 0, 2}, 2), HasSubstr("layer 2 is of chunk 2"));
  EXPECT_EQ(error({0, 1, 2}, 2),
            "program shape: 3 chunks do not make 2 stages");
  EXPECT_THAT(error({0, 1, 1}, 1), HasSubstr("2 chunks do not make 1 stages"));
  EXPECT_THAT(error({}, 2), HasSubstr("one entry a layer"));
}

TEST(ValidatorTest, SlotClasses) {
  const auto error = [](std::vector<int32_t> classes) {
    Program program = PlanStep(Small(1), {});
    program.shape.slot_class = std::move(classes);
    return Error(program);
  };
  EXPECT_EQ(error({0, 1, 1}), "");
  EXPECT_EQ(error({0, 1}), "program shape: slot_class has one entry a layer");
  EXPECT_EQ(error({0, 1, 3}), "program shape: slot class 3 is not in [0, 3)");
  EXPECT_THAT(error({-1, 1, 2}), HasSubstr("slot class -1"));
}

// The weights of slabs 0 and 1 are copied into one place, all else is at home.
TEST(ValidatorTest, CopiesOfWeights) {
  ProgramShape shape = Small(1);
  shape.copy_class[0] = {0, 0, -1};
  shape.copies = {1};
  const auto error = [&](const std::string& text,
                         PassKind kind = PassKind::kStep) {
    return Error(Parse(shape, text, kind));
  };
  const std::string forward =
      "Fetch(0) F(0,a) Release(0) Fetch(1) F(1,a) Loss(a) ";
  const std::string norm =
      "Reduce(0) Reduce(1) Reduce(2) Squares(0) Squares(1) Squares(2) Norm ";
  const std::string backward = "B(1,a) Release(1) Fetch(0) B(0,a) ";
  const std::string first = forward + backward + norm + "Update(0) ";
  EXPECT_EQ(error(first + "Evict(0) Release(0) Fetch(1) Update(1) Evict(1) "
                          "Release(1) Update(2)"),
            "");
  EXPECT_EQ(error("F(0,a)"),
            "instruction 0, F(0,a): the weights of slab 0 are not there: "
            "Fetch(0) must come before it");
  EXPECT_EQ(error("Fetch(0) F(0,a) Fetch(1)"),
            "instruction 2, Fetch(1): no copy is free: a Release must come "
            "before it");
  EXPECT_EQ(error("Fetch(0) Fetch(0)"),
            "instruction 1, Fetch(0): the weights of slab 0 are already there: "
            "Release(0) must come before it");
  EXPECT_EQ(error("Fetch(0) Evict(0)"),
            "instruction 1, Evict(0): nothing was written in the copy");
  EXPECT_EQ(error("Evict(0)"),
            "instruction 0, Evict(0): there is no copy of it");
  EXPECT_EQ(error("Release(0)"),
            "instruction 0, Release(0): there is no copy to release");
  EXPECT_EQ(error(first + "Release(0)"),
            "instruction 18, Release(0): what was written in the copy would be "
            "lost: Evict(0) must come before it");
  EXPECT_EQ(error(first + "Save(0)"),
            "instruction 18, Save(0): the weights of slab 0 are not at home: "
            "Evict(0) must come before it");
  EXPECT_EQ(error("Fetch(2)"),
            "instruction 0, Fetch(2): the weights of slab 2 are at home: there "
            "are no copies");
  EXPECT_EQ(error(forward + "Release(1) Sum", PassKind::kEvaluation), "");
  shape.copy_class[0] = {0, 1, -1};
  EXPECT_EQ(error(""), "program shape: copies have no class 1");
  shape.copy_class[0] = {0};
  EXPECT_EQ(error(""),
            "program shape: copy_class has one entry a slab, or none");
  shape.copy_class[0].clear();
  shape.late_updates = {true};
  EXPECT_EQ(error(""),
            "program shape: who updates has one entry a slab, or none");
  shape.late_updates = {false, true, false};
  EXPECT_EQ(error(""),
            "program shape: slab 1 is updated late, but nothing of it comes to "
            "the device for that");
}

// Visits have copies of the weights of slab 0, its update one of its own.
TEST(ValidatorTest, CopiesOfUpdatedWeights) {
  ProgramShape shape = Small(1);
  std::vector<int32_t>& weights = shape.copy_class[0];
  std::vector<int32_t>& updated = shape.copy_class[3];
  weights = {0, -1, -1};
  updated = {1, -1, -1};
  shape.copies = {1, 1};
  const auto error = [&](const std::string& text) {
    return Error(Parse(shape, text));
  };
  const std::string before =
      "Fetch(0) F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) Reduce(0) Reduce(1) "
      "Reduce(2) Squares(0) Squares(1) Squares(2) Norm ";
  const std::string updates = "Update(1) Update(2)";
  EXPECT_EQ(error(before + "Release(0) Fetch(0)u Update(0) Evict(0)u " +
                  "Release(0)u " + updates),
            "");
  EXPECT_EQ(error(before + "Update(0)"),
            "instruction 13, Update(0): the updated weights of slab 0 are not "
            "there: Fetch(0)u must come before it");
  EXPECT_EQ(
      error(before + "Fetch(0)u"),
      "instruction 13, Fetch(0)u: the copy of the weights of slab 0 would "
      "be another than what is at home: Release(0) must come before it");
  EXPECT_EQ(error(before + "Release(0) Fetch(0)u Update(0) Fetch(0)"),
            "instruction 16, Fetch(0): the copy of the updated weights of slab "
            "0 would be another than what is at home: Evict(0)u must come "
            "before it");
  EXPECT_EQ(error(before + "Release(0) Fetch(0)u Update(0) Save(0)"),
            "instruction 16, Save(0): the updated weights of slab 0 are not at "
            "home: Evict(0)u must come before it");
  shape.late_updates = {true, false, false};
  EXPECT_EQ(error(before + "Release(0) Fetch(0)u Update(0) Evict(0)u " +
                  "Release(0)u " + updates),
            "");
  shape.late_updates.clear();
  weights.clear();
  const std::string wrong =
      "program shape: the device updates copies of slab 0, whose weights have "
      "none for visits or are the host's to update";
  EXPECT_EQ(error(""), wrong);
  weights = {0, -1, -1};
  shape.host_updates = {true, false, false};
  EXPECT_EQ(error(""), wrong);
}

// A rank has a shard of the weights of slab 0.
TEST(ValidatorTest, ShardsOfWeights) {
  ProgramShape shape = Small(1);
  shape.ranks = 2;
  shape.shards = {true, false, false};
  shape.copy_class[0] = {0, -1, -1};
  shape.copies = {1};
  const auto program = [&](const std::string& text) {
    return Parse(shape, text);
  };
  const std::string others = "F(1,a) Loss(a) B(1,a) ";
  const std::string reduced =
      "B(0,a) Reduce(0) Reduce(1) Reduce(2) Squares(0) Squares(1) Squares(2) "
      "Norm ";
  const std::string before = "Fetch(0) F(0,a) " + others + reduced;
  const std::string updates = "Update(0) Update(1) Update(2)";
  const Program right = program(before + "Release(0) " + updates);
  EXPECT_EQ(right.instructions.front().lane, Lane::kGather);
  EXPECT_EQ(Error({right, right}), "");
  EXPECT_EQ(Error(program("F(0,a)")),
            "instruction 0, F(0,a): the weights of slab 0 are not there: "
            "Fetch(0) must come before it");
  EXPECT_EQ(Error(program(before + updates + " Release(0)")),
            "instruction 13, Update(0): the copy of the weights of slab 0 "
            "would be another than what is at home: Release(0) must come "
            "before it");
  EXPECT_EQ(Error(program("Fetch(0) Evict(0)")),
            "instruction 1, Evict(0): nothing was written in the copy");
  EXPECT_EQ(Error(program("Fetch(0)u")),
            "instruction 0, Fetch(0)u: the updated weights of slab 0 are at "
            "home: there are no copies");
  const Program twice =
      program("Fetch(0) F(0,a) Release(0) " + others + "Fetch(0) " + reduced +
              "Release(0) " + updates);
  EXPECT_EQ(Error({twice, twice}), "");
  EXPECT_EQ(Error({right, twice}),
            "rank 1: instruction 6, Fetch(0): collective 1 of the gather lane "
            "is nothing on rank 0 and Fetch(0) here; collectives of a lane "
            "must have one order on all ranks");
  // The shard is on the host, so its update has a copy of it.
  shape.copy_class[3] = {1, -1, -1};
  shape.copies = {1, 1};
  EXPECT_EQ(Error(program(before + "Release(0) Fetch(0)u Update(0) Evict(0)u " +
                          "Release(0)u Update(1) Update(2)")),
            "");
  // Other ranks have the same shard, and each updates a part of it.
  shape.gathers[0] = true;
  const auto gathered = [&](const std::string& gather) {
    return program(before + "Release(0) Fetch(0)u Update(0) " + gather +
                   "Evict(0)u Release(0)u Update(1) Update(2)");
  };
  EXPECT_EQ(Error(gathered("Gather(0) ")), "");
  EXPECT_EQ(Error(gathered("")),
            "instruction 0, Fetch(0) of the next step: the weights are not "
            "whole: Gather(0) must come before it");
  shape.copy_class[0].clear();
  EXPECT_EQ(Error(program("")),
            "program shape: the weights of slab 0 are sharded, but visits have "
            "no copies");
  shape.shards = {true};
  EXPECT_EQ(Error(Program{.shape = shape}),
            "program shape: shards has one entry a slab, or none");
}

// The host updates slab 0, whose weights and gradient have a copy each.
TEST(ValidatorTest, UpdatesOnTheHost) {
  ProgramShape shape = Small(2);
  shape.copy_class[0] = {0, -1, -1};
  shape.copy_class[1] = {1, -1, -1};
  shape.copies = {1, 1};
  shape.host_updates = {true, false, false};
  const auto error = [&](const std::string& text) {
    return Error(Parse(shape, text));
  };
  const std::string before =
      "Fetch(0) F(0,a) F(0,b) F(1,a) F(1,b) Loss(a) Loss(b) B(1,a) B(1,b) ";
  const std::string norm =
      "Reduce(1) Reduce(2) Squares(0) Squares(1) Squares(2) Norm ";
  const std::string backward = before + "Take(0)g B(0,a) B(0,b) Reduce(0) ";
  const std::string updates = "Update(0) Update(1) Update(2)";
  EXPECT_EQ(
      error(backward + norm + "Evict(0)g Release(0)g Release(0) " + updates),
      "");
  // Between two contributions it may go home.
  EXPECT_EQ(error(before +
                  "Take(0)g B(0,a) Evict(0)g Release(0)g Fetch(0)g "
                  "B(0,b) Reduce(0) " +
                  norm + "Evict(0)g Release(0)g Release(0) " + updates),
            "");
  EXPECT_EQ(error(before + "B(0,a)"),
            "instruction 9, B(0,a): the gradient of slab 0 is not there: "
            "Fetch(0)g must come before it, or Take(0)g");
  EXPECT_EQ(error(before + "Fetch(0)g"),
            "instruction 9, Fetch(0)g: the gradient of slab 0 has nothing yet: "
            "Take(0)g is what it needs");
  EXPECT_EQ(error(before + "Take(0)g B(0,a) Evict(0)g Release(0)g Take(0)g"),
            "instruction 13, Take(0)g: the gradient of slab 0 has "
            "contributions: Fetch(0)g is what it needs");
  EXPECT_EQ(error(backward + norm + "Release(0) Evict(0)g " + updates),
            "instruction 21, Update(0): the copy of the gradient of slab 0 "
            "would be another than what is at home: Release(0)g must come "
            "before it");
  shape.copy_class[1].clear();
  EXPECT_EQ(error(""),
            "program shape: the host updates slab 0, whose weights or gradient "
            "have no copies");
}

TEST(ValidatorTest, RanksMeetInOneOrder) {
  ProgramShape shape = Small(1);
  shape.ranks = 3;
  const std::string visits = "F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) ";
  const std::string rest =
      " Reduce(0) Squares(0) Squares(1) Squares(2) Norm Update(0) Update(1) "
      "Update(2)";
  const Program program = Parse(shape, visits + "Reduce(2) Reduce(1)" + rest);
  EXPECT_EQ(Error(std::vector<Program>(3, program)), "");
  EXPECT_EQ(Error({program, program,
                   Parse(shape, visits + "Reduce(1) Reduce(2)" + rest)}),
            "rank 2: instruction 5, Reduce(1): collective 0 of the network "
            "lane is Reduce(2) on rank 0 and Reduce(1) here; collectives of a "
            "lane must have one order on all ranks");
  // What is not collective may differ.
  EXPECT_EQ(Error({program, program,
                   Parse(shape,
                         "F(0,a) F(1,a) Loss(a) Reduce(2) B(1,a) "
                         "Reduce(1) B(0,a)" +
                             rest)}),
            "");
  EXPECT_EQ(Error({program, program}),
            "rank 0: program shape: made for 3 ranks, but there are 2 "
            "programs");
  EXPECT_EQ(Error({program, program, Parse(shape, visits)}),
            "rank 2: end of the program: Reduce(0) is missing in the step");
  EXPECT_EQ(Error({program, program, PlanGradients(shape, {})}),
            "rank 2: runs a pass for gradients alone, but rank 0 a step");
  EXPECT_EQ(Error(std::vector<Program>{}), "no programs to validate");
}

constexpr char kFirstStage[] =
    "F(0,a) F(1,a) Send(2,a) F(0,b) F(1,b) Send(2,b) Recv(2,a)g B(1,a) B(0,a) "
    "Recv(2,b)g B(1,b) Reduce(1) B(0,b) Reduce(0) Squares(0) Squares(1) Norm "
    "Update(0) Update(1)";
constexpr char kSecondStage[] =
    "Recv(2,a) Loss(a) Send(2,a)g Recv(2,b) Loss(b) Send(2,b)g Reduce(2) "
    "Squares(2) Norm Update(2)";

// Of two stages, the epilogue alone on the second.
Program Stage(int32_t stage, const std::string& text,
              PassKind kind = PassKind::kStep) {
  ProgramShape shape = Small(2);
  shape.chunk_of_layer = {0, 0, 1};
  shape.stages = 2;
  Program program = Parse(shape, text, kind);
  program.stage = stage;
  return program;
}

TEST(ValidatorTest, StageRules) {
  const auto error = [](int32_t stage, const std::string& text) {
    return Error(Stage(stage, text));
  };
  EXPECT_EQ(error(0, kFirstStage), "");
  EXPECT_EQ(error(1, kSecondStage), "");
  EXPECT_EQ(error(2, ""), "program shape: there is no stage 2");
  EXPECT_EQ(error(1, "Loss(a)"),
            "instruction 0, Loss(a): its slot is empty: Recv(2,a) must come "
            "before it");
  EXPECT_EQ(error(0, "F(0,a) F(1,a) B(1,a)"),
            "instruction 2, B(1,a): its gradient boundary is empty: Recv(2,a)g "
            "must come before it");
  EXPECT_EQ(error(0, "F(0,a) Send(2,a)"),
            "instruction 1, Send(2,a): there is nothing to send: F(1,a) must "
            "come before it");
  EXPECT_EQ(error(1, "Recv(2,a) Send(2,a)g"),
            "instruction 1, Send(2,a)g: there is nothing to send: Loss(a) must "
            "come before it");
  EXPECT_EQ(error(0, "Recv(1,a)"),
            "instruction 0, Recv(1,a): stage 0 does not do that: layer 0 is of "
            "stage 0, layer 1 of stage 0");
  EXPECT_EQ(error(1, "F(0,a)"),
            "instruction 0, F(0,a): layer 0 is of stage 0, this is stage 1");
  EXPECT_EQ(error(0, "Reduce(2)"),
            "instruction 0, Reduce(2): slab 2 is of no layer of stage 0");
  EXPECT_EQ(Error(Stage(0, "F(0,a) F(1,a) Send(2,a) Inspect(1,a)",
                        PassKind::kDiagnosis)),
            "instruction 3, Inspect(1,a): what it looks at is gone: Send(2,a) "
            "must come after it");
  EXPECT_EQ(Error(Stage(0, "Recv(2,a)g", PassKind::kEvaluation)),
            "instruction 0, Recv(2,a)g: an evaluation has no such instruction");
}

TEST(ValidatorTest, WhatIsSentIsReceivedInOneOrder) {
  const Program first = Stage(0, kFirstStage), second = Stage(1, kSecondStage);
  EXPECT_EQ(Error({first, second}), "");
  const Program other = Stage(
      1,
      "Recv(2,b) Recv(2,a) Loss(a) Send(2,a)g Loss(b) Send(2,b)g Reduce(2) "
      "Squares(2) Norm Update(2)");
  EXPECT_EQ(Error({first, other}),
            "rank 0: instruction 2, Send(2,a): rank 1 receives Recv(2,b) "
            "there; what two ranks exchange has one order on both");
  EXPECT_EQ(Error({first, first}),
            "rank 1: runs the program of stage 0, but is of stage 1");
  EXPECT_EQ(ValidateStages({first, second}), absl::OkStatus());
  EXPECT_EQ(std::string(ValidateStages({first, Stage(1, "Loss(a)")}).message())
                .substr(0, 33),
            "stage 1: instruction 0, Loss(a): ");
}

// Each rank is right by itself and each lane has one order, and yet rank 0
// waits in Gather(0) for rank 1, which waits in Gather(1) for rank 0.
TEST(ValidatorTest, DeadlockAcrossLanes) {
  ProgramShape shape = Small(1, true);
  shape.ranks = 2;
  const std::string before =
      "F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) Reduce(0) Reduce(1) Reduce(2) "
      "Squares(0) Squares(1) Squares(2) Norm Update(2) Gather(2) ";
  const std::string zero = "Update(0) Gather(0) Save(0) ";
  const std::string one = "Update(1) Gather(1) Save(1) ";
  std::vector<Program> programs = {Parse(shape, before + zero + one),
                                   Parse(shape, before + one + zero)};
  for (Program& program : programs) {
    for (Instruction& i : program.instructions) {
      if (i.op == Op::kGather && i.slab == 1) i.lane = Lane::kOut;
    }
    EXPECT_EQ(Error(program), "");
  }
  EXPECT_EQ(Error(programs),
            "rank 0: instruction 15, Gather(0): waits for ever for rank 1: "
            "instruction 15, Gather(1), which comes first and waits for that: "
            "lanes deadlock by their order");
  programs[1] = programs[0];
  EXPECT_EQ(Error(programs), "");
}

// Four ranks, tensor 2 x context 2, whose visits of one block exchange over
// tensor and of the other over context: each axis has one order on all ranks.
TEST(ValidatorTest, VisitsMeetOverTheirOwnAxis) {
  ProgramShape shape{.layers = 4,
                     .slabs = 4,
                     .slabs_of_layer = {{0}, {1}, {2}, {3}},
                     .gathers = std::vector<bool>(4, false),
                     .micro_batches = 2,
                     .ranks = 4,
                     .tensor = 2,
                     .context = 2};
  shape.slab_cuts.assign(4, {});
  shape.exchanges.resize(4);
  for (const int layer : {1, 2}) {
    const Axis axis = layer == 1 ? Axis::kTensor : Axis::kContext;
    shape.exchanges[layer][static_cast<int>(Phase::kEval)] = {
        {.axis = axis, .kind = VisitExchange::Kind::kGather, .bytes = 8}};
  }
  const auto program = [&](const std::string& middle) {
    return Parse(
        shape, "F(0,a) F(1,a) F(0,b) " + middle + " Loss(a) F(2,b) Loss(b) Sum",
        PassKind::kEvaluation);
  };
  const Program x = program("F(2,a) F(1,b)"), y = program("F(1,b) F(2,a)");
  EXPECT_EQ(Error({x, x, y, y}), "");
  EXPECT_EQ(Error({x, y, x, y}), "");
  const std::string error = Error({x, y, y, x});
  EXPECT_THAT(error, HasSubstr("waits for ever"));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(error, HasSubstr(absl::StrCat("rank ", rank, ": ")));
  }
}

// Rank r is ready for its own slab and the next rank's, and nobody for all that
// he waits for.
TEST(ValidatorTest, DeadlockOfThreeRanks) {
  ProgramShape shape = Small(1, true);
  shape.ranks = 3;
  std::vector<Program> programs;
  for (int rank = 0; rank < 3; ++rank) {
    const auto on = [&](const std::string& op, int k) {
      return absl::StrCat(op, "(", (rank + k) % 3, ") ");
    };
    programs.push_back(
        Parse(shape,
              "F(0,a) F(1,a) Loss(a) B(1,a) B(0,a) Reduce(0) Reduce(1) "
              "Reduce(2) Squares(0) Squares(1) Squares(2) Norm " +
                  on("Update", 0) + on("Update", 1) + on("Gather", 0) +
                  on("Gather", 1) + on("Save", 0) + on("Update", 2) +
                  on("Gather", 2) + on("Save", 1) + on("Save", 2)));
    for (Instruction& i : programs.back().instructions) {
      if (i.op != Op::kGather || i.slab == 0) continue;
      i.lane = i.slab == 1 ? Lane::kOut : Lane::kIn;
    }
    EXPECT_EQ(Error(programs.back()), "");
  }
  EXPECT_EQ(
      Error(programs),
      "rank 0: instruction 14, Gather(0): waits for ever for rank 1: "
      "instruction 14, Gather(1), which comes first and waits for rank 2: "
      "instruction 14, Gather(2), which comes first and waits for that: "
      "lanes deadlock by their order");
}

}  // namespace
}  // namespace delink::validator_test
