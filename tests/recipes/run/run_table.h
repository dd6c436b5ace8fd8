// Configurations of whole runs, drawn so that every two values of two axes meet
// in one of them.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace delink::testing {

// What another value of an axis makes of a run: another one, one that differs
// by the rounding of sums, or nothing at all.
enum class Change { kRun, kRounding, kNothing };

struct Value {
  std::string name;
  std::string words = "";  // of a recipe, as of `train --set`; spaces between
};

// Words of `parallel` in both stages.
Value Both(const std::string& name, const std::string& words);

// Every optimizer and form of its moments; every precision, form of gradients
// and of the master. The first are the recipe's.
std::vector<Value> Optimizers();
std::vector<Value> Precisions();

// By the names of axes, those of values: of all, or of some.
using Configuration = std::map<std::string, std::string>;

struct Axis {
  std::string name;
  Change change;
  std::vector<Value> values;
  // Where all of these hold kRounding is kNothing.
  Configuration exact = {};
  // Each of its values is met once, whatever the others are.
  bool alone = false;
};

// Where `axis` has one of `values`, `other` has one of `only`. Whatever some
// axes have, rules must leave each other axis a value.
struct Rule {
  std::string axis;
  std::vector<std::string> values;
  std::string other;
  std::vector<std::string> only;
};

class RunTable {
 public:
  // Of two axes a value each; the name that comes first is the first.
  using Pair = std::pair<Configuration::value_type, Configuration::value_type>;

  // What is drawn hangs on the seed and on what was drawn before. `axes` and
  // `rules` must outlive the table.
  RunTable(const std::vector<Axis>& axes, const std::vector<Rule>& rules,
           uint64_t seed)
      : axes_(axes), rules_(rules), random_(seed) {}

  const std::vector<Axis>& axes() const { return axes_; }
  // The pairs that rules allow; a value of an axis that is alone with itself.
  std::set<Pair> Pairs() const;
  // Whether no rule is against what is given.
  bool Allows(const Configuration& given) const;
  // `first`, completed, then more, each of which has as many new pairs as can
  // be found at once, until each of Pairs() is in one; `count` of them, any
  // where none is missing, unless that is 0. Each is followed by `others` that
  // are Another(of the one before, {kNothing}).
  std::vector<Configuration> Cover(const std::vector<Configuration>& first,
                                   size_t count, size_t others = 0);
  // The same configuration with other values on the axes of which other values
  // make these changes, where rules leave some; those with pairs in `missing`
  // first.
  Configuration Another(const Configuration& from,
                        const std::set<Change>& changes,
                        const std::set<Pair>& missing = {});
  std::vector<std::string> Sets(const Configuration& configuration) const;

 private:
  size_t Random(size_t below) { return static_cast<size_t>(random_() % below); }
  // Completes it: of the allowed values one with the most pairs in `missing`,
  // and another one than `from` has where there is one.
  Configuration Complete(Configuration given, const std::set<Pair>& missing,
                         const Configuration& from);

  const std::vector<Axis>& axes_;
  const std::vector<Rule>& rules_;
  std::mt19937_64 random_;
};

// Whether `configuration` has all of `some`.
bool Has(const Configuration& configuration, const Configuration& some);

// How many steps runs take that are drawn, half of them before the switch, and
// the words that say so: in a full test as many as the recipes say.
int64_t RunSteps();
std::vector<std::string> StepWords();

// A run as a person would start it: how a test that fails names it.
std::string TrainCommand(int ranks, const std::string& recipe,
                         const std::vector<std::string>& sets);

// A number that a run by hand gives, else `otherwise`.
uint64_t FromEnvironment(const char* name, uint64_t otherwise);

// How many rows a suite draws: what `name` in the environment says, else `few`,
// and `many` in a full test. 0: until all pairs are met.
uint64_t RowCount(const char* name, uint64_t few, uint64_t many);

}  // namespace delink::testing
