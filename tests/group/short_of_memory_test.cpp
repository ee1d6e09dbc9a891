// A rank that runs out of memory, at whichever allocation, ends its operation on all ranks.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "ckpt/group/together.h"
#include "tests/group/ranks.h"

namespace ferry::test {
namespace {

// How many allocations of this thread succeed before one fails, or all from then on.
enum class Shortage { none, of_one, of_all };
thread_local Shortage shortage = Shortage::none;
thread_local int allocations_left = 0;

void* allocate(size_t bytes) noexcept {
  if (shortage != Shortage::none && allocations_left-- <= 0) {
    if (shortage == Shortage::of_one) shortage = Shortage::none;
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate_or_throw(size_t bytes) {
  void* const memory = allocate(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

class ShortOfMemory {
 public:
  ShortOfMemory(Shortage kind, int after) { shortage = kind, allocations_left = after; }
  ~ShortOfMemory() { shortage = Shortage::none; }
  ShortOfMemory(const ShortOfMemory&) = delete;
  ShortOfMemory& operator=(const ShortOfMemory&) = delete;
};

const std::string kLongText(100, 'x');

void expect_all_end(const std::string& name, const std::function<void(Group&)>& work) {
  constexpr int kRanks = 4, kMostAllocations = 1000;
  for (const Shortage kind : {Shortage::of_one, Shortage::of_all}) {
    for (int failing = 0; failing < kRanks; ++failing) {
      int after = 0;
      for (; after < kMostAllocations; ++after) {
        const auto errors = on_ranks(kRanks, [&](Group& group) {
          {
            std::optional<ShortOfMemory> is_short;
            if (group.rank() == failing) is_short.emplace(kind, after);
            or_abort(group, [&] { work(group); });  // arguments need memory, too
          }
          group.barrier();
        });
        // With memory enough for this rank's part nothing fails.
        if (!errors[failing]) break;
        for (int rank = 0; rank < kRanks; ++rank) {
          if (rank == failing) continue;
          ASSERT_EQ(text_of(errors[static_cast<size_t>(rank)]),
                    fmt::format("exhausted: rank {}: out of memory", failing))
              << name << ", allocation " << after << " of rank " << failing;
        }
      }
      EXPECT_GT(after, 0) << name;
      EXPECT_LT(after, kMostAllocations) << name;
    }
  }
}

TEST(ShortOfMemory, EndsEachOperationOnAllRanks) {
  expect_all_end("exchange", [](Group& group) { group.exchange(kLongText); });
  expect_all_end("gather", [](Group& group) { group.gather(kLongText); });
  expect_all_end("broadcast", [](Group& group) { group.broadcast(kLongText); });
  expect_all_end("scatter", [](Group& group) {
    group.scatter(std::vector<std::string>(static_cast<size_t>(group.size()), kLongText));
  });
  expect_all_end("barrier", [](Group& group) { group.barrier(); });
}

// The part is left in want of memory, too.
TEST(ShortOfMemory, EndsSplitsOnAllRanks) {
  expect_all_end("split", [](Group& group) { group.split(0, -group.rank()); });
}

TEST(ShortOfMemory, EndsWhatIsDoneTogetherOnAllRanks) {
  expect_all_end("together", [](Group& group) { together(group, [] { return kLongText; }); });
  expect_all_end("together, failing", [](Group& group) {
    try {
      together(group, []() -> std::string {
        if (shortage == Shortage::none) return "done";
        fail(ErrorKind::io, "{}", kLongText);
      });
    } catch (const SharedError& error) {
      if (error.kind() == ErrorKind::exhausted) throw;
    }
  });
}

}  // namespace
}  // namespace ferry::test

void* operator new(size_t bytes) { return ferry::test::allocate_or_throw(bytes); }
void* operator new[](size_t bytes) { return ferry::test::allocate_or_throw(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return ferry::test::allocate(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return ferry::test::allocate(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
