// Writes a plan of safetensors files into a folder, a piece of a tensor at a
// time and in any order, with a SHA-256 of each file.
//
// A file's name ends in ".partial" until all of it is written and synced. After
// an interruption, writing can be resumed: complete files stay, the others are
// written anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/sha256.h"
#include "framework/safetensors/plan.h"

namespace delink::safetensors {

class Writer {
 public:
  // `dir` exists. Allocates all files at once, so that a full disk
  // (ResourceExhausted) shows before anything is computed. A file of the plan
  // that exists already is kept if its header and length are as planned;
  // otherwise it is an error. The caller must know that it has the same values.
  static absl::StatusOr<Writer> Create(const std::string& dir, Plan plan);

  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();  // files that are not whole stay as far as they got

  const Plan& plan() const;

  // Whether a tensor's file existed already and is not written.
  bool done(size_t tensor) const;

  // Values [first, first + count) of a tensor, as they lie in the file. Every
  // value is written once; the range must be inside the tensor (a check).
  // Thread-safe. Writing a file front to back is fastest: such pieces are
  // digested from `bytes`, others from the file, once all bytes before them are
  // written.
  absl::Status Write(size_t tensor, int64_t first, int64_t count,
                     const void* bytes);

  // Call it once every value is written (a check). Writes the index and returns
  // the names, digests and lengths of the files, the index last.
  absl::StatusOr<std::vector<FileSum>> Finish();

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace delink::safetensors
