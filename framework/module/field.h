// A field of a logical tensor: its parameters, one plane of its weights, its
// gradient, or a state of the optimizer. States are found by name, since two
// stores may number them differently.
//
// A field decides the type in which its values move. kParameters, kGradient and
// kState are exact values, f64 if the weights are, else f32, however they are
// stored. kWeight, kMaster and kLow are the stored bits, so that the payload of
// a NaN is kept.
#pragma once

#include <cstdint>
#include <string>

namespace delink {

struct Field {
  enum class Kind : uint8_t {
    kParameters,  // the exact weights
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
