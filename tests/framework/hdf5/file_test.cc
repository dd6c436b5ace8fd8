#include "framework/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/hdf5/hdf5.h"
#include "tests/framework/hdf5/crafted.h"
#include "tests/testing/temp_dir.h"

namespace delink::hdf5::file_test {
namespace {

using delink::testing::SmallDisk;
using delink::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
void RoundTrip() {
  const TempDir dir;
  std::vector<T> data(7 * 11 * 3);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<T>(i * 37);
  data[5] = std::numeric_limits<T>::max();
  data[6] = std::numeric_limits<T>::lowest();
  {
    auto file = File::Create(dir / "f.h5");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->WriteAll("/a/b/c", {7, 11, 3}, data.data()).ok());
    ASSERT_TRUE(file->Close().ok());
  }
  auto file = File::OpenReadOnly(dir / "f.h5");
  ASSERT_TRUE(file.ok()) << file.status();
  auto dataset = file->OpenDataset("/a/b/c");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->info().type, kElementTypeOf<T>);
  EXPECT_EQ(dataset->info().shape, (Shape{7, 11, 3}));
  EXPECT_FALSE(dataset->info().is_virtual);
  auto back = file->ReadAll<T>("a/b/c");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, data);
}

TEST(Hdf5File, EveryElementTypeRoundTrips) {
  RoundTrip<float>();
  RoundTrip<double>();
  RoundTrip<int32_t>();
  RoundTrip<int64_t>();
  RoundTrip<uint8_t>();
  RoundTrip<uint16_t>();
  RoundTrip<uint32_t>();
}

TEST(Hdf5File, FlatRangesAreWrittenAndRead) {
  const TempDir dir;
  auto file = File::Create(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  auto dataset = file->CreateDataset("x", ElementType::kI32, {5, 7});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<int32_t> all(35);
  std::iota(all.begin(), all.end(), 100);
  for (const auto& [begin, end] :
       {std::pair{0, 3}, {3, 4}, {4, 25}, {25, 25}, {25, 35}}) {
    ASSERT_TRUE(dataset->Write(begin, end - begin, all.data() + begin).ok());
  }
  for (int begin = 0; begin <= 35; ++begin) {
    for (int end = begin; end <= 35; ++end) {
      std::vector<int32_t> part(static_cast<size_t>(end - begin) + 1, -1);
      ASSERT_TRUE(dataset->Read(begin, end - begin, part.data()).ok());
      for (int i = begin; i < end; ++i) ASSERT_EQ(part[i - begin], 100 + i);
      ASSERT_EQ(part.back(), -1);
    }
  }
}

TEST(Hdf5File, PartsOfRowsAreRead) {
  const TempDir dir;
  File file = *File::Create(dir / "f.h5");
  std::vector<int32_t> all(2 * 3 * 5);
  std::iota(all.begin(), all.end(), 0);
  ASSERT_TRUE(file.WriteAll("x", {2, 3, 5}, all.data()).ok());
  const Dataset x = *file.OpenDataset("x");
  std::vector<int32_t> part(8);
  // Columns 1 and 2 of rows 1 to 4, over the end of the first matrix.
  ASSERT_TRUE(x.ReadRows(ElementType::kI32, 6, 4, 2, part.data()).ok());
  EXPECT_EQ(part, (std::vector<int32_t>{6, 7, 11, 12, 16, 17, 21, 22}));
  EXPECT_TRUE(x.ReadRows(ElementType::kI32, 6, 0, 2, part.data()).ok());
  EXPECT_FALSE(x.ReadRows(ElementType::kI32, 6, 6, 2, part.data()).ok());
  EXPECT_FALSE(x.ReadRows(ElementType::kF32, 6, 1, 2, part.data()).ok());
}

TEST(Hdf5File, EmptyDatasets) {
  const TempDir dir;
  auto file = File::Create(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  const float none = 0;
  ASSERT_TRUE(file->WriteAll("x", {0, 4}, &none).ok());
  auto back = file->ReadAll<float>("x");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->empty());
}

TEST(Hdf5File, AttributesRoundTrip) {
  const TempDir dir;
  const std::string longer(200'000, 'r');
  {
    auto file = File::Create(dir / "f.h5");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->CreateGroup("g/h").ok());
    ASSERT_TRUE(file->CreateGroup("g/h").ok());
    ASSERT_TRUE(file->SetInt("/", "step", -5).ok());
    ASSERT_TRUE(file->SetInt("/", "step", INT64_MIN).ok());
    ASSERT_TRUE(file->SetDouble("g/h", "loss", 0.1).ok());
    ASSERT_TRUE(file->SetText("g", "name", "žluť 🐎\n").ok());
    ASSERT_TRUE(file->SetText("g", "empty", "").ok());
    ASSERT_TRUE(file->SetText("g", "recipe", longer).ok());
    ASSERT_TRUE(file->Close().ok());
  }
  auto file = File::OpenReadOnly(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->GetInt("/", "step"), INT64_MIN);
  EXPECT_EQ(*file->GetDouble("g/h", "loss"), 0.1);
  EXPECT_EQ(*file->GetText("g", "name"), "žluť 🐎\n");
  EXPECT_EQ(*file->GetText("g", "empty"), "");
  EXPECT_EQ(*file->GetText("g", "recipe"), longer);
  EXPECT_EQ(*file->Attributes("g"),
            (std::map<std::string, AttributeValue>{
                {"name", "žluť 🐎\n"}, {"empty", ""}, {"recipe", longer}}));
  EXPECT_EQ(file->Attributes("/")->at("step"), AttributeValue(INT64_MIN));
  EXPECT_EQ(file->Attributes("g/h")->at("loss"), AttributeValue(0.1));
  EXPECT_FALSE(file->Attributes("none").ok());
  const absl::Status missing = file->GetInt("/", "none").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr("f.h5"), HasSubstr("'none'")));
  EXPECT_EQ(file->GetInt("g", "name").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Hdf5File, AttributesOfAnotherKindAreRefused) {
  const TempDir dir;
  ASSERT_TRUE(File::Create(dir / "f.h5")->Close().ok());
  for (const hid_t type : {H5T_NATIVE_INT64, H5T_NATIVE_OPAQUE}) {
    delink::testing::Craft(dir / "f.h5", [&](hid_t f) {
      if (H5Aexists(f, "two") > 0) H5Adelete(f, "two");
      const hsize_t count = type == H5T_NATIVE_INT64 ? 2 : 1;
      const hid_t space = H5Screate_simple(1, &count, nullptr);
      const hid_t made =
          H5Acreate2(f, "two", type, space, H5P_DEFAULT, H5P_DEFAULT);
      ASSERT_GE(made, 0);
      H5Aclose(made);
      H5Sclose(space);
    });
    const absl::Status status =
        File::OpenReadOnly(dir / "f.h5")->Attributes("/").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("f.h5"), HasSubstr("'two'")));
  }
}

