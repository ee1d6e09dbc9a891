#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "ckpt/group/group.h"

namespace ferry {
namespace {

// Made while there is memory.
const Error kNoMemory(ErrorKind::exhausted, "out of memory");

using Sender = std::pair<uint64_t, int>;  // group and rank

// What has been sent to one rank.
struct Mailbox {
  bool has_message(const Sender& sender) const {
    const auto queue = messages.find(sender);
    return queue != messages.end() && !queue->second.empty();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<Sender, std::deque<Message>> messages;
  std::set<Sender> departed;
};

struct Failure {
  int rank;
  Error error;
};

// What the ranks share.
struct Family {
  explicit Family(int size) : mailboxes(static_cast<size_t>(size)) {}
  Mailbox& mailbox(int rank) { return mailboxes[static_cast<size_t>(rank)]; }

  std::vector<Mailbox> mailboxes;
  std::atomic<uint64_t> next_group{1};
  std::mutex failure_mutex;
  std::optional<Failure> failure;  // the first; it stays
  std::atomic<bool> has_failed{false};
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Family> family, int rank)
      : family_(std::move(family)), rank_(rank), own_(family_->mailbox(rank)) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(family_->mailboxes.size()); }
  uint64_t reserve_groups(uint64_t count) override { return family_->next_group.fetch_add(count); }

  void send(uint64_t group, std::span<const int> ranks, Message message) override {
    for (size_t i = 0; i < ranks.size(); ++i) {
      check_is_here({group, ranks[i]});
      Mailbox& mailbox = family_->mailbox(ranks[i]);
      const std::lock_guard lock(mailbox.mutex);
      std::deque<Message>& queue = mailbox.messages[{group, rank_}];
      i + 1 < ranks.size() ? queue.push_back(message) : queue.push_back(std::move(message));
      mailbox.changed.notify_all();
    }
  }

  Message receive(uint64_t group, int from) override {
    const Sender sender(group, from);
    std::unique_lock lock(own_.mutex);
    own_.changed.wait(lock, [&] {
      return family_->has_failed || own_.has_message(sender) || own_.departed.contains(sender);
    });
    check();
    if (!own_.has_message(sender)) throw Departed();
    const auto queue = own_.messages.find(sender);
    Message message = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) own_.messages.erase(queue);
    return message;
  }

  void check() override {
    if (!family_->has_failed) return;
    const std::lock_guard lock(family_->failure_mutex);
    const Failure& failure = *family_->failure;
    fail(failure.error.kind(), "rank {}: {}", failure.rank, failure.error.what());
  }

  void leave(uint64_t group, std::span<const int> members) noexcept override {
    try {
      const std::set<Sender> departed = forget(group);
      for (const int member : members) {
        if (member == rank_ || departed.contains({group, member})) continue;
        Mailbox& mailbox = family_->mailbox(member);
        const std::lock_guard lock(mailbox.mutex);
        mailbox.departed.insert({group, rank_});
        mailbox.changed.notify_all();
      }
    } catch (const std::bad_alloc&) {
      abort(kNoMemory);
    }
  }

  void abort(const Error& error) noexcept override {
    {
      const std::lock_guard lock(family_->failure_mutex);
      if (family_->failure) return;
      family_->failure.emplace(rank_, error);
      family_->has_failed = true;
    }
    for (Mailbox& mailbox : family_->mailboxes) {
      // A rank has either not looked yet or already waits.
      { const std::lock_guard lock(mailbox.mutex); }
      mailbox.changed.notify_all();
    }
  }

 private:
  void check_is_here(const Sender& receiver) {
    {
      const std::lock_guard lock(own_.mutex);
      if (!own_.departed.contains(receiver)) return;
    }
    check();  // why it has left comes first
    throw Departed();
  }

  // Removes what came in the group and returns who has left it.
  std::set<Sender> forget(uint64_t group) {
    constexpr auto kAnyRank = std::numeric_limits<int>::min();
    const Sender first(group, kAnyRank), next(group + 1, kAnyRank);
    const std::lock_guard lock(own_.mutex);
    own_.messages.erase(own_.messages.lower_bound(first), own_.messages.lower_bound(next));
    std::set<Sender> departed;
    for (auto it = own_.departed.lower_bound(first); it != own_.departed.lower_bound(next);) {
      departed.insert(own_.departed.extract(it++));
    }
    return departed;
  }

  std::shared_ptr<Family> family_;
  int rank_;
  Mailbox& own_;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> thread_transports(int size) {
  if (size < 1) fail(ErrorKind::invalid, "a group of {} ranks", size);
  const auto family = std::make_shared<Family>(size);
  std::vector<std::shared_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_shared<ThreadTransport>(family, rank));
  }
  return transports;
}

std::vector<std::shared_ptr<Group>> thread_groups(int size) {
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& transport : thread_transports(size)) {
    groups.push_back(message_group(std::move(transport)));
  }
  return groups;
}

std::shared_ptr<Group> lone_group() { return thread_groups(1)[0]; }

}  // namespace ferry
