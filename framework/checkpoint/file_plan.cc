#include "framework/checkpoint/file_plan.h"

#include "framework/base/at.h"
#include "framework/checkpoint/layout.h"

namespace delink::checkpoint {

FilePlan::FilePlan(const Layout& layout, std::vector<StateSpec> states)
    : layout_(&layout),
      states_(std::move(states)),
      fields_(1),
      tensors_(layout.slabs().size()) {
  for (const StateSpec& spec : states_) {
    fields_.push_back({Field::Kind::kState, spec.name});
  }
  for (size_t s = 0; s < tensors_.size(); ++s) {
    tensors_[s].resize(layout.slabs()[s].params.size());
  }
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    At(tensors_, tensor.slab)[tensor.param] = &tensor;
  }
}

Shape FilePlan::ShapeOf(const Field& field, const LogicalTensor& tensor) const {
  return StateShape(tensor.shape, GridOf(*layout_, states_, field, tensor));
}

Descriptor FilePlan::Writers(const Field& field,
                             const LogicalTensor& tensor) const {
  return OwnersOf(*layout_, tensor, GridOf(*layout_, states_, field, tensor));
}

std::string FilePlan::DatasetOf(const Field& field, int local_slab) const {
  return SlabDataset(IsState(field) ? field.state : kWeight,
                     At(layout_->local_slabs(), local_slab).slab);
}

FilePlan::Parts FilePlan::PartsOf(const Field& field, int slab) const {
  const bool padded = !IsState(field);
  Parts parts;
  for (const LogicalTensor* const tensor : tensors(slab)) {
    for (const Extent& extent : Writers(field, *tensor)) {
      const Slab& local = At(layout_->local_slabs(), extent.slab).slab;
      OwnedPart& part = parts[{extent.rank, extent.slab}];
      part.params.resize(local.params.size());
      const Range owned = layout_->OwnedBy(extent.slab, extent.rank);
      OwnedPart::Values& values = part.params[extent.param];
      if (values.count == 0) {
        values.first = extent.offset;
        values.at = padded ? local.params[extent.param].offset + extent.offset -
                                 owned.begin
                           : part.size;
      }
      values.count += extent.rect.elements();
      part.size = padded ? owned.size() : part.size + extent.rect.elements();
    }
  }
  return parts;
}

}  // namespace delink::checkpoint
