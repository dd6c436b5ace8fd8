// What visits, and updates, exchange in the middle of them, instruction by
// instruction. Part of ValidatePrograms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/instruction.h"
#include "framework/step/meetings.h"

namespace delink {

// The phases of its layer that a visit runs, in order.
std::vector<Phase> PhasesOf(PassKind kind, const Instruction& visit);

// What an instruction exchanges in the middle of it, in order; of an update as
// though this rank had its slab's state.
std::vector<VisitExchange> ExchangesIn(const Program& program,
                                       const Instruction& i);

// Whether the instruction exchanges something over the axis in the middle of
// it. An update is taken to do so on all ranks, also where its slab's state is
// elsewhere.
bool ExchangesOver(const Program& program, const Instruction& i, Axis axis);

// The ranks of a stage that differ in their place along the axis alone.
bool AreBeside(const ProgramShape& shape, int place, int other, Axis axis);

// "layer 3, backward: exchange 2 is gather over tensor of 3072 bytes", a line
// for each exchange of a shape, of slabs too.
std::vector<std::string> DescribeExchanges(const ProgramShape& shape);

// InvalidArgument names the first in which two shapes differ.
absl::Status CompareExchanges(const ProgramShape& shape,
                              const ProgramShape& first);

// Of the columns of all places of a stage, in their order: in each lane the
// exchanges of two ranks over the axis along which they differ have one order.
// InvalidArgument names a rank, an instruction and the exchange.
absl::Status CheckVisitMeetings(const std::vector<Column>& columns);

}  // namespace delink
