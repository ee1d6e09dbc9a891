// The tests' device is the first GPU.
#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

/// Each operation is waited for.
class WaitingKernels final : public ForwardingKernels<WaitingKernels> {
 public:
  std::shared_ptr<void> allocate(size_t bytes) override { return gpu_.allocate(bytes); }
  void upload(const void* from, void* to, size_t bytes) override { gpu_.upload(from, to, bytes); }
  void download(const void* from, void* to, size_t bytes) override {
    gpu_.download(from, to, bytes);
  }
  void wait() override { gpu_.wait(); }
  bool has_float8() const noexcept override { return gpu_.has_float8(); }
  bool has_grouped_float8() const noexcept override { return gpu_.has_grouped_float8(); }

  template <typename Operation>
  void forward(const Operation& x) {
    gpu_.run(x);
    gpu_.wait();
  }

 private:
  cuda::CudaKernels gpu_{0};
};

}  // namespace

std::vector<Device> devices() {
  std::vector<Device> all;
  all.push_back({"GPU", one_device()});
  return all;
}

double product_slack() { return 8; }

std::unique_ptr<Kernels> one_device(int) { return std::make_unique<WaitingKernels>(); }

}  // namespace ferry::kernels
