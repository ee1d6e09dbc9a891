// Messages between the processes of an MPI communicator.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ckpt/group/group.h"

namespace ferry {

/// A duplicate of a communicator, which all its processes make together and none outlives MPI with.
///
/// Nothing here waits inside MPI, which would take a core from those who work: who waits looks,
/// then sleeps for a quarter of the time that it has waited so far, 5 ms at most. Whoever looks
/// takes in whatever has come for any group of the process, so that no two ranks wait for each
/// other to receive, and hears of an abort.
///
/// A message is a header, followed by the bytes where they are few, else by pieces whose length
/// fits in an int. An abort spreads from rank to rank: each that receives it forwards it to those
/// at distances of 1, 2, 4, ... on both sides, so that nobody has to wait for a busy one.
///
/// Calls of several threads take turns (a mutex); together with other use of MPI by the process
/// they need MPI_THREAD_MULTIPLE.
class MpiTransport final : public Transport {
 public:
  static constexpr size_t kPieceBytes = size_t{1} << 30;

  explicit MpiTransport(MPI_Comm communicator, size_t piece_bytes = kPieceBytes);
  /// Where MPI still runs, frees the duplicate. After an abort conclude() comes first, if it was
  /// not called; what other ranks then have not taken is left to MPI, with its memory.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  uint64_t reserve_groups(uint64_t count) override;
  void send(uint64_t group, std::span<const int> ranks, Message message) override;
  Message receive(uint64_t group, int from) override;
  void check() override;
  void leave(uint64_t, std::span<const int>) noexcept override {}
  void abort(const Error& error) noexcept override;

  struct Failure {
    int rank;
    Error error;
  };
  /// That of the first abort, once this rank knows of it.
  std::optional<Failure> failure() const;

  /// Waits until all ranks are here and nothing is under way between them any more, so that MPI can
  /// be finalised. False when that cannot be after an abort, as somebody does not come within
  /// `patience`. At most once.
  bool conclude(std::chrono::milliseconds patience) noexcept;
  /// After an abort by this rank, and conclude(): whether rank 0 came, knowing of it.
  bool rank_0_is_here() const noexcept;

 private:
  struct Header {
    uint64_t group = 0, label = 0, bytes = 0;
  };
  static constexpr size_t kInlineBytes = 1000;
  struct Envelope {
    Header header;
    char bytes[kInlineBytes];
  };
  struct Notice {
    int32_t rank = 0;
    uint32_t kind = 0, length = 0;
    char text[4000];
  };
  struct Arrival {
    Message message;
    std::vector<MPI_Request> pieces;
  };
  struct Departure {
    Message message;
    Envelope envelope;
    std::vector<MPI_Request> requests;
  };
  using Sender = std::pair<uint64_t, int>;  // group and rank

  // What MPI may still read and write.
  struct Buffers {
    Envelope envelope;
    MPI_Request envelope_request = MPI_REQUEST_NULL;
    Notice notice_in, notice_out;
    MPI_Request notice_request = MPI_REQUEST_NULL;
    std::vector<MPI_Request> notice_requests;
    std::map<Sender, std::deque<Arrival>> arrivals;
    std::list<Departure> departures;
  };

  // Looks until it is over; wait() throws the error of an abort.
  template <typename IsOver>
  void poll(std::unique_lock<std::mutex>& lock, const IsOver& is_over);
  template <typename IsDone>
  void wait(std::unique_lock<std::mutex>& lock, const IsDone& is_done);
  void post(Departure& departure, uint64_t group, std::span<const int> ranks);
  void progress();
  bool take_envelope();
  void open_envelope(int from);
  void take_notice();
  void learn(int rank, const Error& error) noexcept;
  bool wait_for_all(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds patience);
  bool has_sent_all();

  mutable std::mutex mutex_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  size_t piece_bytes_;
  uint64_t next_group_ = 1;
  std::vector<int> neighbours_;
  std::unique_ptr<Buffers> buffers_ = std::make_unique<Buffers>();
  std::optional<Failure> failure_;
  std::optional<bool> concluded_;  // what conclude() returned
};

}  // namespace ferry
