// How fast attention is on a GPU: TFLOP/s of both passes, of causal attention in bf16. Held against
// PyTorch's by attention.py, and with --cudnn against cuDNN's as `--attention-backend fused` runs
// it and, to see what the same bits every time cost, without them.
//
//   bench_attention [--cudnn] [B,H,Hkv,T,d[,dv[,document[,dropout in percent]]] ...]
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/attention/cudnn/cudnn_attention.h"
#include "kernels/cuda/operations.h"
#include "tests/gpu/bench/measuring.h"

namespace {

using namespace ferry::kernels;
using ferry::measuring::Numbers;

template <typename T>
T* take(int64_t count) {
  void* memory = nullptr;
  cuda::check(cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(T)), "taking memory");
  return static_cast<T*>(memory);
}

/// Whose kernels: ours where `cudnn` is null.
struct Backend {
  const char* name;
  std::unique_ptr<cuda::CudnnAttention> cudnn;

  /// False of what it has no kernel for.
  template <typename Operation>
  bool run(cuda::Device& device, const Operation& x) const {
    if (cudnn) return cudnn->run(x);
    cuda::run(device, x);
    return true;
  }
};

/// The median time of one run, in seconds; infinite where there is no kernel.
template <typename Operation>
double seconds(cuda::Device& device, const Backend& backend, const Operation& operation) {
  if (!backend.run(device, operation)) return INFINITY;
  return ferry::measuring::seconds(device, [&] { backend.run(device, operation); });
}

void measure(cuda::Device& device, const std::vector<Backend>& backends, const std::string& text) {
  std::istringstream in(text);
  std::vector<int64_t> n;
  for (std::string word; std::getline(in, word, ',');) n.push_back(std::atoll(word.c_str()));
  if (n.size() < 5) {
    std::fprintf(stderr, "%s: expected B,H,Hkv,T,d[,dv[,document[,dropout]]]\n", text.c_str());
    std::exit(2);
  }
  AttentionShape s;
  s.sequences = n[0];
  s.heads = n[1];
  s.groups = n[2];
  s.queries = s.keys = n[3];
  s.dim = n[4];
  s.value_dim = n.size() > 5 ? n[5] : s.dim;
  s.scale = 1 / std::sqrt(static_cast<double>(s.dim));
  const int64_t document = n.size() > 6 ? n[6] : s.queries;
  std::vector<int32_t> documents;
  for (int64_t i = 0; i < s.sequences * s.queries; ++i) {
    const int64_t at = i % s.queries;
    documents.push_back(static_cast<int32_t>(at - at % document));
  }
  if (document < s.queries) {
    auto* const there = take<int32_t>(s.sequences * s.queries);
    cuda::check(cudaMemcpy(there, documents.data(), documents.size() * 4, cudaMemcpyDefault),
                "uploading");
    s.document_begin = there;
  }
  s.dropout = n.size() > 7 ? static_cast<double>(n[7]) / 100 : 0;
  s.dropout_key = 1;
  s.total_heads = s.heads;
  s.total_positions = s.queries;
  auto* const ids = take<int64_t>(s.sequences);
  cuda::check(cudaMemset(ids, 0, static_cast<size_t>(s.sequences) * sizeof *ids), "clearing");
  s.sequence_ids = ids;
  const auto strides = [&](int64_t heads, int64_t dim) {
    const int64_t per_group = heads / s.groups;
    return HeadStrides{s.sequences * heads * dim, heads * dim, per_group * dim, dim};
  };
  const int64_t tokens = s.sequences * s.queries;
  const Numbers q(device, tokens * s.heads * s.dim), k(device, tokens * s.groups * s.dim);
  const Numbers v(device, tokens * s.groups * s.value_dim);
  const Numbers output(device, tokens * s.heads * s.value_dim);
  const Numbers doutput(device, tokens * s.heads * s.value_dim);
  const Numbers dq(device, tokens * s.heads * s.dim), dk(device, tokens * s.groups * s.dim);
  const Numbers dv(device, tokens * s.groups * s.value_dim);
  auto* const log_sum = take<float>(tokens * s.heads);
  cuda::check(cudaDeviceSynchronize(), "filling");
  const AttentionForward forward{.shape = s,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .q_strides = strides(s.heads, s.dim),
                                 .k_strides = strides(s.groups, s.dim),
                                 .v_strides = strides(s.groups, s.value_dim),
                                 .output = output,
                                 .output_strides = strides(s.heads, s.value_dim),
                                 .log_sum = log_sum};
  const AttentionBackward backward{.shape = s,
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .output = output,
                                   .doutput = doutput,
                                   .q_strides = forward.q_strides,
                                   .k_strides = forward.k_strides,
                                   .v_strides = forward.v_strides,
                                   .output_strides = forward.output_strides,
                                   .log_sum = log_sum,
                                   .dq = dq,
                                   .dk = dk,
                                   .dv = dv};
  double pairs = 0;  // of a query and a key that it sees
  for (int64_t i = 0; i < s.queries; ++i) pairs += static_cast<double>(i % document + 1);
  pairs *= static_cast<double>(s.sequences * s.heads);
  const auto both = static_cast<double>(s.dim + s.value_dim);
  const double flops = 2 * pairs * both,
               back = 2 * pairs * (both + static_cast<double>(s.dim) + both);
  for (const Backend& backend : backends) {
    const double forward_time = seconds(device, backend, forward);
    const double backward_time = seconds(device, backend, backward);
    std::printf("%-28s %-16s forward %8.3f ms %6.1f TFLOP/s   backward %8.3f ms %6.1f TFLOP/s\n",
                text.c_str(), backend.name, forward_time * 1e3, flops / forward_time * 1e-12,
                backward_time * 1e3, back / backward_time * 1e-12);
    if (std::isinf(forward_time + backward_time)) {
      std::printf("  left to our own: %s\n", backend.cudnn->refusal().c_str());
    }
    std::fflush(stdout);
  }
  cudaFree(log_sum);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> shapes(argv + 1, argv + argc);
  const bool has_cudnn = std::erase(shapes, "--cudnn") > 0;
  if (shapes.empty()) {
    shapes = {"4,32,32,4096,128", "4,32,8,4096,128", "1,32,8,16384,128",    "16,12,12,1024,64",
              "8,25,25,1024,64",  "4,32,32,4096,96", "4,16,16,4096,192,128"};
  }
  try {
    cuda::Device device(0);
    std::vector<Backend> backends;
    backends.push_back({"ours", nullptr});
    if (has_cudnn) {
      backends.push_back({"cuDNN", cuda::cudnn_attention(device)});
      backends.push_back({"cuDNN, any bits", cuda::cudnn_attention(device, false)});
    }
    for (const auto& shape : shapes) measure(device, backends, shape);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
