#include "tools/syntax/commands.h"

namespace delink::tools {

CommandSyntax ProgramSyntax() {
  return {
      .name = "delink",
      .summary =
          "Delink pretrains transformers by Pseudo-to-Real: layers share one "
          "set of\nweights at first, then the sharing is cut (delinked) and "
          "training goes on.",
      .examples =
          {"delink data build --out corpus --train-tokenizer 2000 book.txt",
           "mpirun -np 2 delink train recipes/quickstart_p2r.toml"},
      .notes =
          "Exit codes: 0; 2 for bad arguments or a bad recipe, before "
          "anything is\nwritten; 1 for everything else. Reference: "
          "docs/cli.md",
      .commands = {DataSyntax(), TrainSyntax(), PlanSyntax(), DelinkSyntax(),
                   ConvertSyntax(), InspectSyntax(), EvalSyntax(),
                   GenerateSyntax(), SweepSyntax(), ReportSyntax(),
                   BenchSyntax(), CompletionSyntax(), ManSyntax()}};
}

}  // namespace delink::tools
