// Speed of collectives of ranks on GPUs, threads of this process, compared with NCCL's own calls:
// nccl_bench [MIB]. Prints GB/s: bytes of the whole array over the time of one call.
#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "kernels/cuda/cuda_kernels.h"
#include "trainer/communicator/nccl/nccl_communicator.h"

namespace ferry {
namespace {

using kernels::Array;
using kernels::Type;
using Clock = std::chrono::steady_clock;

void check_code(ncclResult_t result) {
  if (result != ncclSuccess) fail(ErrorKind::io, "NCCL: {}", ncclGetErrorString(result));
}

class Bench {
 public:
  Bench(std::shared_ptr<Group> group, std::shared_ptr<Links> links, size_t bytes,
        NcclOptions options)
      : group_(std::move(group)),
        kernels_(group_->rank()),
        make_(gpu_communicators(group_, std::move(links), kernels_, options)),
        bytes_(static_cast<int64_t>(bytes)),
        x_(kernels_.allocate(bytes)),
        y_(kernels_.allocate(bytes)) {
    std::vector<int> all(static_cast<size_t>(group_->size()));
    std::iota(all.begin(), all.end(), 0);
    ranks_ = make_(0, all);
    ranks_->connect(1);
    const std::string id = from_first_together(*group_, [] {
      ncclUniqueId made;
      check_code(ncclGetUniqueId(&made));
      return std::string(made.internal, sizeof made.internal);
    });
    ncclUniqueId own;
    std::memcpy(own.internal, id.data(), sizeof own.internal);
    check_code(ncclCommInitRank(&plain_, group_->size(), own, group_->rank()));
  }
  ~Bench() { (void)ncclCommDestroy(plain_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run() {
    const int64_t n = group_->size();
    auto* const stream = kernels_.device().stream();
    for (const Type type : {Type::bf16, Type::f32}) {
      const auto nccl_type = type == Type::f32 ? ncclFloat32 : ncclBfloat16;
      const char* const name = type == Type::f32 ? "f32" : "bf16";
      const int64_t count = bytes_ / size_bytes(type), part = count / n;
      const Array x(x_.get(), type), y(y_.get(), type);
      measure(fmt::format("reduce_scatter {}", name), bytes_,
              [&] { return ranks_->reduce_scatter(x, y, part); });
      measure(fmt::format("  ncclReduceScatter {}", name), bytes_, [&] {
        check_code(ncclReduceScatter(x.data, y.data, static_cast<size_t>(part), nccl_type, ncclSum,
                                     plain_, stream));
        return 0;
      });
      measure(fmt::format("all_reduce {}", name), bytes_,
              [&] { return ranks_->all_reduce(x, count); });
      measure(fmt::format("  ncclAllReduce {}", name), bytes_, [&] {
        check_code(ncclAllReduce(x.data, x.data, static_cast<size_t>(count), nccl_type, ncclSum,
                                 plain_, stream));
        return 0;
      });
    }
    const Array x(x_.get(), Type::bf16), y(y_.get(), Type::bf16);
    const int64_t part = bytes_ / 2 / n;
    measure("all_gather", bytes_, [&] { return ranks_->all_gather(x, y, part); });
    measure("  ncclAllGather", bytes_, [&] {
      check_code(
          ncclAllGather(x.data, y.data, static_cast<size_t>(part), ncclBfloat16, plain_, stream));
      return 0;
    });
    for (const int64_t bytes : {64 << 20, 1 << 20}) {
      const int next = static_cast<int>((group_->rank() + 1) % n);
      const int before = static_cast<int>((group_->rank() + n - 1) % n);
      measure(fmt::format("send and receive {} KiB", bytes >> 10), bytes, [&] {
        const auto sent = ranks_->send(x, bytes / 2, next);
        ranks_->wait(ranks_->receive(y, bytes / 2, before));
        return sent;
      });
    }
    for (const int64_t bytes : {16 << 10, 1 << 20, 16 << 20}) {
      measure(fmt::format("all_reduce bf16 {} KiB", bytes >> 10), bytes,
              [&] { return ranks_->all_reduce(x, bytes / 2); });
      measure(fmt::format("  ncclAllReduce bf16 {} KiB", bytes >> 10), bytes, [&] {
        check_code(ncclAllReduce(x.data, x.data, static_cast<size_t>(bytes / 2), ncclBfloat16,
                                 ncclSum, plain_, stream));
        return 0;
      });
    }
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    if (group_->rank() == 0) {
      fmt::print("memory of the GPU in use besides the arrays: {} MiB\n",
                 (total - free - 2 * static_cast<size_t>(bytes_)) >> 20);
    }
  }

 private:
  void measure(const std::string& name, int64_t bytes,
               const std::function<Communicator::Ticket()>& call) {
    const int calls = bytes < (int64_t{100} << 20) ? 200 : 20;
    const auto repeat = [&](int times) {
      for (int i = 0; i < times; ++i) ranks_->wait(call());
    };
    repeat(3);
    kernels_.wait();
    group_->barrier();
    const auto begin = Clock::now();
    repeat(calls);
    const auto queued = Clock::now();
    kernels_.wait();
    const double host = std::chrono::duration<double>(queued - begin).count() / calls;
    const double each = std::chrono::duration<double>(Clock::now() - begin).count() / calls;
    if (group_->rank() != 0) return;
    fmt::print("{:<32} {:7.1f} GB/s {:9.1f} us, the host {:6.1f} us\n", name,
               static_cast<double>(bytes) / each / 1e9, each * 1e6, host * 1e6);
  }

  std::shared_ptr<Group> group_;
  kernels::cuda::CudaKernels kernels_;
  MakeCommunicator make_;
  int64_t bytes_;
  std::shared_ptr<void> x_, y_;
  std::unique_ptr<Communicator> ranks_;
  ncclComm_t plain_ = nullptr;
};

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  const size_t bytes = static_cast<size_t>(argc > 1 ? std::atoi(argv[1]) : 1024) << 20;
  ferry::NcclOptions options;
  if (argc > 2) options.temporary_bytes = static_cast<size_t>(std::atoi(argv[2])) << 20;
  const auto groups = ferry::thread_groups(ferry::kernels::cuda::device_count());
  const auto links = ferry::thread_links(groups);
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ferry::or_abort(*groups[rank], [&] {
          ferry::Bench bench(groups[rank], links[rank], bytes, options);
          ferry::or_withdraw(*links[rank], [&] {
            bench.run();
            groups[rank]->barrier();
          });
        });
      } catch (const std::exception& error) {
        fmt::print("rank {}: {}\n", rank, error.what());
      }
    });
  }
}
