// Whether a shape and the fields of an instruction make sense by themselves:
// part of ValidateProgram.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/step/program/instruction.h"
#include "framework/step/program/shape_table.h"

namespace delink {

absl::Status BadShape(const std::string& what);

// Sizes agree, slabs are in range, ascending and used, chunks make the stages.
absl::Status CheckShape(const ProgramShape& shape);

// Whether a program of that kind may have such instructions at all.
bool MayHave(PassKind kind, Op op);

// By layer: whether some of its backwards are in two halves; messages then name
// the halves. `program` may be invalid.
std::vector<bool> LayersInHalves(const Program& program);

// What is wrong with the fields of `i`, regardless of other instructions;
// empty: nothing.
std::string FieldError(const Program& program, const ShapeTable& table,
                       const Instruction& i);

}  // namespace delink
