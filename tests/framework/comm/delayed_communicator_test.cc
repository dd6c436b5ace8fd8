// Exchanges over a slow link, by a clock that the test sets: nothing here waits
// for real time.
#include "framework/comm/delayed_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/comm/communicator_cases.h"

namespace delink::delayed_communicator_test {
namespace {

using ::testing::HasSubstr;

// 1000 ns until something is there, and a byte takes 10.
constexpr Link kSlow{.latency = 1e-6, .bytes_per_second = 1e8};

// One of two ranks, with a clock of its own, of which all that is posted before
// Meet is told.
struct Rank {
  Communicator& near;  // undelayed
  std::unique_ptr<Communicator> far;
  int64_t& time;

  int number() const { return near.rank(); }
  absl::Status Meet() const { return Barrier(near); }
  // Not complete a moment before, then complete.
  void ExpectAt(int64_t due, Pending& pending) const {
    time = due - 1;
    EXPECT_FALSE(pending.Test().value()) << "before " << due;
    time = due;
    EXPECT_TRUE(pending.Test().value()) << due;
  }
};

absl::Status RunAll(int ranks, const std::function<absl::Status(Rank&)>& body) {
  return RunRanks(ranks, [&](Communicator& comm) -> absl::Status {
    int64_t time = 0;
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> inner,
                            comm.Split(0, comm.rank()));
    DELINK_ASSIGN_OR_RETURN(
        std::unique_ptr<Communicator> far,
        DelayExchanges(std::move(inner), kSlow, [&time] { return time; }));
    Rank rank{comm, std::move(far), time};
    return body(rank);
  });
}

absl::Status RunTwo(const std::function<absl::Status(Rank&)>& body) {
  return RunAll(2, body);
}

TEST(DelayedCommunicatorTest, ATransferIsDueAfterBothHavePosted) {
  EXPECT_EQ(RunTwo([](Rank& rank) -> absl::Status {
              std::vector<uint8_t> bytes(20, rank.number() == 0 ? 7 : 0);
              rank.time = rank.number() == 0 ? 100 : 500;
              const auto pending =
                  rank.number() == 0
                      ? rank.far->Send(bytes.data(), 20, DType::kU8, 1, 3)
                      : rank.far->Recv(bytes.data(), 20, DType::kU8, 0, 3);
              DELINK_RETURN_IF_ERROR(rank.Meet());
              rank.ExpectAt(500 + 200 + 1000, *pending);
              EXPECT_EQ(bytes, std::vector<uint8_t>(20, 7));
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

// Latencies of one way overlap, bytes do not; the other way is another link.
TEST(DelayedCommunicatorTest, AWaySendsOneAfterTheOther) {
  EXPECT_EQ(RunTwo([](Rank& rank) -> absl::Status {
              const int other = 1 - rank.number();
              std::vector<uint8_t> first(100), second(30), back(50);
              const bool sends = rank.number() == 0;
              const auto post = [&](bool to, std::vector<uint8_t>& bytes,
                                    int tag) {
                const auto count = static_cast<int64_t>(bytes.size());
                return to ? rank.far->Send(bytes.data(), count, DType::kU8,
                                           other, tag)
                          : rank.far->Recv(bytes.data(), count, DType::kU8,
                                           other, tag);
              };
              const auto a = post(sends, first, 0);
              rank.time = 10;
              const auto b = post(sends, second, 1);
              const auto c = post(!sends, back, 0);
              DELINK_RETURN_IF_ERROR(rank.Meet());
              rank.time = 0;
              for (Pending* const pending : {a.get(), b.get(), c.get()}) {
                EXPECT_FALSE(pending->Test().value());
              }
              rank.ExpectAt(10 + 500 + 1000, *c);
              rank.ExpectAt(1000 + 1000, *a);
              rank.ExpectAt(1000 + 300 + 1000, *b);
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

// Each of three ranks sends 100 bytes to each other: one after the other.
TEST(DelayedCommunicatorTest, ARankSendsToOneAfterTheOther) {
  EXPECT_EQ(RunAll(3,
                   [](Rank& rank) -> absl::Status {
                     std::vector<uint8_t> sent(100), received(200);
                     std::vector<std::unique_ptr<Pending>> to, from;
                     for (const int by : {1, 2}) {
                       const int next = (rank.number() + by) % 3;
                       const int before = (rank.number() + 3 - by) % 3;
                       to.push_back(rank.far->Send(sent.data(), 100, DType::kU8,
                                                   next, 0));
                       from.push_back(
                           rank.far->Recv(&received[size_t(100) * (by - 1)],
                                          100, DType::kU8, before, 0));
                     }
                     DELINK_RETURN_IF_ERROR(rank.Meet());
                     for (const auto& second : {&to[1], &from[1]}) {
                       EXPECT_FALSE((*second)->Test().value());
                     }
                     rank.ExpectAt(1000 + 1000, *to[0]);
                     rank.ExpectAt(1000 + 1000, *from[0]);
                     rank.ExpectAt(2000 + 1000, *to[1]);
                     rank.ExpectAt(2000 + 1000, *from[1]);
                     return absl::OkStatus();
                   }),
            absl::OkStatus());
}

TEST(DelayedCommunicatorTest, CollectivesAreDueByWhatARankMustSend) {
  EXPECT_EQ(
      RunTwo([](Rank& rank) -> absl::Status {
        Communicator& far = *rank.far;
        std::vector<float> whole(8, static_cast<float>(rank.number())), part(4);
        const auto expect =
            [&](int64_t took,
                const std::function<std::unique_ptr<Pending>()>& post)
            -> absl::Status {
          const int64_t begin = rank.time + 10;
          rank.time = begin - rank.number();  // rank 0 is the last
          const auto pending = post();
          DELINK_RETURN_IF_ERROR(rank.Meet());
          rank.ExpectAt(begin + took + 1000, *pending);
          return absl::OkStatus();
        };
        DELINK_RETURN_IF_ERROR(expect(16 * 10, [&] {
          return far.ReduceScatter(whole.data(), part.data(), 4, DType::kF32,
                                   ReduceOp::kSum);
        }));
        EXPECT_EQ(part.front(), 1);
        DELINK_RETURN_IF_ERROR(expect(16 * 10, [&] {
          return far.AllGather(whole.data(), 4, DType::kF32);
        }));
        EXPECT_EQ(whole, (std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1}));
        DELINK_RETURN_IF_ERROR(expect(32 * 10, [&] {
          return far.AllReduce(whole.data(), 8, DType::kF32, ReduceOp::kSum);
        }));
        EXPECT_EQ(whole.back(), 2);
        return expect(32 * 10, [&] {
          return far.Broadcast(whole.data(), 8, DType::kF32, 1);
        });
      }),
      absl::OkStatus());
}

TEST(DelayedCommunicatorTest, WhatIsSplitOffHasALinkOfItsOwn) {
  EXPECT_EQ(
      RunTwo([](Rank& rank) -> absl::Status {
        DELINK_ASSIGN_OR_RETURN(const auto part,
                                rank.far->Split(0, rank.number()));
        std::vector<uint8_t> a(200), b(200);
        const auto first = rank.far->AllGather(a.data(), 100, DType::kU8);
        const auto other = part->AllGather(b.data(), 100, DType::kU8);
        DELINK_RETURN_IF_ERROR(rank.Meet());
        rank.ExpectAt(1000 + 1000, *first);
        rank.ExpectAt(1000 + 1000, *other);
        DELINK_ASSIGN_OR_RETURN(const auto alone,
                                rank.far->Split(rank.number(), 0));
        EXPECT_TRUE(alone->AllGather(a.data(), 1, DType::kU8)->Test().value());
        return absl::OkStatus();
      }),
      absl::OkStatus());
}

// An error does not wait for its time, which never comes.
TEST(DelayedCommunicatorTest, ErrorsComeOut) {
  const absl::Status status = RunTwo([](Rank& rank) -> absl::Status {
    if (rank.number() == 1) return absl::DataLossError("no more");
    float value = 0;
    return rank.far->AllReduce(&value, 1, DType::kF32, ReduceOp::kSum)->Wait();
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1: no more"));
}

// What it does is what the communicator under it does, in every case.
TEST(DelayedCommunicatorTest, DoesWhatAllDo) {
  for (const testing::CommunicatorCase& test_case :
       testing::kCommunicatorCases) {
    EXPECT_EQ(RunRanks(3,
                       [&](Communicator& comm) -> absl::Status {
                         DELINK_ASSIGN_OR_RETURN(auto inner,
                                                 comm.Split(0, comm.rank()));
                         DELINK_ASSIGN_OR_RETURN(
                             const auto far,
                             DelayExchanges(
                                 std::move(inner),
                                 {.latency = 1e-6, .bytes_per_second = 1e10}));
                         return test_case.check(*far);
                       }),
              absl::OkStatus())
        << test_case.name;
  }
}

TEST(LinkTest, IsReadFromText) {
  const absl::StatusOr<Link> link = ParseLink("0.005,1e9");
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->latency, 0.005);
  EXPECT_EQ(link->BusySeconds(500'000'000), 0.5);
  EXPECT_EQ(Link().BusySeconds(1 << 20), 0);
  for (const char* bad : {"", "1", "1,0", "-1,5", "1,nan", "1,2,3", "5ms,1"}) {
    EXPECT_THAT(std::string(ParseLink(bad).status().message()),
                HasSubstr("give its latency in seconds"))
        << bad;
  }
  // Of three ranks each keeps its part to itself.
  EXPECT_EQ(SentInParts(300, 3), 200);
  EXPECT_EQ(SentForSum(300, 3), 400);
}

}  // namespace
}  // namespace delink::delayed_communicator_test
