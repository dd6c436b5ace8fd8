#include "recipes/schema/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "offload/rates/machine_rates.h"
#include "tests/testing/environment_variable.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::machine_file_test {
namespace {

using delink::testing::EnvironmentVariable;
using delink::testing::SourcePath;
using delink::testing::TempDir;
using offload::MachineRates;
using offload::RatedDevice;
using offload::UpdatePlace;
using offload::UpdateRate;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const RatedDevice kGpu{.kind = "cuda", .name = "Abacus 9"};

MachineRates SomeRates() {
  return {
      .version = "delink 9.8.7",
      .time = "2026-01-31T12:00:00Z",
      .name = "abaci",
      .nodes = 2,
      .devices = 3,
      .device = kGpu,
      .tier = {.memory = int64_t{80} << 30,
               .bytes_per_s = 18e9,
               .capability = 7.0,
               .price = 1.5,
               .watts = 300},
      .host_bytes = int64_t{1} << 40,
      .threads = 16,
      .load = 0.25,
      .quick = true,
      .pinned_memory = true,
      .pinned = {1e9, 2e9, 3e9, 4e9},
      .pageable = {5e9, 6e9, 7e9, 8e9},
      .memory = {.read = 9e9, .write = 10e9, .rewrite = 2e10, .triad = 11e9},
      .disk = {.bytes = int64_t{7} << 40,
               .read = 6e9,
               .write = 5e9,
               .both_read = 4e9,
               .both_write = 3e9},
      .inside = {.latency = 1e-6, .bytes_per_s = 300e9},
      .between = {.latency = 5e-6, .bytes_per_s = 25e9, .links = 2},
      .matmul = {{DType::kF32, 12e9},
                 {DType::kBF16, 13e9, 4096},
                 {DType::kBF16, 3e9, 16}},
      .updates = {{UpdatePlace::kHost, {}, 14e9},
                  {UpdatePlace::kDevice, {}, 15e9},
                  {UpdatePlace::kHost,
                   {.gradients = DType::kF32,
                    .master = MasterForm::kSplit,
                    .moments = StateStorage::kBlock8},
                   16e9},
                  {UpdatePlace::kHost,
                   {.weights = DType::kF32,
                    .gradients = DType::kF32,
                    .moments = StateStorage::kBF16},
                   17e9},
                  {UpdatePlace::kHost, {.master = MasterForm::kNone}, 1}},
      .kernels = {{.kernel = "matmul",
                   .dtype = DType::kBF16,
                   .threads = 3,
                   .m = 1,
                   .n = 2,
                   .k = 3,
                   .transpose_a = true,
                   .flops = 12,
                   .read = 18,
                   .written = 4,
                   .seconds = 5e-7},
                  {.kernel = "add", .read = 8, .written = 4, .seconds = 1e-7}},
      .kernel_latency = 3e-6,
      .slow = {{.node = 1, .speed = 0.5}}};
}

// The file with `before` replaced, which it must have.
std::string With(const std::string& before, const std::string& after) {
  std::string text = ToToml(SomeRates());
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before << " is not in\n" << text;
  return at == std::string::npos ? text
                                 : text.replace(at, before.size(), after);
}

TEST(MachineFile, ReadsBackEqual) {
  const TempDir dir;
  const std::string path = dir / "cache/delink/machine.toml";
  ASSERT_TRUE(WriteMachine(SomeRates(), path).ok());
  const auto rates = ReadMachine(path, kGpu);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(ToToml(*rates), ToToml(SomeRates()));
  EXPECT_EQ(rates->device, kGpu);
  EXPECT_EQ(rates->pinned.both_to_host, 4e9);
  EXPECT_EQ(rates->pageable.to_device, 5e9);
  EXPECT_EQ(rates->memory.rewrite, 2e10);
  EXPECT_EQ(rates->memory.triad, 11e9);
  EXPECT_TRUE(rates->quick);
  EXPECT_TRUE(rates->pinned_memory);
  EXPECT_EQ(rates->FlopsOf(DType::kBF16), 13e9);
  EXPECT_EQ(rates->FlopsOf(DType::kF64), 0);
  for (const UpdateRate& update : SomeRates().updates) {
    EXPECT_EQ(rates->ParamsPerSecond(update.place, update.forms),
              update.params_per_s);
  }
  EXPECT_EQ(rates->ParamsPerSecond(UpdatePlace::kDevice,
                                   {.master = MasterForm::kSplit}),
            0);
  EXPECT_EQ(rates->kernels, SomeRates().kernels);
  EXPECT_EQ(rates->kernel_latency, 3e-6);
  EXPECT_EQ(rates->ranks(), 6);
  EXPECT_EQ(rates->between.links, 2);
  EXPECT_EQ(rates->SpeedOf(0), 1);
  EXPECT_EQ(rates->SpeedOf(1), 0.5);
  EXPECT_EQ(rates->disk.bytes, int64_t{7} << 40);
  EXPECT_EQ(rates->disk.both_read, 4e9);
  EXPECT_EQ(rates->disk.both_write, 3e9);
  EXPECT_EQ(rates->tier.price, 1.5);
  EXPECT_FALSE(rates->runs());
}

TEST(MachineFile, AMissingFileSaysWhatToRun) {
  const TempDir dir;
  const absl::Status none = ReadMachine(dir / "no.toml", kGpu).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(none.message()),
            dir / "no.toml" +
                ": this machine's rates have not been measured yet; run delink "
                "bench --suite machine --device cuda");
}

