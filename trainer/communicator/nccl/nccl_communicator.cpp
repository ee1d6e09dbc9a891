#include "trainer/communicator/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <utility>

#include "ckpt/base/error.h"
#include "kernels/cuda/rank_parts.h"
#include "trainer/communicator/nccl/nccl_world.h"
#include "trainer/communicator/nccl/peer_copies.h"

namespace ferry {
namespace {

using kernels::Type;
using kernels::cuda::Combination;
using kernels::cuda::RankParts;

size_t bytes_of(int64_t count, Type type) { return static_cast<size_t>(count * size_bytes(type)); }

// NCCL and copy engines only move bytes. Reductions gather the operands by rank and sum them here,
// so that results have the same bits as on hosts, whatever algorithm NCCL chooses.
class NcclCommunicator final : public Communicator {
 public:
  /// copies: null where NCCL moves everything.
  NcclCommunicator(std::shared_ptr<NcclWorld> world, ncclComm_t all, std::vector<int> members,
                   std::unique_ptr<Communicator> host, std::unique_ptr<PeerCopies> copies)
      : world_(std::move(world)),
        lane_(&world_->lane()),
        all_(all),
        members_(std::move(members)),
        host_(std::move(host)),
        copies_(std::move(copies)) {}

  int rank() const noexcept override { return host_->rank(); }
  int size() const noexcept override { return host_->size(); }

  Ticket all_reduce(Array x, int64_t count) override {
    return combine_all(Combination::sum, x, count);
  }
  Ticket all_reduce_max(float* x, int64_t count) override {
    return combine_all(Combination::largest, Array(x), count);
  }
  Ticket all_reduce(double* x, int64_t count) override {
    const auto bytes = static_cast<size_t>(count) * sizeof(double);
    if (bytes * members_.size() > lane_->bytes) {
      fail(ErrorKind::internal, "{} numbers are too many for this operation", count);
    }
    return collective(
        [&] {
          gather_bytes(x, lane_->temporary(0), bytes);
          kernels::cuda::add_parts(world_->device(), lane_->stream,
                                   reinterpret_cast<const double*>(lane_->temporary(0)), size(), x,
                                   count);
        },
        count);
  }
  void exchange(std::span<const int64_t> to, std::span<int64_t> from) override {
    host_->exchange(to, from);
  }
  void add_numbers(std::span<double> numbers) override { host_->add_numbers(numbers); }

  Ticket reduce_scatter(ConstArray x, Array y, int64_t count) override {
    return collective([&] { combine_own(Combination::sum, x, count, y); }, count);
  }

  Ticket all_gather(ConstArray x, Array y, int64_t count) override {
    return collective([&] { gather(x, y, count); }, count);
  }

  Ticket all_to_all(ConstArray x, std::span<const int64_t> to_counts, Array y,
                    std::span<const int64_t> from_counts) override {
    const std::vector<int64_t> to = starts_of(to_counts), from = starts_of(from_counts);
    const Ticket ticket =
        collective([&] { copies_ ? copy_all(x, to, y, from) : exchange_all(x, to, y, from); });
    // This rank's own part moves on the stream of kernels, while others' arrive.
    const auto own = static_cast<size_t>(rank());
    copy(x.from(to[own]), y.from(from[own]), to[own + 1] - to[own], world_->device().stream());
    return ticket;
  }

  Ticket broadcast(Array x, int64_t count, int root) override {
    return collective(
        [&] {
          world_->call([&] {
            world_->check_code(ncclBroadcast(x.data, x.data, bytes_of(count, x.type), ncclUint8,
                                             root, all_, lane_->stream));
          });
        },
        count);
  }

  void set_aside() override {
    lane_ = &world_->aside();
    all_ = world_->family(members_, true);
  }

