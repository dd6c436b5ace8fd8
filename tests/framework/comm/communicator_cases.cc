#include "tests/framework/comm/communicator_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/groups.h"
#include "framework/tensor/bfloat16.h"

namespace delink::testing {
namespace {

// One element, a prime, a block of the reduction and its neighbours.
constexpr int64_t kCounts[] = {0, 1, 7, 1023, 1024, 1025, 4099};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

template <typename T>
constexpr DType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  return DType::kU8;
}

// Small integers, negative ones too: sums are exact in every type and order.
template <typename T>
T Value(int rank, int64_t index) {
  return static_cast<T>((index * 31 + rank * 17) % 201 - 100);
}

template <typename T>
T Expected(int size, int64_t index, ReduceOp op) {
  T result = Value<T>(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const T x = Value<T>(rank, index);
    if (op == ReduceOp::kSum) result += x;
    if (op == ReduceOp::kMax) result = std::max(result, x);
    if (op == ReduceOp::kMin) result = std::min(result, x);
  }
  return result;
}

template <typename T>
std::vector<T> Values(int rank, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Value<T>(rank, i);
  return values;
}

template <typename T>
absl::Status ReduceScatterOf(Communicator& comm) {
  for (const int64_t count : kCounts) {
    for (const ReduceOp op : kOps) {
      const auto send = Values<T>(comm.rank(), count * comm.size());
      std::vector<T> recv(count, T{77});
      DELINK_RETURN_IF_ERROR(
          comm.ReduceScatter(send.data(), recv.data(), count, TypeOf<T>(), op)
              ->Wait());
      const int64_t first = comm.rank() * count;
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(recv[i], Expected<T>(comm.size(), first + i, op)) << i;
      }
      EXPECT_EQ(send, Values<T>(comm.rank(), count * comm.size()));
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status AllReduceOf(Communicator& comm) {
  for (const int64_t count : kCounts) {
    for (const ReduceOp op : kOps) {
      auto buffer = Values<T>(comm.rank(), count);
      DELINK_RETURN_IF_ERROR(
          comm.AllReduce(buffer.data(), count, TypeOf<T>(), op)->Wait());
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(buffer[i], Expected<T>(comm.size(), i, op)) << i;
      }
    }
  }
  return absl::OkStatus();
}

// Bytes of chunk `rank` of an all-gather.
std::vector<uint8_t> Bytes(int rank, int64_t count) {
  std::vector<uint8_t> bytes(count);
  for (int64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<uint8_t>(i * 7 + rank * 13 + 1);
  }
  return bytes;
}

// Of many magnitudes, so that the order of a sum shows in its last bits.
std::vector<float> Rounding(int rank, int64_t first, int64_t count) {
  std::vector<float> values(count);
  const RngKey key = Fold(KeyFromSeed(7), rank);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = first + i;
    const float size = std::exp2(static_cast<float>((index + rank) % 20 - 10));
    values[i] = (Uniform(Philox(key, index, 0)[0]) - 0.5F) * size;
  }
  return values;
}

template <typename T>
absl::Status OrderOfSumsOf(Communicator& comm) {
  // Several pieces of the MPI communicator, the last one short.
  constexpr int64_t kCount = 70001;
  const auto part = [&](int rank, int64_t first, int64_t count) {
    const std::vector<float> values = Rounding(rank, first, count);
    std::vector<T> rounded;
    for (const float value : values) rounded.push_back(T(value));
    return rounded;
  };
  const std::vector<T> send = part(comm.rank(), 0, kCount * comm.size());
  std::vector<T> recv(kCount);
  DELINK_RETURN_IF_ERROR(comm.ReduceScatter(send.data(), recv.data(), kCount,
                                            TypeOf<T>(), ReduceOp::kSum)
                             ->Wait());
  std::vector<float> sum(kCount, 0.0F);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::vector<T> theirs = part(rank, comm.rank() * kCount, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      sum[i] = rank == 0 ? float{theirs[i]} : sum[i] + theirs[i];
    }
  }
  const std::vector<T> expected(sum.begin(), sum.end());
  EXPECT_EQ(std::memcmp(expected.data(), recv.data(), kCount * sizeof(T)), 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReduceScatter(Communicator& comm) {
  DELINK_RETURN_IF_ERROR(ReduceScatterOf<float>(comm));
  DELINK_RETURN_IF_ERROR(ReduceScatterOf<double>(comm));
  DELINK_RETURN_IF_ERROR(ReduceScatterOf<int32_t>(comm));
  return ReduceScatterOf<int64_t>(comm);
}

absl::Status CheckAllReduce(Communicator& comm) {
  DELINK_RETURN_IF_ERROR(AllReduceOf<float>(comm));
  DELINK_RETURN_IF_ERROR(AllReduceOf<double>(comm));
  DELINK_RETURN_IF_ERROR(AllReduceOf<int32_t>(comm));
  return AllReduceOf<int64_t>(comm);
}

absl::Status CheckAllGather(Communicator& comm) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32,
                            DType::kI64, DType::kU8}) {
    for (const int64_t count : kCounts) {
      const int64_t bytes = count * SizeOf(dtype);
      std::vector<uint8_t> buffer(bytes * comm.size(), 0xEE);
      const auto mine = Bytes(comm.rank(), bytes);
      std::ranges::copy(mine, buffer.begin() + comm.rank() * bytes);
      DELINK_RETURN_IF_ERROR(
          comm.AllGather(buffer.data(), count, dtype)->Wait());
      for (int rank = 0; rank < comm.size(); ++rank) {
        const auto chunk = buffer.begin() + rank * bytes;
        EXPECT_EQ(std::vector(chunk, chunk + bytes), Bytes(rank, bytes));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBroadcast(Communicator& comm) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
    for (int root = 0; root < comm.size(); ++root) {
      for (const int64_t count : kCounts) {
        auto buffer = Bytes(comm.rank(), count * SizeOf(dtype));
        DELINK_RETURN_IF_ERROR(
            comm.Broadcast(buffer.data(), count, dtype, root)->Wait());
        EXPECT_EQ(buffer, Bytes(root, count * SizeOf(dtype)));
      }
    }
  }
  return absl::OkStatus();
}

// Everybody sends to the right, twice with different tags, and receives the
// second first.
absl::Status CheckRing(Communicator& comm) {
  if (comm.size() == 1) return absl::OkStatus();
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  for (const int64_t count : kCounts) {
    const auto a = Values<float>(comm.rank(), count);
    const auto b = Values<float>(comm.rank() + 50, count);
    std::vector<float> from_a(count), from_b(count);
    constexpr int kTagA = 3, kTagB = Communicator::kTags - 1;
    auto send_a = comm.Send(a.data(), count, DType::kF32, right, kTagA);
    auto send_b = comm.Send(b.data(), count, DType::kF32, right, kTagB);
    auto recv_b = comm.Recv(from_b.data(), count, DType::kF32, left, kTagB);
    auto recv_a = comm.Recv(from_a.data(), count, DType::kF32, left, kTagA);
    absl::Status status = recv_b->Wait();
    status.Update(recv_a->Wait());
    status.Update(send_a->Wait());
    status.Update(send_b->Wait());
    DELINK_RETURN_IF_ERROR(status);
    EXPECT_EQ(from_a, Values<float>(left, count));
    EXPECT_EQ(from_b, Values<float>(left + 50, count));
  }
  return absl::OkStatus();
}

absl::Status CheckManyUnderWay(Communicator& comm) {
  constexpr int kOperations = 40;
  constexpr int64_t kCount = 257;
  std::vector<std::vector<double>> buffers, sums;
  std::vector<std::unique_ptr<Pending>> pending;
  for (int i = 0; i < kOperations; ++i) {
    buffers.push_back(Values<double>(comm.rank() + i, kCount * comm.size()));
    sums.emplace_back(kCount);
  }
  for (int i = 0; i < kOperations; ++i) {
    pending.push_back(
        i % 2 == 0 ? comm.ReduceScatter(buffers[i].data(), sums[i].data(),
                                        kCount, DType::kF64, ReduceOp::kSum)
                   : comm.AllReduce(buffers[i].data(), kCount, DType::kF64,
                                    ReduceOp::kSum));
  }
  absl::Status status;
  for (int i = kOperations - 1; i >= 0; --i) status.Update(pending[i]->Wait());
  DELINK_RETURN_IF_ERROR(status);
  for (int i = 0; i < kOperations; ++i) {
    const int64_t first = i % 2 == 0 ? comm.rank() * kCount : 0;
    const auto& result = i % 2 == 0 ? sums[i] : buffers[i];
    for (int64_t k = 0; k < kCount; ++k) {
      double expected = 0;
      for (int rank = 0; rank < comm.size(); ++rank) {
        expected += Value<double>(rank + i, first + k);
      }
      EXPECT_EQ(result[k], expected);
    }
    EXPECT_TRUE(pending[i]->Test().value());
  }
  return absl::OkStatus();
}

// Odd and even ranks, in reversed order; and split once more.
absl::Status CheckSplit(Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(const auto half,
                          comm.Split(comm.rank() % 2, -comm.rank()));
  const int members = (comm.size() + 1 - comm.rank() % 2) / 2;
  EXPECT_EQ(half->size(), members);
  EXPECT_EQ(half->rank(), members - 1 - comm.rank() / 2);
  DELINK_ASSIGN_OR_RETURN(
      const int64_t sum,
      AllReduceScalar(*half, int64_t{comm.rank()}, ReduceOp::kSum));
  int64_t expected = 0;
  for (int r = comm.rank() % 2; r < comm.size(); r += 2) expected += r;
  EXPECT_EQ(sum, expected);

  DELINK_ASSIGN_OR_RETURN(const auto alone, half->Split(half->rank(), 0));
  EXPECT_EQ(alone->size(), 1);
  DELINK_ASSIGN_OR_RETURN(const auto same, comm.Split(5, 0));
  EXPECT_EQ(same->rank(), comm.rank());
  EXPECT_EQ(same->size(), comm.size());
  return Barrier(comm);
}

// Groups that have ranks in common, one twice, and one of all. Of each the
// order of ranks is that of its sums and chunks.
absl::Status CheckGroups(Communicator& comm) {
  std::vector<std::vector<int>> groups = {{0}};
  std::vector<int> all = {0};
  for (int rank = 1; rank < comm.size(); ++rank) {
    groups.push_back({rank - 1, rank});
    all.push_back(rank);
  }
  if (comm.size() > 3) {
    groups.insert(groups.end(), {{1, 3}, {0, 2}, {1, 3}});
  }
  groups.push_back(all);
  DELINK_ASSIGN_OR_RETURN(const auto made, SplitGroups(comm, groups));
  EXPECT_EQ(made.size(), groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<int>& group = groups[g];
    const auto at = std::find(group.begin(), group.end(), comm.rank());
    EXPECT_EQ(made[g] != nullptr, at != group.end());
    if (made[g] == nullptr) continue;
    const auto place = static_cast<int>(at - group.begin());
    EXPECT_EQ(made[g]->rank(), place);
    EXPECT_EQ(made[g]->size(), static_cast<int>(group.size()));
    // As a slab's gradient: reduced where it is owned, then gathered.
    constexpr int64_t kCount = 257;
    const int64_t whole = kCount * made[g]->size();
    auto x = Values<double>(comm.rank(), whole);
    std::vector<double> own(kCount);
    DELINK_RETURN_IF_ERROR(made[g]
                               ->ReduceScatter(x.data(), own.data(), kCount,
                                               DType::kF64, ReduceOp::kSum)
                               ->Wait());
    std::copy(own.begin(), own.end(), x.begin() + place * kCount);
    DELINK_RETURN_IF_ERROR(
        made[g]->AllGather(x.data(), kCount, DType::kF64)->Wait());
    for (int64_t i = 0; i < whole; ++i) {
      double expected = 0;
      for (const int rank : group) expected += Value<double>(rank, i);
      EXPECT_EQ(x[i], expected);
    }
  }
  return Barrier(comm);
}

absl::Status CheckScalars(Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(
      const double sum,
      AllReduceScalar(comm, comm.rank() + 0.25, ReduceOp::kSum));
  const int n = comm.size();
  EXPECT_EQ(sum, 0.5 * n * (n - 1) + 0.25 * n);
  // Beyond what a double holds.
  const int64_t big = (int64_t{1} << 53) + 1 + comm.rank();
  DELINK_ASSIGN_OR_RETURN(const int64_t top,
                          AllReduceScalar(comm, big, ReduceOp::kMax));
  EXPECT_EQ(top, (int64_t{1} << 53) + n);
  // One rank's overflow has to reach all.
  const double infinity = std::numeric_limits<double>::infinity();
  DELINK_ASSIGN_OR_RETURN(
      const double overflow,
      AllReduceScalar(comm, comm.rank() == n - 1 ? infinity : 1.0,
                      ReduceOp::kSum));
  EXPECT_EQ(overflow, infinity);
  return Barrier(comm);
}

absl::Status CheckAgreement(Communicator& comm) {
  EXPECT_TRUE(AgreeOnStatus(comm, absl::OkStatus()).ok());
  for (int culprit = 0; culprit < comm.size(); ++culprit) {
    // Later ranks fail too; the lowest is the one all hear of.
    const absl::Status mine =
        comm.rank() < culprit
            ? absl::OkStatus()
            : absl::NotFoundError(absl::StrCat("no file ", comm.rank()));
    const absl::Status agreed = AgreeOnStatus(comm, mine);
    const std::string expected =
        comm.size() == 1
            ? "no file 0"
            : absl::StrCat("rank ", culprit, ": no file ", culprit);
    EXPECT_EQ(agreed, absl::NotFoundError(expected));
    EXPECT_EQ(AgreeOnStatus(comm, agreed), agreed);
  }
  return absl::OkStatus();
}

absl::Status CheckStrings(Communicator& comm) {
  const std::string text = std::string("zero\0byte, caf\xc3\xa9 ", 17);
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::string& sent : {std::string(), text, text + text}) {
      const std::string mine = comm.rank() == root ? sent : "ignored";
      DELINK_ASSIGN_OR_RETURN(const std::string got,
                              BroadcastString(comm, mine, root));
      EXPECT_EQ(got, sent);
    }
  }
  return absl::OkStatus();
}

