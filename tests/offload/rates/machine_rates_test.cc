#include "offload/rates/machine_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::offload::machine_rates_test {
namespace {

using delink::testing::TempDir;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const RatedDevice kGpu{.kind = "cuda", .name = "Abacus 9"};

MachineRates SomeRates() {
  return {
      .version = "delink 9.8.7",
      .time = "2026-01-31T12:00:00Z",
      .device = kGpu,
      .threads = 16,
      .load = 0.25,
      .quick = true,
      .pinned_memory = true,
      .pinned = {1e9, 2e9, 3e9, 4e9},
      .pageable = {5e9, 6e9, 7e9, 8e9},
      .memory = {.read = 9e9, .write = 10e9, .rewrite = 2e10, .triad = 11e9},
      .matmul = {{DType::kF32, 12e9}, {DType::kBF16, 13e9}},
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
                  {UpdatePlace::kHost, {.master = MasterForm::kNone}, 1}}};
}

// How reading a file with this text ends.
absl::Status Reading(const std::string& text) {
  return ParseMachineRates(text, "m.json").status();
}

// A file in which the member at `pointer` is another, or none.
std::string With(const std::string& pointer, const json& value) {
  json file = json::parse(ToJson(SomeRates()));
  file[json::json_pointer(pointer)] = value;
  return file.dump();
}
std::string Without(const std::string& key) {
  json file = json::parse(ToJson(SomeRates()));
  EXPECT_EQ(file.erase(key), 1u);
  return file.dump();
}

// The environment's variable is this while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    if (value == nullptr) {
      unsetenv(name);
    } else {
      setenv(name, value, 1);
    }
  }
  ~Variable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

TEST(MachineRates, ComeBackAsTheyWereWritten) {
  const TempDir dir;
  const std::string path = dir / "cache/delink/machine.json";
  ASSERT_TRUE(WriteMachineRates(SomeRates(), path).ok());
  const auto rates = ReadMachineRates(path, kGpu);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(ToJson(*rates), ToJson(SomeRates()));
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
}

TEST(MachineRates, AMissingFileSaysWhatToRun) {
  const TempDir dir;
  const absl::Status none = ReadMachineRates(dir / "no.json", kGpu).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(none.message()),
            dir / "no.json" +
                ": this machine's rates have not been measured yet; run delink "
                "bench --suite machine --device cuda");
}

TEST(MachineRates, AnotherDevicesFileIsNotTaken) {
  const TempDir dir;
  const std::string path = dir / "machine.json";
  ASSERT_TRUE(WriteMachineRates(SomeRates(), path).ok());
  for (const RatedDevice& other :
       {RatedDevice{"cuda", "Abacus 8"}, RatedDevice{"cpu", "Abacus 9"}}) {
    const absl::Status foreign = ReadMachineRates(path, other).status();
    EXPECT_EQ(foreign.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(std::string(foreign.message()),
              path + ": has the rates of cuda 'Abacus 9', but this is " +
                  other.kind + " '" + other.name +
                  "'; run delink bench --suite machine" +
                  (other.kind == "cpu" ? "" : " --device cuda"));
  }
}

TEST(MachineRates, WhatIsDamagedIsToldByName) {
  const std::string whole = ToJson(SomeRates());
  ASSERT_TRUE(Reading(whole).ok());
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"", ""},
      {whole.substr(0, whole.size() / 2), ""},
      {"[1, 2]", "is JSON, but not a machine's rates"},
      {With("/format", "delink-bench"), "is JSON, but not a machine's rates"},
      {With("/format_version", 2),
       "has format 2, but this program reads format 1"},
      {Without("pinned"), "pinned"},
      {Without("host_memory"), "host_memory"},
      {With("/pinned", 3), "has a missing or wrong value"},
      {With("/threads", "many"), "has a missing or wrong value"},
      {With("/pinned/to_host_bytes_per_s", 0),
       "to_host_bytes_per_s is 0, but must be above 0 and finite"},
      {With("/host_memory/triad_bytes_per_s", -1e9),
       "triad_bytes_per_s is -1e+09, but must be above 0 and finite"},
      {With("/updates/0/parameters_per_s", nullptr),
       "has a missing or wrong value"},
      {With("/updates/0/master", "half"), "master is 'half'"},
      {With("/updates/1/place", "disk"), "place is 'disk'"},
      {With("/matmul/0/dtype", "fp8"), "dtype is 'fp8'"},
  };
  for (const auto& [text, says] : cases) {
    const absl::Status status = Reading(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    const std::string told(status.message());
    EXPECT_THAT(told, StartsWith("m.json: "));
    EXPECT_THAT(told, HasSubstr(says));
    EXPECT_THAT(told, HasSubstr("run delink bench --suite machine"));
    EXPECT_EQ(told.find('\n'), std::string::npos) << told;
  }
}

TEST(MachineRates, AreKeptInTheUsersCache) {
  const Variable home("HOME", "/hers");
  {
    const Variable cache("XDG_CACHE_HOME", "/var/hers");
    EXPECT_EQ(*DefaultMachineRatesPath(), "/var/hers/delink/machine.json");
  }
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable cache("XDG_CACHE_HOME", none);
    EXPECT_EQ(*DefaultMachineRatesPath(), "/hers/.cache/delink/machine.json");
    const Variable homeless("HOME", nullptr);
    EXPECT_THAT(std::string(DefaultMachineRatesPath().status().message()),
                HasSubstr("neither HOME nor XDG_CACHE_HOME"));
  }
}

// In a place where nobody may write the error is the file's.
TEST(MachineRates, WhereTheyCannotBeWrittenIsTold) {
  const TempDir dir;
  std::ofstream(dir / "file") << "text";
  const absl::Status status =
      WriteMachineRates(SomeRates(), dir / "file/machine.json");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "file"));
}

}  // namespace
}  // namespace delink::offload::machine_rates_test
