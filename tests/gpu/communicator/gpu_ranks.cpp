#include "tests/gpu/communicator/gpu_ranks.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"

namespace ferry::test {

using kernels::Type;

void* GpuRank::memory(const std::vector<std::byte>& bytes) const {
  kept.push_back(kernels.allocate(std::max<size_t>(bytes.size(), 16)));
  kernels.upload(bytes.data(), kept.back().get(), bytes.size());
  return kept.back().get();
}

std::vector<std::byte> GpuRank::bytes(const void* memory, size_t count) const {
  std::vector<std::byte> bytes(count);
  kernels.download(memory, bytes.data(), count);
  kernels.wait();
  return bytes;
}

std::vector<std::string> on_gpu_ranks(int size, int gpus,
                                      const std::function<void(const GpuRank&)>& body,
                                      const NcclOptions& options) {
  const auto groups = thread_groups(size);
  const auto links = thread_links(groups);
  std::vector<std::string> errors(groups.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        or_abort(*groups[rank], [&] {
          kernels::cuda::CudaKernels kernels(static_cast<int>(rank) % gpus);
          const MakeCommunicator make =
              gpu_communicators(groups[rank], links[rank], kernels, options);
          std::vector<int> all(groups.size());
          std::iota(all.begin(), all.end(), 0);
          const auto ranks = make(0, all);
          std::vector<std::shared_ptr<void>> kept;
          or_withdraw(*links[rank], [&] {
            body({*ranks, kernels, make, kept});
            kernels.wait();
            groups[rank]->barrier();  // nobody reads what is about to go
          });
        });
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

namespace {

template <typename Element, typename Convert>
std::vector<std::byte> encode_as(const std::vector<float>& values, const Convert& convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(Element));
  for (size_t i = 0; i < values.size(); ++i) {
    const Element element = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
  }
  return bytes;
}

template <typename Element, typename Convert>
std::vector<float> decode_as(const std::vector<std::byte>& bytes, const Convert& convert) {
  std::vector<float> values(bytes.size() / sizeof(Element));
  for (size_t i = 0; i < values.size(); ++i) {
    Element element;
    std::memcpy(static_cast<void*>(&element), bytes.data() + i * sizeof element, sizeof element);
    values[i] = convert(element);
  }
  return values;
}

}  // namespace

std::vector<std::byte> encode(Type type, const std::vector<float>& values) {
  if (type == Type::bf16) return encode_as<__nv_bfloat16>(values, __float2bfloat16_rn);
  if (type == Type::f16) return encode_as<__half>(values, __float2half_rn);
  return encode_as<float>(values, [](float x) { return x; });
}

std::vector<float> decode(Type type, const std::vector<std::byte>& bytes) {
  if (type == Type::bf16) return decode_as<__nv_bfloat16>(bytes, __bfloat162float);
  if (type == Type::f16) return decode_as<__half>(bytes, __half2float);
  return decode_as<float>(bytes, [](float x) { return x; });
}

}  // namespace ferry::test
