// The exchanges in the middle of visits and updates, by instruction. Part of
// ValidatePrograms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/program/instruction.h"
#include "framework/step/proof/meetings.h"

namespace delink {

// The phases of its layer that a visit runs, in order.
std::vector<Phase> PhasesOf(PassKind kind, const Instruction& visit);

// The exchanges in the middle of an instruction, in order. An update is taken
// to have them even if this rank does not have its slab's state.
std::vector<VisitExchange> ExchangesIn(const Program& program,
                                       const Instruction& i);

// The axes of these.
Axes AxesWithin(const Program& program, const Instruction& i);

// Whether two places of a stage differ only along the axis.
bool AreBeside(const ProgramShape& shape, int place, int other, Axis axis);
// A number for the places that exchanges over the axes join with this one,
// directly or by others: one of these places. With several axes it may join too
// many, if neither of tensor and expert ranks is a multiple of the other.
int GroupWithin(const ProgramShape& shape, int place, Axes axes);

// "layer 3, backward: exchange 2 is gather over tensor of 3072 bytes", a line
// for each exchange of a shape, of slabs too.
std::vector<std::string> DescribeExchanges(const ProgramShape& shape);

// InvalidArgument names the first exchange in which two shapes differ.
absl::Status CompareExchanges(const ProgramShape& shape,
                              const ProgramShape& first);

// `columns` are those of all places of a stage, in order. If two ranks differ
// along one axis, their exchanges over it must have the same order in each
// lane. InvalidArgument names a rank, an instruction and the exchange.
absl::Status CheckVisitMeetings(const std::vector<Column>& columns);

}  // namespace delink