TEST(MachineFile, AnotherDevicesFileIsNotTaken) {
  const TempDir dir;
  const std::string path = dir / "machine.toml";
  ASSERT_TRUE(WriteMachine(SomeRates(), path).ok());
  for (const RatedDevice& other :
       {RatedDevice{"cuda", "Abacus 8"}, RatedDevice{"cpu", "Abacus 9"}}) {
    const absl::Status foreign = ReadMachine(path, other).status();
    EXPECT_EQ(foreign.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(std::string(foreign.message()),
              path + ": has the rates of cuda 'Abacus 9', but this is " +
                  other.kind + " '" + other.name +
                  "'; run delink bench --suite machine" +
                  (other.kind == "cpu" ? "" : " --device cuda"));
  }
}

// What is wrong is one line with its place.
TEST(MachineFile, WhatIsWrongIsToldByName) {
  const std::string whole = ToToml(SomeRates());
  ASSERT_TRUE(ParseMachine(whole, "m.toml").ok());
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {whole.substr(0, whole.find("[pinned]") + 4), "m.toml:"},
      {"[run]\nthreads = 2\n", "has no [machine] table"},
      {With("[host]", "[hots]"), "hots: unknown key; did you mean 'host'?"},
      {With("memory = \"80GiB\"\n", ""),
       "device.memory: required, but not given"},
      {With("memory = \"80GiB\"", "memory = \"80GB\""),
       "device.memory: expected a size as \"20GiB\""},
      {With("both_to_host_bytes_per_s = 4e+09\n", ""),
       "pinned.both_to_host_bytes_per_s: required, but not given"},
      {With("both_to_host_bytes_per_s = 4e+09", "both_to_host_bytes_per_s = 0"),
       "pinned.both_to_host_bytes_per_s: 0 is out of range: above 0"},
      {With("inside.link_bytes_per_s = 3e+11", "inside.link_bytes_per_s = -1"),
       "network.inside.link_bytes_per_s: -1 is out of range: above 0"},
      {With("inside.latency_s = 1e-06\n", ""),
       "network.inside.latency_s: required, but not given"},
      {With("between.links = 2", "between.links = 4"),
       "network.between.links: 4 links, but a node has 3 device(s)"},
      {With("node = 1", "node = 2"),
       "slow[0].node: 2, but the machine has nodes 0 to 1"},
      {With("speed = 0.5", "speed = 0"),
       "slow[0].speed: 0 is out of range: above 0"},
      {With("speed = 0.5", "speed = 1.5"), "slow[0].speed: 1.5 is out of"},
      {whole + "[[slow]]\nnode = 1\nspeed = 0.5\n",
       "slow[1].node: 1, as slow[0].node"},
      {With("nodes = 2", "nodes = 0"), "machine.nodes: 0 is out of range"},
      {With("devices = 3", "devices = 1e30"),
       "machine.devices: expected an integer"},
      {With("kind = \"cuda\"", "kind = \"cdua\""), "did you mean 'cuda'?"},
      {With("watts = 300.0", "watts = nan"), "device.watts: nan is out of"},
      {With("[[updates]]\nplace = \"host\"", "[[updates]]\nplace = \"disk\""),
       "updates[0].place: expected one of"},
      {With("dtype = \"bf16\"", "dtype = \"fp8\""),
       "products[1].dtype: expected one of"},
  };
  for (const auto& [text, says] : cases) {
    const absl::Status status = ParseMachine(text, "m.toml").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    const std::string told(status.message());
    EXPECT_THAT(told, StartsWith("m.toml:"));
    EXPECT_THAT(told, HasSubstr(says));
    if (says != cases[2].says) {
      EXPECT_EQ(told.find('\n'), std::string::npos) << told;
    }
  }
}

