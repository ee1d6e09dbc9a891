#include "trainer/communicator/mpi/mpi_links.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/mpi/mpi_code.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks with a core each answer within microseconds. Otherwise a waiting rank would occupy the core
// of a working one: it then sleeps for an eighth of the time that it has waited, and true is
// returned. sched_yield would instead give whole time slices to any other program.
bool pause(Clock::time_point since) {
  constexpr std::chrono::microseconds kSpinning{100}, kLongest{1000};
  const auto waited = Clock::now() - since;
  if (waited < kSpinning) return false;
  std::this_thread::sleep_for(std::min<Clock::duration>(waited / 8, kLongest));
  return true;
}

class MpiLinks final : public Links {
 public:
  MpiLinks(MPI_Comm communicator, std::shared_ptr<Group> group, size_t piece_bytes)
      : group_(std::move(group)), piece_bytes_(piece_bytes) {
    check_code(MPI_Comm_dup(communicator, &communicator_));
    check_code(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
  }
  ~MpiLinks() override {
    if (has_been_aborted()) {
      wait_for_all();  // the rest is left to MPI: some offers were never taken
    } else {
      MPI_Comm_free(&communicator_);
    }
  }
  MpiLinks(const MpiLinks&) = delete;
  MpiLinks& operator=(const MpiLinks&) = delete;

  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }

  uint64_t offer(int channel, int to, std::span<const std::byte> bytes) override {
    std::vector<MPI_Request>& requests = offers_[++last_offer_];
    for_pieces(bytes.size(), [&](size_t begin, int length) {
      check_code(MPI_Isend(bytes.data() + begin, length, MPI_BYTE, to, channel, communicator_,
                           &requests.emplace_back(MPI_REQUEST_NULL)));
    });
    return last_offer_;
  }

  void wait(uint64_t offer) override {
    const auto requests = offers_.find(offer);
    if (requests == offers_.end()) return;
    wait_until([&] { return are_done(requests->second); });
    offers_.erase(requests);
  }

  void withdraw() noexcept override {
    abort_with_current_exception(*group_);
    is_aborted_ = true;
    wait_for_all();
  }

  void take(int channel, int from, size_t bytes, const Use& use) override {
    std::vector<std::byte> memory = free_buffer(bytes);
    for_pieces(bytes, [&](size_t begin, int expected) {
      MPI_Message message = next_message(channel, from, bytes, expected);
      std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);
      check_code(MPI_Imrecv(memory.data() + begin, expected, MPI_BYTE, &message, request.data()));
      // In any case: MPI writes there, and the sender waits until everything has arrived.
      const auto since = Clock::now();
      while (!are_done(request)) pause(since);
    });
    use({memory.data(), bytes});
    free_.push_back(std::move(memory));
  }

 private:
  template <typename Do>
  void for_pieces(size_t bytes, const Do& act) const {
    size_t begin = 0;
    do {
      const size_t length = std::min(piece_bytes_, bytes - begin);
      act(begin, static_cast<int>(length));
      begin += length;
    } while (begin < bytes);
  }

  // Checks the length first: MPI implementations differ in how they handle messages that are too
  // long.
  MPI_Message next_message(int channel, int from, size_t bytes, int expected) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    wait_until([&] {
      int is_there = 0;
      check_code(MPI_Improbe(from, channel, communicator_, &is_there, &message, &status));
      return is_there != 0;
    });
    int length = 0;
    check_code(MPI_Get_count(&status, MPI_BYTE, &length));
    if (length == expected) return message;
    fail(ErrorKind::internal, "rank {} sends {} bytes where rank {} expects {} (of {})", from,
         length, rank(), expected, bytes);
  }

  static bool are_done(std::vector<MPI_Request>& requests) {
    int done = 0;
    check_code(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                           MPI_STATUSES_IGNORE));
    return done != 0;
  }

  template <typename IsDone>
  void wait_until(const IsDone& is_done) {
    const auto since = Clock::now();
    while (!is_done()) {
      if (pause(since)) group_->check();
    }
  }

  bool has_been_aborted() noexcept {
    try {
      group_->check();
    } catch (...) {
      is_aborted_ = true;
    }
    return is_aborted_;
  }

  // Offers may be read until the last rank has learned of the abort.
  void wait_for_all() noexcept {
    constexpr std::chrono::seconds kPatience{4};
    if (has_waited_) return;
    has_waited_ = true;
    try {
      const auto since = Clock::now();
      std::vector<MPI_Request> barrier(1, MPI_REQUEST_NULL);
      check_code(MPI_Ibarrier(communicator_, barrier.data()));
      while (!are_done(barrier) && Clock::now() - since < kPatience) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    } catch (const Error&) {
      // MPI itself fails: the launcher ends the remaining ranks.
    }
  }

  std::vector<std::byte> free_buffer(size_t bytes) {
    std::vector<std::byte> memory;
    if (!free_.empty()) {
      memory = std::move(free_.back());
      free_.pop_back();
    }
    if (memory.size() < bytes) memory.resize(bytes);
    return memory;
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::shared_ptr<Group> group_;
  size_t piece_bytes_;
  std::map<uint64_t, std::vector<MPI_Request>> offers_;
  uint64_t last_offer_ = 0;
  bool is_aborted_ = false, has_waited_ = false;
  std::vector<std::vector<std::byte>> free_;
};

}  // namespace

std::shared_ptr<Links> mpi_links(MPI_Comm communicator, std::shared_ptr<Group> group,
                                 size_t piece_bytes) {
  int level = MPI_THREAD_SINGLE;
  check_code(MPI_Query_thread(&level));
  if (level < MPI_THREAD_MULTIPLE) {
    fail(ErrorKind::unsupported,
         "this MPI lacks MPI_THREAD_MULTIPLE, which saving during training needs; use an MPI that "
         "has it, or start one process, whose ranks are threads");
  }
  return std::make_shared<MpiLinks>(communicator, std::move(group), piece_bytes);
}

}  // namespace ferry
