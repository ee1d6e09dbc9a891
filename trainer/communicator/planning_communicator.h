// A communicator that moves nothing, for use with kernels::PlanningKernels.
#pragma once

#include "trainer/communicator/communicator.h"

namespace ferry {

class PlanningCommunicator final : public Communicator {
 public:
  PlanningCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  Ticket all_reduce(Array, int64_t) override { return 0; }
  Ticket all_reduce_max(float*, int64_t) override { return 0; }
  Ticket all_reduce(double*, int64_t) override { return 0; }
  Ticket reduce_scatter(ConstArray, Array, int64_t) override { return 0; }
  Ticket all_gather(ConstArray, Array, int64_t) override { return 0; }
  Ticket all_to_all(ConstArray, std::span<const int64_t>, Array,
                    std::span<const int64_t>) override {
    return 0;
  }
  void exchange(std::span<const int64_t>, std::span<int64_t>) override {}
  void add_numbers(std::span<double>) override {}
  Ticket broadcast(Array, int64_t, int) override { return 0; }
  Ticket send(ConstArray, int64_t, int) override { return 0; }
  Ticket receive(Array, int64_t, int) override { return 0; }
  void wait(Ticket) override {}

 private:
  int rank_, size_;
};

}  // namespace ferry
