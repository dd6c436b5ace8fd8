// The one file that includes CLI11, and catches what it throws.
#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "recipes/schema/problems.h"
#include "tools/argument_text.h"

namespace delink::tools {
namespace {

constexpr char kVersion[] = "delink " DELINK_VERSION;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

std::string FullName(const CLI::App& app) {
  const std::string name = app.get_name();
  return app.get_parent() == nullptr ? name
                                     : FullName(*app.get_parent()) + " " + name;
}

// Help of 80 columns: whole command names, what an option takes, and no more.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }

 private:
  static constexpr size_t kColumn = 28, kWidth = 80;

  std::string make_usage(const CLI::App* app, std::string) const override {
    return "\n" + CLI::Formatter::make_usage(app, FullName(*app));
  }
  std::string make_option_name(const CLI::Option* option,
                               bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    const size_t value = name.find("{}");  // CLI11's "without one, empty"
    return value == std::string::npos ? name : name.erase(value, 2);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const bool named = option->nonpositional();
    return Wrap(option->get_description() +
                    (named && option->get_required() ? " (required)" : ""),
                kColumn, kWidth);
  }
};

// What a number on the command line may be.
CLI::Validator WholeNumber(int64_t least, int64_t most) {
  return {[=](const std::string& text) {
            return WholeNumberProblem(text, least, most);
          },
          ""};
}

CLI::Validator Number(double least, double most) {
  return {
      [=](const std::string& text) { return NumberProblem(text, least, most); },
      ""};
}

// DIR and CHECKPOINT, as every command understands them.
constexpr char kCorpusHelp[] = "a corpus, or its train or validation";
constexpr char kCheckpointHelp[] =
    "a step folder, or a run folder (its newest whole checkpoint)";

void AddCommonFlags(CLI::App& app) {
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", kVersion, "print the version and exit");
}

CLI::App& AddCommand(CLI::App& parent, const std::string& name,
                     const std::string& description,
                     const std::string& example) {
  CLI::App& app = *parent.add_subcommand(name, description);
  AddCommonFlags(app);
  app.footer("Example:\n  " + example);
  return app;
}

// Options are named, take one value each and show `value` in the help.
template <typename T>
CLI::Option* AddOption(CLI::App& app, const std::string& name,
                       const std::string& value, T& to,
                       const std::string& help) {
  return app.add_option(name, to, help)
      ->type_name(value)
      ->option_text(" " + value)
      ->allow_extra_args(false);
}

CLI::Option* AddPositional(CLI::App& app, const std::string& name,
                           std::string& to, const std::string& help) {
  return app.add_option(name, to, help)->required()->option_text("");
}

// What a corpus is made from.
void AddInputs(CLI::App& app, const std::shared_ptr<BuildData>& build) {
  app.add_option("INPUT", build->inputs,
                 "files of text or JSONL (UTF-8; also .gz and .zst), folders "
                 "of them, 'quoted patterns', or - for standard input")
      ->required()
      ->check(
          [](const std::string& input) {
            if (input == kStandardInput) return std::string();
            return std::string(ExpandInput(input).status().message());
          },
          "")
      ->option_text("...");
  app.add_option_function<std::string>(
         "--format",
         [build](const std::string& format) {
           build->format =
               format == "jsonl" ? TextFormat::kJsonl : TextFormat::kText;
         },
         "text or jsonl, whatever the inputs are called (by name; standard "
         "input: text)")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->type_name("FORMAT")
      ->option_text(" FORMAT");
  AddOption(app, "--text-field", "NAME", build->text_field,
            "the field of a JSONL line that holds the text (text)");
}

void AddBuild(CLI::App& data, std::optional<Command>* chosen) {
  auto build = std::make_shared<BuildData>();
  CLI::App& b = AddCommand(
      data, "build", "Text to DIR/train and DIR/validation",
      "delink data build --out corpus --train-tokenizer 8000 books/*.txt\n"
      "  zcat dump.gz | delink data build --out corpus --format jsonl -");
  AddInputs(b, build);
  AddOption(b, "--out", "DIR", build->out, "where the corpus goes")->required();
  CLI::Option* load = AddOption(b, "--tokenizer", "FILE", build->tokenizer,
                                "tokenise with this SentencePiece model");
  load->check(CLI::ExistingFile);
  CLI::Option* train =
      AddOption(b, "--train-tokenizer", "VOCAB", build->train_tokenizer,
                "train a SentencePiece model of this vocabulary on the text");
  train->check(WholeNumber(1, 1 << 24));
  CLI::Option* bytes =
      b.add_flag("--bytes", build->bytes, "tokens are the bytes of the text");
  load->excludes(train)->excludes(bytes);
  train->excludes(bytes);
  AddOption(b, "--validation", "FRACTION", build->validation,
            "part of the documents kept for validation (0.01)")
      ->check(Number(0, 1));
  AddOption(b, "--threads", "N", build->threads,
            "threads that tokenise (the machine's cores); the corpus is the "
            "same for any")
      ->check(WholeNumber(1, 256));
  b.add_flag("--overwrite", build->overwrite, "replace the corpus in --out");
  b.final_callback([=] { *chosen = *build; });
}

void AddDataCommands(CLI::App& root, std::optional<Command>* chosen) {
  CLI::App& data = AddCommand(
      root, "data", "Turn text into tokenised corpora, and look at them",
      "delink data build --out corpus --train-tokenizer 8000 books/*.txt");
  data.require_subcommand(1);
  AddBuild(data, chosen);

  auto info = std::make_shared<DescribeData>();
  CLI::App& i = AddCommand(data, "info", "Statistics of a corpus",
                           "delink data info corpus/train");
  AddPositional(i, "DIR", info->folder, kCorpusHelp)
      ->check(CLI::ExistingDirectory);
  i.add_flag("--json", info->json, "print one JSON object");
  i.final_callback([=] { *chosen = *info; });

  auto verify = std::make_shared<VerifyData>();
  CLI::App& v = AddCommand(data, "verify", "Check a corpus against its digests",
                           "delink data verify corpus/train");
  AddPositional(v, "DIR", verify->folder, kCorpusHelp)
      ->check(CLI::ExistingDirectory);
  v.final_callback([=] { *chosen = *verify; });
}

void AddSets(CLI::App& app, std::vector<std::string>& sets) {
  AddOption(app, "--set", "KEY=VALUE", sets,
            "change a key of the recipe; may be repeated")
      ->check(
          [](const std::string& set) {
            return set.find('=') == std::string::npos
                       ? "'" + set + "' is not of the form KEY=VALUE"
                       : "";
          },
          "");
}

void AddTrace(CLI::App& app, const std::shared_ptr<TrainOptions>& options) {
  CLI::Option* trace =
      AddOption(app, "--trace", "FILE", options->trace,
                "write what each instruction of some steps took, for Perfetto "
                "or chrome://tracing");
  app.add_option_function<std::string>(
         "--trace-steps",
         [options](const std::string& text) {
           options->trace_steps = *ParseTraceSteps(text);
         },
         "the steps: the first N of this call, or A to B of the run (10)")
      ->needs(trace)
      ->check(
          [](const std::string& text) {
            const auto steps = ParseTraceSteps(text);
            return steps.ok() ? "" : std::string(steps.status().message());
          },
          "")
      ->allow_extra_args(false)
      ->type_name("N|A:B")
      ->option_text(" N|A:B");
}

void AddTrain(CLI::App& root, std::optional<Command>* chosen) {
  auto options = std::make_shared<TrainOptions>();
  auto resume = std::make_shared<std::vector<std::string>>();
  CLI::App& app = AddCommand(
      root, "train", "Train as a recipe says; under mpirun the same words",
      "mpirun -np 2 delink train recipes/quickstart_p2r.toml --out runs/p2r");
  AddPositional(app, "RECIPE", options->recipe, "a TOML file: docs/recipe.md")
      ->check(CLI::ExistingFile);
  AddSets(app, options->sets);
  AddOption(app, "--out", "DIR", options->out,
            "folder of the run (runs/NAME-OF-RECIPE)");
  // Its value is optional, so it comes with an equals sign only.
  CLI::Option* resume_flag =
      app.add_flag("--resume{}", *resume,
                   "go on from CHECKPOINT, by default the newest whole one of "
                   "--out; where there is none, start")
          ->option_text("[=CHECKPOINT]");
  app.add_flag("--overwrite", options->overwrite,
               "remove the run that --out holds, and start")
      ->excludes(resume_flag);
  AddOption(app, "--init", "CHECKPOINT", options->init,
            "start with the weights of CHECKPOINT, and nothing else of it");
  AddOption(app, "--until-step", "N", options->until_step,
            "stop, and save, after step N")
      ->check(WholeNumber(1, kLargest));
  AddOption(app, "--threads", "N", options->threads,
            "threads of each rank (the recipe's, or the machine's cores "
            "divided among its ranks)")
      ->check(WholeNumber(1, kLargest));
  AddTrace(app, options);
  app.final_callback([=] {
    options->resume = resume_flag->count() > 0;
    for (const std::string& from : *resume) options->resume_from = from;
    *chosen = *options;
  });
}

void AddPlan(CLI::App& root, std::optional<Command>* chosen) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App& app =
      AddCommand(root, "plan", "What a recipe takes, without training",
                 "delink plan recipes/gpt2_124m.toml --ranks 8");
  AddPositional(app, "RECIPE", options->recipe, "a TOML file: docs/recipe.md")
      ->check(CLI::ExistingFile);
  AddSets(app, options->sets);
  AddOption(app, "--ranks", "N", options->ranks,
            "ranks that would be started (the recipe's, or 1)")
      ->check(WholeNumber(1, 1 << 20));
  app.add_flag("--program", options->program,
               "print the program of a step as well: docs/step-program.md");
  app.add_flag("--json", options->json, "print one JSON object");
  app.final_callback([=] { *chosen = *options; });
}

