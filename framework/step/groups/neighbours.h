// The exchanges of neighbouring pipeline stages: inputs of layers one way,
// their gradients the other. Ranks with the same tensor, context and data place
// are a column; a rank's number in it is its stage.
//
// Each lane has its own stream, because an operation of each may be under way.
// They share the column's communicator: no two lanes post the same operations,
// which are matched by peer and tag, in the lane's order.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/stream_communicator.h"
#include "framework/device/backend.h"
#include "framework/module/mesh.h"
#include "framework/step/program/instruction.h"
#include "framework/tensor/tensor.h"

namespace delink {

class Neighbours {
 public:
  // Collective over `world`, the ranks of the mesh. The arguments must outlive
  // the result, which makes no streams if the mesh has no pipeline.
  static absl::StatusOr<std::unique_ptr<Neighbours>> Create(
      const Mesh& mesh, Device& device, Communicator& world);

  // `lane`: one of kSend or kRecv.
  Stream& StreamOf(Lane lane) const;
  // Posts a kSend or kRecv of `what`.
  std::unique_ptr<Pending> Exchange(const ProgramShape& shape,
                                    const Instruction& at,
                                    const Tensor& what) const;
  // All streams.
  void Synchronize();

 private:
  struct Way {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<StreamCommunicator> comm;
  };

  Neighbours() = default;

  std::unique_ptr<Communicator> column_;
  std::array<Way, kLanes> ways_;  // by lane; empty of others
};

}  // namespace delink
