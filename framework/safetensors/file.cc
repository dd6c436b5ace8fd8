#include "framework/safetensors/file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/base/strict_json.h"

namespace delink::safetensors {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr char kMetadata[] = "__metadata__";

absl::Status BadFile(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(Printable(
      absl::StrCat(path, ": ", std::string(what),
                   "; the file is damaged or not a safetensors file: fetch it "
                   "again, or write it with the safetensors library")));
}

// The name in quotes, cut to a readable length.
std::string Quoted(std::string_view name) {
  constexpr size_t kLongest = 200;
  return absl::StrCat("'", std::string(name.substr(0, kLongest)),
                      name.size() > kLongest ? "..." : "", "'");
}

// The numbers of a list in a header; each must be below 2^63.
absl::StatusOr<std::vector<int64_t>> NumbersOf(const json& list,
                                               const char* key) {
  const auto refused = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        key, " is not a list of whole numbers from 0 to 2^63 - 1"));
  };
  if (!list.is_array()) return refused();
  std::vector<int64_t> numbers;
  for (const json& value : list) {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(kMost)) {
      return refused();
    }
    numbers.push_back(value.get<int64_t>());
  }
  return numbers;
}

// The bytes that a tensor takes; an error if no file can have as many.
absl::StatusOr<int64_t> BytesOf(const Entry& entry) {
  int64_t bytes = SizeOf(entry.type);
  for (const int64_t extent : entry.shape) {
    if (extent != 0 && bytes > kMost / extent) {
      return absl::InvalidArgumentError("its shape is too large");
    }
    bytes *= extent;
  }
  return bytes;
}

absl::StatusOr<Entry> EntryOf(const std::string& name, const json& value) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        "is no object of dtype, shape and data_offsets");
  }
  for (const auto& [key, ignored] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return absl::InvalidArgumentError(
          absl::StrCat("has the unknown key ", Quoted(key)));
    }
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) {
      return absl::InvalidArgumentError(absl::StrCat("has no ", key));
    }
  }
  const json& dtype = value["dtype"];
  if (!dtype.is_string()) return absl::InvalidArgumentError("dtype is no text");
  const auto& word = dtype.get_ref<const std::string&>();
  const std::optional<Type> type = TypeNamed(word);
  if (!type) {
    return absl::InvalidArgumentError(
        absl::StrCat("has the unknown dtype ", Quoted(word)));
  }
  Entry entry{.name = name, .type = *type};
  DELINK_ASSIGN_OR_RETURN(entry.shape, NumbersOf(value["shape"], "shape"));
  DELINK_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                          NumbersOf(value["data_offsets"], "data_offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return absl::InvalidArgumentError(
        "data_offsets are not a begin and an end, or the end is first");
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  DELINK_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(entry));
  if (bytes != entry.end - entry.begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", entry.end - entry.begin,
                     " bytes of data, but its shape and dtype take ", bytes));
  }
  return entry;
}

// Checks that entries, in the order of their data, fill it; returns where it
// ends.
absl::StatusOr<int64_t> EndOfData(const std::vector<Entry>& entries) {
  int64_t end = 0;
  std::string_view before = "the header";
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "between ", Quoted(before), " and ", Quoted(entry.name),
          entry.begin < end ? " data overlap by " : " there is a hole of ",
          entry.begin < end ? end - entry.begin : entry.begin - end, " bytes"));
    }
    end = entry.end;
    before = entry.name;
  }
  return end;
}

absl::StatusOr<std::map<std::string, std::string>> MetadataOf(
    const json& value) {
  const auto refused = [] {
    return absl::InvalidArgumentError("__metadata__ is no object of texts");
  };
  if (!value.is_object()) return refused();
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return refused();
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(RandomAccessFile opened,
                          RandomAccessFile::Open(path));
  File file(std::move(opened));
  DELINK_RETURN_IF_ERROR(file.ReadHeader());
  return file;
}

