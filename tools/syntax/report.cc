#include <memory>

#include "tools/syntax/commands.h"

namespace delink::tools {

CommandSyntax ReportSyntax() {
  auto report = std::make_shared<ReportCommand>();
  return {.name = "report",
          .summary = "Runs side by side, as one HTML file",
          .examples = {"delink report runs/p2r runs/scratch --out report.html"},
          .arguments = {{.name = "RUN",
                         .to = &report->runs,
                         .help = "run folders; runs may be at work",
                         .names = Names::kFolder,
                         .must_exist = true},
                        {.name = "--out",
                         .value = "FILE",
                         .to = &report->out,
                         .help = "where the page goes; an HTML file that is "
                                 "there is replaced",
                         .required = true,
                         .names = Names::kFile}},
          .make = [report] { return *report; }};
}

}  // namespace delink::tools