// Networks and products, which a machine may need or not.
TEST(MachineFile, SaysWhatItsTopologyNeeds) {
  const auto told = [](void (*change)(MachineRates&)) {
    MachineRates machine = SomeRates();
    change(machine);
    return std::string(
        ParseMachine(ToToml(machine), "m.toml").status().message());
  };
  EXPECT_THAT(told([](MachineRates& m) { m.inside = {}; }),
              HasSubstr("network.inside: required, but not given: the machine "
                        "has 3 devices in a node"));
  EXPECT_THAT(told([](MachineRates& m) { m.between = {}; }),
              HasSubstr("network.between: required, but not given: the machine "
                        "has 2 nodes"));
  EXPECT_THAT(told([](MachineRates& m) { m.matmul.clear(); }),
              HasSubstr("products: required, but not given"));
  EXPECT_EQ(told([](MachineRates& m) {
              m.inside = m.between = {};
              m.nodes = m.devices = 1;
              m.pageable = {};
              m.disk = {};
              m.updates.clear();
              m.slow.clear();
            }),
            "");
}

// Of a damaged file of this machine.
TEST(MachineFile, ADamagedFileSaysWhatToRun) {
  const TempDir dir;
  const std::string path = dir / "machine.toml";
  std::ofstream(path) << "[machine]\nnodes = 1\n";
  EXPECT_EQ(std::string(ReadMachine(path, kGpu).status().message()),
            path +
                ": device.kind: required, but not given (\"cpu\" or \"cuda\": "
                "kind of device); run delink bench --suite machine --device "
                "cuda");
}

// Each number has its source.
TEST(MachineFile, BundledMachinesAreWholeAndSourced) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("machines"))) {
    const std::string path = entry.path();
    SCOPED_TRACE(path);
    const auto machine = ReadMachine(path);
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_EQ(machine->name, entry.path().stem());
    EXPECT_EQ(machine->device.kind, "cuda");
    EXPECT_EQ(machine->runs(), !machine->name.starts_with("v100"));
    EXPECT_GT(machine->FlopsOf(DType::kBF16), machine->FlopsOf(DType::kF32));
    // A number's comment begins with a source from the top of the file.
    std::string text;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      text += line + "\n";
      // Words have none.
      const size_t value = line.find(" = ");
      if (value == std::string::npos || line[0] == '#' ||
          (line[value + 3] == '"' && line.find("iB\"") == std::string::npos)) {
        continue;
      }
      const size_t comment = line.find("  # ");
      ASSERT_NE(comment, std::string::npos) << line;
      const size_t word = comment + 4;
      const std::string source =
          line.substr(word, line.find_first_of(":, ", word) - word);
      EXPECT_THAT(text, HasSubstr("\n# " + source + ": ")) << line;
    }
    ++files;
  }
  EXPECT_EQ(files, 6);
}

TEST(MachineFile, AreKeptInTheUsersCache) {
  const EnvironmentVariable home("HOME", "/hers");
  {
    const EnvironmentVariable cache("XDG_CACHE_HOME", "/var/hers");
    EXPECT_EQ(*offload::DefaultMachineRatesPath(),
              "/var/hers/delink/machine.toml");
  }
  for (const std::optional<std::string>& none :
       {std::optional<std::string>(), {""}, {"relative"}}) {
    const EnvironmentVariable cache("XDG_CACHE_HOME", none);
    EXPECT_EQ(*offload::DefaultMachineRatesPath(),
              "/hers/.cache/delink/machine.toml");
    const EnvironmentVariable homeless("HOME", std::nullopt);
    EXPECT_THAT(
        std::string(offload::DefaultMachineRatesPath().status().message()),
        HasSubstr("neither HOME nor XDG_CACHE_HOME"));
  }
}

// In a place where nobody may write the error is the file's.
TEST(MachineFile, WhereTheyCannotBeWrittenIsTold) {
  const TempDir dir;
  std::ofstream(dir / "file") << "text";
  const absl::Status status =
      WriteMachine(SomeRates(), dir / "file/machine.toml");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "file"));
}

}  // namespace
}  // namespace delink::machine_file_test
