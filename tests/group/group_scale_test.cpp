// What a rank of a group of many thousands has to do.
#include <gmock/gmock.h>

#include <map>

#include "ckpt/group/group.h"
#include "ckpt/group/wire.h"

namespace ferry::test {
namespace {

constexpr int kRanks = 16'384;

std::string text_of_rank(int rank) { return std::string(2000, static_cast<char>(rank % 251)); }

// The transport of rank 0; messages of other ranks are made up on request.
class Rank0 final : public Transport {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return kRanks; }
  uint64_t reserve_groups(uint64_t) override { return 1; }
  void send(uint64_t, std::span<const int> ranks, Message message) override {
    for (const int to : ranks) sent[to] += message.bytes.size();
  }
  // A child's part of the tree in gather(), the first operation.
  Message receive(uint64_t, int from) override {
    ++received;
    Packer packer;
    for (int rank = from; rank < 2 * from; ++rank) packer.text(text_of_rank(rank));
    constexpr uint64_t kFirstGather = 8 + 1;
    return {kFirstGather, packer.take()};
  }
  void check() override {}
  void leave(uint64_t, std::span<const int>) noexcept override {}
  void abort(const Error&) noexcept override {}

  std::map<int, size_t> sent;
  int received = 0;
};

TEST(GroupScale, Rank0HandlesAFewMessages) {
  const auto transport = std::make_shared<Rank0>();
  const auto group = message_group(transport);
  const std::vector<std::string> all = group->gather(text_of_rank(0));
  EXPECT_EQ(transport->received, 14);
  ASSERT_EQ(all.size(), static_cast<size_t>(kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(all[static_cast<size_t>(rank)], text_of_rank(rank)) << rank;
  }
  group->broadcast(text_of_rank(7));
  EXPECT_EQ(transport->sent.size(), 14U);
  transport->sent.clear();
  EXPECT_EQ(group->scatter(all), text_of_rank(0));
  ASSERT_EQ(transport->sent.size(), 14U);
  for (const auto& [child, bytes] : transport->sent) {
    EXPECT_EQ(bytes, static_cast<size_t>(child) * (2000 + 2)) << child;
  }
}

}  // namespace
}  // namespace ferry::test
