#include <unistd.h>

#include <functional>
#include <iostream>
#include <ostream>
#include <sstream>

#include "data/commands/commands.h"
#include "framework/base/status_macros.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

// Prints the output of `command` when it is done.
absl::Status Printing(
    const std::function<absl::Status(std::ostream& out)>& command) {
  std::ostringstream out;
  const absl::Status status = command(out);
  Print(out.str());
  return status;
}

absl::Status Build(const BuildData& command, World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "data build"));
  return Printing([&](std::ostream& out) {
    return DataBuild(
        {.inputs = command.inputs,
         .format = command.format,
         .text_field = command.text_field,
         .standard_input = STDIN_FILENO,
         .out = command.out,
         .tokenizer_file = command.tokenizer,
         .train_vocab = static_cast<int32_t>(command.train_tokenizer),
         .validation = command.validation,
         .overwrite = command.overwrite,
         .threads = static_cast<int>(command.threads)},
        out, std::cerr, isatty(STDERR_FILENO) == 1);
  });
}

absl::Status Import(const ImportData& command, World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "data import"));
  return Printing([&](std::ostream& out) {
    return DataImport({.inputs = command.inputs,
                       .layout = command.layout,
                       .out = command.out,
                       .tokenizer_file = command.tokenizer,
                       .vocab = command.vocab,
                       .end_of_document = command.end_of_document,
                       .validation = command.validation,
                       .overwrite = command.overwrite},
                      out, std::cerr, isatty(STDERR_FILENO) == 1);
  });
}

absl::Status Check(const CheckData& command, World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "data check"));
  return Printing([&](std::ostream& out) {
    return DataCheck(command.folder, command.json, out, std::cerr,
                     isatty(STDERR_FILENO) == 1);
  });
}

absl::Status Describe(const DescribeData& command, World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "data info"));
  return Printing([&](std::ostream& out) {
    return DataInfo(command.folder, command.json, out);
  });
}

absl::Status Verify(const VerifyData& command, World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "data verify"));
  return Printing(
      [&](std::ostream& out) { return DataVerify(command.folder, out); });
}

}  // namespace

int Run(const BuildData& command, const ModelList& models, World& world) {
  return Finish(world, Build(command, world));
}
int Run(const ImportData& command, const ModelList& models, World& world) {
  return Finish(world, Import(command, world));
}
int Run(const CheckData& command, const ModelList& models, World& world) {
  return Finish(world, Check(command, world));
}
int Run(const DescribeData& command, const ModelList& models, World& world) {
  return Finish(world, Describe(command, world));
}
int Run(const VerifyData& command, const ModelList& models, World& world) {
  return Finish(world, Verify(command, world));
}

}  // namespace delink::tools
