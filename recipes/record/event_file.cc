#include "recipes/record/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Field numbers of the messages Event, Summary, Summary.Value, SummaryMetadata,
// TensorProto and SessionLog in tensorflow/core/util/event.proto and in
// summary.proto, tensor.proto and tensor_shape.proto of core/framework.
enum EventField {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7
};
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum MetadataField { kPluginData = 1, kDataClass = 4 };
enum PluginDataField { kPluginName = 1 };
constexpr uint64_t kTensorClass = 2;  // DataClass.DATA_CLASS_TENSOR
enum TensorField { kDType = 1, kShape = 2, kStringValue = 8 };
constexpr uint64_t kStringType = 7;  // DataType.DT_STRING
enum SessionLogField { kStatus = 1 };
constexpr uint64_t kStart = 1;  // SessionLog.SessionStatus

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
void AppendFixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value));
}

void AppendKey(std::string& out, int field, WireType type) {
  AppendVarint(out, static_cast<uint64_t>(field << 3 | type));
}

void AppendBytes(std::string& out, int field, std::string_view bytes) {
  AppendKey(out, field, kBytes);
  AppendVarint(out, bytes.size());
  out += bytes;
}

void AppendNumber(std::string& out, int field, uint64_t value) {
  AppendKey(out, field, kVarint);
  AppendVarint(out, value);
}

// An Event up to what it tells.
std::string BeginEvent(int64_t step) {
  const double now = std::chrono::duration<double>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  std::string event;
  AppendKey(event, kWallTime, kFixed64);
  AppendFixed(event, std::bit_cast<uint64_t>(now));
  AppendNumber(event, kStep, static_cast<uint64_t>(step));
  return event;
}

std::string SummaryValue(const std::string& tag, double value) {
  std::string bytes;
  AppendBytes(bytes, kTag, tag);
  AppendKey(bytes, kSimpleValue, kFixed32);
  AppendFixed(bytes, std::bit_cast<uint32_t>(static_cast<float>(value)));
  return bytes;
}

// A tensor without dimensions, for TensorBoard's plugin "text".
std::string TextValue(const std::string& tag, std::string_view text) {
  std::string plugin, metadata, tensor, bytes;
  AppendBytes(plugin, kPluginName, "text");
  AppendBytes(metadata, kPluginData, plugin);
  AppendNumber(metadata, kDataClass, kTensorClass);
  AppendNumber(tensor, kDType, kStringType);
  AppendBytes(tensor, kShape, "");
  AppendBytes(tensor, kStringValue, text);
  AppendBytes(bytes, kTag, tag);
  AppendBytes(bytes, kMetadata, metadata);
  AppendBytes(bytes, kTensor, tensor);
  return bytes;
}

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
    table[i] = crc;
  }
  return table;
}

}  // namespace

uint32_t MaskedCrc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  crc = ~crc;
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

absl::StatusOr<EventFile> EventFile::Create(const std::string& folder,
                                            int64_t step) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  // The process id distinguishes two runs within one second.
  std::string path =
      JoinPath(folder, absl::StrFormat("%s%010d.%s.%d", kEventFilePrefix,
                                       seconds, host, int{getpid()}));
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return FileError(errno, path, "create");
  EventFile events(std::move(path), file);
  std::string version = BeginEvent(0);
  AppendBytes(version, kFileVersion, "brain.Event:2");
  DELINK_RETURN_IF_ERROR(events.WriteRecord(version));
  std::string status;
  AppendNumber(status, kStatus, kStart);
  std::string start = BeginEvent(step + 1);
  AppendBytes(start, kSessionLog, status);
  DELINK_RETURN_IF_ERROR(events.WriteRecord(start));
  return events;
}

EventFile::EventFile(EventFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)) {}

EventFile::~EventFile() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status EventFile::Write(int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    if (std::isfinite(value)) {
      AppendBytes(summary, kValue, SummaryValue(tag, value));
    }
  }
  std::string event = BeginEvent(step);
  AppendBytes(event, kSummary, summary);
  return WriteRecord(event);
}

absl::Status EventFile::WriteText(int64_t step, const std::string& tag,
                                  std::string_view text) {
  std::string summary;
  AppendBytes(summary, kValue, TextValue(tag, text));
  std::string event = BeginEvent(step);
  AppendBytes(event, kSummary, summary);
  return WriteRecord(event);
}

absl::Status EventFile::WriteRecord(std::string_view data) {
  std::string record;
  AppendFixed(record, uint64_t{data.size()});
  AppendFixed(record, MaskedCrc32c(record));
  record += data;
  AppendFixed(record, MaskedCrc32c(data));
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() ||
      std::fflush(file_) != 0) {
    return FileError(errno, path_, "write");
  }
  return absl::OkStatus();
}

}  // namespace delink