// Sums that round, in the order of ranks whatever carries them: the same bits
// from threads and from processes. Those of bf16 are f32 until they are whole.
absl::Status CheckOrderOfSums(Communicator& comm) {
  DELINK_RETURN_IF_ERROR(OrderOfSumsOf<float>(comm));
  return OrderOfSumsOf<BFloat16>(comm);
}

// Sums that round: the same bits again, and on all ranks.
absl::Status CheckRepeatable(Communicator& comm) {
  constexpr int64_t kCount = 5003;
  const std::vector<float> mine = Rounding(comm.rank(), 0, kCount);
  std::vector<float> first = mine;
  DELINK_RETURN_IF_ERROR(
      comm.AllReduce(first.data(), kCount, DType::kF32, ReduceOp::kSum)
          ->Wait());
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<float> again = mine;
    DELINK_RETURN_IF_ERROR(
        comm.AllReduce(again.data(), kCount, DType::kF32, ReduceOp::kSum)
            ->Wait());
    EXPECT_EQ(std::memcmp(first.data(), again.data(), kCount * 4), 0);
  }
  std::vector<float> root = first;
  DELINK_RETURN_IF_ERROR(
      comm.Broadcast(root.data(), kCount, DType::kF32, 0)->Wait());
  EXPECT_EQ(std::memcmp(first.data(), root.data(), kCount * 4), 0);
  return absl::OkStatus();
}

