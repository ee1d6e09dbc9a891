#include "ckpt/group/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>

#include "ckpt/group/mpi/mpi_code.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

enum Tag : int { kEnvelopeTag = 1, kPieceTag, kNoticeTag, kHereTag };

constexpr milliseconds kPatience{5000};
constexpr uint64_t kGroupsPerRank = uint64_t{1} << 40;

bool are_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  check_code(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
  return done != 0;
}

bool is_done(MPI_Request& request) {
  int done = 0;
  check_code(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

// Who waits long, looks rarely: at most a quarter of the time is added.
void pause(Clock::time_point since) {
  constexpr std::chrono::microseconds kSpinning{50};
  const auto waited = Clock::now() - since;
  if (waited < kSpinning) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::min<Clock::duration>(waited / 4, milliseconds(5)));
  }
}

// Those at distances of powers of two, once each.
std::vector<int> neighbours_of(int rank, int size) {
  std::vector<int> neighbours;
  for (int64_t distance = 1; distance < size; distance *= 2) {
    neighbours.push_back(static_cast<int>((rank + distance) % size));
    neighbours.push_back(static_cast<int>((rank + size - distance) % size));
  }
  std::sort(neighbours.begin(), neighbours.end());
  neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
  return neighbours;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm communicator, size_t piece_bytes) : piece_bytes_(piece_bytes) {
  check_code(MPI_Comm_rank(communicator, &rank_));
  check_code(MPI_Comm_size(communicator, &size_));
  neighbours_ = neighbours_of(rank_, size_);
  buffers_->notice_requests.assign(neighbours_.size(), MPI_REQUEST_NULL);
  check_code(MPI_Comm_dup(communicator, &communicator_));
  check_code(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
}

MpiTransport::~MpiTransport() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized) return;
  const bool is_over = !failure_ || (concluded_ ? *concluded_ : conclude(kPatience));
  if (is_over) {
    MPI_Comm_free(&communicator_);
  } else {
    buffers_.release();
  }
}

uint64_t MpiTransport::reserve_groups(uint64_t count) {
  const std::lock_guard lock(mutex_);
  const uint64_t first = static_cast<uint64_t>(rank_) * kGroupsPerRank + next_group_;
  next_group_ += count;
  return first;
}

void MpiTransport::send(uint64_t group, std::span<const int> ranks, Message message) {
  std::unique_lock lock(mutex_);
  const auto departure = buffers_->departures.insert(buffers_->departures.end(), Departure{});
  departure->message = std::move(message);
  post(*departure, group, ranks);
  wait(lock, [&] { return are_done(departure->requests); });
  buffers_->departures.erase(departure);
}

void MpiTransport::post(Departure& departure, uint64_t group, std::span<const int> ranks) {
  const std::string& bytes = departure.message.bytes;
  Envelope& envelope = departure.envelope;
  envelope.header = {group, departure.message.label, bytes.size()};
  const bool is_inline = bytes.size() <= kInlineBytes;
  const size_t pieces = is_inline ? 0 : (bytes.size() - 1) / piece_bytes_ + 1;
  if (is_inline) std::memcpy(envelope.bytes, bytes.data(), bytes.size());
  departure.requests.assign(ranks.size() * (1 + pieces), MPI_REQUEST_NULL);
  MPI_Request* request = departure.requests.data();
  for (const int to : ranks) {
    check_code(MPI_Isend(&envelope,
                         static_cast<int>(sizeof(Header) + (is_inline ? bytes.size() : 0)),
                         MPI_BYTE, to, kEnvelopeTag, communicator_, request++));
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = piece * piece_bytes_;
      const size_t length = std::min(piece_bytes_, bytes.size() - begin);
      check_code(MPI_Isend(bytes.data() + begin, static_cast<int>(length), MPI_BYTE, to, kPieceTag,
                           communicator_, request++));
    }
  }
}

