// Collectives, of threads and of processes: everyone's elements, summed in the order of ranks.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "ckpt/base/error.h"
#include "tests/trainer/communicator/on_ranks.h"

namespace ferry {
namespace {

using kernels::Array;
using kernels::ConstArray;
using test::on_ranks;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;

// Numbers whose sum depends on the order in which they are added.
std::vector<float> numbers(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<float> x(count);
  for (float& one : x)
    one = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 20) - 40);
  return x;
}

std::vector<float> sum_by_rank(int size, size_t count) {
  std::vector<float> sum = numbers(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> x = numbers(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += x[i];
  }
  return sum;
}

TEST(Collectives, SumInTheOrderOfRanks) {
  for (const int size : {1, 2, 3, 5}) {
    for (const size_t count : {0, 1, 4, 7, 40'000}) {
      const std::vector<float> expected = sum_by_rank(size, count);
      const auto errors = on_ranks(size, [&](Communicator& ranks) {
        std::vector<float> x = numbers(ranks.rank(), count);
        ranks.wait(ranks.all_reduce(Array(x.data()), static_cast<int64_t>(count)));
        EXPECT_EQ(x, expected) << size << " ranks, " << count;
      });
      EXPECT_THAT(errors, Each(""));
    }
  }
}

TEST(Collectives, ScatterAndGatherParts) {
  constexpr int64_t kEach = 1000;
  for (const int size : {1, 2, 3, 4}) {
    const std::vector<float> expected = sum_by_rank(size, static_cast<size_t>(size) * kEach);
    const auto errors = on_ranks(size, [&](Communicator& ranks) {
      std::vector<float> x = numbers(ranks.rank(), expected.size());
      const Array all(x.data());
      const Array own = all.from(ranks.rank() * kEach);
      ranks.wait(ranks.reduce_scatter(all, own, kEach));
      ranks.wait(ranks.all_gather(own, all, kEach));
      EXPECT_EQ(x, expected) << size;
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(Collectives, GiveEachRankItsOwn) {
  constexpr int kSize = 3;
  const auto errors = on_ranks(kSize, [&](Communicator& ranks) {
    // Rank r gives r + to + 1 elements of value 10 r + to to rank `to`.
    std::vector<float> x, expected;
    std::vector<int64_t> to_counts, from_counts;
    const auto append = [](std::vector<float>& all, int from, int to) {
      all.insert(all.end(), static_cast<size_t>(from + to + 1), static_cast<float>(10 * from + to));
    };
    for (int other = 0; other < kSize; ++other) {
      append(x, ranks.rank(), other);
      append(expected, other, ranks.rank());
      to_counts.push_back(ranks.rank() + other + 1);
      from_counts.push_back(other + ranks.rank() + 1);
    }
    std::vector<float> y(expected.size());
    ranks.wait(ranks.all_to_all(ConstArray(x.data()), to_counts, Array(y.data()), from_counts));
    EXPECT_EQ(y, expected);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Collectives, ExchangeNumbersOfTheHost) {
  for (const int size : {1, 3}) {
    const auto errors = on_ranks(size, [&](Communicator& ranks) {
      std::vector<int64_t> to, from(static_cast<size_t>(2 * size)), expected;
      for (int other = 0; other < size; ++other) {
        to.insert(to.end(), {100 * ranks.rank() + other, -other});
        expected.insert(expected.end(), {100 * other + ranks.rank(), -ranks.rank()});
      }
      ranks.exchange(to, from);
      EXPECT_EQ(from, expected);
      // In the order of ranks: the first ones' sum is lost in a number that is large.
      double numbers[] = {ranks.rank() == size - 1 ? -1e17 : 1e17 + ranks.rank(), 1};
      double own[] = {numbers[0], numbers[1]};
      ranks.add_numbers(numbers);
      ranks.wait(ranks.all_reduce(own, 2));
      EXPECT_EQ(numbers[0], size == 1 ? -1e17 : 1e17);
      EXPECT_EQ(numbers[1], size);
      EXPECT_EQ(own[0], numbers[0]);
      EXPECT_EQ(own[1], numbers[1]);
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(Collectives, SendAndReceiveInOrder) {
  const auto errors = on_ranks(2, [&](Communicator& ranks) {
    const int other = 1 - ranks.rank();
    std::vector<float> sent(100), received(1);
    std::iota(sent.begin(), sent.end(), 100.0F * static_cast<float>(ranks.rank()));
    std::vector<Communicator::Ticket> tickets;
    for (float& one : sent) tickets.push_back(ranks.send(ConstArray(&one), 1, other));
    for (int i = 0; i < 100; ++i) {
      ranks.wait(ranks.receive(Array(received.data()), 1, other));
      EXPECT_EQ(received[0], static_cast<float>(100 * other + i));
    }
    for (const Communicator::Ticket ticket : tickets) ranks.wait(ticket);
    std::vector<float> x{static_cast<float>(ranks.rank())};
    ranks.wait(ranks.broadcast(Array(x.data()), 1, 1));
    EXPECT_EQ(x[0], 1);
    float most[] = {static_cast<float>(ranks.rank()), -static_cast<float>(ranks.rank())};
    ranks.wait(ranks.all_reduce_max(most, 2));
    EXPECT_EQ(most[0], 1);
    EXPECT_EQ(most[1], 0);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Collectives, OneRanksErrorIsEveryones) {
  const auto errors = on_ranks(3, [&](Communicator& ranks) {
    if (ranks.rank() == 1) fail(ErrorKind::io, "no more disk");
    std::vector<float> x(10);
    ranks.wait(ranks.all_reduce(Array(x.data()), 10));
  });
  EXPECT_THAT(errors, Each(HasSubstr("no more disk")));
}

// Messages that are shorter or longer than the receiver expects.
TEST(Collectives, LengthsAgree) {
  for (const int64_t sent : {2, 4}) {
    std::vector<std::vector<float>> memory(2, std::vector<float>(8));
    const auto errors = on_ranks(2, [&](Communicator& ranks) {
      float* const x = memory[static_cast<size_t>(ranks.rank())].data();
      if (ranks.rank() == 0) ranks.wait(ranks.receive(Array(x), 3, 1));
      if (ranks.rank() == 1) ranks.wait(ranks.send(ConstArray(x), sent, 0));
      ranks.wait(ranks.all_reduce(Array(x), 8));
    });
    EXPECT_THAT(errors, Each(ContainsRegex("rank 1 sends [0-9]+ bytes where rank 0 expects 12")));
  }
}

// Who fails has offered what others only take now.
TEST(Collectives, EndWhileMuchIsUnderWay) {
  constexpr int64_t kCount = 3'000'000;
  std::vector<std::vector<float>> sent(3, std::vector<float>(kCount, 7));
  const auto errors = on_ranks(3, [&](Communicator& ranks) {
    std::vector<float> x(kCount), all(kCount);
    for (int i = 0;; ++i) {
      if (ranks.rank() == 1) {
        const ConstArray own(sent[1].data());
        const auto tickets = {ranks.send(own, kCount, 0), ranks.send(own, kCount, 2)};
        if (i == 4) fail(ErrorKind::io, "no more disk");
        for (const Communicator::Ticket ticket : tickets) ranks.wait(ticket);
      } else {
        ranks.wait(ranks.receive(Array(x.data()), kCount, 1));
        EXPECT_EQ(x, sent[1]) << i;
      }
      ranks.wait(ranks.all_reduce(Array(all.data()), kCount));
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("no more disk")));
}

}  // namespace
}  // namespace ferry
