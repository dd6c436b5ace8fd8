#include "framework/safetensors/writer.h"

#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/safetensors/folder.h"
#include "framework/safetensors/shard_file.h"

namespace delink::safetensors {

struct Writer::State {
  std::string dir;
  Plan plan;
  std::vector<std::unique_ptr<ShardFile>> files;  // as the plan's
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

absl::StatusOr<Writer> Writer::Create(const std::string& dir, Plan plan) {
  auto state = std::make_unique<State>();
  state->dir = dir;
  state->plan = std::move(plan);
  absl::Status status;
  for (const Plan::File& file : state->plan.files) {
    state->files.push_back(
        std::make_unique<ShardFile>(JoinPath(dir, file.name), file));
    if (status.ok()) status = state->files.back()->Begin();
  }
  for (const std::unique_ptr<ShardFile>& file : state->files) {
    if (status.ok() && !file->found()) status = file->WriteHeader();
  }
  if (!status.ok()) {
    for (const std::unique_ptr<ShardFile>& file : state->files) file->Remove();
    return status;
  }
  return Writer(std::move(state));
}

const Plan& Writer::plan() const { return state_->plan; }

bool Writer::done(size_t tensor) const {
  return state_->files[At(state_->plan.places, tensor).file]->found();
}

absl::Status Writer::Write(size_t tensor, int64_t first, int64_t count,
                           const void* bytes) {
  if (count == 0) return absl::OkStatus();
  const Plan::Place& place = At(state_->plan.places, tensor);
  const int64_t size = state_->plan.ElementSize(tensor);
  DELINK_CHECK(first >= 0 && count > 0 &&
               first <= (place.end - place.begin) / size - count)
      << state_->plan.tensors[tensor].name << ": " << count << " values from "
      << first << " on";
  DELINK_CHECK(!done(tensor)) << state_->plan.tensors[tensor].name;
  return state_->files[place.file]->Write(
      place.begin + first * size,
      {static_cast<const char*>(bytes), static_cast<size_t>(count * size)});
}

absl::StatusOr<std::vector<FileSum>> Writer::Finish() {
  std::vector<FileSum> sums;
  for (size_t i = 0; i < state_->files.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(const std::string digest,
                            state_->files[i]->Digest());
    sums.push_back({.name = state_->plan.files[i].name,
                    .digest = digest,
                    .bytes = state_->plan.files[i].bytes});
  }
  const std::string& index = state_->plan.index;
  if (!index.empty()) {
    DELINK_RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(state_->dir, kIndexName), index));
    sums.push_back({.name = kIndexName,
                    .digest = Sha256Hex(index),
                    .bytes = static_cast<int64_t>(index.size())});
  }
  DELINK_RETURN_IF_ERROR(SyncDirectory(state_->dir));
  return sums;
}

}  // namespace delink::safetensors
