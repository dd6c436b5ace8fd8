// Writes two checkpoints from three ranks, one while layers share and one after
// delinking, and beside each, as plain datasets, what is in them: for
// read_checkpoint.py to compare with.
//
//   dump_checkpoint FOLDER     FOLDER/{pseudo,real}/step-*, FOLDER/{...}.h5
#include <cstdio>
#include <string>

#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/thread_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing {
namespace {

constexpr int kRanks = 3;

absl::Status WritePlain(StepRig& rig, const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    const hdf5::Shape shape(t.shape.dims().begin(), t.shape.dims().end());
    DELINK_RETURN_IF_ERROR(
        file.WriteAll("/model/" + t.name, shape, rig.Weight(t.name).data()));
    DELINK_RETURN_IF_ERROR(file.WriteAll("/optimizer/" + t.name + "/m", shape,
                                         rig.Moment(t.name, 0).data()));
    DELINK_RETURN_IF_ERROR(file.WriteAll("/optimizer/" + t.name + "/v", shape,
                                         rig.Moment(t.name, 1).data()));
  }
  return file.Close();
}

absl::Status Save(Communicator& comm, StepRig& rig, const std::string& folder,
                  const std::string& stage, int64_t step) {
  if (comm.rank() == 0) {
    DELINK_RETURN_IF_ERROR(MakeDirectories(JoinPath(folder, stage)));
    DELINK_RETURN_IF_ERROR(WritePlain(rig, JoinPath(folder, stage + ".h5")));
  }
  return WriteCheckpoint(comm, JoinPath(folder, stage),
                         {.step = step,
                          .model = "gpt",
                          .optimizer = "adamw",
                          .seed = 1,
                          .vocab = StepRig::kVocab,
                          .values = {{"stage", stage}}},
                         rig.store(), {{"recipe.toml", "# none\n"}}, 0)
      .status();
}

absl::Status Dump(Communicator& comm, const std::string& folder) {
  StepRig rig(comm, "attention=all,mlp=groups:2",
              {.micro_batch = 1, .global_batch = 6});
  for (int64_t step = 1; step <= 2; ++step) {
    DELINK_RETURN_IF_ERROR(
        rig.executor().TrainStep(rig.Batch(step), step, 1e-3).status());
  }
  DELINK_RETURN_IF_ERROR(Save(comm, rig, folder, "pseudo", 2));
  rig.Switch("none", StatePolicy::kScale);
  DELINK_RETURN_IF_ERROR(
      rig.executor().TrainStep(rig.Batch(3), 3, 1e-3).status());
  return Save(comm, rig, folder, "real", 3);
}

}  // namespace
}  // namespace delink::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: dump_checkpoint FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  const absl::Status status = delink::RunRanks(
      delink::testing::kRanks, [&](delink::Communicator& comm) {
        return delink::testing::Dump(comm, folder);
      });
  DELINK_CHECK(status.ok()) << std::string(status.message());
  return 0;
}
