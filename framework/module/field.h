// What of a logical tensor is meant: its parameters, one plane of its weights,
// its gradient, or a state of the optimizer. States go by name, since two
// stores may number them differently.
//
// Values of a field travel in a type of their own. kParameters, kGradient and
// kState are exact values, f64 where the weights are, else f32, whatever they
// are kept in; kWeight, kMaster and kLow are the bits that are kept, so that a
// payload of a NaN stays.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

struct Field {
  enum class Kind : uint8_t {
    kParameters,  // the exact weights, from wherever they are
    kWeight,
    kMaster,
    kLow,
    kGradient,
    kState
  };
  Kind kind = Kind::kParameters;
  std::string state;  // kState: StateSpec::name
  friend bool operator==(const Field&, const Field&) = default;
};

}  // namespace delink
