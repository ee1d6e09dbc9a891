#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"

namespace ferry {
namespace {

using kernels::Type;

// Elements per block of a sum: few enough to stay in the cache while all ranks' are added; on a
// GPU, enough to occupy it.
constexpr int64_t kBlock = 16384, kDeviceBlock = int64_t{1} << 22;

template <typename Element>
std::span<const std::byte> bytes_of(const Element* data, int64_t count) {
  return std::as_bytes(std::span(data, static_cast<size_t>(count)));
}

std::span<const std::byte> bytes_of(kernels::ConstArray x, int64_t count) {
  return {static_cast<const std::byte*>(x.data), static_cast<size_t>(count * size_bytes(x.type))};
}

// First element of part `part` of `parts`; the first parts are larger by one.
int64_t part_begin(int64_t count, int64_t parts, int64_t part) {
  return count / parts * part + std::min(part, count % parts);
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<Links> links, int channel, std::vector<int> members,
                   kernels::Kernels& kernels)
      : links_(std::move(links)),
        channel_(channel),
        members_(std::move(members)),
        kernels_(kernels) {
    const auto own = std::find(members_.begin(), members_.end(), links_->rank());
    rank_ = static_cast<int>(own - members_.begin());
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(members_.size()); }

  // Ranks read each other's memory, so data must be complete before it is offered and used up
  // before it is released: with kernels that queue operations, the host waits at both points. Host
  // kernels never need waiting.

  // Each rank sums one part and sends it to all.
  Ticket all_reduce(Array x, int64_t count) override {
    if (size() == 1) return 0;
    const auto part = [&](int rank) { return x.from(part_begin(count, size(), rank)); };
    const auto elements = [&](int rank) {
      return part_begin(count, size(), rank + 1) - part_begin(count, size(), rank);
    };
    kernels_.wait();
    each_other([&](int to) { return bytes_of(ConstArray(part(to)), elements(to)); },
               [&] { sum_parts(part(rank_), part(rank_), elements(rank_)); });
    each_other(
        [&](int) { return bytes_of(ConstArray(part(rank_)), elements(rank_)); },
        [&] { for_each_other([&](int from) { copy_from(from, part(from), elements(from)); }); });
    return 0;
  }

  Ticket reduce_scatter(ConstArray x, Array y, int64_t count) override {
    const auto part = [&](int rank) { return x.from(rank * count); };
    if (size() == 1) {
      copy(x, y, count);
      return 0;
    }
    kernels_.wait();
    each_other([&](int to) { return bytes_of(part(to), count); },
               [&] { sum_parts(part(rank_), y, count); });
    return 0;
  }

  Ticket all_gather(ConstArray x, Array y, int64_t count) override {
    const Array own = y.from(rank_ * count);
    copy(x, own, count);
    if (size() == 1) return 0;
    kernels_.wait();
    each_other(
        [&](int) { return bytes_of(x, count); },
        [&] { for_each_other([&](int from) { copy_from(from, y.from(from * count), count); }); });
    return 0;
  }

  Ticket all_to_all(ConstArray x, std::span<const int64_t> to_counts, Array y,
                    std::span<const int64_t> from_counts) override {
    const auto begin = [](std::span<const int64_t> counts, int rank) {
      return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
    };
    const auto count = [](std::span<const int64_t> counts, int rank) {
      return counts[static_cast<size_t>(rank)];
    };
    copy(x.from(begin(to_counts, rank_)), y.from(begin(from_counts, rank_)),
         count(to_counts, rank_));
    if (size() == 1) return 0;
    kernels_.wait();
    each_other([&](int to) { return bytes_of(x.from(begin(to_counts, to)), count(to_counts, to)); },
               [&] {
                 for_each_other([&](int from) {
                   copy_from(from, y.from(begin(from_counts, from)), count(from_counts, from));
                 });
               });
    return 0;
  }

  Ticket all_reduce_max(float* x, int64_t count) override {
    return by_way_of_the_host(x, count, [](float a, float b) { return a < b || b != b ? b : a; });
  }

  Ticket all_reduce(double* x, int64_t count) override {
    return by_way_of_the_host(x, count, [](double a, double b) { return a + b; });
  }

  void add_numbers(std::span<double> numbers) override {
    gather_all(numbers.data(), static_cast<int64_t>(numbers.size()),
               [](double a, double b) { return a + b; });
  }

  void exchange(std::span<const int64_t> to, std::span<int64_t> from) override {
    const auto each = static_cast<int64_t>(to.size()) / size();
    const auto part = [&](auto numbers, int rank) {
      return numbers.subspan(static_cast<size_t>(rank * each), static_cast<size_t>(each));
    };
    std::ranges::copy(part(to, rank_), part(from, rank_).begin());
    each_other([&](int rank) { return std::as_bytes(part(to, rank)); },
               [&] {
                 for_each_other([&](int rank) {
                   const std::span<int64_t> own = part(from, rank);
                   links_->take(channel_, member(rank), own.size_bytes(),
                                [&](std::span<const std::byte> bytes) {
                                  std::ranges::copy(bytes, std::as_writable_bytes(own).begin());
                                });
                 });
               });
  }

  Ticket broadcast(Array x, int64_t count, int root) override {
    if (size() == 1) return 0;
    if (rank_ == root) {
      kernels_.wait();
      each_other([&](int) { return bytes_of(ConstArray(x), count); }, [] {});
    } else {
      copy_from(root, x, count);
    }
    return 0;
  }

  Ticket send(ConstArray x, int64_t count, int to) override {
    kernels_.wait();
    return links_->offer(channel_, member(to), bytes_of(x, count));
  }