void AddDelink(CLI::App& root, std::optional<Command>* chosen) {
  auto options = std::make_shared<DelinkCommand>();
  auto share = std::make_shared<std::string>();
  auto state = std::make_shared<std::string>();
  CLI::App& app = AddCommand(
      root, "delink", "Cut links of a checkpoint; its function is unchanged",
      "delink delink runs/p2r runs/real-start\n"
      "  delink train recipe.toml --out runs/real --resume=runs/real-start");
  AddPositional(app, "CHECKPOINT", options->checkpoint, kCheckpointHelp)
      ->check(CLI::ExistingPath);
  AddPositional(app, "OUT", options->out,
                "a new folder; the checkpoint becomes OUT/step-NNNNNNNN");
  AddOption(app, "--share", "SPEC", *share,
            "what stays shared: none, all, groups:N, cycle:N, or by part as "
            "attention=all,mlp=groups:4 (the recipe's next stage's, or none)")
      ->check(
          [](const std::string& text) {
            const auto spec = ParseShareSpec(text);
            return spec.ok() ? "" : std::string(spec.status().message());
          },
          "");
  AddOption(app, "--state", "POLICY", *state,
            "optimizer state: reset, copy or scale (the recipe's next "
            "stage's, or scale)")
      // The fourth is known, and refused where it can be said why.
      ->check(CLI::IsMember({"reset", "copy", "scale", "calibrated"}));
  app.final_callback([=] {
    if (!share->empty()) options->share = *ParseShareSpec(*share);
    for (const StatePolicy policy :
         {StatePolicy::kReset, StatePolicy::kCopy, StatePolicy::kScale,
          StatePolicy::kCalibrated}) {
      if (*state == ToString(policy)) options->state = policy;
    }
    *chosen = *options;
  });
}

