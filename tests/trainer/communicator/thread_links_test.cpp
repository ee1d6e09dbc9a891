// What ranks that are threads offer each other, and how it ends.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "ckpt/base/error.h"
#include "trainer/communicator/links.h"

namespace ferry {
namespace {

using testing::HasSubstr;

// The memory of a rank that fails goes when withdraw() has returned.
TEST(ThreadLinks, WhatIsReadStaysUntilItWasRead) {
  const auto links = thread_links(thread_groups(2));
  const std::array<std::byte, 4> bytes{};
  std::atomic<bool> is_reading = false, was_read = false;
  std::string problem;
  std::jthread reader([&] {
    try {
      links[1]->take(0, 0, 4, [&](std::span<const std::byte>) {
        is_reading = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        was_read = true;
      });
      links[1]->take(0, 0, 4, [](std::span<const std::byte>) { ADD_FAILURE() << "withdrawn"; });
    } catch (const Error& error) {
      problem = error.what();
    }
  });
  for (int i = 0; i < 2; ++i) links[0]->offer(0, 1, bytes);
  while (!is_reading) std::this_thread::yield();
  try {
    fail(ErrorKind::io, "no more disk");
  } catch (const Error&) {
    links[0]->withdraw();
  }
  EXPECT_TRUE(was_read);
  reader.join();
  EXPECT_THAT(problem, HasSubstr("rank 0: no more disk"));
}

TEST(ThreadLinks, WhoWithdrawsDrainsWhatLinksDoNotKnow) {
  const auto links = thread_links(thread_groups(2));
  int drained = 0;
  links[0]->set_drain([&] { ++drained; });
  for (const auto& one : links) {
    try {
      fail(ErrorKind::io, "no more disk");
    } catch (const Error&) {
      one->withdraw();
    }
  }
  EXPECT_EQ(drained, 1);
}

TEST(ThreadLinks, RanksOfACommunicatorHaveOneThingInCommon) {
  const auto links = thread_links(thread_groups(3));
  EXPECT_TRUE(links[0]->are_threads());
  int made = 0;
  const auto make = [&] { return std::make_shared<int>(made++); };
  const std::shared_ptr<void> first = links[0]->common(1, {0, 2}, make);
  EXPECT_EQ(links[2]->common(1, {0, 2}, make), first);
  EXPECT_NE(links[1]->common(1, {0, 1}, make), first);
  EXPECT_NE(links[0]->common(2, {0, 2}, make), first);
  EXPECT_EQ(links[0]->common(1, {0, 2}, make), first);
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace ferry
