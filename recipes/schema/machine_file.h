// A machine's file: its devices, memory, network and rates, in TOML.
//
// `delink bench --suite machine` writes this machine's, planners read it, and
// `delink plan --machine` takes that of any machine; `machines/` has some. It
// is read as strictly as a recipe: every problem is a line with
// file:line:column and the key. docs/machines.md has all keys.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/rates/machine_rates.h"
#include "recipes/schema/section.h"

namespace delink {

// `origin` names the text in messages. InvalidArgument: something is unknown,
// missing or impossible.
absl::StatusOr<offload::MachineRates> ParseMachine(std::string_view text,
                                                   std::string_view origin);
// Reads back equal.
std::string ToToml(const offload::MachineRates& machine);

// NotFound: no such file; otherwise as ParseMachine.
absl::StatusOr<offload::MachineRates> ReadMachine(const std::string& path);
// The rates of `device`, on this machine. FailedPrecondition: the file has
// another device's rates. An error is one line, with the command that measures
// them.
absl::StatusOr<offload::MachineRates> ReadMachine(
    const std::string& path, const offload::RatedDevice& device);

// Makes the folder. An existing file is replaced atomically.
absl::Status WriteMachine(const offload::MachineRates& machine,
                          const std::string& path);

namespace schema {

void DescribeMachine(Section& document, offload::MachineRates& machine);

}  // namespace schema

}  // namespace delink
