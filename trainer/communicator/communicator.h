// Collectives over tensors of several ranks. Sums have a fixed order: each element is added up over
// the ranks from rank 0 on, in fp32, and rounded once. Threads and processes therefore get the same
// bits, and so does any implementation that sends each rank its part from everyone and adds in that
// order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/array.h"
#include "trainer/communicator/links.h"

namespace ferry {

namespace kernels {
class Kernels;
}

/// One rank's membership in a group of ranks of one kind (tensor-parallel, data-parallel, ...). All
/// ranks of a communicator call the same collectives in the same order. An operation starts when
/// the kernels queued before it are done; kernels queued after wait() of its ticket see its result.
/// Until then its input and output must not be touched. On hosts, all operations but send() are
/// complete when they return.
///
/// **Memory.** Arrays, floats and doubles lie in the memory of the rank's kernels: a GPU's, where
/// they compute on one. add_numbers() and exchange() take numbers in host memory, do not wait for
/// kernels, and are complete when they return.
///
/// When another rank fails, its error is thrown here (Group::abort()).
class Communicator {
 public:
  using Ticket = uint64_t;
  using Array = kernels::Array;
  using ConstArray = kernels::ConstArray;

  virtual ~Communicator() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// x becomes the sum over ranks.
  virtual Ticket all_reduce(Array x, int64_t count) = 0;
  /// x becomes the elementwise maximum over ranks.
  virtual Ticket all_reduce_max(float* x, int64_t count) = 0;
  /// Sums of a few numbers, in double precision.
  virtual Ticket all_reduce(double* x, int64_t count) = 0;
  /// y (count elements) becomes the sum over ranks of part rank() of their x (size() · count). y
  /// may be that part of x.
  virtual Ticket reduce_scatter(ConstArray x, Array y, int64_t count) = 0;
  /// y (size() · count) becomes all ranks' x (count), by rank. x may be part rank() of y.
  virtual Ticket all_gather(ConstArray x, Array y, int64_t count) = 0;
  /// Gives the first to_counts[0] elements of x to rank 0, the next ones to rank 1, ...; y becomes
  /// what was received, by rank; from_counts has the lengths.
  virtual Ticket all_to_all(ConstArray x, std::span<const int64_t> to_counts, Array y,
                            std::span<const int64_t> from_counts) = 0;
  /// Sends equally many numbers to each rank: the first to.size() / size() of `to` to rank 0, the
  /// next ones to rank 1, ...; `from` becomes what was received, by rank.
  virtual void exchange(std::span<const int64_t> to, std::span<int64_t> from) = 0;
  /// Each becomes its sum over ranks.
  virtual void add_numbers(std::span<double> numbers) = 0;
  /// x becomes that of rank `root` on all ranks.
  virtual Ticket broadcast(Array x, int64_t count, int root) = 0;

  /// Before the first operation: lets this communicator's operations run concurrently with those of
  /// communicators that did not call it. All ranks call it alike. No effect on hosts.
  virtual void set_aside() {}

  /// Before the first send(): this rank will send to rank() + step and receive from rank() - step,
  /// modulo size(); step is 1 or -1. All ranks call it alike. Not needed on hosts.
  virtual void connect(int /*step*/) {}
  virtual Ticket send(ConstArray x, int64_t count, int to) = 0;
  virtual Ticket receive(Array x, int64_t count, int from) = 0;

  virtual void wait(Ticket ticket) = 0;
};

/// The communicator of the ranks `members` of a family, given by rising rank; this rank is one of
/// them. `channel` differs between communicators that share two ranks, and is the same on all
/// members. A communicator of one rank only copies. Refers to `kernels`, whose memory is host
/// memory or, for ranks that are threads of one process, memory that the kernels of all members can
/// read.
std::unique_ptr<Communicator> host_communicator(std::shared_ptr<Links> links, int channel,
                                                std::vector<int> members,
                                                kernels::Kernels& kernels);

/// GPU memory for reductions on a rank with its own GPU, if there are several ranks; twice that if
/// concurrent communicators are used.
inline constexpr int64_t kGpuSumBytes = int64_t{256} << 20;

/// Makes the communicator of the ranks `members`, in ascending order, which include the caller; all
/// ranks of the run make theirs in the same order. `channel` as above.
using MakeCommunicator =
    std::function<std::unique_ptr<Communicator>(int channel, std::vector<int> members)>;

/// Makes host communicators. Refers to `kernels`.
MakeCommunicator host_communicators(std::shared_ptr<Links> links, kernels::Kernels& kernels);

}  // namespace ferry