// Nothing is written beside the buffers.
absl::Status CheckCanaries(Communicator& comm) {
  constexpr int64_t kCount = 33;
  constexpr int32_t kCanary = 0x5AFE5AFE;
  const int64_t all = kCount * comm.size();
  const std::vector<int32_t> send(all, 1);
  std::vector<int32_t> buffer(all + 2, 1);
  buffer.front() = buffer.back() = kCanary;
  const auto intact = [&](int64_t last) {
    return buffer.front() == kCanary && buffer[last] == kCanary;
  };
  DELINK_RETURN_IF_ERROR(
      comm.AllGather(buffer.data() + 1, kCount, DType::kI32)->Wait());
  EXPECT_TRUE(intact(all + 1));
  DELINK_RETURN_IF_ERROR(
      comm.AllReduce(buffer.data() + 1, all, DType::kI32, ReduceOp::kSum)
          ->Wait());
  EXPECT_TRUE(intact(all + 1));
  buffer[kCount + 1] = kCanary;
  DELINK_RETURN_IF_ERROR(comm.ReduceScatter(send.data(), buffer.data() + 1,
                                            kCount, DType::kI32, ReduceOp::kSum)
                             ->Wait());
  EXPECT_TRUE(intact(kCount + 1));
  EXPECT_EQ(buffer[1], comm.size());
  return absl::OkStatus();
}

}  // namespace delink::testing