  // Colors neighbouring pairs so that within a round no rank is part of two pairs.
  void connect(int step) override {
    const int ranks = size();
    if (step != 1 && step != -1) fail(ErrorKind::internal, "ranks {} apart cannot be linked", step);
    const auto place = [&](int of) { return step == 1 ? of : ranks - 1 - of; };
    const auto round_of = [&](int sender) {
      return place(sender) == ranks - 1 && ranks % 2 == 1 ? 2 : place(sender) % 2;
    };
    to_ = (rank() + step + ranks) % ranks;
    from_ = (rank() - step + ranks) % ranks;
    const int blocks = NcclWorld::most_blocks_to_neighbour(world_->device().multiprocessors());
    for (int round = 0; round < (ranks % 2 == 1 ? 3 : 2); ++round) {
      if (round == round_of(rank())) {
        out_ = world_->split(world_->rank(), 0, blocks);
        send_stream_ = world_->send_stream();
        (void)send({lane_->temporary(0), Type::bf16}, 1, to_);
      } else if (round == round_of(from_)) {
        in_ = world_->split(members_[static_cast<size_t>(from_)], 1, blocks);
        (void)receive({lane_->temporary(0), Type::bf16}, 1, from_);
      } else {
        world_->split(NCCL_SPLIT_NOCOLOR, 0, blocks);
      }
    }
  }

  Ticket send(ConstArray x, int64_t count, int to) override {
    if (out_ == nullptr || to != to_) fail_unlinked(to);
    if (count == 0) return 0;
    world_->begin(send_stream_);
    world_->call([&] { send_part(x, count, 1, out_, send_stream_); });
    return world_->end(send_stream_);
  }

  Ticket receive(Array x, int64_t count, int from) override {
    if (in_ == nullptr || from != from_) fail_unlinked(from);
    return collective([&] { world_->call([&] { receive_part(x, count, 0, in_); }); }, count);
  }

  void wait(Ticket ticket) override { world_->wait(ticket); }

 private:
  // Does nothing for a count of 0.
  template <typename Queue>
  Ticket collective(const Queue& queue, int64_t count = 1) {
    if (count == 0) return 0;
    world_->begin(lane_->stream);
    queue();
    return world_->end(lane_->stream);
  }

  [[noreturn]] void fail_unlinked(int other) const {
    fail(ErrorKind::internal, "rank {} of {} was not linked with rank {}: see connect()", rank(),
         size(), other);
  }

  // Where each rank's part begins, and the end of the last.
  static std::vector<int64_t> starts_of(std::span<const int64_t> counts) {
    std::vector<int64_t> starts(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), starts.begin() + 1);
    return starts;
  }

  // Calls use(rank, the start of its part, elements) for the other ranks' parts that are not empty.
  template <typename Use>
  void for_each_part(const std::vector<int64_t>& starts, const Use& use) const {
    for_each_other([&](int other) {
      const auto at = static_cast<size_t>(other);
      if (starts[at + 1] > starts[at]) use(other, starts[at], starts[at + 1] - starts[at]);
    });
  }

  void exchange_all(ConstArray x, const std::vector<int64_t>& to, Array y,
                    const std::vector<int64_t>& from) {
    world_->call([&] {
      for_each_part(to, [&](int other, int64_t begin, int64_t count) {
        send_part(x.from(begin), count, other, all_, lane_->stream);
      });
      for_each_part(from, [&](int other, int64_t begin, int64_t count) {
        receive_part(y.from(begin), count, other, all_);
      });
    });
  }
  // Whatever the sizes: ranks know their own alone.
  void copy_all(ConstArray x, const std::vector<int64_t>& to, Array y,
                const std::vector<int64_t>& from) {
    std::vector<size_t> starts;
    for (const int64_t start : to) starts.push_back(bytes_of(start, x.type));
    copies_->begin(lane_->stream, x.data, std::move(starts));
    for_each_part(from, [&](int other, int64_t begin, int64_t count) {
      copies_->copy_part(other, bytes_of(count, x.type), y.from(begin).data);
    });
    copies_->end();
  }

