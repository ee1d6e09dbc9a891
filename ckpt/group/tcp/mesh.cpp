#include "ckpt/group/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace ferry {
namespace {

using std::chrono::milliseconds;

struct FrameHeader {
  uint64_t kind = 0, number = 0, label = 0, bytes = 0;
};

struct FrameHello {
  uint64_t token = 0;
  int64_t rank = 0;
};

constexpr int kLookMilliseconds = 50;

// How long a connection that broke waits for another rank to say why.
constexpr std::chrono::seconds kReasonPatience{3};

Error broken_connection(int from, int to, const std::string& reason) {
  return Error(ErrorKind::io,
               fmt::format("the connection from rank {} to rank {} broke: {}", from, to, reason));
}

}  // namespace

// What goes over a lifeline.
struct TcpMesh::Notice {
  enum class Kind : uint32_t { goodbye = 1, failure = 2 };
  Kind kind = Kind::goodbye;
  uint32_t error_kind = 0;
  int32_t rank = 0;
  uint32_t length = 0;
  uint32_t is_lost = 0;
  char text[2000] = {};
};

TcpMesh::TcpMesh(const MeetingPlace& place, std::chrono::seconds patience, SayWait say,
                 milliseconds silence, TcpSocket door)
    : rank_(place.rank), say_(std::move(say)), silence_(silence) {
  Meeting meeting = meet(place, patience, say_, std::move(door));
  token_ = meeting.token;
  listener_ = std::move(meeting.listener);
  lifelines_ = std::move(meeting.lifelines);
  said_goodbye_.resize(lifelines_.size());
  for (Meeting::Rank& rank : meeting.ranks) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->place = std::move(rank);
  }
  listener_thread_ = std::thread([this] { listen(); });
  watcher_ = std::thread([this] { watch_lifelines(); });
}

TcpMesh::~TcpMesh() {
  if (!is_concluded_) conclude(std::chrono::seconds(5));
  is_over_ = true;
  listener_thread_.join();
  watcher_.join();
  for (const auto& socket : incoming_) socket->shut_down();
  for (std::thread& reader : readers_) reader.join();
}

// Takes connections in, each with a thread that reads it.
void TcpMesh::listen() {
  while (!is_over_) {
    pollfd poll{listener_.descriptor(), POLLIN, 0};
    if (::poll(&poll, 1, kLookMilliseconds) <= 0) continue;
    // A connection that is not taken would keep both ranks waiting for ever.
    try {
      take_in();
    } catch (const Error& error) {
      return abort(error);
    } catch (const std::exception& error) {
      return abort(Error(ErrorKind::exhausted,
                         fmt::format("no thread or memory for a connection of another rank: {} "
                                     "(ulimit -u, or the processes that a container may have)",
                                     error.what())));
    }
  }
}

void TcpMesh::take_in() {
  const auto socket = std::make_shared<TcpSocket>(accept_from(listener_));
  if (!*socket) return;
  incoming_.push_back(socket);
  readers_.emplace_back([this, socket] { take_connection(socket); });
}

void TcpMesh::take_connection(const std::shared_ptr<TcpSocket>& socket) noexcept {
  try {
    const std::optional<int> from = take_hello(*socket);
    if (!from) return;
    try {
      take_messages(*socket, *from);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      report_break(*from, error.what());
    }
  } catch (const std::bad_alloc&) {
    abort(Error(ErrorKind::exhausted, "out of memory for what other ranks send"));
  } catch (...) {
    // It ended before it said whose it is: any program may knock here.
  }
}

// The rank at the other end; nothing where that is none of this run.
std::optional<int> TcpMesh::take_hello(TcpSocket& socket) {
  FrameHello hello;
  const auto deadline = TcpClock::now() + std::chrono::seconds(10);
  if (!socket.read(std::as_writable_bytes(std::span(&hello, 1)), deadline)) return std::nullopt;
  if (hello.token != token_ || hello.rank < 0 || hello.rank >= size()) return std::nullopt;
  return static_cast<int>(hello.rank);
}

// Throws when the connection ends, however it does.
void TcpMesh::take_messages(TcpSocket& socket, int from) {
  const auto read = [&](std::span<std::byte> bytes) {
    if (!socket.read(bytes)) fail(ErrorKind::io, "it was closed while still in use");
  };
  while (true) {
    FrameHeader header;
    read(std::as_writable_bytes(std::span(&header, 1)));
    Message message{header.label, std::string(header.bytes, '\0')};
    if (header.bytes > 0) read(std::as_writable_bytes(std::span(message.bytes)));
    const std::lock_guard lock(mutex_);
    arrivals_[{from, {header.kind, header.number}}].push_back(std::move(message));
    changed_.notify_all();
  }
}