void AddInspect(CLI::App& root, std::optional<Command>* chosen) {
  auto options = std::make_shared<Inspect>();
  CLI::App& app = AddCommand(root, "inspect",
                             "Show a checkpoint: step, stage, tensors, sharing",
                             "delink inspect runs/p2r");
  AddPositional(app, "CHECKPOINT", options->checkpoint, kCheckpointHelp)
      ->check(CLI::ExistingPath);
  app.add_flag("--json", options->json, "print one JSON object");
  app.final_callback([=] { *chosen = *options; });
}

void AddEval(CLI::App& root, std::optional<Command>* chosen) {
  auto options = std::make_shared<Eval>();
  CLI::App& app = AddCommand(root, "eval",
                             "Loss and perplexity of a checkpoint on a corpus",
                             "delink eval runs/p2r --data corpus/validation");
  AddPositional(app, "CHECKPOINT", options->checkpoint, kCheckpointHelp)
      ->check(CLI::ExistingPath);
  AddOption(app, "--data", "DIR", options->data, "a corpus folder")
      ->required()
      ->check(CLI::ExistingDirectory);
  AddOption(app, "--batches", "N", options->batches,
            "batches of the recipe's size, from the start (all)")
      ->check(WholeNumber(1, kLargest));
  app.add_flag("--json", options->json, "print one JSON object");
  app.final_callback([=] { *chosen = *options; });
}

