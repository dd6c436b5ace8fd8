// Which values lie where in the writers' files of a checkpoint: a pure function
// of the layout and of the states. Private to the checkpoint code.
//
// For each field (the parameters, each state) and local slab a rank's file has
// a dataset: what the rank owns of it, parameter after parameter. Datasets of
// parameters also have the padding between them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/descriptor.h"
#include "framework/module/field.h"
#include "framework/module/layout.h"
#include "framework/module/state_spec.h"

namespace delink::checkpoint {

// A dataset: what a rank owns of a field of a local slab.
struct OwnedPart {
  // The contiguous values of one parameter in the dataset.
  struct Values {
    int64_t first = 0;  // as Extent::offset counts
    int64_t at = 0;     // where that lies in the dataset
    int64_t count = 0;
  };
  int64_t size = 0;
  std::vector<Values> params;  // by the local slab's
};

class FilePlan {
 public:
  // The layout must outlive the plan.
  FilePlan(const Layout& layout, std::vector<StateSpec> states);

  const Layout& layout() const { return *layout_; }
  // The parameters, then the states in their order.
  const std::vector<Field>& fields() const { return fields_; }
  // The tensors of a logical slab, by its params.
  const std::vector<const LogicalTensor*>& tensors(int slab) const {
    return At(tensors_, slab);
  }
  Shape ShapeOf(const Field& field, const LogicalTensor& tensor) const;
  // For each value the rank that writes it.
  Descriptor Writers(const Field& field, const LogicalTensor& tensor) const;

  // The name of the dataset of a field of a local slab in a writer's file.
  std::string DatasetOf(const Field& field, int local_slab) const;
  // The datasets of a field of a logical slab, by rank and local slab.
  using Parts = std::map<std::pair<int, int>, OwnedPart>;
  Parts PartsOf(const Field& field, int slab) const;

 private:
  const Layout* layout_;
  std::vector<StateSpec> states_;
  std::vector<Field> fields_;
  std::vector<std::vector<const LogicalTensor*>> tensors_;
};

}  // namespace delink::checkpoint
