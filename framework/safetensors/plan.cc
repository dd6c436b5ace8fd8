#include "framework/safetensors/plan.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/safetensors/file.h"
#include "framework/safetensors/folder.h"

namespace delink::safetensors {
namespace {

absl::Status Refused(const PlannedTensor& tensor, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("a tensor '", tensor.name, "' ", std::string(why)));
}

absl::StatusOr<int64_t> PlannedBytes(const PlannedTensor& tensor) {
  // Leaves room for the bytes before the tensor.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  int64_t bytes = SizeOf(tensor.type);
  for (const int64_t extent : tensor.shape) {
    DELINK_CHECK_GE(extent, 0) << tensor.name;
    if (extent != 0 && bytes > kMost / extent) {
      return Refused(tensor, "is larger than any file");
    }
    bytes *= extent;
  }
  return bytes;
}

// The tensors [first, last) of a plan, in the order of a file's data.
std::vector<size_t> InOrder(const Plan& plan, size_t first, size_t last) {
  std::vector<size_t> order(last - first);
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return plan.ElementSize(a) > plan.ElementSize(b);
  });
  return order;
}

std::string HeaderText(const Plan& plan, const std::vector<size_t>& order,
                       const std::vector<int64_t>& bytes) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  int64_t begin = 0;
  for (const size_t i : order) {
    const PlannedTensor& tensor = plan.tensors[i];
    absl::StrAppend(&text, ",", JsonText(nlohmann::json(tensor.name)),
                    R"(:{"dtype":")", std::string(ToString(tensor.type)),
                    R"(","shape":[)", absl::StrJoin(tensor.shape, ","),
                    R"(],"data_offsets":[)", begin, ",", begin + bytes[i],
                    "]}");
    begin += bytes[i];
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// Adds a file of the tensors [first, last); tensor i has bytes[i] bytes.
absl::Status AddFile(size_t first, size_t last,
                     const std::vector<int64_t>& bytes, Plan& plan) {
  const std::vector<size_t> order = InOrder(plan, first, last);
  const std::string text = HeaderText(plan, order, bytes);
  if (static_cast<int64_t>(text.size()) > kLongestHeader) {
    return Refused(plan.tensors[first],
                   "is the first tensor of a file whose header would exceed "
                   "100 MB");
  }
  Plan::File file;
  for (size_t i = 0; i < 8; ++i) {
    file.header += static_cast<char>(text.size() >> 8 * i & 0xFF);
  }
  file.header += text;
  file.bytes = static_cast<int64_t>(file.header.size());
  for (const size_t i : order) {
    plan.places[i] = {.file = plan.files.size(),
                      .begin = file.bytes,
                      .end = file.bytes + bytes[i]};
    file.bytes += bytes[i];
  }
  plan.files.push_back(std::move(file));
  return absl::OkStatus();
}

void NameFiles(Plan& plan) {
  const size_t count = plan.files.size();
  if (count == 1) {
    plan.files.front().name = kSingleName;
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    plan.files[i].name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, count);
  }
  nlohmann::json index;
  index["metadata"]["total_size"] = plan.total_bytes;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    index["weight_map"][plan.tensors[i].name] =
        plan.files[plan.places[i].file].name;
  }
  plan.index = JsonText(index, 2) + "\n";
}

}  // namespace

int64_t Plan::ElementSize(size_t tensor) const {
  return SizeOf(At(tensors, tensor).type);
}

absl::StatusOr<Plan> PlanFiles(std::vector<PlannedTensor> tensors,
                               int64_t shard_bytes) {
  DELINK_CHECK_GT(shard_bytes, 0);
  std::set<std::string_view> names = {"__metadata__"};
  std::vector<int64_t> bytes;
  Plan plan;
  for (const PlannedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Refused(tensor, tensor.name == "__metadata__"
                                 ? "cannot have this name: "
                                   "the file format reserves it"
                                 : "is there twice");
    }
    DELINK_ASSIGN_OR_RETURN(const int64_t size, PlannedBytes(tensor));
    if (size > std::numeric_limits<int64_t>::max() / 2 - plan.total_bytes) {
      return Refused(tensor, "makes the model larger than any disk");
    }
    plan.total_bytes += size;
    bytes.push_back(size);
  }
  plan.tensors = std::move(tensors);
  plan.places.resize(plan.tensors.size());
  size_t first = 0;
  int64_t taken = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > first && taken > shard_bytes - bytes[i]) {
      DELINK_RETURN_IF_ERROR(AddFile(first, i, bytes, plan));
      first = i;
      taken = 0;
    }
    taken += bytes[i];
  }
  DELINK_RETURN_IF_ERROR(AddFile(first, bytes.size(), bytes, plan));
  NameFiles(plan);
  return plan;
}

}  // namespace delink::safetensors