  Ticket receive(Array x, int64_t count, int from) override {
    copy_from(from, x, count);
    return 0;
  }

  void wait(Ticket ticket) override {
    if (ticket != 0) links_->wait(ticket);
  }

 private:
  int member(int rank) const { return members_[static_cast<size_t>(rank)]; }

  // Starts with the next rank, so that not all wait for rank 0.
  template <typename Do>
  void for_each_other(const Do& act) {
    for (int i = 1; i < size(); ++i) act((rank_ + i) % size());
  }

  // Offers every other rank its bytes, calls `take`, and returns when all have taken theirs.
  template <typename BytesFor, typename Take>
  void each_other(const BytesFor& bytes_for, const Take& take) {
    or_withdraw(*links_, [&] {
      std::vector<uint64_t> offers;
      for_each_other(
          [&](int to) { offers.push_back(links_->offer(channel_, member(to), bytes_for(to))); });
      take();
      for (const uint64_t offer : offers) links_->wait(offer);
    });
  }

  void copy(ConstArray x, Array y, int64_t count) {
    if (x.data != y.data) kernels_.run(kernels::Copy{.count = count, .x = x, .y = y});
  }

  void copy_from(int from, Array y, int64_t count) {
    links_->take(channel_, member(from), static_cast<size_t>(count * size_bytes(y.type)),
                 [&](std::span<const std::byte> bytes) {
                   kernels_.run(kernels::Copy{
                       .count = count, .x = ConstArray(bytes.data(), y.type), .y = y});
                   kernels_.wait();
                 });
  }

  // y = the sum of this rank's part and the others' offers, in rank order.
  void sum_parts(ConstArray own, Array y, int64_t count) {
    take_all(0, count * size_bytes(y.type), [&](const std::vector<const void*>& parts) {
      const int64_t most = kernels_.kind() == kernels::DeviceKind::host ? kBlock : kDeviceBlock;
      if (count > 0 && !sums_) {
        sums_ = kernels_.allocate(static_cast<size_t>(most) * sizeof(float));
      }
      const Array sum(static_cast<float*>(sums_.get()));
      for (int64_t begin = 0; begin < count; begin += most) {
        const int64_t block = std::min(most, count - begin);
        for (int rank = 0; rank < size(); ++rank) {
          const ConstArray part =
              rank == rank_ ? own.from(begin)
                            : ConstArray(parts[static_cast<size_t>(rank)], y.type).from(begin);
          if (rank == 0) {
            kernels_.run(kernels::Copy{.count = block, .x = part, .y = sum});
          } else {
            kernels_.run(kernels::Add{.count = block, .a = sum, .b = part, .y = sum});
          }
        }
        kernels_.run(kernels::Copy{.count = block, .x = sum, .y = y.from(begin)});
      }
      kernels_.wait();
    });
  }

  // Calls `use` while holding the offers of all other ranks, `bytes` bytes each.
  template <typename UseParts>
  void take_all(int from, int64_t bytes, const UseParts& use) {
    if (from == 0) parts_.assign(members_.size(), nullptr);
    if (from == size()) {
      use(parts_);
    } else if (from == rank_) {
      take_all(from + 1, bytes, use);
    } else {
      links_->take(channel_, member(from), static_cast<size_t>(bytes),
                   [&](std::span<const std::byte> part) {
                     parts_[static_cast<size_t>(from)] = part.data();
                     take_all(from + 1, bytes, use);
                   });
    }
  }

  // A few numbers in kernel memory.
  template <typename Number, typename Combine>
  Ticket by_way_of_the_host(Number* x, int64_t count, const Combine& combine) {
    if (size() == 1) return 0;
    std::vector<Number> all(static_cast<size_t>(count));
    kernels_.download(x, all.data(), all.size() * sizeof(Number));
    kernels_.wait();
    gather_all(all.data(), count, combine);
    kernels_.upload(all.data(), x, all.size() * sizeof(Number));
    return 0;
  }

  // For a few numbers: every rank combines all ranks' in order.
  template <typename Number, typename Combine>
  void gather_all(Number* x, int64_t count, const Combine& combine) {
    if (size() == 1) return;
    const std::vector<Number> own(x, x + count);
    each_other([&](int) { return bytes_of(own.data(), count); },
               [&] {
                 take_all(0, count * static_cast<int64_t>(sizeof(Number)),
                          [&](const std::vector<const void*>& parts) {
                            for (int rank = 0; rank < size(); ++rank) {
                              const auto* part = rank == rank_
                                                     ? own.data()
                                                     : static_cast<const Number*>(
                                                           parts[static_cast<size_t>(rank)]);
                              for (int64_t i = 0; i < count; ++i) {
                                x[i] = rank == 0 ? part[i] : combine(x[i], part[i]);
                              }
                            }
                          });
               });
  }

  std::shared_ptr<Links> links_;
  int channel_;
  std::vector<int> members_;
  kernels::Kernels& kernels_;
  int rank_ = 0;
  std::vector<const void*> parts_;
  std::shared_ptr<void> sums_;  // a block of floats
};

}  // namespace

std::unique_ptr<Communicator> host_communicator(std::shared_ptr<Links> links, int channel,
                                                std::vector<int> members,
                                                kernels::Kernels& kernels) {
  return std::make_unique<HostCommunicator>(std::move(links), channel, std::move(members), kernels);
}

MakeCommunicator host_communicators(std::shared_ptr<Links> links, kernels::Kernels& kernels) {
  return [links = std::move(links), &kernels](int channel, std::vector<int> members) {
    return host_communicator(links, channel, std::move(members), kernels);
  };
}

}  // namespace ferry
