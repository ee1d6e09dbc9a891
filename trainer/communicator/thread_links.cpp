#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "ckpt/base/error.h"
#include "trainer/communicator/links.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // how often waiting ranks check for an abort

// Offers of one rank to another in one channel.
struct Lane {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::span<const std::byte>> offers;
  bool is_read = false;  // the first of them
  uint64_t offered = 0, taken = 0;
};

struct LaneKey {
  int channel, from, to;
  auto operator<=>(const LaneKey&) const = default;
};

// The lanes of all ranks, created on first use and never moved, and objects that ranks share.
class Lanes {
 public:
  Lane& at(const LaneKey& key) {
    const std::lock_guard lock(mutex_);
    return lanes_[key];
  }
  std::shared_ptr<void> common(int channel, const std::vector<int>& members,
                               const Links::Make& make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<void>& made = common_[{channel, members}];
    if (!made) made = make();
    return made;
  }

 private:
  std::mutex mutex_;
  std::map<LaneKey, Lane> lanes_;
  std::map<std::pair<int, std::vector<int>>, std::shared_ptr<void>> common_;
};

// Holds the first offer of a lane and takes it on destruction.
class Reading {
 public:
  template <typename WaitForOffer>
  Reading(Lane& lane, const WaitForOffer& wait_for_offer) : lane_(lane) {
    std::unique_lock lock(lane.mutex);
    wait_for_offer(lock);
    offer_ = lane.offers.front();
    lane.is_read = true;
  }
  ~Reading() {
    const std::lock_guard lock(lane_.mutex);
    lane_.is_read = false;
    lane_.offers.pop_front();
    ++lane_.taken;
    lane_.changed.notify_all();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  std::span<const std::byte> offer() const { return offer_; }

 private:
  Lane& lane_;
  std::span<const std::byte> offer_;
};

class ThreadLinks final : public Links {
 public:
  ThreadLinks(std::shared_ptr<Lanes> lanes, std::shared_ptr<Group> group)
      : lanes_(std::move(lanes)), group_(std::move(group)) {}

  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }

  uint64_t offer(int channel, int to, std::span<const std::byte> bytes) override {
    Lane& lane = this->lane({channel, rank(), to});
    const std::lock_guard lock(lane.mutex);
    lane.offers.push_back(bytes);
    pending_[++last_offer_] = {&lane, ++lane.offered};
    lane.changed.notify_all();
    return last_offer_;
  }

  void wait(uint64_t offer) override {
    const auto pending = pending_.find(offer);
    if (pending == pending_.end()) return;
    const auto [lane, number] = pending->second;
    std::unique_lock lock(lane->mutex);
    wait_until(*lane, lock, [&] { return lane->taken >= number; });
    pending_.erase(pending);
  }

  // Readers notice the abort and release.
  void withdraw() noexcept override {
    abort_with_current_exception(*group_);
    for (const auto& [offer, pending] : pending_) {
      Lane& lane = *pending.first;
      std::unique_lock lock(lane.mutex);
      lane.offers.resize(lane.is_read ? 1 : 0);
      lane.changed.wait(lock, [&] { return !lane.is_read; });
    }
    if (drain_) drain_();
  }

  void take(int channel, int from, size_t bytes, const Use& use) override {
    Lane& lane = this->lane({channel, from, rank()});
    const Reading reading(lane, [&](std::unique_lock<std::mutex>& lock) {
      wait_until(lane, lock, [&] { return !lane.offers.empty(); });
    });
    if (reading.offer().size() != bytes) {
      fail(ErrorKind::internal, "rank {} sends {} bytes where rank {} expects {}", from,
           reading.offer().size(), rank(), bytes);
    }
    use(reading.offer());
  }

  bool are_threads() const noexcept override { return true; }
  std::shared_ptr<void> common(int channel, const std::vector<int>& members,
                               const Make& make) override {
    return lanes_->common(channel, members, make);
  }

 private:
  Lane& lane(const LaneKey& key) {
    Lane*& known = known_[key];
    if (!known) known = &lanes_->at(key);
    return *known;
  }

  // With a core each, ranks answer within microseconds, which sleeping would double.
  template <typename IsDone>
  void wait_until(Lane& lane, std::unique_lock<std::mutex>& lock, const IsDone& is_done) {
    const bool spins = static_cast<unsigned>(size()) <= std::thread::hardware_concurrency();
    for (int i = 0; spins && i < 1000 && !is_done(); ++i) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    while (!lane.changed.wait_for(lock, kLook, is_done)) {
      lock.unlock();
      group_->check();
      lock.lock();
    }
  }

  std::shared_ptr<Lanes> lanes_;
  std::shared_ptr<Group> group_;
  std::map<LaneKey, Lane*> known_;
  std::map<uint64_t, std::pair<Lane*, uint64_t>> pending_;  // offers by number
  uint64_t last_offer_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<Links>> thread_links(
    const std::vector<std::shared_ptr<Group>>& groups) {
  const auto lanes = std::make_shared<Lanes>();
  std::vector<std::shared_ptr<Links>> links;
  for (const auto& group : groups) links.push_back(std::make_shared<ThreadLinks>(lanes, group));
  return links;
}

}  // namespace ferry
