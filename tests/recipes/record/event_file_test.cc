// TensorBoard's event files, read back by a reader that knows nothing of the
// writer.
#include "recipes/record/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "framework/base/file.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::event_file_test {
namespace {

using ::testing::StartsWith;

// One bit at a time.
uint32_t Crc32c(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc % 2 * 0x82F63B78);
  }
  return crc ^ 0xFFFFFFFF;
}

uint32_t Masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

template <typename T>
T Take(std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.erase(0, sizeof(T));
  return value;
}

// The fields of a message, in order: number, and the raw value.
std::vector<std::pair<int, std::string>> Fields(std::string bytes) {
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(0));
      bytes.erase(0, 1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  };
  std::vector<std::pair<int, std::string>> fields;
  while (!bytes.empty()) {
    const uint64_t key = varint();
    uint64_t size = 0;
    switch (key & 7) {
      case 0: {
        const uint64_t value = varint();
        fields.emplace_back(
            key >> 3,
            std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = varint();
        break;
      case 5:
        size = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.emplace_back(key >> 3, bytes.substr(0, size));
    bytes.erase(0, size);
  }
  return fields;
}

struct Event {
  int64_t step = 0;
  std::string version;
  bool start = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

// The one field of a message with this number.
std::string Field(const std::string& message, int number) {
  for (const auto& [field, value] : Fields(message)) {
    if (field == number) return value;
  }
  ADD_FAILURE() << "no field " << number;
  return "";
}

// What TensorBoard's plugin for text looks for.
std::string TextOf(const std::string& value) {
  EXPECT_EQ(Field(Field(Field(value, 9), 1), 1), "text");  // plugin's name
  const std::string tensor = Field(value, 8);
  EXPECT_EQ(Field(tensor, 1)[0], 7);  // DT_STRING
  EXPECT_EQ(Field(tensor, 2), "");    // no dimensions
  return Field(tensor, 8);
}

Event Parse(const std::string& message) {
  Event event;
  for (auto& [number, value] : Fields(message)) {
    if (number == 2) event.step = Take<int64_t>(value);
    if (number == 3) event.version = value;
    if (number == 7) event.start = Fields(value).at(0).second.at(0) == 1;
    if (number != 5) continue;
    for (const auto& [unused, summary] : Fields(value)) {
      auto fields = Fields(summary);
      const std::string& tag = fields.at(0).second;
      if (fields.at(1).first == 2) {
        event.scalars[tag] = Take<float>(fields.at(1).second);
      } else {
        event.texts[tag] = TextOf(summary);
      }
    }
  }
  return event;
}

std::vector<Event> ReadEvents(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      files.push_back(entry.path());
    }
  }
  EXPECT_EQ(files.size(), 1);
  std::ifstream in(files.at(0), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<Event> events;
  while (!bytes.empty()) {
    const std::string length_bytes = bytes.substr(0, 8);
    const auto length = Take<uint64_t>(bytes);
    EXPECT_EQ(Take<uint32_t>(bytes), Masked(Crc32c(length_bytes)));
    const std::string data = bytes.substr(0, length);
    bytes.erase(0, length);
    EXPECT_EQ(Take<uint32_t>(bytes), Masked(Crc32c(data)));
    events.push_back(Parse(data));
  }
  return events;
}

TEST(EventFile, Crc32cIsTheStandardOne) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283);  // RFC 3720's check value
  EXPECT_EQ(MaskedCrc32c("123456789"), Masked(0xE3069283));
}

TEST(EventFile, ReadsBack) {
  const TempDir dir;
  {
    auto file = EventFile::Create(dir / "", 41);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write(42, {{"a/b", 1.5}, {"c", -2e30}}).ok());
    ASSERT_TRUE(
        file->Write(int64_t{1} << 40, {{"a/b", NAN}, {"c", 0.25}}).ok());
    ASSERT_TRUE(file->WriteText(43, "note", std::string(300, 'x')).ok());
  }
  const std::vector<Event> events = ReadEvents(dir / "");
  ASSERT_EQ(events.size(), 5);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 42);
  EXPECT_EQ(events[2].step, 42);
  EXPECT_EQ(events[2].scalars,
            (std::map<std::string, float>{{"a/b", 1.5F}, {"c", -2e30F}}));
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
  EXPECT_EQ(events[3].scalars, (std::map<std::string, float>{{"c", 0.25F}}));
  EXPECT_EQ(events[4].step, 43);
  EXPECT_EQ(
      events[4].texts,
      (std::map<std::string, std::string>{{"note", std::string(300, 'x')}}));
}

TEST(EventFile, ARunWritesItsSteps) {
  const TinyRuns runs;
  const absl::Status status = runs.Run({.ranks = 2, .out = "run"});
  ASSERT_TRUE(status.ok()) << status;
  std::map<int64_t, float> losses, validations, norms;
  std::map<std::string, std::string> texts;
  std::vector<float> stages, flops;
  for (const Event& event : ReadEvents(runs.Folder("run"))) {
    texts.insert(event.texts.begin(), event.texts.end());
    if (event.scalars.contains("train/loss")) {
      stages.push_back(event.scalars.at("train/stage"));
      EXPECT_EQ(event.scalars.at("train/depth"), 4);
      flops.push_back(event.scalars.at("train/flops"));
      EXPECT_GT(event.scalars.at("speed/tokens_per_second"), 0);
      EXPECT_GT(event.scalars.at("speed/percent_of_peak"), 0);
      EXPECT_GT(event.scalars.at("memory/resident_bytes"), 1 << 20);
      EXPECT_GE(event.scalars.at("memory/peak_bytes"),
                event.scalars.at("memory/resident_bytes"));
    }
    const auto loss = event.scalars.find("train/loss");
    if (loss != event.scalars.end()) losses[event.step] = loss->second;
    const auto norm = event.scalars.find("norms/weight/head");
    if (norm != event.scalars.end()) norms[event.step] = norm->second;
    const auto validation = event.scalars.find("validation/loss");
    if (validation != event.scalars.end()) {
      validations[event.step] = validation->second;
    }
  }
  const std::vector<Step> steps = runs.Steps("run");
  ASSERT_EQ(losses.size(), steps.size());
  for (const Step& step : steps) {
    EXPECT_EQ(losses[step.step], static_cast<float>(step.loss));
  }
  ASSERT_EQ(stages.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(stages[i], steps[i].stage == "real" ? 1 : 0);
  }
  EXPECT_GT(flops.front(), 0);
  EXPECT_FLOAT_EQ(flops.back(),
                  static_cast<float>(steps.size()) * flops.front());
  EXPECT_THAT(texts["switch"], StartsWith("from pseudo to real, "));
  EXPECT_EQ(texts["recipe"],
            "```\n" + *ReadFile(runs.Folder("run") + "/recipe.toml") + "```\n");
  EXPECT_EQ(validations.size(), 2);
  std::map<int64_t, float> expected;
  for (const Norms& row : runs.NormRows("run")) {
    ASSERT_EQ(row.layers.back(), "head");
    expected[row.step] = static_cast<float>(row.weight.back());
  }
  EXPECT_EQ(expected.size(), 2);
  EXPECT_EQ(norms, expected);
}

}  // namespace
}  // namespace delink::testing::event_file_test
