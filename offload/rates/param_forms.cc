#include "offload/rates/param_forms.h"

#include "framework/tensor/block8.h"

namespace delink::offload {
namespace {

double MomentBytes(StateStorage moments) {
  switch (moments) {
    case StateStorage::kExact:
      return 4;
    case StateStorage::kBF16:
      return 2;
    case StateStorage::kBlock8:
      break;
  }
  return 1 + static_cast<double>(sizeof(float)) / kBlock8;
}

double MasterBytes(MasterForm master) {
  switch (master) {
    case MasterForm::kWhole:
      return 4;
    case MasterForm::kSplit:
      return 2;
    case MasterForm::kNone:
      break;
  }
  return 0;
}

}  // namespace

ParamBytes BytesOf(const ParamForms& forms) {
  const auto weight = static_cast<double>(SizeOf(forms.weights));
  const bool own_master = forms.weights == DType::kF32;
  const bool beside = !own_master && forms.master == MasterForm::kWhole;
  return {.weight = weight,
          .weight_read = beside ? 0 : weight,
          .master = own_master ? 0 : MasterBytes(forms.master),
          .moments = 2 * MomentBytes(forms.moments),
          .gradient = static_cast<double>(SizeOf(forms.gradients))};
}

const char* WordOf(MasterForm master) {
  switch (master) {
    case MasterForm::kWhole:
      return "fp32";
    case MasterForm::kSplit:
      return "split";
    case MasterForm::kNone:
      break;
  }
  return "none";
}

const char* WordOf(StateStorage moments) {
  switch (moments) {
    case StateStorage::kExact:
      return "fp32";
    case StateStorage::kBF16:
      return "bf16";
    case StateStorage::kBlock8:
      break;
  }
  return "8bit";
}

}  // namespace delink::offload
