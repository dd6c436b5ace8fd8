// A family of Hugging Face models as a table: which of its tensors is which of
// ours, and what its config.json says in our words, both ways.
//
// Adding a family is adding one of these to a ModelList (AddFamily,
// recipes/models/model_list.h), also for a kind of model of a user's own:
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

// A tensor of ours, and those of theirs that it is. In names "{i}" is the
// number of a block, from 0.
struct TensorRule {
  std::string ours;  // "blocks/{i}/attn/qkv/weight"
  // One; or as many as ours is stacked of (ParamSpec::stacked), in that order.
  std::vector<std::string> theirs;
  // Theirs are [in, out], as GPT-2's Conv1D has them, where ours are [out, in].
  bool transposed = false;
  // The first so many of theirs are of heads that turn with their position
  // (queries and keys): rows whose order is a matter of the rotary pairing.
  size_t rotated = 0;
};

struct Family {
  std::string model_type;    // in config.json: "llama"
  std::string architecture;  // the class with a head: "LlamaForCausalLM"
  std::string kind;          // of our model: "llama"
  // What names begin with, which those of a model without a head lack: folders
  // are read with it and without.
  std::string prefix;  // "model."
  std::vector<TensorRule> tensors;
  // Tensors that hold nothing that is learnt, which old versions have stored;
  // passed over.
  std::vector<std::string> buffers;

  // Our config of theirs, everything resolved. What it cannot express, and
  // what is no value, it tells the reader, and it need not stop there.
  std::function<std::unique_ptr<ModelConfig>(ConfigReader& theirs)> read;
  // Their config of ours, of this kind: every key that decides the model, in
  // the order in which it is to be written, model_type and architectures
  // aside. InvalidArgument, with the key of ours and the reason, where this
  // family has no such model.
  std::function<absl::Status(const ModelConfig& ours,
                             nlohmann::ordered_json& theirs)>
      write;
  // Keys of our [model] of which theirs say nothing that matters, since they
  // decide training alone: where a run begins with a folder's weights, its
  // recipe may have others.
  std::vector<std::string> own_keys = {};
  // The width of a head whose elements 2 i and 2 i + 1 turn together, where
  // theirs are i and i + width / 2: then the rows of rotated tensors go out in
  // their order (HalvesFromPairs). 0, or without the function: they are as
  // theirs. What `read` makes is always as theirs.
  std::function<int64_t(const ModelConfig& ours)> interleaved = {};
};

}  // namespace delink::huggingface