absl::Status File::ReadHeader() {
  const int64_t size = file_.size();
  if (size < kLengthBytes) {
    return BadFile(path(), absl::StrCat("is only ", size, " bytes long"));
  }
  uint64_t length = 0;
  DELINK_RETURN_IF_ERROR(file_.Read(0, kLengthBytes, &length));
  if (std::memcmp(&length, "version ", kLengthBytes) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path(),
        ": is a Git LFS pointer, not the weights; fetch the file itself "
        "(git lfs pull)"));
  }
  if (length > static_cast<uint64_t>(kLongestHeader)) {
    return BadFile(path(), absl::StrCat("its header would be ", length,
                                        " bytes long, more than 100 MB"));
  }
  const auto header_bytes = static_cast<int64_t>(length);
  data_ = kLengthBytes + header_bytes;
  if (size < data_) return FileCutShort(path(), size, data_);
  std::string text(length, '\0');
  DELINK_RETURN_IF_ERROR(file_.Read(kLengthBytes, header_bytes, text.data()));
  DELINK_ASSIGN_OR_RETURN(const int64_t end, ReadEntries(text));
  if (size - data_ < end) return FileCutShort(path(), size, data_ + end);
  if (size - data_ > end) {
    return absl::DataLossError(absl::StrCat(
        path(), ": too long: ", size - data_ - end,
        " bytes follow the last tensor; the file is damaged: fetch it again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> File::ReadEntries(std::string_view text) {
  if (text.empty() || text.front() != '{') {
    return BadFile(path(), "its header does not begin with '{'");
  }
  const absl::StatusOr<json> header = ParseStrictJson(text);
  if (!header.ok()) {
    return BadFile(path(), absl::StrCat("its header is not JSON: ",
                                        header.status().message()));
  }
  for (const auto& [name, value] : header->items()) {
    if (name == kMetadata) {
      auto metadata = MetadataOf(value);
      if (!metadata.ok()) {
        return BadFile(path(), std::string(metadata.status().message()));
      }
      metadata_ = *std::move(metadata);
      continue;
    }
    auto entry = EntryOf(name, value);
    if (!entry.ok()) {
      return BadFile(path(), absl::StrCat("its tensor ", Quoted(name), " ",
                                          entry.status().message()));
    }
    entries_.push_back(*std::move(entry));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  const absl::StatusOr<int64_t> end = EndOfData(entries_);
  if (!end.ok()) return BadFile(path(), std::string(end.status().message()));
  return end;
}

absl::Status File::ReadBytes(const Entry& entry, int64_t first, int64_t count,
                             void* bytes) const {
  DELINK_CHECK(0 <= first && 0 <= count && first <= entry.count() - count)
      << entry.name << ": " << count << " values from " << first << " on";
  const int64_t size = SizeOf(entry.type);
  return file_.Read(data_ + entry.begin + first * size, count * size, bytes);
}

absl::Status File::Read(const Entry& entry, int64_t first, int64_t count,
                        float* values) const {
  if (!HasValues(entry.type)) {
    return absl::InvalidArgumentError(Printable(absl::StrCat(
        path(), ": tensor ", Quoted(entry.name), " is ",
        std::string(ToString(entry.type)),
        "; only F32, BF16 and F16 weights are read: save the model in one of "
        "them")));
  }
  if (entry.type == Type::kF32) return ReadBytes(entry, first, count, values);
  constexpr int64_t kAtOnce = 1 << 18;
  std::vector<uint16_t> halves(static_cast<size_t>(std::min(kAtOnce, count)));
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t some = std::min(kAtOnce, count - done);
    DELINK_RETURN_IF_ERROR(ReadBytes(entry, first + done, some, halves.data()));
    Widen(entry.type, halves.data(),
          std::span(values + done, static_cast<size_t>(some)));
  }
  return absl::OkStatus();
}

}  // namespace delink::safetensors