  void send_part(ConstArray x, int64_t count, int to, ncclComm_t communicator,
                 cudaStream_t stream) {
    world_->check_code(
        ncclSend(x.data, bytes_of(count, x.type), ncclUint8, to, communicator, stream));
  }
  void receive_part(Array x, int64_t count, int from, ncclComm_t communicator) {
    world_->check_code(
        ncclRecv(x.data, bytes_of(count, x.type), ncclUint8, from, communicator, lane_->stream));
  }
  // Starting a copy takes as long as copying some hundred kilobytes.
  bool does_copy(size_t bytes) const { return copies_ != nullptr && bytes >= size_t{1} << 20; }

  void gather(ConstArray x, Array y, int64_t count) {
    const size_t bytes = bytes_of(count, x.type);
    if (!does_copy(bytes)) return gather_bytes(x.data, y.data, bytes);
    copies_->begin(lane_->stream, x.data);
    copy(x, y.from(rank() * count), count, lane_->stream);
    for_each_other([&](int other) { copies_->copy(other, 0, bytes, y.from(other * count).data); });
    copies_->end();
  }
  void gather_bytes(const void* x, void* all, size_t bytes) {
    world_->call(
        [&] { world_->check_code(ncclAllGather(x, all, bytes, ncclUint8, all_, lane_->stream)); });
  }
  static void copy(ConstArray x, Array y, int64_t count, cudaStream_t stream) {
    if (count == 0 || x.data == y.data) return;
    kernels::cuda::check(
        cudaMemcpyAsync(y.data, x.data, bytes_of(count, x.type), cudaMemcpyDeviceToDevice, stream),
        "copying");
  }

  // Few elements are sent to all ranks, which each combine them; of many, each rank combines a part
  // and sends it to all.
  Ticket combine_all(Combination combination, Array x, int64_t count) {
    constexpr int64_t kFewBytes = 256 << 10, kWhole = 8;  // elements that kernels move at once
    return collective(
        [&] {
          int64_t part = count / size() / kWhole * kWhole;
          if (count * size_bytes(x.type) * size() <= kFewBytes) part = 0;
          if (part > 0) {
            const Array own = x.from(rank() * part);
            combine_own(combination, x, part, own);
            gather(own, x, part);
          }
          combine_few(combination, x.from(part * size()), count - part * size());
        },
        count);
  }

  void combine_few(Combination combination, Array x, int64_t count) {
    const int64_t most = piece_elements(x.type, size());
    for (int64_t begin = 0; begin < count; begin += most) {
      const int64_t piece = std::min(most, count - begin);
      gather_bytes(x.from(begin).data, lane_->temporary(0), bytes_of(piece, x.type));
      kernels::cuda::combine_parts(
          world_->device(), lane_->stream, combination,
          {.ranks = size(), .others = lane_->temporary(0), .stride = piece}, x.from(begin), piece);
    }
  }

  // Elements per rank that fit into half 0 of the temporary memory.
  int64_t piece_elements(Type type, int ranks) const {
    constexpr int64_t kWhole = 64;
    const auto bytes = static_cast<int64_t>(lane_->piece_bytes());
    return std::max(kWhole, bytes / ranks / size_bytes(type) / kWhole * kWhole);
  }

  // y becomes the combination of this rank's part, `count` elements, of all ranks' x. Where sums
  // have their own stream, pieces arrive in one half of the temporary memory while the other half
  // is combined.
  void combine_own(Combination combination, ConstArray x, int64_t count, Array y) {
    const int64_t most = piece_elements(x.type, size() - 1);
    const cudaStream_t moves = lane_->stream;
    const bool uses_sum_stream = count > most && lane_->sum_stream != nullptr;
    const cudaStream_t sums = uses_sum_stream ? lane_->sum_stream : moves;
    const bool is_copied = does_copy(bytes_of(count, x.type));
    if (is_copied) copies_->begin(moves, x.data);
    int half = 0;
    for (int64_t begin = 0; begin < count; begin += most, half = uses_sum_stream ? 1 - half : 0) {
      const int64_t piece = std::min(most, count - begin);
      if (uses_sum_stream && begin >= 2 * most) NcclWorld::wait_for_sums(*lane_, half);
      const Array others(lane_->temporary(half), x.type);
      if (is_copied) {
        copy_parts(begin, count, piece, others);
      } else {
        bring_parts(x, begin, count, piece, others);
      }
      if (uses_sum_stream) world_->follow(sums, moves);
      kernels::cuda::combine_parts(world_->device(), sums, combination,
                                   {.ranks = size(),
                                    .own = x.from(rank() * count + begin).data,
                                    .own_rank = rank(),
                                    .others = others.data,
                                    .stride = piece},
                                   y.from(begin), piece);
      if (uses_sum_stream) NcclWorld::has_summed(*lane_, half);
    }
    if (is_copied) copies_->end();
    if (uses_sum_stream) world_->follow(moves, sums);
  }

