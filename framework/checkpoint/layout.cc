#include "framework/checkpoint/layout.h"

#include <cctype>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink::checkpoint {

std::string WriterName(int rank) {
  return absl::StrFormat("%s-%05d.h5", kWriters, rank);
}

bool IsWriterName(std::string_view name) {
  return name.starts_with(absl::StrCat(kWriters, "-")) && name.ends_with(".h5");
}

std::string StepName(int64_t step) {
  return absl::StrFormat("%s%08d", kStepPrefix, step);
}

int64_t StepOfName(const std::string& name) {
  const std::string prefix = kStepPrefix;
  constexpr size_t kMostDigits = 18;  // that an int64_t holds
  if (!name.starts_with(prefix) || name.size() < prefix.size() + 8 ||
      name.size() > prefix.size() + kMostDigits) {
    return -1;
  }
  int64_t step = 0;
  for (size_t i = prefix.size(); i < name.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(name[i])) == 0) return -1;
    step = step * 10 + (name[i] - '0');
  }
  return step;
}

bool IsLeftover(const std::string& name) {
  for (const std::string_view suffix : {kTemporary, kReplaced}) {
    if (!name.ends_with(suffix)) continue;
    return StepOfName(name.substr(0, name.size() - suffix.size())) >= 0;
  }
  return false;
}

std::string SlabDataset(std::string_view what, const Slab& slab) {
  return absl::StrCat("/", std::string(what), "/", slab.name);
}

std::string TensorPath(const std::string& tensor) {
  return absl::StrCat(kModelGroup, "/", tensor);
}

std::string StateGroup(const std::string& tensor) {
  return absl::StrCat(kOptimizerGroup, "/", tensor);
}

std::string StatePath(const std::string& tensor, std::string_view state) {
  return absl::StrCat(StateGroup(tensor), "/", std::string(state));
}

hdf5::ElementType ElementOf(DType dtype) {
  DELINK_CHECK(dtype == DType::kF32 || dtype == DType::kF64);
  return dtype == DType::kF64 ? hdf5::ElementType::kF64
                              : hdf5::ElementType::kF32;
}

bool IsState(const Field& field) {
  DELINK_CHECK(field.kind == Field::Kind::kState ||
               field.kind == Field::Kind::kParameters)
      << "not a field of checkpoints";
  return field.kind == Field::Kind::kState;
}

std::string PathOf(const Field& field, const LogicalTensor& tensor) {
  return IsState(field) ? StatePath(tensor.name, field.state)
                        : TensorPath(tensor.name);
}

StateExtent GridOf(const Layout& layout, std::span<const StateSpec> states,
                   const Field& field, const LogicalTensor& tensor) {
  if (!IsState(field)) return StateExtent::kElements;
  const SlabParam& param = At(layout.slabs(), tensor.slab).params[tensor.param];
  const ParamKind kind =
      KindOf(layout.registry().decl(param.decl), layout.blocks());
  for (const StateSpec& spec : states) {
    if (spec.name == field.state) return spec.Of(kind).extent;
  }
  return StateExtent::kNone;
}

}  // namespace delink::checkpoint
