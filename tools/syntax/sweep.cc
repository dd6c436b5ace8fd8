#include <memory>

#include "tools/syntax/commands.h"

namespace delink::tools {

CommandSyntax SweepSyntax() {
  auto sweep = std::make_shared<SweepCommand>();
  return {.name = "sweep",
          .summary = "Train a grid of recipes into one table; resumable",
          .examples = {"delink sweep study.toml --out runs/study --jobs 2"},
          .arguments = {{.name = "SPEC",
                         .to = &sweep->spec,
                         .help = "a TOML file of axes and seeds: docs/sweep.md",
                         .names = Names::kFile,
                         .must_exist = true},
                        {.name = "--out",
                         .value = "DIR",
                         .to = &sweep->out,
                         .help = "folder of the sweep; its finished runs are "
                                 "not run again",
                         .required = true,
                         .names = Names::kFolder},
                        {.name = "--jobs",
                         .value = "N",
                         .to = &sweep->jobs,
                         .help = "runs at the same time; the cores are divided "
                                 "among them (1)",
                         .check = WholeNumber(1, 1024)},
                        SetOption(sweep->sets),
                        {.name = "--dry-run",
                         .to = &sweep->dry_run,
                         .help = "check every recipe and print the commands, "
                                 "but start none"}},
          .make = [sweep] { return *sweep; }};
}

}  // namespace delink::tools
