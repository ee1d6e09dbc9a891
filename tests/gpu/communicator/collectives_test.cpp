// Collectives of ranks on GPUs: over NCCL and copy engines where each has a GPU of its own, through
// each other's memory where they share some. The sums' bits are those of fp32 in the order of
// ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "ckpt/base/error.h"
#include "tests/gpu/communicator/gpu_ranks.h"

namespace ferry {
namespace {

using kernels::Array;
using kernels::ConstArray;
using kernels::Type;
using test::decode;
using test::encode;
using test::GpuRank;
using testing::Each;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr Type kTypes[] = {Type::f32, Type::bf16, Type::f16};

struct Ranks {
  int size, gpus;
  bool copies = true;
};

// Numbers of the type whose sum depends on the order in which they are added.
std::vector<float> numbers(int rank, size_t count, Type type) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<float> x(count);
  for (float& one : x) {
    const auto exponent = static_cast<int>(random() % 12) - 38;
    one = std::ldexp(static_cast<float>(random()), exponent) * (random() % 2 == 0 ? 1.0F : -1.0F);
  }
  return decode(type, encode(type, x));
}

Bytes sum_by_rank(int size, size_t count, Type type) {
  std::vector<float> sum = numbers(0, count, type);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> x = numbers(rank, count, type);
    for (size_t i = 0; i < count; ++i) sum[i] += x[i];
  }
  return encode(type, sum);
}

class GpuCollectives : public testing::TestWithParam<Ranks> {
 protected:
  void SetUp() override {
    if (kernels::cuda::device_count() < GetParam().gpus) {
      GTEST_SKIP() << "needs " << GetParam().gpus << " GPUs";
    }
  }
  // With so little temporary memory that sums are made of many pieces.
  std::vector<std::string> on_ranks(const std::function<void(const GpuRank&)>& body) const {
    NcclOptions options;
    options.patience = std::chrono::seconds(60);
    options.temporary_bytes = size_t{1} << 20;
    options.copies = GetParam().copies;
    return test::on_gpu_ranks(GetParam().size, GetParam().gpus, body, options);
  }
};

std::string name_of(const testing::TestParamInfo<Ranks>& info) {
  return std::to_string(info.param.size) + "RanksOn" + std::to_string(info.param.gpus) +
         (info.param.copies ? "" : "ByNccl");
}
INSTANTIATE_TEST_SUITE_P(Ranks, GpuCollectives,
                         testing::Values(Ranks{1, 1}, Ranks{2, 2}, Ranks{2, 2, false}, Ranks{3, 3},
                                         Ranks{4, 1}, Ranks{4, 2}, Ranks{4, 4}),
                         name_of);

