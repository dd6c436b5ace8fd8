// The model files of llm.c: GPT-2, as its train_gpt2.py and train_gpt2cu write
// and read it.
//
// The header is 256 int32; the first eight are used: the magic 20240326, a
// version (3: fp32, 5: bf16), positions, tokens, layers, heads, width, rows of
// the token embedding. Then all values follow, of one type: each kind of tensor
// for all layers in order, then the next kind. The token embedding is padded
// with rows of zeros to a multiple of 128 rows. Everything is little-endian;
// matrices are [out, in], as ours.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/file.h"
#include "framework/base/random_access_file.h"
#include "framework/base/sha256.h"
#include "framework/module/value_end.h"
#include "framework/safetensors/type.h"
#include "recipes/models/gpt_config.h"

namespace delink::llm_c {

struct Header {
  safetensors::Type type = safetensors::Type::kF32;  // or kBF16
  int64_t max_seq = 0, vocab = 0, layers = 0, heads = 0, dim = 0;
  int64_t rows = 0;  // of the token embedding

  friend bool operator==(const Header&, const Header&) = default;
};

struct Tensor {
  std::string ours;    // "blocks/0/norm1/weight"
  std::string theirs;  // "ln1w[0]", the name in its C code
  int64_t first = 0;   // index of its first value in the file
  int64_t count = 0;   // of ours: without padding rows
};

// The tensors in the order of the file; the number of values in a file.
std::vector<Tensor> TensorsOf(const Header& header);
int64_t ValuesIn(const Header& header);

// The model of a file, with everything resolved; and the header of a model.
// InvalidArgument, with a line for each reason: llm.c cannot express the model.
// `path`: where the model is from, for messages.
GptConfig ConfigOf(const Header& header);
absl::StatusOr<Header> HeaderOf(const std::string& path,
                                const ModelConfig& config,
                                safetensors::Type type);

// Whether a file begins with the magic.
bool IsModelFile(const std::string& path);

// The tensors of a file as the source of a move: as f32, all on one rank.
class Values final : public ValueSource {
 public:
  // InvalidArgument: not such a file, another version, or impossible sizes;
  // DataLoss: shorter or longer than the header says.
  static absl::StatusOr<Values> Open(const std::string& path);

  const Header& header() const { return header_; }

  // kParameters alone.
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override;
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  Values(RandomAccessFile file, const Header& header);

  RandomAccessFile file_;
  Header header_;
  std::map<std::string, Tensor> tensors_;  // by our names
};

// A file as the sink of moves, which must be in the order of TensorsOf.
class Sink final : public ValueSink {
 public:
  // Replaces what is at `path`.
  static absl::StatusOr<Sink> Create(const std::string& path,
                                     const Header& header);

  // The next moves are to this tensor. Fills a gap before it with zeros.
  absl::Status Begin(const Tensor& tensor);
  // Call after all tensors. Fills the rest with zeros and syncs the file. The
  // name in the result is the path.
  absl::StatusOr<FileSum> Finish();

  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Wants(const Field& field,
                   const LogicalTensor& tensor) const override;
  // InvalidArgument: a finite value that is too large for bf16.
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;

 private:
  Sink(std::string path, OutputFile file, const Header& header);
  absl::Status Put(std::string_view bytes);
  absl::Status FillUpTo(int64_t first);

  std::string path_;
  OutputFile file_;
  Header header_;
  Sha256 digest_;
  int64_t bytes_ = 0;
  int64_t begin_ = 0;  // of the tensor that is written
  int64_t next_ = 0;   // value of the file
};

}  // namespace delink::llm_c
