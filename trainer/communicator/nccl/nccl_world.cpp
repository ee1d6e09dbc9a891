#include "trainer/communicator/nccl/nccl_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "trainer/communicator/nccl/nccl_words.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

void check_cuda(cudaError_t status, const char* what) { kernels::cuda::check(status, what); }

// Highest priority: communication takes the first multiprocessors that become free, instead of
// waiting until all blocks of a matrix product have started, which is when it is nearly over.
cudaStream_t make_stream() {
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "querying the device");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
             "making a stream");
  return stream;
}

}  // namespace

NcclWorld::NcclWorld(std::shared_ptr<Group> group, kernels::cuda::CudaKernels& kernels,
                     const NcclOptions& options)
    : group_(std::move(group)),
      kernels_(kernels),
      options_(options),
      exceptions_(std::uncaught_exceptions()) {}

void NcclWorld::come_up() {
  device().enter();
  check_cuda(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "making an event");
  lane_ = open_lane(options_.temporary_bytes, true);
  const std::string bytes = from_first_together(*group_, [&] {
    ncclUniqueId made;
    check_code(ncclGetUniqueId(&made));
    return std::string(made.internal, sizeof made.internal);
  });
  ncclUniqueId id;
  std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof id.internal));
  watcher_ = std::thread([this] { watch(); });
  device().set_watch([this] { check(); });
  or_abort(*group_, [&] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // its calls do not block
    ncclResult_t state = ncclSuccess;
    {
      const std::lock_guard lock(calls_);
      ncclComm_t& world = communicators_.emplace_back(nullptr);
      state = ncclCommInitRankConfig(&world, group_->size(), id, group_->rank(), &config);
    }
    exchange_states(outcome(communicators_.front(), state));
  });
}

NcclLane NcclWorld::open_lane(size_t bytes, bool overlaps_sums) {
  NcclLane lane;
  lane.bytes = bytes;
  lane.memory = kernels_.allocate(bytes);
  for (cudaEvent_t& event : lane.summed) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  }
  lane.stream = make_stream();
  if (overlaps_sums) lane.sum_stream = make_stream();
  follow(lane.stream, device().stream());  // the memory is being cleared
  return lane;
}

// A product takes all multiprocessors until it ends, and concurrent communication starts between
// two products: once to receive a piece, once to sum it. So pieces are as large as the memory, and
// receiving does not overlap summing.
const NcclLane& NcclWorld::aside() {
  device().enter();
  if (aside_.stream == nullptr) aside_ = open_lane(options_.temporary_bytes, false);
  return aside_;
}

