// Runs the built `delink` as a person would, and reads what it leaves.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace delink::testing {

struct Outcome {
  int code = -1;  // exit code; -1: ended by a signal
  std::string out, err;
};

// Words after the program's name; they go through no shell.
using Words = std::vector<std::string>;

// `words`, and behind them `more`.
Words With(Words words, const Words& more);

Outcome RunDelink(const Words& words);
// The same, which must succeed.
Outcome Succeed(const Words& words);
// The same, which must exit with 2 and say `what`.
Outcome ExpectRefused(const Words& words, const std::string& what);
// The same, started in `folder`.
Outcome RunDelinkIn(const std::string& folder, const Words& words);
// The same, with a file as its standard input.
Outcome RunDelinkOn(const std::string& input, const Words& words);
// A command of bash in which "$0" is the program and "$@" the words.
Outcome RunShell(const std::string& command, const Words& words);
// A program of one's own, with a kind of model that `delink` does not know.
Outcome RunOwnModel(const Words& words);
// `delink` whose gpt has blocks of two kinds (tests/recipes/run/hybrid.h).
Outcome RunHybrid(const Words& words);
// `delink` whose CUDA device is emulated.
bool HaveDelinkOnSimt();
Outcome RunDelinkOnSimt(const Words& words);
// `delink` under mpirun.
Outcome MpirunDelink(int ranks, const Words& words);
// The same on two ranks that have words of their own.
Outcome MpirunDelinkUnlike(const Words& first, const Words& second);
Outcome MpirunDelinkOnSimt(int ranks, const Words& words);
bool HaveMpirun();

// The library of close_fails.cc, for LD_PRELOAD.
const char* CloseFails();

// The rows of a metrics.jsonl, as text and parsed.
std::vector<std::string> Lines(const std::string& path);
std::vector<nlohmann::json> Rows(const std::string& path);

// Every number of a checkpoint, by name: weights, optimizer state, updates; and
// where links lead. Two that compare equal are equal bit for bit.
struct SavedBits {
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::string> links;
  std::map<std::string, int64_t> updates;
  std::string stage;
  int64_t step = 0;
};
SavedBits ReadBits(const std::string& checkpoint);
// What differs first; empty when nothing does.
std::string Difference(const SavedBits& a, const SavedBits& b);

}  // namespace delink::testing
