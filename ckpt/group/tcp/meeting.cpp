#include "ckpt/group/tcp/meeting.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

constexpr uint64_t kMeetingMagic = 0x3150435459524546;  // "FERYTCP1"
constexpr uint64_t kMostMeetingBytes = 64 << 20;
constexpr int kMostMeetingRanks = 1 << 20;
constexpr int kMostPort = 65535;

int meeting_number(const char* variable, const char* text, int least, int most) {
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, value);
  if (error != std::errc() || last != end || value < least || value > most) {
    fail(ErrorKind::invalid, "{} is '{}': a whole number from {} to {} is wanted", variable, text,
         least, most);
  }
  return value;
}

// A text with its length before it.
void write_text(TcpSocket& socket, const std::string& text) {
  const uint64_t length = text.size();
  socket.write(std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(text)));
}

std::string read_text(TcpSocket& socket, TcpClock::time_point deadline) {
  uint64_t length = 0;
  if (!socket.read(std::as_writable_bytes(std::span(&length, 1)), deadline)) {
    fail(ErrorKind::io, "the connection to another rank has ended");
  }
  if (length > kMostMeetingBytes) {
    fail(ErrorKind::corrupt, "another program answers, which is no rank of this run");
  }
  std::string text(length, '\0');
  socket.read(std::as_writable_bytes(std::span(text)), deadline);
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

// Rank 0's side.
class Host {
 public:
  Host(const MeetingPlace& place, TcpClock::time_point deadline)
      : place_(place), deadline_(deadline), door_(listen_on(place.port)) {
    meeting_.listener = listen_on(0);
    meeting_.ranks.resize(static_cast<size_t>(place.size));
    meeting_.lifelines.resize(static_cast<size_t>(place.size));
    meeting_.ranks[0].port = port_of(meeting_.listener);
    std::random_device random;
    meeting_.token = uint64_t{random()} << 32 | random();
  }

  Meeting wait_for_all() {
    for (int missing = place_.size - 1; missing > 0;) {
      if (wait_for_one()) --missing;
    }
    Packer packer;
    packer.text("").number(meeting_.token);
    for (const Meeting::Rank& rank : meeting_.ranks) {
      packer.text(rank.host).number(static_cast<uint64_t>(rank.port));
    }
    const std::string table = packer.take();
    for (TcpSocket& lifeline : meeting_.lifelines) {
      if (lifeline) write_text(lifeline, table);
    }
    return std::move(meeting_);
  }

 private:
  bool wait_for_one() {
    pollfd poll{door_.descriptor(), POLLIN, 0};
    if (::poll(&poll, 1, 100) <= 0) {
      if (TcpClock::now() > deadline_) fail_incomplete();
      return false;
    }
    TcpSocket guest = accept_from(door_);
    if (!guest) return false;
    try {
      return greet(std::move(guest));
    } catch (const Error&) {
      return false;  // somebody knocked who is no rank
    }
  }

  bool greet(TcpSocket guest) {
    constexpr std::chrono::seconds kGreeting{5};
    const std::string text = read_text(guest, std::min(deadline_, TcpClock::now() + kGreeting));
    Unpacker greeting(text);
    if (greeting.number() != kMeetingMagic) return false;
    const uint64_t size = greeting.number(), rank = greeting.number(), port = greeting.number();
    const std::string refusal = problem_of(size, rank, greeting.text());
    if (!refusal.empty()) {
      write_text(guest, Packer().text(refusal).take());
      return false;
    }
    meeting_.ranks[rank] = {address_of_peer(guest), static_cast<int>(port & 0xFFFF)};
    meeting_.lifelines[rank] = std::move(guest);
    return true;
  }

  std::string problem_of(uint64_t size, uint64_t rank, const std::string& job) const {
    if (job != place_.job) {
      return fmt::format("another run listens at {}:{} (job '{}'): choose another MASTER_PORT",
                         place_.host, place_.port, place_.job);
    }
    if (size != static_cast<uint64_t>(place_.size)) {
      return fmt::format("WORLD_SIZE is {} on rank {}, and {} on rank 0", size, rank, place_.size);
    }
    if (rank == 0 || rank >= size) return fmt::format("RANK {} of {} cannot come", rank, size);
    if (meeting_.lifelines[rank]) return fmt::format("RANK {} is there twice", rank);
    return "";
  }

  [[noreturn]] void fail_incomplete() const {
    std::string missing;
    int count = 0;
    for (int rank = 1; rank < place_.size; ++rank) {
      if (meeting_.lifelines[static_cast<size_t>(rank)]) continue;
      if (++count <= 8) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    fail(ErrorKind::exhausted, "{} of {} ranks have not come to {}:{} ({}{}): look at their logs",
         count, place_.size, place_.host, place_.port, missing, count > 8 ? ", ..." : "");
  }

  const MeetingPlace& place_;
  TcpClock::time_point deadline_;
  TcpSocket door_;
  Meeting meeting_;
};

Meeting come_to(const MeetingPlace& place, TcpClock::time_point deadline) {
  Meeting meeting;
  meeting.listener = listen_on(0);
  TcpSocket lifeline = connect_to(place.host, place.port, deadline);
  if (!lifeline) {
    fail(ErrorKind::exhausted,
         "nobody listens at {}:{} (MASTER_ADDR, MASTER_PORT): has rank 0 begun, and can this host "
         "reach it?",
         place.host, place.port);
  }
  write_text(lifeline, greeting_of(place, port_of(meeting.listener)));
  const std::string text = read_text(lifeline, deadline + std::chrono::seconds(10));
  Unpacker answer(text);
  if (const std::string refusal = answer.text(); !refusal.empty()) {
    fail(ErrorKind::mismatch, "{}", refusal);
  }
  meeting.token = answer.number();
  for (int rank = 0; rank < place.size; ++rank) {
    Meeting::Rank& one = meeting.ranks.emplace_back();
    one.host = answer.text();
    one.port = static_cast<int>(answer.number());
  }
  answer.finish();
  meeting.ranks[0].host = address_of_peer(lifeline);
  meeting.lifelines.push_back(std::move(lifeline));
  return meeting;
}

}  // namespace

std::optional<MeetingPlace> meeting_place(
    const std::function<const char*(const char* variable)>& environment) {
  // What started torchrun's agents says nothing of its processes.
  const char* const torchrun = environment("TORCHELASTIC_RUN_ID");
  for (const char* other : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (environment(other) != nullptr && torchrun == nullptr) return std::nullopt;
  }
  const char* const host = environment("MASTER_ADDR");
  const char* const port = environment("MASTER_PORT");
  const char* const rank = environment("RANK");
  const char* const size = environment("WORLD_SIZE");
  if (host == nullptr || port == nullptr || rank == nullptr || size == nullptr) return std::nullopt;
  MeetingPlace place;
  place.size = meeting_number("WORLD_SIZE", size, 1, kMostMeetingRanks);
  place.rank = meeting_number("RANK", rank, 0, place.size - 1);
  place.port = meeting_number("MASTER_PORT", port, 1, kMostPort);
  place.host = host;
  const char* const agent_listens = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (agent_listens != nullptr && std::string_view(agent_listens) == "True") {
    place.port += place.port < kMostPort ? 1 : -1;
  }
  if (torchrun != nullptr) {
    place.job = fmt::format("TORCHELASTIC_RUN_ID={} ", torchrun);
  } else {
    for (const char* variable : {"SLURM_JOB_ID", "SLURM_STEP_ID", "JOB"}) {
      const char* const value = environment(variable);
      if (value != nullptr) place.job += fmt::format("{}={} ", variable, value);
    }
  }
  if (place.size == 1) return std::nullopt;
  return place;
}

Meeting meet(const MeetingPlace& place, std::chrono::seconds patience) {
  const auto deadline = TcpClock::now() + patience;
  if (place.rank == 0) return Host(place, deadline).wait_for_all();
  return come_to(place, deadline);
}

}  // namespace ferry
