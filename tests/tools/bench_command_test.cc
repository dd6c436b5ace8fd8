// `delink bench` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "recipes/schema/machine_file.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/program.h"

namespace delink::testing::bench_command_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using nlohmann::json;

Words Quick(const Words& more = {}) {
  return With({"bench", "--quick", "--threads", "1"}, more);
}

json ReadJson(const std::string& path) {
  std::ifstream in(path);
  return json::parse(in, nullptr, false);
}

TEST(BenchProgram, MeasuresWritesAndCompares) {
  const TempDir dir;
  const std::string old = dir / "old.json";
  const Outcome first = Succeed(Quick({"--json", old}));
  EXPECT_THAT(first.out,
              AllOf(HasSubstr("machine: "), HasSubstr("of the matmul peak")));
  json report = ReadJson(old);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["format"], "delink-bench");
  EXPECT_EQ(report["machine"]["threads"], 1);
  EXPECT_EQ(report["quick"], true);
  EXPECT_FALSE(report["ops"].empty());
  EXPECT_FALSE(report["steps"].empty());

  const Outcome again = Succeed(Quick({"--suite", "ops", "--compare", old}));
  EXPECT_THAT(again.out, AllOf(HasSubstr("compared with " +
                                         report["time"].get<std::string>()),
                               HasSubstr("within their spread"),
                               HasSubstr("measured then but not now")));

  report["machine"]["processor"] = "Abacus";
  const std::string other = dir / "other.json";
  std::ofstream(other) << report.dump();
  const Outcome elsewhere =
      Succeed(Quick({"--suite", "ops", "--compare", other}));
  EXPECT_THAT(elsewhere.out, HasSubstr("another machine (Abacus"));
}

TEST(BenchProgram, OneStepToStandardOutput) {
  const Outcome outcome = Succeed(
      Quick({"--suite",     "step",  "--shape",     "gpt-tiny",
             "--seq",       "16",    "--batch",     "3",
             "--share",     "all",   "--precision", "fp32",
             "--recompute", "block", "--steps",     "4",
             "--json",      "-",     "--set",       "optimizer.kind=lion"}));
  const json report = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.out;
  EXPECT_TRUE(report["ops"].empty());
  ASSERT_EQ(report["steps"].size(), 1u);
  const json& step = report["steps"][0];
  EXPECT_EQ(step["batch"], 3);
  EXPECT_EQ(step["seq"], 16);
  EXPECT_EQ(step["recompute"], "block");
  EXPECT_EQ(step["set"], json::array({"optimizer.kind=lion"}));
  // One moment, where adamw has two.
  EXPECT_LT(step["memory"]["state"].get<int64_t>(),
            6 * step["unique_parameters"].get<int64_t>());
  EXPECT_EQ(step["seconds"]["samples"], 4);
}

TEST(BenchProgram, WhatIsWrongIsToldBeforeMeasuring) {
  const TempDir dir;
  const std::string text = dir / "text.json", torn = dir / "torn.json";
  std::ofstream(text) << "{\"step\": 1}\n";
  std::ofstream(torn) << "{\"format\": \"delink-bench\", \"ops\": [";
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{"--suite", "some"}, "--suite"},
      {{"--shape", "gpt-11m"}, "did you mean 'gpt-10m'"},
      {{"--threads", "0"}, "--threads: '0'"},
      {{"--seq", "-1"}, "--seq: '-1'"},
      {{"--share", "some"}, "'some' is no way to share"},
      {{"--precision", "fp8"}, "fp8"},
      {{"--set", "run.gradient=bf16"}, "did you mean"},
      {{"--set", "data.batch=4"}, "no option of their own"},
      {{"--set", "stage.0.depth=1"}, "no option of their own"},
      {{"--depth", "0"}, "--depth: '0'"},
      {{"--depth", "9"}, "stage[0].depth: 9 is more than model.layers 2"},
      {{"--compare", "/no/such.json"}, "/no/such.json"},
      {{"--compare", text}, "is JSON, but not a measurement"},
      {{"--compare", torn}, "is not whole JSON (byte 35 of 35)"},
      {{"--json", "/no/such/folder/x.json"}, "--json: /no/such/folder/x.json"},
      {{"--scratch", "/no/such/folder"}, "/no/such/folder"},
      {{"--machine-file", "x.toml"}, "--machine-file"},
      {{"--suite", "step", "--machine-file", "x.toml"},
       "--machine-file needs --suite machine"},
      {{"--suite", "machine", "--machine-file", "/no/such/folder/x.toml"},
       "--machine-file: /no/such/folder/x.toml cannot be written"},
      {{"--suite", "machine", "--seq", "4"},
       "--seq cannot be used with --suite machine"},
      {{"--suite", "disk", "--device", "cuda"},
       "--device cannot be used with --suite disk, which takes --quick and "
       "--scratch"},
  };
  for (const auto& [words, message] : cases) {
    const Outcome outcome = ExpectRefused(Quick(words), message);
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

TEST(BenchProgram, MeasuresTheDisk) {
  const TempDir dir;
  const Outcome outcome =
      Succeed({"bench", "--suite", "disk", "--quick", "--scratch", dir.path()});
  EXPECT_THAT(outcome.out, HasSubstr(" GB/s read; both at once "));
  EXPECT_THAT(outcome.err, HasSubstr("disk tier: 2.0 MiB in " + dir.path()));
}

TEST(BenchProgram, WritesTheMachine) {
  const TempDir dir;
  const std::string path = dir / "here.toml";
  const Words words = Quick({"--suite", "machine"});

  const Outcome outcome = Succeed(With(words, {"--machine-file", path}));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("rates of cpu '"), HasSubstr("1 threads"),
                    HasSubstr("free from this many tokens on")));
  EXPECT_THAT(outcome.err, HasSubstr("wrote the machine to " + path));
  const auto machine = ReadMachine(path);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->threads, 1);
  EXPECT_EQ(machine->ranks(), 1);
  EXPECT_EQ(machine->tier.memory, machine->host_bytes);

  // Where it is kept unless told otherwise, folders and all.
  const std::string kept = dir / "cache/delink/machine.toml";
  const Outcome again = RunShell(
      "XDG_CACHE_HOME=" + dir / "cache" + " exec \"$0\" \"$@\"", words);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("wrote the machine to " + kept));
  EXPECT_TRUE(ReadMachine(kept, machine->device).ok());
}

TEST(BenchProgram, IsTheWorkOfOneProcess) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome outcome = MpirunDelink(2, Quick());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("one process"));
}

TEST(BenchProgram, SeveralProcessesAddTheNetwork) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const TempDir dir;
  const std::string path = dir / "machine.toml";
  const std::vector<std::string> words = {
      "bench", "--suite", "machine", "--quick", "--machine-file", path};
  const Outcome early = MpirunDelink(2, words);
  EXPECT_EQ(early.code, 2);
  EXPECT_THAT(early.err, HasSubstr("one process writes first"));
  auto machine = ReadMachine(SourcePath("machines/b200.toml"));
  ASSERT_TRUE(machine.ok());
  ASSERT_TRUE(WriteMachine(*machine, path).ok());
  const Outcome outcome = MpirunDelink(2, words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("network inside a node: "));
  machine = ReadMachine(path);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_LT(machine->inside.bytes_per_s, 1e11);  // not a B200's
  EXPECT_GT(machine->inside.bytes_per_s, 1e6);
  EXPECT_EQ(machine->device.name, "NVIDIA B200");
}

}  // namespace
}  // namespace delink::testing::bench_command_test
