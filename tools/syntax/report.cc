#include <memory>

#include "tools/syntax/commands.h"

namespace delink::tools {

CommandSyntax ReportSyntax() {
  auto report = std::make_shared<ReportCommand>();
  return {.name = "report",
          .summary = "Compare runs in one HTML file",
          .examples = {"delink report runs/p2r runs/scratch --out report.html"},
          .arguments = {{.name = "RUN",
                         .to = &report->runs,
                         .help = "folders of runs, which may still be running",
                         .names = Names::kFolder,
                         .must_exist = true},
                        {.name = "--out",
                         .value = "FILE",
                         .to = &report->out,
                         .help = "the HTML file to write; an existing one is "
                                 "replaced",
                         .required = true,
                         .names = Names::kFile}},
          .make = [report] { return *report; }};
}

}  // namespace delink::tools