TEST(Hdf5File, SoftLinksAndListing) {
  const TempDir dir;
  auto file = File::Create(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  const float value = 3;
  ASSERT_TRUE(file->WriteAll("blocks/0/w", {1}, &value).ok());
  ASSERT_TRUE(file->CreateSoftLink("/blocks/0/w", "blocks/1/w").ok());
  ASSERT_TRUE(file->CreateSoftLink("/nowhere", "blocks/2").ok());
  EXPECT_EQ(**file->SoftLinkTarget("blocks/1/w"), "/blocks/0/w");
  EXPECT_EQ(*file->SoftLinkTarget("blocks/0/w"), std::nullopt);
  EXPECT_FALSE(file->SoftLinkTarget("blocks/9/w").ok());
  EXPECT_EQ(file->ReadAll<float>("blocks/1/w")->at(0), 3);
  EXPECT_TRUE(file->Exists("/"));
  EXPECT_TRUE(file->Exists("/blocks/1/w"));
  EXPECT_FALSE(file->Exists("/blocks/2"));
  EXPECT_FALSE(file->Exists("/blocks/2/w"));
  EXPECT_FALSE(file->Exists("/none/none"));

  const auto children = file->List("blocks");
  ASSERT_TRUE(children.ok()) << children.status();
  ASSERT_EQ(children->size(), 3U);
  EXPECT_EQ((*children)[0].name, "0");
  EXPECT_EQ((*children)[0].kind, ChildKind::kGroup);
  EXPECT_EQ((*children)[2].kind, ChildKind::kSoftLink);
  EXPECT_EQ((*children)[2].target, "/nowhere");
  EXPECT_EQ(file->List("blocks/0")->at(0).kind, ChildKind::kDataset);
  ASSERT_TRUE(file->Remove("blocks/1/w").ok());
  EXPECT_FALSE(file->Exists("blocks/1/w"));
  EXPECT_TRUE(file->Exists("blocks/0/w"));
}

TEST(Hdf5File, ErrorsAreStatusesThatNameTheFile) {
  const TempDir dir;
  EXPECT_EQ(File::OpenReadOnly(dir / "none.h5").status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFile(dir / "text.h5", "not HDF5 at all").ok());
  const absl::Status text = File::OpenReadOnly(dir / "text.h5").status();
  EXPECT_THAT(std::string(text.message()), HasSubstr("text.h5"));
  auto file = File::Create(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  const float value = 3;
  ASSERT_TRUE(file->WriteAll("x", {1}, &value).ok());
  EXPECT_FALSE(file->WriteAll("x", {1}, &value).ok());
  EXPECT_FALSE(file->OpenDataset("y").ok());
  EXPECT_EQ(file->ReadAll<double>("x").status().code(),
            absl::StatusCode::kInvalidArgument);
  float two[2];
  EXPECT_EQ(file->OpenDataset("x")->Read(0, 2, two).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(Hdf5File, FullDiskIsReported) {
  const SmallDisk disk("256k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (needs root)";
  auto file = File::Create(disk.path() + "/f.h5");
  ASSERT_TRUE(file.ok());
  const std::vector<float> data(1 << 20);
  const absl::Status status = file->WriteAll("x", {1 << 20}, data.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free space"));
}

TEST(Hdf5File, DiskThatFillsUpBeforeCloseIsReported) {
  const SmallDisk disk("256k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (needs root)";
  auto file = File::Create(disk.path() + "/f.h5");
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(file->CreateGroup(absl::StrCat("g", i)).ok());
  }
  EXPECT_FALSE(
      WriteFile(disk.path() + "/filler", std::string(512 << 10, 'x')).ok());
  const absl::Status status = file->Close();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(Hdf5File, ThreadsShareTheLibrary) {
  const TempDir dir;
  auto file = File::Create(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  std::vector<int32_t> data(10'000);
  std::iota(data.begin(), data.end(), 0);
  ASSERT_TRUE(file->WriteAll("x", {100, 100}, data.data()).ok());
  std::vector<std::thread> threads;
  std::vector<int64_t> sums(4, 0);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        int32_t part[55];
        if (!file->OpenDataset("x")->Read(i * 50, 55, part).ok()) return;
        sums[t] += std::accumulate(part, part + 55, int64_t{0});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int64_t sum : sums) EXPECT_EQ(sum, sums[0]);
  EXPECT_GT(sums[0], 0);
}

}  // namespace
}  // namespace delink::hdf5::file_test
