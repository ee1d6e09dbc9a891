#include "ckpt/group/group.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Where threads meet. A round ends when the last rank has put its bytes.
struct Meeting {
  explicit Meeting(int count) : given(static_cast<size_t>(count)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> given;                         // of this round
  size_t waiting = 0;                                     // ranks that have put theirs
  std::shared_ptr<const std::vector<std::string>> taken;  // of the last round
  uint64_t round = 0;
  bool broken = false;
};

class ThreadRank final : public Group {
 public:
  ThreadRank(std::shared_ptr<Meeting> meeting, int rank, int size)
      : meeting_(std::move(meeting)), rank_(rank), size_(size) {}
  ~ThreadRank() override {
    const std::lock_guard lock(meeting_->mutex);
    meeting_->broken = true;
    meeting_->changed.notify_all();
  }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  std::vector<std::string> exchange(std::string bytes) override {
    Meeting& meeting = *meeting_;
    std::unique_lock lock(meeting.mutex);
    const uint64_t round = meeting.round;
    meeting.given[static_cast<size_t>(rank_)] = std::move(bytes);
    if (++meeting.waiting == meeting.given.size()) {
      meeting.taken = std::make_shared<const std::vector<std::string>>(meeting.given);
      meeting.waiting = 0;
      ++meeting.round;
      meeting.changed.notify_all();
    }
    meeting.changed.wait(lock, [&] { return meeting.round != round || meeting.broken; });
    if (meeting.round == round) fail(ErrorKind::cancelled, "another rank of the group has ended");
    const auto taken = meeting.taken;
    lock.unlock();
    return *taken;
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  int size_;
};

}  // namespace

std::vector<std::shared_ptr<Group>> thread_groups(int size) {
  if (size < 1) fail(ErrorKind::invalid, "a group of {} ranks", size);
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::shared_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_shared<ThreadRank>(meeting, rank, size));
  }
  return groups;
}

std::shared_ptr<Group> lone_group() { return thread_groups(1)[0]; }

}  // namespace ferry
