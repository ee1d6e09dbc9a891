#include "ckpt/group/tcp/meeting.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/base/random_bits.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

constexpr uint64_t kMeetingMagic = 0x3150435459524546;  // "FERYTCP1"
constexpr uint64_t kMostMeetingBytes = 64 << 20;
constexpr std::chrono::seconds kGreetingPatience{5};

// A text with its length before it.
void write_text(TcpSocket& socket, const std::string& text) {
  const uint64_t length = text.size();
  socket.write(std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(text)));
}

std::string read_text(TcpSocket& socket, TcpClock::time_point deadline) {
  uint64_t length = 0;
  if (!socket.read(std::as_writable_bytes(std::span(&length, 1)), deadline)) {
    fail(ErrorKind::io, "it ended before all ranks were connected");
  }
  if (length > kMostMeetingBytes) {
    fail(ErrorKind::corrupt,
         "another program answers, not a rank of this run; check MASTER_ADDR and "
         "MASTER_PORT");
  }
  std::string text(length, '\0');
  if (length > 0 && !socket.read(std::as_writable_bytes(std::span(text)), deadline)) {
    fail(ErrorKind::io, "it ended in the middle of a message");
  }
  return text;
}

std::string greeting_of(const MeetingPlace& place, int listener_port) {
  return Packer()
      .number(kMeetingMagic)
      .number(static_cast<uint64_t>(place.size))
      .number(static_cast<uint64_t>(place.rank))
      .number(static_cast<uint64_t>(listener_port))
      .text(place.job)
      .take();
}

// Where rank 0's own name stands for the loopback device on its host (Debian's 127.0.1.1), ranks of
// that host come from an address which on other hosts is those themselves.
bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host.starts_with("::ffff:127.") || host == "::1";
}

std::string who_is(const MeetingPlace& place) {
  return fmt::format("rank {} of {}", place.rank, place.size);
}

// For rank 0, which listens on all addresses, whatever its name: others may find it or not.
std::string doubt_about(const std::string& host) {
  const std::string problem = problem_of_name(host);
  return problem.empty() ? "" : fmt::format(" (MASTER_ADDR {}: {})", host, problem);
}

// Rank 0's side.
class Host {
 public:
  Host(const MeetingPlace& place, TcpClock::time_point deadline, const SayWait& say, TcpSocket door)
      : place_(place),
        deadline_(deadline),
        door_(door ? std::move(door) : listen_on(place.port)),
        reports_(say, who_is(place), [host = place.host] { return doubt_about(host); }) {
    meeting_.listener = listen_on(0);
    meeting_.ranks.resize(static_cast<size_t>(place.size));
    meeting_.lifelines.resize(static_cast<size_t>(place.size));
    meeting_.ranks[0].port = port_of(meeting_.listener);
    meeting_.token = random_bits();
  }

  Meeting wait_for_all() {
    for (int missing = place_.size - 1; missing > 0;) {
      reports_.set(fmt::format("at {}:{} for {}, which {} not come{}", place_.host, place_.port,
                               missing_ranks(), missing == 1 ? "has" : "have", remark_));
      missing += wait_for_events();
      if (TcpClock::now() > deadline_) fail_incomplete();
    }
    Packer packer;
    packer.text("").number(meeting_.token);
    for (const Meeting::Rank& rank : meeting_.ranks) {
      packer.text(is_loopback(rank.host) ? "" : rank.host).number(static_cast<uint64_t>(rank.port));
    }
    const std::string table = packer.take();
    for (size_t rank = 1; rank < meeting_.lifelines.size(); ++rank) {
      try {
        write_text(meeting_.lifelines[rank], table);
      } catch (const Error& error) {
        fail(error.kind(), "rank {} ended when all were connected: {}", rank, error.what());
      }
    }
    return std::move(meeting_);
  }

 private:
  struct Guest {
    TcpSocket socket;
    TcpClock::time_point since;
  };

  // Takes what happens within a moment: guests that come, what they say, and ranks that end. What
  // the number of missing ranks changes by. Guests that say nothing (probes of a port, say) keep
  // nobody waiting.
  int wait_for_events() {
    std::vector<pollfd> polls{{door_.descriptor(), POLLIN, 0}};
    for (const Guest& guest : guests_) polls.push_back({guest.socket.descriptor(), POLLIN, 0});
    const size_t first_line = polls.size();
    for (const TcpSocket& line : meeting_.lifelines) {  // an empty one has -1, which is passed over
      polls.push_back({line.descriptor(), POLLIN, 0});
    }
    if (::poll(polls.data(), polls.size(), 100) < 0) return 0;
    int change = 0;
    for (size_t rank = 0; rank < meeting_.lifelines.size(); ++rank) {
      if (polls[first_line + rank].revents == 0) continue;
      // No rank says anything before all have come: it has gone, and may be started again.
      meeting_.lifelines[rank].close();
      remark_ = fmt::format(" (rank {} connected, and has ended since)", rank);
      ++change;
    }
    std::vector<Guest> silent;
    for (size_t i = 0; i < guests_.size(); ++i) {
      const bool is_late = TcpClock::now() - guests_[i].since > kGreetingPatience;
      if (polls[1 + i].revents != 0) {
        change -= greet(std::move(guests_[i].socket)) ? 1 : 0;
      } else if (!is_late) {
        silent.push_back(std::move(guests_[i]));
      }
    }
    guests_ = std::move(silent);
    if (polls[0].revents != 0) take_guests();
    return change;
  }

  // Many at a time: polling all lifelines takes longer with each rank.
  void take_guests() {
    constexpr int kMostAtOnce = 256;
    for (int count = 0; count < kMostAtOnce; ++count) {
      pollfd door{door_.descriptor(), POLLIN, 0};
      if (::poll(&door, 1, 0) <= 0) return;
      TcpSocket guest = accept_from(door_);
      if (guest) guests_.push_back({std::move(guest), TcpClock::now()});
    }
  }

