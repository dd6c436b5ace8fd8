// What a trained model's visits are told of themselves.
#include <gtest/gtest.h>

#include "framework/comm/self_communicator.h"
#include "recipes/saved/forward_pass.h"
#include "tests/recipes/run/visit_notes.h"

namespace delink::testing::forward_visits_test {
namespace {

TEST(ForwardVisits, AreToldTheCountedTargetsOfTheirBatch) {
  SelfCommunicator comm;
  VisitNotes notes;
  StepRig rig(comm, "none",
              {.layers = 2,
               .global_batch = 2,
               .tied = false,
               .build = BuildNoting(&notes)});
  for (const bool by_sequence : {false, true}) {
    const auto pass =
        ForwardPass::Create(rig.model(), rig.store(),
                            {.batch = {.micro_batch = 2, .seq = StepRig::kSeq},
                             .by_sequence = by_sequence});
    ASSERT_TRUE(pass.ok()) << pass.status();
    for (const int64_t index : {1, 2}) {
      const HostBatch batch = rig.Batch(index);
      notes.clear();
      if (by_sequence) {
        (*pass)->Losses(batch);
      } else {
        (*pass)->Loss(batch);
      }
      const int64_t sample = batch.samples[0];
      const int64_t counted = CountedByHand(batch, 2)[sample];
      EXPECT_EQ(notes, (VisitNotes{{{.block = 0, .sample = sample}, counted},
                                   {{.block = 1, .sample = sample}, counted}}));
    }
  }
}

}  // namespace
}  // namespace delink::testing::forward_visits_test