Message MpiTransport::receive(uint64_t group, int from) {
  std::unique_lock lock(mutex_);
  auto& arrivals = buffers_->arrivals;
  auto queue = arrivals.end();
  wait(lock, [&] {
    queue = arrivals.find({group, from});
    return queue != arrivals.end() && are_done(queue->second.front().pieces);
  });
  Message message = std::move(queue->second.front().message);
  queue->second.pop_front();
  if (queue->second.empty()) arrivals.erase(queue);
  return message;
}

template <typename IsOver>
void MpiTransport::poll(std::unique_lock<std::mutex>& lock, const IsOver& is_over) {
  const auto since = Clock::now();
  while (true) {
    progress();
    if (is_over()) return;
    lock.unlock();
    pause(since);
    lock.lock();
  }
}

template <typename IsDone>
void MpiTransport::wait(std::unique_lock<std::mutex>& lock, const IsDone& is_done) {
  poll(lock, [&] {
    if (failure_) {
      fail(failure_->error.kind(), "rank {}: {}", failure_->rank, failure_->error.what());
    }
    return is_done();
  });
}

void MpiTransport::check() {
  std::unique_lock lock(mutex_);
  wait(lock, [] { return true; });
}

void MpiTransport::progress() {
  take_notice();
  while (take_envelope()) {
  }
}

// One at a time, so that messages of a rank are put in order and its pieces are asked for in order.
bool MpiTransport::take_envelope() {
  Buffers& in = *buffers_;
  MPI_Status status;
  int is_there = 0;
  if (in.envelope_request == MPI_REQUEST_NULL) {
    check_code(MPI_Iprobe(MPI_ANY_SOURCE, kEnvelopeTag, communicator_, &is_there, &status));
    if (!is_there) return false;
    check_code(MPI_Irecv(&in.envelope, sizeof in.envelope, MPI_BYTE, status.MPI_SOURCE,
                         kEnvelopeTag, communicator_, &in.envelope_request));
  }
  check_code(MPI_Test(&in.envelope_request, &is_there, &status));
  if (!is_there) return false;
  int received = 0;
  check_code(MPI_Get_count(&status, MPI_BYTE, &received));
  const uint64_t bytes = in.envelope.header.bytes;
  const size_t inline_bytes = bytes <= kInlineBytes ? bytes : 0;
  if (static_cast<size_t>(received) != sizeof(Header) + inline_bytes) {
    fail(ErrorKind::corrupt,
         "rank {} sent a message that cannot be read; do all ranks run the same release?",
         status.MPI_SOURCE);
  }
  try {
    open_envelope(status.MPI_SOURCE);
  } catch (const std::bad_alloc&) {
    if (!failure_) throw;  // after a failure nobody receives it
  }
  return true;
}

void MpiTransport::open_envelope(int from) {
  const auto& [header, inline_bytes] = buffers_->envelope;
  Arrival arrival{{header.label, std::string(header.bytes, '\0')}, {}};
  std::string& bytes = arrival.message.bytes;
  if (bytes.size() <= kInlineBytes) {
    std::memcpy(bytes.data(), inline_bytes, bytes.size());
  } else {
    arrival.pieces.assign((bytes.size() - 1) / piece_bytes_ + 1, MPI_REQUEST_NULL);
  }
  // From here on MPI knows of the pieces: their memory stays where it is.
  Arrival& placed = buffers_->arrivals[{header.group, from}].emplace_back(std::move(arrival));
  char* begin = placed.message.bytes.data();
  size_t rest = placed.message.bytes.size();
  for (MPI_Request& piece : placed.pieces) {
    const size_t length = std::min(piece_bytes_, rest);
    check_code(MPI_Irecv(begin, static_cast<int>(length), MPI_BYTE, from, kPieceTag, communicator_,
                         &piece));
    begin += length, rest -= length;
  }
}