  // Exchanges `piece` elements from `begin` on of the parts (`count` elements each) with every
  // other rank, ordered by rank.
  void bring_parts(ConstArray x, int64_t begin, int64_t count, int64_t piece, Array others) {
    world_->call([&] {
      for_each_other([&](int other) {
        send_part(x.from(other * count + begin), piece, other, all_, lane_->stream);
        receive_part(others.from(slot_of(other) * piece), piece, other, all_);
      });
    });
  }
  void copy_parts(int64_t begin, int64_t count, int64_t piece, Array others) {
    for_each_other([&](int other) {
      copies_->copy(other, bytes_of(rank() * count + begin, others.type),
                    bytes_of(piece, others.type), others.from(slot_of(other) * piece).data);
    });
  }
  int slot_of(int other) const { return other - (other > rank() ? 1 : 0); }

  // Starts with the next rank, so that not all read rank 0's at once.
  template <typename Use>
  void for_each_other(const Use& use) const {
    for (int i = 1; i < size(); ++i) use((rank() + i) % size());
  }

  std::shared_ptr<NcclWorld> world_;
  const NcclLane* lane_;
  ncclComm_t all_;
  std::vector<int> members_;
  std::unique_ptr<Communicator> host_;  // of the same ranks
  std::unique_ptr<PeerCopies> copies_;
  ncclComm_t out_ = nullptr, in_ = nullptr;  // of this rank and a neighbour, the sender first
  int to_ = -1, from_ = -1;
  cudaStream_t send_stream_ = nullptr;
};

// Other GPUs may copy from this rank's memory at any time.
void drain_at_failure(Links& links, const std::shared_ptr<NcclWorld>& world) {
  constexpr int kChannel = -1;  // used by no communicator
  std::vector<int> all(static_cast<size_t>(links.size()));
  std::iota(all.begin(), all.end(), 0);
  world->set_drained(std::static_pointer_cast<std::atomic<int>>(
      links.common(kChannel, all, [] { return std::make_shared<std::atomic<int>>(0); })));
  links.set_drain([world = std::weak_ptr(world)] {
    if (const auto here = world.lock()) here->drain();
  });
}

}  // namespace

MakeCommunicator nccl_communicators(std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                                    kernels::cuda::CudaKernels& kernels,
                                    const NcclOptions& options) {
  const auto world = std::make_shared<NcclWorld>(std::move(group), kernels, options);
  world->come_up();
  if (options.copies) drain_at_failure(*links, world);
  return [world, links = std::move(links), &kernels, does_copy = options.copies](
             int channel, std::vector<int> members) -> std::unique_ptr<Communicator> {
    auto host = host_communicator(links, channel, members, kernels);
    const ncclComm_t all = world->family(members);
    if (members.size() == 1) return host;
    std::unique_ptr<PeerCopies> copies;
    if (does_copy) {
      copies = std::make_unique<PeerCopies>(*links, channel, members, host->rank(),
                                            kernels.device(), world->group());
    }
    return std::make_unique<NcclCommunicator>(world, all, std::move(members), std::move(host),
                                              std::move(copies));
  };
}

}  // namespace ferry
