// The description of each command; every call makes one with its own targets.
#pragma once

#include "tools/syntax/syntax.h"

namespace delink::tools {

CommandSyntax DataSyntax();        // data.cc
CommandSyntax ImportSyntax();      // data_import.cc: data import
CommandSyntax TrainSyntax();       // train.cc
CommandSyntax PlanSyntax();        // train.cc
CommandSyntax DelinkSyntax();      // checkpoint.cc
CommandSyntax ConvertSyntax();     // convert.cc
CommandSyntax InspectSyntax();     // checkpoint.cc
CommandSyntax EvalSyntax();        // checkpoint.cc
CommandSyntax BenchSyntax();       // bench.cc
CommandSyntax GenerateSyntax();    // checkpoint.cc
CommandSyntax ReportSyntax();      // report.cc
CommandSyntax SweepSyntax();       // sweep.cc
CommandSyntax CompletionSyntax();  // shell.cc
CommandSyntax ManSyntax();         // shell.cc
CommandSyntax ProgramSyntax();     // root.cc: the program, with all of them

// An option that changes keys of a recipe; train.cc.
ArgumentSyntax SetOption(std::vector<std::string>& sets);
// The device to compute on; train.cc. `unless` describes the default.
ArgumentSyntax DeviceOption(std::string& device, const std::string& unless);

}  // namespace delink::tools