TEST_P(GpuCollectives, SumInTheOrderOfRanks) {
  for (const Type type : kTypes) {
    const std::vector<size_t> counts = {0, 1, 7, 1000, 40'003, 2'500'001};
    std::vector<Bytes> expected;
    for (const size_t count : counts) {
      expected.push_back(sum_by_rank(GetParam().size, count, type));
    }
    const auto errors = on_ranks([&](const GpuRank& rank) {
      for (size_t i = 0; i < counts.size(); ++i) {
        const Array x(rank.memory(encode(type, numbers(rank.ranks.rank(), counts[i], type))), type);
        rank.ranks.wait(rank.ranks.all_reduce(x, static_cast<int64_t>(counts[i])));
        EXPECT_TRUE(rank.bytes(x.data, expected[i].size()) == expected[i])
            << counts[i] << " of type " << static_cast<int>(type);
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(GpuCollectives, ScatterAndGatherParts) {
  const int size = GetParam().size;
  for (const Type type : kTypes) {
    const auto errors = on_ranks([&](const GpuRank& rank) {
      Communicator& ranks = rank.ranks;
      for (const int64_t each : {0, 1, 333, 4096, 600'001}) {
        const auto count = static_cast<size_t>(size * each);
        const Bytes expected = sum_by_rank(size, count, type);
        const Bytes own = encode(type, numbers(ranks.rank(), count, type));
        // In place, and from one array to another.
        const Array x(rank.memory(own), type), part = x.from(ranks.rank() * each);
        const Array y(rank.memory(Bytes(own.size())), type);
        const Array sum(rank.memory(Bytes(own.size() / static_cast<size_t>(size))), type);
        ranks.wait(ranks.reduce_scatter(x, sum, each));
        ranks.wait(ranks.reduce_scatter(x, part, each));
        ranks.wait(ranks.all_gather(sum, y, each));
        ranks.wait(ranks.all_gather(part, x, each));
        EXPECT_TRUE(rank.bytes(x.data, expected.size()) == expected) << "in place, " << each;
        EXPECT_TRUE(rank.bytes(y.data, expected.size()) == expected) << each;
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(GpuCollectives, FindTheLargest) {
  const int size = GetParam().size;
  const size_t counts[] = {1, 5, 300'007};
  const auto errors = on_ranks([&](const GpuRank& rank) {
    for (const size_t count : counts) {
      std::vector<float> largest = numbers(0, count, Type::f32);
      for (int other = 1; other < size; ++other) {
        const std::vector<float> x = numbers(other, count, Type::f32);
        for (size_t i = 0; i < count; ++i) largest[i] = std::max(largest[i], x[i]);
      }
      std::vector<float> own = numbers(rank.ranks.rank(), count, Type::f32);
      if (rank.ranks.rank() == size - 1) own[0] = std::numeric_limits<float>::quiet_NaN();
      auto* const x = static_cast<float*>(rank.memory(encode(Type::f32, own)));
      rank.ranks.wait(rank.ranks.all_reduce_max(x, static_cast<int64_t>(count)));
      std::vector<float> found = decode(Type::f32, rank.bytes(x, count * sizeof(float)));
      EXPECT_TRUE(std::isnan(found[0]));
      found[0] = largest[0];
      EXPECT_TRUE(found == largest) << count;
    }
  });
  EXPECT_THAT(errors, Each(""));
}

// Numbers that only double precision holds, in an order that shows.
TEST_P(GpuCollectives, AddDoublesOfTheDevice) {
  const int size = GetParam().size;
  const auto number = [](int rank) { return (rank % 2 == 0 ? 1.0 : -1.0) * 1e16 + rank + 0.25; };
  double expected = number(0);
  for (int rank = 1; rank < size; ++rank) expected += number(rank);
  const auto errors = on_ranks([&](const GpuRank& rank) {
    const double own[] = {number(rank.ranks.rank()), 1e-300};
    Bytes bytes(sizeof own);
    std::memcpy(bytes.data(), own, sizeof own);
    auto* const x = static_cast<double*>(rank.memory(bytes));
    rank.ranks.wait(rank.ranks.all_reduce(x, 2));
    double sum[2];
    std::memcpy(sum, rank.bytes(x, sizeof sum).data(), sizeof sum);
    EXPECT_EQ(sum[0], expected);
    EXPECT_DOUBLE_EQ(sum[1], size * 1e-300);
  });
  EXPECT_THAT(errors, Each(""));
}

// Two communicators of the same ranks at once: each gives its usual results, and neither waits for
// the other.
TEST_P(GpuCollectives, OneCommunicatorGoesOnAlongsideAnother) {
  constexpr int64_t kEach = 600'001, kFew = 1000;
  const int size = GetParam().size;
  const auto count = static_cast<size_t>(size * kEach);
  const Bytes expected = sum_by_rank(size, count, Type::f32);
  const Bytes expected_few = sum_by_rank(size, kFew, Type::bf16);
  const auto errors = on_ranks([&](const GpuRank& rank) {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    const auto aside = rank.make(1, all);
    aside->set_aside();
    const int own = rank.ranks.rank();
    const Array x(rank.memory(encode(Type::f32, numbers(own, count, Type::f32))), Type::f32);
    const auto scattered = aside->reduce_scatter(x, x.from(own * kEach), kEach);
    for (int i = 0; i < 5; ++i) {
      const Array few(rank.memory(encode(Type::bf16, numbers(own, kFew, Type::bf16))), Type::bf16);
      rank.ranks.wait(rank.ranks.all_reduce(few, kFew));
      EXPECT_TRUE(rank.bytes(few.data, expected_few.size()) == expected_few) << i;
    }
    aside->wait(scattered);
    aside->wait(aside->all_gather(x.from(own * kEach), x, kEach));
    EXPECT_TRUE(rank.bytes(x.data, expected.size()) == expected);
  });
  EXPECT_THAT(errors, Each(""));
}

// Rank r gives 1000 · (r + to) elements of value 10 r + to to rank `to`, so rank 0 gives itself
// none; and one element of rank 1 goes to all.
TEST_P(GpuCollectives, GiveEachRankItsOwn) {
  const int size = GetParam().size;
  const auto errors = on_ranks([&](const GpuRank& rank) {
    const int own = rank.ranks.rank();
    std::vector<float> x, expected;
    std::vector<int64_t> counts, from;
    const auto append = [](std::vector<float>& all, int one, int to) {
      all.insert(all.end(), static_cast<size_t>(1000 * (one + to)),
                 static_cast<float>(10 * one + to));
    };
    for (int other = 0; other < size; ++other) {
      append(x, own, other);
      append(expected, other, own);
      counts.push_back(1000 * (own + other));
    }
    const ConstArray sent(rank.memory(encode(Type::bf16, x)), Type::bf16);
    const Array y(rank.memory(Bytes(2 * expected.size())), Type::bf16);
    rank.ranks.wait(rank.ranks.all_to_all(sent, counts, y, counts));
    EXPECT_TRUE(decode(Type::bf16, rank.bytes(y.data, 2 * expected.size())) == expected);
    const int root = size - 1;
    const Array one(rank.memory(encode(Type::f32, {static_cast<float>(own)})), Type::f32);
    rank.ranks.wait(rank.ranks.broadcast(one, 1, root));
    EXPECT_EQ(decode(Type::f32, rank.bytes(one.data, 4))[0], static_cast<float>(root));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(GpuCollectives, ExchangeNumbersOfTheHost) {
  const int size = GetParam().size;
  const auto errors = on_ranks([&](const GpuRank& rank) {
    const int own = rank.ranks.rank();
    std::vector<int64_t> to, from(static_cast<size_t>(2 * size)), expected;
    for (int other = 0; other < size; ++other) {
      to.insert(to.end(), {100 * own + other, -other});
      expected.insert(expected.end(), {100 * other + own, -own});
    }
    rank.ranks.exchange(to, from);
    EXPECT_EQ(from, expected);
    double sum[] = {1.0, static_cast<double>(own)};
    rank.ranks.add_numbers(sum);
    EXPECT_EQ(sum[0], size);
    EXPECT_EQ(sum[1], size * (size - 1) / 2.0);
  });
  EXPECT_THAT(errors, Each(""));
}

// More than any buffer on the way holds, in both directions, with collectives between: sends hold
// up nothing.
TEST_P(GpuCollectives, SendAroundWithoutWaiting) {
  constexpr int64_t kCount = 8'000'003;
  constexpr size_t kSends = 4;
  const int size = GetParam().size;
  if (size == 1) GTEST_SKIP() << "there is nobody else";
  const auto errors = on_ranks([&](const GpuRank& rank) {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    const auto forward = rank.make(1, all), backward = rank.make(2, all);
    forward->connect(1);
    backward->connect(-1);
    const int own = rank.ranks.rank(), next = (own + 1) % size, before = (own + size - 1) % size;
    const Array sum(rank.memory(encode(Type::f32, {1, 2, 3})), Type::f32);
    std::vector<Communicator::Ticket> sent;
    std::vector<Array> arrived;
    const auto value = [](int from, size_t i) {
      return static_cast<float>(10 * from) + static_cast<float>(i);
    };
    for (size_t i = 0; i < kSends; ++i) {
      const Array x(rank.memory(Bytes(4 * kCount)), Type::f32);
      rank.kernels.run(kernels::FillConstant{.count = kCount, .value = value(own, i), .y = x});
      sent.push_back(forward->send(x, kCount, next));
      sent.push_back(backward->send(x, kCount, before));
      rank.ranks.wait(rank.ranks.all_reduce(sum, 3));
    }
    for (size_t i = 0; i < 2 * kSends; ++i) {
      arrived.emplace_back(rank.memory(Bytes(4 * kCount)), Type::f32);
      rank.ranks.wait(rank.ranks.all_reduce(sum, 3));
      Communicator& ranks = i % 2 == 0 ? *backward : *forward;
      ranks.wait(ranks.receive(arrived.back(), kCount, i % 2 == 0 ? next : before));
    }
    for (size_t i = 0; i < sent.size(); ++i) (i % 2 == 0 ? forward : backward)->wait(sent[i]);
    for (size_t i = 0; i < arrived.size(); ++i) {
      const Bytes expected = encode(Type::f32, {value(i % 2 == 0 ? next : before, i / 2)});
      const auto* const x = static_cast<const std::byte*>(arrived[i].data);
      EXPECT_EQ(rank.bytes(x, 4), expected) << i;
      EXPECT_EQ(rank.bytes(x + 4 * (kCount - 1), 4), expected) << i;
    }
    const float factor = std::pow(static_cast<float>(size), 3.0F * kSends);
    EXPECT_EQ(decode(Type::f32, rank.bytes(sum.data, 12)),
              (std::vector<float>{factor, 2 * factor, 3 * factor}));
  });
  EXPECT_THAT(errors, Each(""));
}

// What kernels were asked for before is done, and what they are asked for then waits; on streams
// of all kinds, many times, with nobody looking.
TEST_P(GpuCollectives, KernelsAndOperationsFollowEachOther) {
  constexpr int64_t kCount = 3'000'000;
  const int size = GetParam().size;
  const auto errors = on_ranks([&](const GpuRank& rank) {
    const Array x(rank.memory(encode(Type::f32, std::vector<float>(kCount, 1))), Type::f32);
    for (int i = 0; i < 20; ++i) {
      rank.ranks.wait(rank.ranks.all_reduce(x, kCount));
      rank.kernels.run(kernels::Scale{
          .count = kCount, .x = x, .y = x, .factor = 1.0F / static_cast<float>(size)});
    }
    EXPECT_TRUE(rank.bytes(x.data, 4 * kCount) == encode(Type::f32, std::vector<float>(kCount, 1)));
  });
  EXPECT_THAT(errors, Each(""));
}

// One rank throws while the others wait for it on their devices.
TEST_P(GpuCollectives, OneRanksErrorIsEveryones) {
  const int size = GetParam().size;
  const auto since = std::chrono::steady_clock::now();
  const auto errors = on_ranks([&](const GpuRank& rank) {
    const Array x(rank.memory(encode(Type::f32, numbers(0, 1'000'000, Type::f32))), Type::f32);
    for (int i = 0;; ++i) {
      if (i == 3 && rank.ranks.rank() == size - 1) fail(ErrorKind::io, "no more disk");
      rank.ranks.wait(rank.ranks.all_reduce(x, 1'000'000));
      if (i >= 3) rank.kernels.wait();
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("no more disk")));
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(20));
}

// Ranks that are alone in a family, others that are not, and families of the same ranks.
TEST_P(GpuCollectives, FamiliesOfSomeRanks) {
  const int size = GetParam().size;
  const auto errors = on_ranks([&](const GpuRank& rank) {
    const int own = rank.ranks.rank();
    std::vector<int> all(static_cast<size_t>(size)), ends{own};
    std::iota(all.begin(), all.end(), 0);
    if (size > 1 && (own == 0 || own == size - 1)) ends = {0, size - 1};
    const auto lone = rank.make(1, {own}), same = rank.make(2, all), some = rank.make(3, ends);
    const Array x(rank.memory(encode(Type::f32, std::vector<float>(100, 1))), Type::f32);
    for (Communicator* const family : {lone.get(), same.get(), some.get()}) {
      family->wait(family->all_reduce(x, 100));
    }
    const auto expected = static_cast<float>(size * static_cast<int>(ends.size()));
    EXPECT_EQ(decode(Type::f32, rank.bytes(x.data, 400)), std::vector<float>(100, expected));
  });
  EXPECT_THAT(errors, Each(""));
}

// Who fails has sends under way that nobody takes.
TEST_P(GpuCollectives, EndWhileMuchIsUnderWay) {
  const int size = GetParam().size;
  if (size == 1) GTEST_SKIP() << "there is nobody else";
  const auto errors = on_ranks([&](const GpuRank& rank) {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    const auto neighbours = rank.make(1, all);
    neighbours->connect(1);
    const Array x(rank.memory(Bytes(4 * 10'000'000)), Type::f32);
    const int next = (rank.ranks.rank() + 1) % size;
    for (int i = 0; i < 5; ++i) (void)neighbours->send(x, 10'000'000, next);
    if (rank.ranks.rank() == 0) fail(ErrorKind::io, "no more disk");
    rank.ranks.wait(rank.ranks.all_reduce(x, 10));
    rank.kernels.wait();
  });
  EXPECT_THAT(errors, Each(HasSubstr("no more disk")));
}

TEST(GpuCommunicators, CopyWhereARankIsAlone) {
  if (kernels::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const auto errors = test::on_gpu_ranks(1, 1, [&](const GpuRank& rank) {
    const Array x(rank.memory(encode(Type::bf16, {1, 2})), Type::bf16);
    const Array y(rank.memory(Bytes(4)), Type::bf16);
    rank.ranks.wait(rank.ranks.reduce_scatter(x, y, 2));
    EXPECT_EQ(decode(Type::bf16, rank.bytes(y.data, 4)), (std::vector<float>{1, 2}));
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace ferry
