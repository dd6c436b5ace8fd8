// What a checkpoint keeps for its writer comes back by name, and is no part of
// what the checkpoint says of itself.
#include "framework/checkpoint/named_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::named_values_test {
namespace {

using ::testing::HasSubstr;

const NamedValues kValues = {
    {"count", std::numeric_limits<int64_t>::min()},
    {"real", 0.1},
    {"text", std::string()},
    {"list", std::vector<double>{1, -0.0, 1e300}},
    {"groups/0/name", std::string("a \"b\"\n")},
    {"groups/0/deep/list", std::vector<double>{3}},
    {"groups/1/count", int64_t{7}},
};

class NamedValuesTest : public ::testing::Test {
 protected:
  NamedValuesTest() { testing::DeclareToy(registry_, 2, 5); }
  std::string Write(const NamedValues& values) {
    const auto store = testing::MakeStore(*device_, registry_, 2, {});
    return *WriteCheckpoint(self_, dir_.path(),
                            {.step = 3,
                             .model = "toy",
                             .optimizer = "adamw",
                             .seed = 5,
                             .vocab = 9,
                             .program = "delink 9.9",
                             .values = values},
                            *store, {}, 0);
  }
  static void Change(const std::string& path,
                     const std::function<absl::Status(hdf5::File&)>& change) {
    hdf5::File index = *hdf5::File::OpenReadWrite(path + "/index.h5", "rank");
    ASSERT_TRUE(change(index).ok());
    ASSERT_TRUE(index.Close().ok());
  }

  const testing::TempDir dir_;
  const std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  SelfCommunicator self_;
};

TEST_F(NamedValuesTest, ComeBackBesideTheIdentity) {
  const auto header = ReadHeader(Write(kValues));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->values, kValues);
  EXPECT_EQ(header->step, 3);
  EXPECT_EQ(header->model, "toy");
  EXPECT_EQ(header->optimizer, "adamw");
  EXPECT_EQ(header->seed, 5);
  EXPECT_EQ(header->vocab, 9);
  EXPECT_EQ(header->program, "delink 9.9");
}

TEST_F(NamedValuesTest, AreAttributesAndDatasetsOfTheirNames) {
  const std::string path = Write(kValues);
  const hdf5::File index =
      *hdf5::File::OpenReadOnly(path + "/index.h5", "rank");
  EXPECT_EQ(*index.GetDouble("/", "real"), 0.1);
  EXPECT_EQ(*index.GetInt("/groups/1", "count"), 7);
  EXPECT_EQ(*index.ReadAll<double>("/groups/0/deep/list"),
            std::vector<double>{3});
  EXPECT_EQ(*index.GetText("/", "shared_gradient"), "sum");
}

TEST_F(NamedValuesTest, WhatIsNeitherNumberNorTextNorListIsRefused) {
  const std::string path = Write(kValues);
  Change(path, [](hdf5::File& index) {
    const int32_t number = 1;
    return index.WriteAll("/groups/1/other", {1}, &number);
  });
  const absl::Status status = ReadHeader(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/groups/1/other"));
}

TEST_F(NamedValuesTest, AnIdentityThatCannotBeIsRefused) {
  const struct {
    const char* name;
    int64_t value;
    const char* says;
  } rows[] = {
      {"step", -1, "its step is -1, not from 0 to 1000000000"},
      {"step", 4, "is of step 4, but its name has another step"},
      {"vocab", int64_t{1} << 31, "its vocab is 2147483648, not from 0 to"},
  };
  for (const auto& row : rows) {
    const std::string path = Write({});
    Change(path, [&](hdf5::File& index) {
      return index.SetInt("/", row.name, row.value);
    });
    EXPECT_THAT(std::string(ReadHeader(path).status().message()),
                HasSubstr(row.says));
  }
}

TEST(KeptValueTest, IsTakenByNameAndKind) {
  int64_t count = 4;
  double real = 2.5;
  std::string text = "word";
  std::vector<double> list = {1, 2};
  const std::vector<KeptValue> kept = {{"count", &count},
                                       {"group/real", &real},
                                       {"text", &text, true},
                                       {"list", &list, true}};
  NamedValues values = {{"more", int64_t{1}}};
  PutValues(kept, values);
  const NamedValues put = values;
  count = 0;
  real = 0;
  text.clear();
  list.clear();
  ASSERT_TRUE(TakeValues("", kept, values).ok());
  EXPECT_EQ(count, 4);
  EXPECT_EQ(real, 2.5);
  EXPECT_EQ(text, "word");
  EXPECT_EQ(list, (std::vector<double>{1, 2}));
  EXPECT_EQ(values, (NamedValues{{"more", int64_t{1}}}));

  text.clear();
  list.clear();
  PutValues(kept, values);
  EXPECT_FALSE(values.contains("text"));
  EXPECT_FALSE(values.contains("list"));
  EXPECT_TRUE(TakeValues("", kept, values).ok());
}

TEST(KeptValueTest, ErrorsNameThePlaceInTheFile) {
  double real = 0;
  int64_t count = 0;
  NamedValues values = {{"group/real", int64_t{1}}};
  EXPECT_EQ(TakeValues("step", {{"count", &count}}, values).message(),
            "step/index.h5: /: attribute 'count': missing; the file is of "
            "another kind or was written by another program");
  EXPECT_EQ(TakeValues("step", {{"group/real", &real}}, values).message(),
            "step/index.h5: /group: attribute 'real': is not a real number; "
            "the file was written by another program");
}

}  // namespace
}  // namespace delink::named_values_test
