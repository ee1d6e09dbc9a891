// What ranks do with each other's tensors.
//
// Sums have a fixed order: each element is added up over the ranks from rank 0 on, in fp32, and
// rounded once. Threads and processes therefore get the same bits, and so does any implementation
// that sends each rank its part from everyone and adds in that order.
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

/// One rank's place among its fellows of one kind (tensor-parallel, data-parallel, ...).
///
/// All ranks of a communicator call the same collectives in the same order. An operation begins
/// when what the rank's kernels were asked for before it is done; what is asked of them after
/// wait() of its ticket finds its result. Until then neither its input nor its output is touched.
/// On hosts an operation is over when it returns, but for send().
///
/// **Memory.** Arrays, floats and doubles lie in the memory of the rank's kernels: a GPU's, where
/// they compute on one. The numbers that hosts decide by lie in the host's memory and go from host
/// to host: those of add_numbers() and exchange(), which wait for no kernels and are over when they
/// return.
///
/// A rank whose fellows fail throws their error (Group::abort()).
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
  /// The largest of each element.
  virtual Ticket all_reduce_max(float* x, int64_t count) = 0;
  /// A few numbers' sums, in double precision.
  virtual Ticket all_reduce(double* x, int64_t count) = 0;
  /// y (count elements) becomes the sum over ranks of part rank() of their x (size() · count). y
  /// may be that part of x.
  virtual Ticket reduce_scatter(ConstArray x, Array y, int64_t count) = 0;
  /// y (size() · count) becomes everyone's x (count), by rank. x may be part rank() of y.
  virtual Ticket all_gather(ConstArray x, Array y, int64_t count) = 0;
  /// Gives the first to_counts[0] elements of x to rank 0, the next ones to rank 1, ...; y becomes
  /// what came, by rank. from_counts says how many that are.
  virtual Ticket all_to_all(ConstArray x, std::span<const int64_t> to_counts, Array y,
                            std::span<const int64_t> from_counts) = 0;
  /// Gives as many numbers to each: the first to.size() / size() of `to` to rank 0, the next ones
  /// to rank 1, ...; `from` becomes what came, by rank.
  virtual void exchange(std::span<const int64_t> to, std::span<int64_t> from) = 0;
  /// Each becomes its sum over ranks.
  virtual void add_numbers(std::span<double> numbers) = 0;
  /// x of all becomes that of rank `root`.
  virtual Ticket broadcast(Array x, int64_t count, int root) = 0;

  /// Before the first operation: those of this communicator go on beside those of communicators
  /// that were not told so, which do not wait for them. All ranks call it alike. On hosts nothing
  /// changes.
  virtual void set_aside() {}

  /// Before the first send(): the rank sends to the one `step` places behind it and receives from
  /// the one `step` places before it, counted around; 1 or -1. All ranks call it alike. On hosts it
  /// is not needed.
  virtual void connect(int /*step*/) {}
  virtual Ticket send(ConstArray x, int64_t count, int to) = 0;
  virtual Ticket receive(Array x, int64_t count, int from) = 0;

  virtual void wait(Ticket ticket) = 0;
};

/// The communicator of the ranks `members` of a family, given by rising rank; this rank is one of
/// them. `channel` differs between communicators that share two ranks, and is the same on all
/// members. A lone member sums and moves what little there is to move. Refers to `kernels`, whose
/// memory is the host's or, for ranks that are threads of one process, one that the kernels of all
/// members can read.
std::unique_ptr<Communicator> host_communicator(std::shared_ptr<Links> links, int channel,
                                                std::vector<int> members,
                                                kernels::Kernels& kernels);

/// What a rank with a GPU of its own takes of its memory for what is summed up, where there are
/// others; and once more where communicators of several ranks are set aside.
inline constexpr int64_t kGpuSumBytes = int64_t{256} << 20;

/// Makes the communicator of the ranks `members`, by rising rank, of which the caller is one; all
/// ranks of the run make all of theirs in the same order. `channel` as above.
using MakeCommunicator =
    std::function<std::unique_ptr<Communicator>(int channel, std::vector<int> members)>;

/// Makes host communicators. Refers to `kernels`.
MakeCommunicator host_communicators(std::shared_ptr<Links> links, kernels::Kernels& kernels);

}  // namespace ferry
