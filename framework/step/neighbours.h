// What stages of a pipeline exchange with those beside them: inputs of layers
// one way, their gradients the other. Ranks with the same place along the data
// axis are a column, the ranks of which are its stages.
//
// Each lane has a stream of its own, because an operation of each may be under
// way. They share the column's communicator: no two of them post the same, and
// what one posts is matched by peer and tag, in the lane's order.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/stream_communicator.h"
#include "framework/device/backend.h"
#include "framework/module/mesh.h"
#include "framework/step/instruction.h"
#include "framework/tensor/tensor.h"

namespace delink {

class Neighbours {
 public:
  // Collective over `world`, the ranks of the mesh. All that is given outlives
  // it. Of a mesh without a pipeline there is nobody, and nothing is made.
  static absl::StatusOr<std::unique_ptr<Neighbours>> Create(
      const Mesh& mesh, Device& device, Communicator& world);

  // Of a lane of kSend or kRecv.
  Stream& StreamOf(Lane lane) const;
  // A kSend or kRecv of `what`.
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