void MpiTransport::take_notice() {
  Buffers& in = *buffers_;
  MPI_Status status;
  int is_there = 0;
  if (in.notice_request == MPI_REQUEST_NULL) {
    check_code(MPI_Iprobe(MPI_ANY_SOURCE, kNoticeTag, communicator_, &is_there, &status));
    if (!is_there) return;
    check_code(MPI_Irecv(&in.notice_in, sizeof in.notice_in, MPI_BYTE, status.MPI_SOURCE,
                         kNoticeTag, communicator_, &in.notice_request));
  }
  if (!is_done(in.notice_request)) return;
  if (failure_) return;
  const Notice& notice = in.notice_in;
  const auto kind = std::min(notice.kind, static_cast<uint32_t>(ErrorKind::cancelled));
  const size_t length = std::min<size_t>(notice.length, sizeof notice.text);
  learn(notice.rank, Error(static_cast<ErrorKind>(kind), std::string(notice.text, length)));
}

void MpiTransport::learn(int rank, const Error& error) noexcept {
  if (failure_) return;
  failure_.emplace(rank, error);
  Notice& notice = buffers_->notice_out;
  notice.rank = rank;
  notice.kind = static_cast<uint32_t>(error.kind());
  notice.length = static_cast<uint32_t>(std::min(std::strlen(error.what()), sizeof notice.text));
  std::memcpy(notice.text, error.what(), notice.length);
  const size_t bytes = offsetof(Notice, text) + notice.length;
  for (size_t i = 0; i < neighbours_.size(); ++i) {
    MPI_Isend(&notice, static_cast<int>(bytes), MPI_BYTE, neighbours_[i], kNoticeTag, communicator_,
              &buffers_->notice_requests[i]);
  }
}

void MpiTransport::abort(const Error& error) noexcept {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized) return;
  constexpr milliseconds kLongest{1000};
  const auto since = Clock::now();
  try {
    std::unique_lock lock(mutex_);
    learn(rank_, error);
    // Others learn of it as soon as it is on its way, whatever this rank does next.
    while (!are_done(buffers_->notice_requests) && Clock::now() - since < kLongest) {
      lock.unlock();
      pause(since);
      lock.lock();
    }
  } catch (const Error&) {
    // MPI itself fails: the launcher ends who is left.
  }
}

std::optional<MpiTransport::Failure> MpiTransport::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool MpiTransport::has_sent_all() {
  std::list<Departure>& departures = buffers_->departures;
  departures.remove_if([](Departure& departure) { return are_done(departure.requests); });
  return departures.empty() && are_done(buffers_->notice_requests);
}

bool MpiTransport::conclude(milliseconds patience) noexcept {
  std::unique_lock lock(mutex_);
  concluded_ = false;
  try {
    if (failure_ && rank_ == 0 && failure_->rank != 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_code(
          MPI_Isend(nullptr, 0, MPI_BYTE, failure_->rank, kHereTag, communicator_, &request));
      check_code(MPI_Request_free(&request));
    }
    concluded_ = wait_for_all(lock, patience);
  } catch (...) {
    // MPI fails, or there is no memory for what others still send.
  }
  return *concluded_;
}

bool MpiTransport::wait_for_all(std::unique_lock<std::mutex>& lock, milliseconds patience) {
  std::optional<Clock::time_point> end;
  const auto wait_until = [&](const auto& is_done) {
    bool done = false;
    poll(lock, [&] {
      done = is_done();
      if (failure_ && !end) end = Clock::now() + patience;
      return done || (end && Clock::now() > *end);
    });
    return done;
  };
  const auto barrier = [&] {
    MPI_Request request = MPI_REQUEST_NULL;  // MPI keeps it where not all come
    check_code(MPI_Ibarrier(communicator_, &request));
    return wait_until([&] { return is_done(request); });
  };
  return barrier() && wait_until([&] { return has_sent_all(); }) && barrier();
}

bool MpiTransport::rank_0_is_here() const noexcept {
  int is_here = rank_ == 0;
  if (!is_here) MPI_Iprobe(0, kHereTag, communicator_, &is_here, MPI_STATUS_IGNORE);
  return is_here != 0;
}

}  // namespace ferry
