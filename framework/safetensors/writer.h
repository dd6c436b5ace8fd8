// Writes a plan of safetensors files into a folder, a piece of a tensor at a
// time and in any order, with a SHA-256 of each file.
//
// A file has its name with ".partial" behind until all of it is written and
// synced. A folder whose writing was cut short may be gone on with: files that
// are whole stay, the others are begun afresh.
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
  // `dir` exists. Makes room for all files at once, so that a disk that is too
  // small (ResourceExhausted) says so before anything is computed. A file of
  // the plan that is there already is kept where it has the header and the
  // length that it should have, and is an error else: whoever goes on knows
  // that it is of the same values.
  static absl::StatusOr<Writer> Create(const std::string& dir, Plan plan);

  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();  // files that are not whole stay as far as they got

  const Plan& plan() const;

  // Whether a tensor's file was there already: then it is not written.
  bool done(size_t tensor) const;

  // Values [first, first + count) of a tensor, as they lie in the file. Every
  // value is written once; outside of a tensor is a check. Thread-safe. Pieces
  // that follow each other in a file cost least: their digest is taken from
  // `bytes`, that of others is taken when what is before them is there, from
  // the file.
  absl::Status Write(size_t tensor, int64_t first, int64_t count,
                     const void* bytes);

  // Once every value is written (a check): the index, and what the files are
  // called, with digests and lengths, the index last.
  absl::StatusOr<std::vector<FileSum>> Finish();

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace delink::safetensors