// What the system had taken for sending may be lost with the connection, and neither side would
// ever know: so the run fails. No rank closes its connections before all have concluded, except
// where one has failed or died; then the reason comes by the lifelines, which takes a moment, and
// says more.
void TcpMesh::report_break(int from, const std::string& reason) {
  std::unique_lock lock(mutex_);
  const auto is_explained = [&] { return failure_ || is_concluded_; };
  if (changed_.wait_for(lock, kReasonPatience, is_explained)) return;
  lock.unlock();
  abort(broken_connection(from, rank_, reason));
}

TcpSocket TcpMesh::connect_to_peer(int to) const {
  const Meeting::Rank& place = peers_.at(static_cast<size_t>(to))->place;
  WaitReports reports(say_, fmt::format("rank {} of {}", rank_, size()));
  const auto report = [&](const std::string& problem) {
    check();  // it may have ended, or another rank has
    reports.set(fmt::format("for rank {} at {}:{}: {}", to, place.host, place.port, problem));
  };
  report("it does not answer");
  auto [socket, problem] =
      connect_to(place.host, place.port, TcpClock::now() + std::chrono::seconds(60), report);
  if (!socket) {
    fail(ErrorKind::io, "rank {} cannot be reached at {}:{} from rank {}: {}", to, place.host,
         place.port, rank_, problem);
  }
  return std::move(socket);
}

void TcpMesh::send(int to, Lane lane, uint64_t label, std::span<const std::byte> bytes) {
  check();
  Peer& peer = *peers_.at(static_cast<size_t>(to));
  const FrameHeader header{lane.kind, lane.number, label, bytes.size()};
  bool is_connected = false;
  try {
    const std::lock_guard lock(peer.mutex);
    const bool is_new = !peer.socket;
    if (is_new) peer.socket = connect_to_peer(to);
    is_connected = true;
    const FrameHello hello{token_, rank_};
    if (is_new) peer.socket.write(std::as_bytes(std::span(&hello, 1)));
    peer.socket.write(std::as_bytes(std::span(&header, 1)), bytes);
  } catch (const Error& error) {
    // A rank that ends says why, which takes a moment.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kReasonPatience, [&] { return failure_.has_value(); });
    lock.unlock();
    check();
    if (!is_connected) throw;
    throw broken_connection(rank_, to, error.what());
  }
}

// A rank that is stopped, or held by its file system, keeps its connections: nothing else would say
// why all are stuck. One of this rank's threads says so for all.
void TcpMesh::wait_for_message(std::unique_lock<std::mutex>& lock, int from,
                               const std::function<bool()>& is_there) {
  const auto begin = TcpClock::now();
  auto next = begin + silence_;
  for (;;) {
    const auto end = most_silence_ ? begin + *most_silence_ : TcpClock::time_point::max();
    if (changed_.wait_until(lock, std::min(next, end), is_there)) return;
    const auto now = TcpClock::now();
    const auto waited = now - begin;
    const std::string report = fmt::format(
        "rank {} of {} has waited for {} s for rank {}, which is connected and sends nothing: is "
        "it busy, stopped, or waiting for its files?",
        rank_, size(), std::chrono::round<std::chrono::seconds>(waited).count(), from);
    if (now >= end) {
      lock.unlock();
      abort(Error(ErrorKind::exhausted, report));
      lock.lock();
      continue;
    }
    next = now + waited;
    if (!say_ || now < next_report_) continue;
    next_report_ = next;
    lock.unlock();
    say_(report);
    lock.lock();
  }
}

void TcpMesh::limit_silence(milliseconds most) {
  const std::lock_guard lock(mutex_);
  most_silence_ = most;
}

Message TcpMesh::receive(int from, Lane lane) {
  std::unique_lock lock(mutex_);
  const std::tuple<int, Lane> key{from, lane};
  auto queue = arrivals_.end();
  wait_for_message(lock, from, [&] {
    queue = arrivals_.find(key);
    return failure_ || queue != arrivals_.end();
  });
  if (queue == arrivals_.end()) {
    lock.unlock();
    check();
  }
  Message message = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) arrivals_.erase(queue);
  return message;
}

void TcpMesh::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return;
  fail(failure_->error.kind(), "rank {}: {}", failure_->rank, failure_->error.what());
}

std::optional<TcpMesh::Failure> TcpMesh::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void TcpMesh::abort(const Error& error) noexcept { learn({rank_, error, false}, SIZE_MAX); }

// Rank 0 forwards what it receives; others send it to rank 0.
void TcpMesh::learn(const Failure& failure, size_t from) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_.emplace(failure);
    changed_.notify_all();
  }
  Notice notice;
  notice.kind = Notice::Kind::failure;
  notice.error_kind = static_cast<uint32_t>(failure.error.kind());
  notice.rank = failure.rank;
  notice.is_lost = failure.is_lost ? 1 : 0;
  const size_t length = std::min(std::strlen(failure.error.what()), sizeof notice.text);
  notice.length = static_cast<uint32_t>(length);
  std::memcpy(notice.text, failure.error.what(), length);
  for (size_t line = 0; line < lifelines_.size(); ++line) {
    if (line != from) send(line, notice);
  }
}

