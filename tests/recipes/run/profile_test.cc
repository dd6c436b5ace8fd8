// What a profiler that listens is told of a step: NVTX lets a program bring its
// own.
#define NVTX_NO_IMPL  // it is in the library
#include "framework/device/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "framework/comm/self_communicator.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing::profile_test {
namespace {

// By depth: "step 1", " F(0,a) of embed", ... All on one thread.
struct Told {
  std::vector<std::string> ranges;
  std::vector<std::string> threads;
  int depth = 0;
};
Told g_told;

int OnPush(const char* name) {
  g_told.ranges.push_back(std::string(g_told.depth, ' ') + name);
  return g_told.depth++;
}
int OnPop() { return --g_told.depth; }
void OnThread(uint32_t, const char* name) { g_told.threads.push_back(name); }

int Listen(NvtxGetExportTableFunc_t get) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ==
      0) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] =
      reinterpret_cast<NvtxFunctionPointer>(OnPush);
  *table[NVTX_CBID_CORE_RangePop] =
      reinterpret_cast<NvtxFunctionPointer>(OnPop);
  *table[NVTX_CBID_CORE_NameOsThreadA] =
      reinterpret_cast<NvtxFunctionPointer>(OnThread);
  return 1;
}

}  // namespace
}  // namespace delink::testing::profile_test

extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr =
    delink::testing::profile_test::Listen;
}

namespace delink::testing::profile_test {
namespace {

TEST(Profile, HasEveryInstructionWithinItsStep) {
  SelfCommunicator comm;
  StepRig rig(comm, "all", {.layers = 2});
  g_told = {};
  ASSERT_TRUE(rig.executor().TrainStep(rig.Batch(7), 7, 1e-3).ok());
  EXPECT_EQ(g_told.depth, 0);
  std::vector<std::string> expected = {"step 7"};
  for (const Instruction& at : rig.executor().program().instructions) {
    expected.push_back(" " + ToString(at));
  }
  ASSERT_EQ(g_told.ranges.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_THAT(g_told.ranges[i], ::testing::StartsWith(expected[i]));
  }
  EXPECT_THAT(g_told.ranges,
              ::testing::Contains(::testing::HasSubstr("of blocks/1")));
}

TEST(Profile, NamesThreads) {
  g_told = {};
  NameThread("a lane");
  EXPECT_THAT(g_told.threads, ::testing::ElementsAre("a lane"));
}

}  // namespace
}  // namespace delink::testing::profile_test
