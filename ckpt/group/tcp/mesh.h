// Messages between processes that have met: what groups and links of such a run are made of.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "ckpt/group/tcp/meeting.h"

namespace ferry {

/// A connection from each rank to each other one that it has sent something to, made when it first
/// does. Threads of this object take in whatever comes, so that a rank which sends never waits for
/// what the receiver does besides; what came is kept until it is asked for.
///
/// Each rank has a connection to rank 0 as well, which shows who has ended without a message: then,
/// and where a rank aborts, all are notified. So they are, some seconds later, where a connection
/// breaks while both its ranks live, as messages may be lost with it.
///
/// Any thread may call it.
class TcpMesh {
 public:
  /// `say` hears of waiting for other ranks: until all have met, where one cannot be reached, and
  /// where nothing comes from one for as long as `silence`, and then again, less and less often.
  /// `door`: as meet().
  explicit TcpMesh(const MeetingPlace& place,
                   std::chrono::seconds patience = std::chrono::seconds(600), SayWait say = {},
                   std::chrono::milliseconds silence = std::chrono::seconds(30),
                   TcpSocket door = {});
  ~TcpMesh();
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(peers_.size()); }

  /// From now on a rank that waits for another one, from which nothing comes for so long, ends the
  /// mesh for all (exhausted): for programs whose user would see no report.
  void limit_silence(std::chrono::milliseconds most);

  /// Messages of one lane from one rank to another arrive in the order in which they were sent.
  struct Lane {
    uint64_t kind = 0, number = 0;
    auto operator<=>(const Lane&) const = default;
  };
  /// Returns when `bytes` are no longer needed. It and receive() throw the error of an abort.
  void send(int to, Lane lane, uint64_t label, std::span<const std::byte> bytes);
  Message receive(int from, Lane lane);

  void abort(const Error& error) noexcept;
  void check() const;

  struct Failure {
    int rank;
    Error error;
    bool is_lost = false;  // no message came: the rank has gone
  };
  std::optional<Failure> failure() const;

  /// The last that a rank calls: waits until all ranks have. After an abort, and for a rank that
  /// has gone, `patience` at most. True when all came.
  bool conclude(std::chrono::seconds patience) noexcept;

 private:
  struct Peer {
    Meeting::Rank place;
    std::mutex mutex;
    TcpSocket socket;  // to it, once there is something to send
  };
  struct Notice;

  void listen();
  void take_in();
  void take_connection(const std::shared_ptr<TcpSocket>& socket) noexcept;
  std::optional<int> take_hello(TcpSocket& socket);
  [[noreturn]] void take_messages(TcpSocket& socket, int from);
  void report_break(int from, const std::string& reason);
  void watch_lifelines() noexcept;
  bool take_notice(size_t line);
  void send(size_t line, const Notice& notice) noexcept;
  void learn(const Failure& failure, size_t from) noexcept;
  size_t rank_of_line(size_t line) const { return rank_ == 0 ? line : 0; }
  TcpSocket connect_to_peer(int to) const;
  void wait_for_message(std::unique_lock<std::mutex>& lock, int from,
                        const std::function<bool()>& is_there);

  int rank_;
  SayWait say_;
  std::chrono::milliseconds silence_;
  std::optional<std::chrono::milliseconds> most_silence_;           // by `mutex_`
  TcpClock::time_point next_report_ = TcpClock::time_point::min();  // of silence; by `mutex_`
  uint64_t token_;
  TcpSocket listener_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<TcpSocket> lifelines_;
  std::mutex lifeline_mutex_;  // of writing

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, Lane>, std::deque<Message>> arrivals_;
  std::optional<Failure> failure_;
  std::vector<bool> said_goodbye_;  // by lifeline
  bool is_concluded_ = false;
  std::atomic<bool> is_over_{false};
  std::vector<std::shared_ptr<TcpSocket>> incoming_;
  std::vector<std::thread> readers_;
  std::thread listener_thread_, watcher_;
};

/// A transport for message_group() over the mesh.
std::shared_ptr<Transport> tcp_transport(std::shared_ptr<TcpMesh> mesh);

}  // namespace ferry
