// What memory is taken for, and what people are told of it.
#include "framework/device/ledger.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace delink::testing::ledger_test {
namespace {

TEST(MemoryLedger, AddsUpByKind) {
  MemoryLedger ledger;
  const char keys[4] = {};
  EXPECT_EQ(ledger.ToString(), "nothing");
  ledger.Take(&keys[0], 1024, "weights of blocks/0/attention");
  ledger.Take(&keys[1], 2048, "weights of head");
  ledger.Take(&keys[2], 100, "slots");
  EXPECT_EQ(ledger.ToString(), "weights 3.0 KiB in 2, slots 100 B");
  EXPECT_EQ(ledger.bytes(), 3172);
  ledger.Give(&keys[0]);
  ledger.Give(&keys[2]);
  ledger.Take(&keys[3], 512, "slots");
  EXPECT_EQ(ledger.ToString(), "weights 2.0 KiB, slots 512 B");
  EXPECT_EQ(ledger.bytes(), 2560);
  EXPECT_EQ(ledger.highest(), 3172);
  EXPECT_EQ(ledger.takes(), 4);
  const std::vector<MemoryLedger::Entry> entries = ledger.entries();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].kind, "weights");
  EXPECT_EQ(entries[0].blocks, 1);
  EXPECT_EQ(entries[0].highest, 3072);
  EXPECT_EQ(entries[1].highest, 512);
}

TEST(MemoryLedger, ManyThreadsAtATime) {
  MemoryLedger ledger;
  std::vector<std::thread> threads;
  std::vector<std::string> keys(8);
  for (std::string& key : keys) {
    threads.emplace_back([&ledger, &key] {
      for (int i = 0; i < 1000; ++i) {
        ledger.Take(&key, 10, "tensors");
        ledger.Give(&key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.bytes(), 0);
  EXPECT_EQ(ledger.takes(), 8000);
  EXPECT_LE(ledger.highest(), 80);
}

TEST(MemoryLedger, ALimitHoldsAmongThreads) {
  MemoryLedger ledger;
  std::vector<std::thread> threads;
  std::vector<std::string> keys(8);
  for (std::string& key : keys) {
    threads.emplace_back([&ledger, &key] {
      for (int i = 0; i < 1000; ++i) {
        if (ledger.TakeWithin(25, &key, 10, "tensors")) ledger.Give(&key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.bytes(), 0);
  EXPECT_GT(ledger.takes(), 0);
  EXPECT_LE(ledger.highest(), 20);
}

TEST(MemoryLedgerDeathTest, WhatWasNotTakenCannotBeGivenBack) {
  MemoryLedger ledger;
  const char key = 0;
  EXPECT_DEATH(ledger.Give(&key), "not taken");
}

}  // namespace
}  // namespace delink::testing::ledger_test
