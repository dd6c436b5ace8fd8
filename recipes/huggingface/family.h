// A family of Hugging Face models as a table. It maps their tensors to ours,
// and converts between their config.json and our config.
//
// To add a family, also for a custom kind of model, add one of these to a
// ModelList (AddFamily, recipes/models/model_list.h):
//
//   huggingface::Family MyFamily() {
//     return {.model_type = "my",
//             .architecture = "MyForCausalLM",
//             .kind = "my",
//             .tensors = {{.ours = "embed/token/weight",
//                          .theirs = {"model.embed_tokens.weight"}},
//                         {.ours = "blocks/{i}/mixer/weight",
//                          .theirs = {"model.layers.{i}.mixer.weight"}}},
//             .read = ReadMyConfig,
//             .write = WriteMyConfig};
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "recipes/schema/model_config.h"

namespace delink::huggingface {

class ConfigReader;

// A tensor of ours, and the tensors of theirs that it consists of. In names,
// "{i}" is the number of a block, from 0. If ours is several matrices or
// vectors (EntriesOf), "{e}" in a name of theirs is the number of one, from 0;
// a name without it is one tensor with all of them, [E, ...].
struct TensorRule {
  std::string ours;  // "blocks/{i}/attn/qkv/weight"
  // One, or the parts that ours is stacked of (ParamSpec::stacked), in that
  // order.
  std::vector<std::string> theirs;
  // Theirs are [in, out], as in GPT-2's Conv1D; ours are [out, in], each of
  // several.
  bool transposed = false;
  // The first so many of theirs belong to heads with rotary positions (queries
  // and keys). The order of their rows depends on the rotary pairing.
  size_t rotated = 0;
};

struct Family {
  std::string model_type;    // in config.json: "llama"
  std::string architecture;  // the class with a head: "LlamaForCausalLM"
  std::string kind;          // of our model: "llama"
  // The prefix of names. Models without a head lack it, so folders are read
  // with and without it.
  std::string prefix;  // "model."
  std::vector<TensorRule> tensors;
  // Tensors without learnt values that old versions stored; ignored.
  std::vector<std::string> buffers;

  // Converts their config to ours, with everything resolved. Reports invalid
  // values, and what our config cannot express, to the reader, and may continue
  // after an error.
  std::function<std::unique_ptr<ModelConfig>(ConfigReader& theirs)> read;
  // Converts our config, of this kind, to theirs: every key that determines the
  // model, in the order of writing, except model_type and architectures.
  // InvalidArgument, with our key and the reason, if this family cannot express
  // the model.
  std::function<absl::Status(const ModelConfig& ours,
                             nlohmann::ordered_json& theirs)>
      write;
  // Keys of our [model] that only affect training. A run that begins with a
  // folder's weights may give them other values than the folder.
  std::vector<std::string> own_keys = {};
  // The head width, if our model rotates elements 2 i and 2 i + 1 together but
  // theirs i and i + width / 2. Then rows of rotated tensors are exported in
  // their order (HalvesFromPairs). 0, or no function: the order is the same.
  // The configs of `read` always have their order.
  std::function<int64_t(const ModelConfig& ours)> interleaved = {};
};

}  // namespace delink::huggingface