  bool greet(TcpSocket guest) {
    try {
      return take_greeting(std::move(guest));
    } catch (const Error&) {
      return false;  // somebody knocked who is not a rank
    }
  }

  bool take_greeting(TcpSocket guest) {
    const std::string text =
        read_text(guest, std::min(deadline_, TcpClock::now() + kGreetingPatience));
    Unpacker greeting(text);
    if (greeting.number() != kMeetingMagic) return false;
    const uint64_t size = greeting.number(), rank = greeting.number(), port = greeting.number();
    const std::string refusal = problem_of(size, rank, greeting.text());
    if (!refusal.empty()) {
      remark_ = fmt::format(" (one was turned away: {})", refusal);
      write_text(guest, Packer().text(refusal).take());
      return false;
    }
    meeting_.ranks[rank] = {address_of_peer(guest), static_cast<int>(port & 0xFFFF)};
    meeting_.lifelines[rank] = std::move(guest);
    return true;
  }

  std::string problem_of(uint64_t size, uint64_t rank, const std::string& job) const {
    if (job != place_.job) {
      return fmt::format("another run listens at {}:{} (job '{}'); choose another MASTER_PORT",
                         place_.host, place_.port, place_.job);
    }
    if (size != static_cast<uint64_t>(place_.size)) {
      return fmt::format("WORLD_SIZE is {} on rank {}, and {} on rank 0", size, rank, place_.size);
    }
    if (rank == 0 || rank >= size)
      return fmt::format("RANK {} is not possible in a run of {}", rank, size);
    if (meeting_.lifelines[rank]) return fmt::format("two processes have RANK {}", rank);
    return "";
  }

  // "ranks 1, 2": the first of them.
  std::string missing_ranks() const {
    constexpr int kMostNamed = 8;
    std::string missing;
    int count = 0;
    for (int rank = 1; rank < place_.size; ++rank) {
      if (meeting_.lifelines[static_cast<size_t>(rank)]) continue;
      if (++count <= kMostNamed) missing += fmt::format("{}{}", count == 1 ? "" : ", ", rank);
    }
    const std::string others =
        count > kMostNamed ? fmt::format(" and {} more", count - kMostNamed) : "";
    return fmt::format("rank{} {}{}", count == 1 ? "" : "s", missing, others);
  }

  [[noreturn]] void fail_incomplete() const {
    fail(ErrorKind::exhausted,
         "{} of the {} that WORLD_SIZE counts {} not come to {}:{}{}; check that each was started, "
         "with the same MASTER_ADDR and MASTER_PORT, and see their logs",
         missing_ranks(), place_.size, place_.size == 2 ? "has" : "have", place_.host, place_.port,
         remark_);
  }

  const MeetingPlace& place_;
  TcpClock::time_point deadline_;
  TcpSocket door_;
  WaitReports reports_;
  std::string remark_;         // the last rank that was turned away, or has ended
  std::vector<Guest> guests_;  // that have said nothing yet
  Meeting meeting_;
};

// Rank 0's, once all have come.
std::string answer_of(TcpSocket& lifeline, const MeetingPlace& place, int listener_port,
                      TcpClock::time_point deadline) {
  try {
    write_text(lifeline, greeting_of(place, listener_port));
    return read_text(lifeline, deadline + std::chrono::seconds(10));
  } catch (const Error& error) {
    fail(error.kind(), "rank 0 at {}:{} (MASTER_ADDR, MASTER_PORT) was reached, but: {}",
         place.host, place.port, error.what());
  }
}

Meeting come_to(const MeetingPlace& place, TcpClock::time_point deadline, const SayWait& say) {
  Meeting meeting;
  meeting.listener = listen_on(0);
  WaitReports reports(say, who_is(place));
  const auto report = [&](const std::string& problem) {
    reports.set(fmt::format("for rank 0 at {}:{} (MASTER_ADDR, MASTER_PORT): {}", place.host,
                            place.port, problem));
  };
  report("no answer yet");
  auto [lifeline, problem] = connect_to(place.host, place.port, deadline, report);
  if (!lifeline) {
    fail(ErrorKind::exhausted,
         "rank 0 cannot be reached at {}:{} (MASTER_ADDR, MASTER_PORT): {}; check that rank 0 was "
         "started, with the same address and port, and that this host reaches its",
         place.host, place.port, problem);
  }
  reports.set(fmt::format("for other ranks, which rank 0 at {}:{} names", place.host, place.port),
              WaitReports::Often::once);
  const std::string text = answer_of(lifeline, place, port_of(meeting.listener), deadline);
  Unpacker answer(text);
  if (const std::string refusal = answer.text(); !refusal.empty()) {
    fail(ErrorKind::mismatch, "{}", refusal);
  }
  meeting.token = answer.number();
  for (int rank = 0; rank < place.size; ++rank) {
    Meeting::Rank& one = meeting.ranks.emplace_back();
    one.host = answer.text();
    // Addresses of rank 0's host, of which this rank has one.
    if (one.host.empty()) one.host = address_of_peer(lifeline);
    one.port = static_cast<int>(answer.number());
  }
  answer.finish();
  meeting.lifelines.push_back(std::move(lifeline));
  return meeting;
}

}  // namespace

Meeting meet(const MeetingPlace& place, std::chrono::seconds patience, const SayWait& say,
             TcpSocket door) {
  const auto deadline = TcpClock::now() + patience;
  if (place.rank == 0) return Host(place, deadline, say, std::move(door)).wait_for_all();
  return come_to(place, deadline, say);
}

}  // namespace ferry
