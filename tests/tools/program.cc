#include "tests/tools/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <variant>

#include "framework/checkpoint/checkpoint.h"
#include "framework/hdf5/hdf5.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Outcome RunProgram(const Words& words, const std::string& folder = ".",
                   const std::string& input = "/dev/null") {
  const TempDir dir;
  const std::string out = dir / "out", err = dir / "err";
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(out.c_str(), "w", stdout) == nullptr ||
        std::freopen(err.c_str(), "w", stderr) == nullptr ||
        std::freopen(input.c_str(), "r", stdin) == nullptr ||
        chdir(folder.c_str()) != 0) {
      _exit(126);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = ReadText(out),
          .err = ReadText(err)};
}

template <typename T>
T Value(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *std::move(value) : T();
}

}  // namespace

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome RunDelink(const Words& words) { return RunDelinkIn(".", words); }

Outcome Succeed(const Words& words) {
  Outcome outcome = RunDelink(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome;
}

Outcome ExpectRefused(const Words& words, const std::string& what) {
  Outcome outcome = RunDelink(words);
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::HasSubstr(what));
  return outcome;
}

Outcome RunDelinkIn(const std::string& folder, const Words& words) {
  return RunProgram(With({DELINK_PROGRAM}, words), folder);
}

Outcome RunDelinkOn(const std::string& input, const Words& words) {
  return RunProgram(With({DELINK_PROGRAM}, words), ".", input);
}

Outcome RunShell(const std::string& command, const Words& words) {
  return RunProgram(With({"/bin/bash", "-c", command, DELINK_PROGRAM}, words));
}

Outcome RunOwnModel(const Words& words) {
  return RunProgram(With({DELINK_OWN_MODEL}, words));
}

Outcome RunHybrid(const Words& words) {
  return RunProgram(With({DELINK_HYBRID}, words));
}

bool HaveDelinkOnSimt() { return std::strlen(DELINK_ON_SIMT) > 0; }

Outcome RunDelinkOnSimt(const Words& words) {
  return RunProgram(With({DELINK_ON_SIMT}, words));
}

const char* CloseFails() { return DELINK_CLOSE_FAILS; }

bool HaveMpirun() { return std::strlen(DELINK_MPIRUN) > 0; }

namespace {
Outcome Mpirun(int ranks, const char* program, const Words& words) {
  return RunProgram(
      With({DELINK_MPIRUN, "-np", std::to_string(ranks), program}, words));
}
}  // namespace

Outcome MpirunDelink(int ranks, const Words& words) {
  return Mpirun(ranks, DELINK_PROGRAM, words);
}

Outcome MpirunDelinkUnlike(const Words& first, const Words& second) {
  const Words others = With({":", "-np", "1", DELINK_PROGRAM}, second);
  return Mpirun(1, DELINK_PROGRAM, With(first, others));
}

Outcome MpirunDelinkOnSimt(int ranks, const Words& words) {
  return Mpirun(ranks, DELINK_ON_SIMT, words);
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<nlohmann::json> Rows(const std::string& path) {
  std::vector<nlohmann::json> rows;
  for (const std::string& line : Lines(path)) {
    rows.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(rows.back().is_object()) << line;
  }
  return rows;
}

SavedBits ReadBits(const std::string& checkpoint) {
  SavedBits bits;
  const CheckpointHeader header = Value(ReadHeader(checkpoint));
  bits.stage = std::get<std::string>(header.values.at("stage"));
  bits.step = header.step;
  auto file = hdf5::File::OpenReadOnly(checkpoint + "/index.h5", "rank");
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return bits;
  for (const TensorInfo& tensor : Value(ListTensors(checkpoint))) {
    if (!tensor.link.empty()) bits.links[tensor.name] = tensor.link;
    const std::string state = "/optimizer/" + tensor.name;
    for (const std::string& path :
         {"/model/" + tensor.name, state + "/m", state + "/v"}) {
      bits.tensors[path] = Value(file->ReadAll<float>(path));
    }
    bits.updates[tensor.name] = Value(file->GetInt(state, "updates"));
  }
  return bits;
}

std::string Difference(const SavedBits& a, const SavedBits& b) {
  if (a.stage != b.stage) return a.stage + " against " + b.stage;
  if (a.step != b.step) return "steps";
  if (a.links != b.links) return "links";
  if (a.updates != b.updates) return "updates";
  if (a.tensors.size() != b.tensors.size()) return "which tensors there are";
  for (const auto& [name, values] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) return name + " is missing";
    if (values.size() != other->second.size()) return name + ": sizes";
    if (std::memcmp(values.data(), other->second.data(),
                    values.size() * sizeof(float)) != 0) {
      return name;
    }
  }
  return "";
}

}  // namespace delink::testing
