// A checkpoint: one bit flipped anywhere, which its digests must find; or the
// index or a writer's file as another program might have written it, with
// digests that fit.
#include <algorithm>

#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "recipes/run/position/saved_run.h"
#include "tests/framework/module/toy_model.h"
#include "tests/fuzz/edits.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_dir.h"

namespace delink::fuzz {
namespace {

constexpr int kBlocks = 3;

// Two parts, one of two tensors: opening each is what takes the time.
void Declare(ParamRegistry& registry) {
  const Scope root(registry);
  root.Layer(0, "embed").Param("weight", {.shape = {5, 2}});
  for (int i = 0; i < kBlocks; ++i) {
    const Scope block =
        root.Layer(i + 1, "blocks/" + std::to_string(i)).Part("attention");
    (block / "attn" / "qkv").Param("weight", {.shape = {3, 2}});
    (block / "attn" / "out").Param("weight", {.shape = {2, 2}});
  }
}

// A model, its checkpoint with some of it shared, and a store to load into.
struct Toy {
  Toy() {
    Declare(registry);
    device = NewCpuDevice();
    sharing = testing::ShareAll(kBlocks, {"attention"});
    store = testing::MakeStore(*device, registry, kBlocks, sharing);
    store->InitWeights(1);
    const SavedRun run = {
        .tokens = 70,
        .samples = 14,
        .stage = "pseudo",
        .stage_losses = {3, 2, 1},
        .stage_probes = {2, 5, 4, 6, 3, 1},
        .validation = {3, 7, 3, 0},
        .skipped = {1, 0, 2, 3},
        .corpus = "none",
        .sources = {{.name = "data", .corpus = "none", .samples = 14}}};
    const CheckpointHeader header = {.step = 7,
                                     .model = "toy",
                                     .optimizer = "adamw",
                                     .values = run.Values()};
    const auto written = WriteCheckpoint(self, dir.path(), header, *store,
                                         {{"recipe.toml", "seed = 1\n"}}, 0);
    DELINK_CHECK(written.ok()) << written.status().ToString();
    folder = std::make_unique<Folder>(*written);
    what.objects = {"/",           "/model",        "/optimizer",
                    "/stage",      "/stage/losses", "/stage/probes",
                    "/validation", "/skipped",      "/sources/0"};
    const auto tensors = ListTensors(*written);
    DELINK_CHECK(tensors.ok());
    for (const TensorInfo& tensor : *tensors) {
      what.objects.push_back("/model/" + tensor.name);
      what.objects.push_back("/optimizer/" + tensor.name);
      what.objects.push_back("/optimizer/" + tensor.name + "/m");
    }
    // As a writer's file calls them.
    for (const char* name :
         {"/weight/blocks/0/attention", "/m/blocks/0/attention",
          "/weight/embed/embedding"}) {
      what.objects.emplace_back(name);
    }
    what.attributes = WordsOf(
        "format|step|tokens|samples|stage|seed|stage_index|stage_begin_step|"
        "vocab|model|optimizer|corpus|seconds|updates|stage_begin_samples|name|"
        "epochs|share");
    what.files = {"rank-00000.h5", "index.h5",    ".",
                  "none.h5",       "/etc/passwd", "../a.txt"};
  }

  ParamRegistry registry;
  std::unique_ptr<Device> device;
  SharingMap sharing;
  std::unique_ptr<ParamStore> store;
  SelfCommunicator self;
  testing::TempDir dir;
  std::unique_ptr<Folder> folder;
  Editable what;
};

// What resuming, evaluating and inspecting do.
absl::Status Use(Toy& toy, const std::string& path) {
  const absl::Status whole = VerifyCheckpoint(toy.self, path);
  MustSay(whole);
  if (!whole.ok()) return whole;
  const auto run = SavedRun::Read(path);
  MustSay(run.status());
  const auto tensors = ListTensors(path);
  MustSay(tensors.status());
  const auto sharing = ReadSharing(path, toy.registry, kBlocks);
  MustSay(sharing.status());
  if (sharing.ok()) {
    const auto store = ParamStore::Create(
        *toy.device, Layout::Create(toy.registry, kBlocks, *sharing, {}), 0,
        {});
    MustSay(store.status());
  }
  const absl::Status loaded = LoadCheckpoint(toy.self, path, *toy.store);
  MustSay(loaded);
  // The weights alone are the same reading, and less of it.
  if (loaded.ok()) DELINK_CHECK(LoadWeights(toy.self, path, *toy.store).ok());
  return run.ok() ? loaded : run.status();
}

}  // namespace

std::vector<std::string> Seeds() { return EditSeeds(); }
std::vector<std::string> Words() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Toy toy;
  const Folder& folder = *toy.folder;
  ByteStream bytes({reinterpret_cast<const char*>(data), size});
  if (size > 0 && bytes.Below(4) == 0) {
    const std::string flipped = FlipOne(folder, bytes.Number());
    // Comments of SHA256SUMS may change and be none the worse.
    const absl::Status status = Use(toy, folder.path());
    DELINK_CHECK(!status.ok() || flipped == kSumsName) << flipped;
    folder.Restore(flipped);
    return 0;
  }
  const std::string name = bytes.Below(4) == 0 ? "rank-00000.h5" : "index.h5";
  Edit(folder.File(name), toy.what, bytes);
  folder.SumAgain();
  const absl::Status status = Use(toy, folder.path());
  DELINK_CHECK(status.ok() || size > 0) << status.ToString();
  folder.Restore(name);
  return 0;
}

}  // namespace delink::fuzz
