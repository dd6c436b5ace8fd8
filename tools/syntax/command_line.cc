// The only file that includes CLI11. It catches CLI11's exceptions.
#include "tools/syntax/command_line.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "recipes/record/environment.h"
#include "recipes/schema/problems.h"
#include "tools/syntax/argument_text.h"
#include "tools/syntax/commands.h"

namespace delink::tools {
namespace {

std::string FullName(const CLI::App& app) {
  const std::string name = app.get_name();
  return app.get_parent() == nullptr ? name
                                     : FullName(*app.get_parent()) + " " + name;
}

// Help in 80 columns, with full command names and the values of options only.
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

CLI::Option* AddPositional(CLI::App& app, const ArgumentSyntax& a) {
  if (auto* const* all = std::get_if<std::vector<std::string>*>(&a.to)) {
    return app.add_option(a.name, **all, a.help)
        ->required()
        ->option_text("...");
  }
  return app.add_option(a.name, *std::get<std::string*>(a.to), a.help)
      ->required()
      ->option_text("");
}

// Options have a name, take one value each, and show its name in the help.
CLI::Option* AddNamed(CLI::App& app, const ArgumentSyntax& a) {
  return std::visit(
      [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        if constexpr (std::is_same_v<T, bool>) {
          return app.add_flag(a.name, *to, a.help);
        } else if constexpr (std::is_same_v<T, OptionalText>) {
          // Its value needs an equals sign.
          return app.add_flag(a.name + "{}", a.help)
              ->option_text("[=" + a.value + "]");
        } else {
          return app.add_option(a.name, *to, a.help)
              ->required(a.required)
              ->type_name(a.value)
              ->option_text(" " + a.value)
              ->allow_extra_args(false);
        }
      },
      a.to);
}

CLI::Validator Exists(Names names) {
  if (names == Names::kFile) return CLI::ExistingFile;
  if (names == Names::kFolder) return CLI::ExistingDirectory;
  return CLI::ExistingPath;
}

void AddChecks(CLI::Option& option, const ArgumentSyntax& a) {
  if (a.must_exist) option.check(Exists(a.names));
  if (!a.choices.empty()) option.check(CLI::IsMember(a.choices));
  if (a.check) option.check(a.check, "");
}

void AddArguments(CLI::App& app, const CommandSyntax& syntax) {
  for (const ArgumentSyntax& a : syntax.arguments) {
    AddChecks(a.positional() ? *AddPositional(app, a) : *AddNamed(app, a), a);
  }
  for (const ArgumentSyntax& a : syntax.arguments) {
    CLI::Option* const option = app.get_option(a.name);
    for (const std::string& other : a.excludes) option->excludes(other);
    for (const std::string& other : a.needs) option->needs(other);
  }
}

// Stores the optional values, which the library does not store itself.
void TakeOptionalTexts(const CLI::App& app, const CommandSyntax& syntax) {
  for (const ArgumentSyntax& a : syntax.arguments) {
    if (!a.value_optional()) continue;
    OptionalText& to = *std::get<OptionalText*>(a.to);
    for (const std::string& value : app.get_option(a.name)->results()) {
      to = {.given = true, .value = value};
    }
  }
}

void CheckOneIsGiven(const CLI::App& app, const CommandSyntax& syntax) {
  for (const ArgumentSyntax& a : syntax.arguments) {
    if (a.or_else.empty() || app.count(a.name) + app.count(a.or_else) > 0) {
      continue;
    }
    throw CLI::RequiredError(a.name + " or " + a.or_else);
  }
}

// Adds the arguments and commands of `syntax`, which must outlive `app`. The
// command in the arguments is stored in `chosen`.
void Describe(CLI::App& app, const CommandSyntax& syntax,
              std::optional<Command>* chosen) {
  app.set_help_flag(kHelpFlags, kHelpHelp);
  app.set_version_flag(kVersionFlag, BuildLine(), kVersionHelp);
  app.footer("Example:\n  " + absl::StrJoin(syntax.examples, "\n  ") +
             (syntax.notes.empty() ? "" : "\n" + syntax.notes));
  AddArguments(app, syntax);
  for (const CommandSyntax& command : syntax.commands) {
    Describe(*app.add_subcommand(command.name, command.summary), command,
             chosen);
  }
  if (!syntax.commands.empty()) app.require_subcommand(1);
  if (!syntax.make) return;
  app.final_callback([&app, &syntax, chosen] {
    CheckOneIsGiven(app, syntax);
    TakeOptionalTexts(app, syntax);
    *chosen = syntax.make();
  });
}

// The innermost command in the arguments.
CLI::App& Innermost(CLI::App& root) {
  CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// The error about the first unknown argument; empty if all are known.
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
    return {.text = absl::StrCat(BuildLine(), "\n")};
  } catch (const CLI::ParseError& error) {
    return UsageError(root, error.what());
  }
  return {.command = std::move(*chosen)};
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  const CommandSyntax syntax = ProgramSyntax();
  CLI::App root(syntax.summary, syntax.name);
  root.formatter(std::make_shared<HelpFormatter>());
  std::optional<Command> chosen;
  Describe(root, syntax, &chosen);
  return Parse(root, argc, argv, &chosen);
}

}  // namespace delink::tools