void TcpMesh::send(size_t line, const Notice& notice) noexcept {
  const std::lock_guard lock(lifeline_mutex_);
  if (!lifelines_[line]) return;
  try {
    lifelines_[line].write(std::as_bytes(std::span(&notice, 1)));
  } catch (const Error&) {
    // It has gone, as watch_lifelines() sees, too.
  }
}

void TcpMesh::watch_lifelines() noexcept {
  std::vector<bool> is_closed(lifelines_.size());
  while (!is_over_) {
    std::vector<pollfd> polls;
    std::vector<size_t> lines;
    for (size_t line = 0; line < lifelines_.size(); ++line) {
      if (!lifelines_[line] || is_closed[line]) continue;
      polls.push_back({lifelines_[line].descriptor(), POLLIN, 0});
      lines.push_back(line);
    }
    if (::poll(polls.data(), polls.size(), kLookMilliseconds) <= 0) continue;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0 && !take_notice(lines[i])) is_closed[lines[i]] = true;
    }
  }
}

// False when the lifeline has ended.
bool TcpMesh::take_notice(size_t line) {
  Notice notice;
  bool is_there = false;
  try {
    is_there = lifelines_[line].read(std::as_writable_bytes(std::span(&notice, 1)),
                                     TcpClock::now() + std::chrono::seconds(10));
  } catch (const Error&) {
    // As if it had ended.
  }
  if (is_there && notice.kind == Notice::Kind::failure) {
    const auto kind = std::min(notice.error_kind, static_cast<uint32_t>(ErrorKind::cancelled));
    const size_t length = std::min<size_t>(notice.length, sizeof notice.text);
    learn({notice.rank, Error(static_cast<ErrorKind>(kind), std::string(notice.text, length)),
           notice.is_lost != 0},
          line);
    return true;
  }
  bool said_goodbye = false;
  {
    const std::lock_guard lock(mutex_);
    said_goodbye = said_goodbye_[line] || failure_;
    said_goodbye_[line] = true;
    changed_.notify_all();
  }
  if (!is_there && !said_goodbye) {
    learn({static_cast<int>(rank_of_line(line)),
           Error(ErrorKind::io, "has ended without a message (killed, or its host is down)"), true},
          line);
  }
  return is_there;
}

bool TcpMesh::conclude(std::chrono::seconds patience) noexcept {
  std::unique_lock lock(mutex_);
  is_concluded_ = true;
  changed_.notify_all();
  const auto have_all = [&] {
    size_t missing = 0;
    for (size_t line = 0; line < lifelines_.size(); ++line) {
      missing += lifelines_[line] && !said_goodbye_[line] ? 1 : 0;
    }
    return missing == 0;
  };
  const auto wait = [&] {
    changed_.wait(lock, [&] { return have_all() || failure_; });
    if (have_all()) return true;
    return changed_.wait_for(lock, patience, have_all);
  };
  const auto say_goodbye = [&] {
    lock.unlock();
    for (size_t line = 0; line < lifelines_.size(); ++line) send(line, Notice{});
    lock.lock();
  };
  // Rank 0 says it when all others have: nobody goes while something may still be under way.
  if (rank_ != 0) say_goodbye();
  const bool all_came = wait();
  if (rank_ == 0) say_goodbye();
  return all_came && !(failure_ && failure_->is_lost);
}

namespace {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::shared_ptr<TcpMesh> mesh) : mesh_(std::move(mesh)) {}

  int rank() const noexcept override { return mesh_->rank(); }
  int size() const noexcept override { return mesh_->size(); }
  uint64_t reserve_groups(uint64_t count) override {
    constexpr uint64_t kGroupsPerRank = uint64_t{1} << 40;
    return static_cast<uint64_t>(rank()) * kGroupsPerRank + next_group_.fetch_add(count);
  }
  void send(uint64_t group, std::span<const int> ranks, Message message) override {
    for (const int to : ranks) {
      mesh_->send(to, {kGroups, group}, message.label, std::as_bytes(std::span(message.bytes)));
    }
  }
  Message receive(uint64_t group, int from) override {
    return mesh_->receive(from, {kGroups, group});
  }
  void check() override { mesh_->check(); }
  void leave(uint64_t, std::span<const int>) noexcept override {}
  void abort(const Error& error) noexcept override { mesh_->abort(error); }

 private:
  static constexpr uint64_t kGroups = 0;

  std::shared_ptr<TcpMesh> mesh_;
  std::atomic<uint64_t> next_group_{1};
};

}  // namespace

std::shared_ptr<Transport> tcp_transport(std::shared_ptr<TcpMesh> mesh) {
  return std::make_shared<TcpTransport>(std::move(mesh));
}

}  // namespace ferry