void AddGenerate(CLI::App& root, std::optional<Command>* chosen) {
  auto options = std::make_shared<Generate>();
  CLI::App& app =
      AddCommand(root, "generate", "Continue a text, token by token",
                 "delink generate runs/p2r --prompt 'In the beginning' "
                 "--tokens 100 --top-k 40");
  AddPositional(app, "CHECKPOINT", options->checkpoint, kCheckpointHelp)
      ->check(CLI::ExistingPath);
  AddOption(app, "--prompt", "TEXT", options->prompt, "what to continue")
      ->required();
  AddOption(app, "--tokens", "N", options->tokens, "how many to add (128)")
      ->check(WholeNumber(1, kLargest));
  AddOption(app, "--temperature", "T", options->temperature,
            "below 1 more certain, above 1 more varied, 0 always the "
            "likeliest (1)")
      ->check(Number(0, std::numeric_limits<double>::infinity()));
  AddOption(app, "--top-k", "K", options->top_k,
            "draw from the K likeliest tokens (all)")
      ->check(WholeNumber(1, kLargest));
  AddOption(app, "--top-p", "P", options->top_p,
            "draw from the likeliest tokens that together reach probability "
            "P (1)")
      ->check(Number(1e-9, 1));
  AddOption(app, "--seed", "S", options->seed,
            "the same seed draws the same text (1)")
      ->check(WholeNumber(0, kLargest));
  app.final_callback([=] { *chosen = *options; });
}

// The innermost command that the arguments name.
CLI::App& Innermost(CLI::App& root) {
  CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// What is said of the first argument that no command knows; empty when all are
// known.
std::string UnknownArgument(CLI::App& root) {
  CLI::App& app = Innermost(root);
  const std::vector<std::string> unknown = root.remaining(true);
  if (unknown.empty()) return "";
  std::vector<std::string> commands, flags;
  for (const CLI::App* sub : app.get_subcommands({})) {
    commands.push_back(sub->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  for (const std::string& word : unknown) {
    if (word.size() < 2 || word.front() != '-') continue;
    const std::string flag = word.substr(0, word.find('='));
    return absl::StrCat(FullName(app), ": unknown option '", flag, "'",
                        schema::Suggestion(flag, flags));
  }
  return commands.empty()
             ? absl::StrCat(FullName(app), ": unexpected argument '",
                            unknown.front(), "'")
             : absl::StrCat(FullName(app), ": unknown command '",
                            unknown.front(), "'",
                            schema::Suggestion(unknown.front(), commands));
}

CommandLine UsageError(CLI::App& root, const std::string& what) {
  CLI::App& app = Innermost(root);
  std::string message = UnknownArgument(root);
  if (message.empty()) message = absl::StrCat(FullName(app), ": ", what);
  return {.text = absl::StrCat(message, "\nSee ", FullName(app), " --help\n"),
          .exit_code = 2};
}

CommandLine Parse(CLI::App& root, int argc, const char* const* argv,
                  std::optional<Command>* chosen) {
  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {.text = Innermost(root).help()};
  } catch (const CLI::CallForVersion&) {
    return {.text = absl::StrCat(kVersion, "\n")};
  } catch (const CLI::ParseError& error) {
    return UsageError(root, error.what());
  }
  return {.command = std::move(*chosen)};
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CLI::App root(
      "Delink pretrains transformers by Pseudo-to-Real: layers share one set "
      "of\nweights at first, then the sharing is cut (delinked) and training "
      "goes on.",
      "delink");
  AddCommonFlags(root);
  root.formatter(std::make_shared<HelpFormatter>());
  root.require_subcommand(1);
  root.footer(
      "Example:\n"
      "  delink data build --out corpus --train-tokenizer 2000 book.txt\n"
      "  mpirun -np 2 delink train recipes/quickstart_p2r.toml\n"
      "Exit codes: 0; 2 for bad arguments or a bad recipe, before anything "
      "is\nwritten; 1 for everything else. Reference: docs/cli.md");
  std::optional<Command> chosen;
  AddDataCommands(root, &chosen);
  AddTrain(root, &chosen);
  AddPlan(root, &chosen);
  AddDelink(root, &chosen);
  AddInspect(root, &chosen);
  AddEval(root, &chosen);
  AddGenerate(root, &chosen);
  return Parse(root, argc, argv, &chosen);
}

}  // namespace delink::tools
