// The command line of `delink` as plain data; docs/cli.md describes it.
//
// Parsing checks the arguments and whether the files that they name exist. It
// writes and prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "data/corpus/text_inputs.h"
#include "data/import/layout.h"
#include "framework/sharing/depth_policy.h"
#include "framework/sharing/share_spec.h"
#include "framework/sharing/state_policy.h"
#include "recipes/convert/convert.h"
#include "recipes/run/setup/train_options.h"
#include "recipes/saved/upcycled_model.h"

namespace delink::tools {

struct BuildData {
  std::vector<std::string> inputs;
  std::string out;
  // At most one of the three is given.
  std::string tokenizer;
  int64_t train_tokenizer = 0;  // its vocabulary
  bool bytes = false;
  TextFormat format = TextFormat::kByName;
  std::string text_field = "text";
  double validation = 0.01;
  int64_t threads = 0;  // 0: as many as cores
  bool overwrite = false;
};
struct ImportData {
  std::vector<std::string> inputs;
  LayoutOptions layout;
  std::string out;
  std::string tokenizer;
  int64_t vocab = 0;
  int64_t end_of_document = -1;
  double validation = 0.01;
  bool overwrite = false;
};
struct DescribeData {
  std::string folder;
  bool json = false;
};
struct CheckData {
  std::string folder;
  bool json = false;
};
struct VerifyData {
  std::string folder;
};
struct PlanCommand {
  std::string recipe;
  std::vector<std::string> sets;
  int64_t ranks = 0;           // 0: the recipe's
  int64_t ranks_per_node = 0;  // 0: all are on one
  std::string trace;           // empty: none
  std::string delay;           // as ParseLink wants it; empty: none
  std::string bus;             // likewise
  std::string machine;         // a file; empty: this one
  std::string trace_out;       // with a machine; empty: none
  bool search = false;
  std::string stage;  // of the search; empty: all
  std::string write;  // where the best recipe goes; empty: nowhere
  bool program = false;
  bool json = false;
};
struct DelinkCommand {
  std::string checkpoint;
  std::string out;
  std::optional<ShareSpec> share;
  std::optional<StatePolicy> state;
  std::optional<int64_t> depth;
  std::optional<GrowPolicy> grow;
  std::optional<UpcycleOptions> upcycle;
  double noise = 0;
};
struct Inspect {
  std::string checkpoint;
  bool json = false;
};
struct Eval {
  std::string checkpoint;
  std::vector<std::string> sets;  // of data
  // One of the three is given.
  std::string data;
  std::string choices;
  std::string loglikelihood;
  int64_t batches = 0;          // of data; 0: the whole corpus
  std::string delimiter = " ";  // of choices
  std::string lines;            // a path, not with `data`; empty: none
  std::string precision = "fp32";
  std::string device;  // empty: the checkpoint's recipe's
  bool json = false;
};
struct Generate {
  std::string checkpoint;
  std::vector<std::string> sets;
  std::string prompt;
  std::string prompts;  // a path; empty: `prompt` is given
  int64_t tokens = 128;
  double temperature = 1;
  int64_t top_k = 0;  // 0: all
  double top_p = 1;
  uint64_t seed = 1;
  std::string device;  // empty: the checkpoint's recipe's
};

struct SweepCommand {
  std::string spec;
  std::string out;
  std::vector<std::string> sets;
  int64_t jobs = 1;
  bool dry_run = false;
};

struct CompletionCommand {
  std::string shell;  // bash, zsh or fish
};
struct ManCommand {};

struct ReportCommand {
  std::vector<std::string> runs;
  std::string out;
};

struct BenchCommand {
  std::string suite = "all";  // ops, step, all (both), update, disk, machine
  std::string device = "cpu";
  std::vector<std::string> shapes;
  int64_t threads = 0;  // 0: as many as cores
  bool quick = false;
  std::string machine_file;  // of machine: a path; empty: in the user's cache
  std::string json;          // a path, or - for standard output
  std::string compare;       // a path
  std::string scratch;       // a folder
  // Of the steps; 0 and empty: all the default values.
  int64_t seq = 0, batch = 0, steps = 0;
  int64_t depth = 0;     // 0: only steps of all blocks
  int64_t distinct = 0;  // 0: all tokens
  std::string share, precision, recompute;
  std::vector<std::string> sets;
};

using Command =
    std::variant<BuildData, ImportData, DescribeData, CheckData, VerifyData,
                 TrainOptions, PlanCommand, DelinkCommand, ConvertOptions,
                 Inspect, Eval, Generate, SweepCommand, ReportCommand,
                 BenchCommand, CompletionCommand, ManCommand>;

struct CommandLine {
  // If not set, the program only prints `text`: help on standard output, with
  // exit code 0, or an error on standard error, with exit code 2.
  std::optional<Command> command;
  std::string text;
  int exit_code = 0;
};

CommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace delink::tools