// Every rank gets here in time, whether or not NCCL was initialized on it.
void NcclWorld::exchange_states(ncclResult_t state) {
  if (state != ncclSuccess && state != ncclInProgress) {
    fail(ErrorKind::io, "cannot initialize NCCL: {}; {}", nccl_words(state), kNcclHint);
  }
  const std::vector<std::string> states = group_->exchange(state == ncclSuccess ? "" : "waits");
  std::string missing;
  for (size_t rank = 0; rank < states.size(); ++rank) {
    if (!states[rank].empty()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
  }
  if (missing.empty()) return;
  throw SharedError(
      ErrorKind::io,
      fmt::format(
          "NCCL was not initialized within {} s: these ranks do not reach all others: {}; {}",
          options_.patience.count(), missing, kNcclHint));
}

ncclResult_t NcclWorld::state_of(ncclComm_t communicator) {
  check();
  const std::lock_guard lock(calls_);
  check();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
  return asked == ncclSuccess ? state : asked;
}

// A non-blocking call may return before it has completed, whatever it returns.
ncclResult_t NcclWorld::outcome(ncclComm_t communicator, ncclResult_t returned) {
  ncclResult_t state = returned;
  const auto since = Clock::now();
  while (state == ncclSuccess || state == ncclInProgress) {
    state = state_of(communicator);
    if (state != ncclInProgress || Clock::now() - since > options_.patience) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group_->check();
  }
  return state;
}

ncclComm_t NcclWorld::split(int color, int key, int most_blocks) {
  check();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;  // operations are queued when their calls return
  config.maxCTAs = std::max(1, most_blocks);
  ncclComm_t* made = nullptr;
  ncclResult_t state = ncclSuccess;
  {
    const std::lock_guard lock(calls_);
    made = &communicators_.emplace_back(nullptr);
    state = ncclCommSplit(communicators_.front(), color, key, made, &config);
  }
  state = outcome(communicators_.front(), state);
  if (state == ncclInProgress) {
    fail(ErrorKind::io, "NCCL did not make a communicator within {} s; {}",
         options_.patience.count(), kNcclHint);
  }
  check_code(state);
  return *made;
}

ncclComm_t NcclWorld::family(const std::vector<int>& members, bool is_aside) {
  // Which existing communicators could be reused, here and on other ranks, and whether one is
  // needed.
  std::string own(1, members.size() > 1 ? 'y' : 'n');
  for (const Family& family : families_) {
    own += family.members == members && family.is_aside == is_aside ? 'y' : 'n';
  }
  const std::vector<std::string> all = group_->exchange(own);
  for (size_t i = 0; i < own.size(); ++i) {
    const char needed = i == 0 ? 'n' : 'y';
    if (!std::ranges::all_of(all, [&](const std::string& one) { return one[i] == needed; })) {
      continue;
    }
    return i == 0 ? nullptr : families_[i - 1].communicator;
  }
  const auto key = std::find(members.begin(), members.end(), rank()) - members.begin();
  const bool is_lone = members.size() == 1;
  const ncclComm_t made =
      split(is_lone ? NCCL_SPLIT_NOCOLOR : members.front(), static_cast<int>(key),
            std::min(32, device().multiprocessors() * (is_aside ? 2 : 3) / 9));
  families_.push_back({members, is_aside, made});
  return made;
}

cudaStream_t NcclWorld::send_stream() {
  device().enter();
  return send_streams_.emplace_back(make_stream());
}

void NcclWorld::check_code(ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  group_->check();  // if another rank failed, NCCL's error is a consequence
  fail(ErrorKind::io, "NCCL: {}; {}", nccl_words(result), kNcclHint);
}

void NcclWorld::check() {
  if (!is_given_up_) return;
  group_->check();
  fail(ErrorKind::cancelled, "this rank has given up its communicators");
}

// Streams.

void NcclWorld::follow(cudaStream_t later, cudaStream_t earlier) {
  check_cuda(cudaEventRecord(order_, earlier), "recording an event");
  check_cuda(cudaStreamWaitEvent(later, order_), "waiting for an event");
}

void NcclWorld::begin(cudaStream_t stream) {
  check();
  device().enter();
  follow(stream, device().stream());
}

void NcclWorld::has_summed(const NcclLane& lane, int half) {
  check_cuda(cudaEventRecord(lane.summed[half], lane.sum_stream), "recording an event");
}

void NcclWorld::wait_for_sums(const NcclLane& lane, int half) {
  check_cuda(cudaStreamWaitEvent(lane.stream, lane.summed[half]), "waiting for an event");
}

cudaEvent_t NcclWorld::take_event() {
  cudaEvent_t event = nullptr;
  if (events_.empty()) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  } else {
    event = events_.back();
    events_.pop_back();
  }
  return event;
}

NcclWorld::Ticket NcclWorld::end(cudaStream_t stream) {
  const cudaEvent_t event = take_event();
  tickets_[++last_ticket_] = event;
  check_cuda(cudaEventRecord(event, stream), "recording an event");
  return last_ticket_;
}

void NcclWorld::wait(Ticket ticket) {
  check();
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  device().enter();
  check_cuda(cudaStreamWaitEvent(device().stream(), found->second), "waiting for an event");
  events_.push_back(found->second);
  tickets_.erase(found);
}

}  // namespace ferry
