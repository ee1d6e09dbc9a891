// Graphs of cuDNN: built once per shape with NVIDIA's header-only frontend, which composes the
// library's operations.
//
// Source: github.com/NVIDIA/cudnn-frontend, docs/operations/Attention.md.
#include "kernels/cuda/attention/cudnn/cudnn_attention.h"

#include <cudnn_frontend.h>
#include <cudnn_version.h>
#include <dlfcn.h>

#include <compare>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "kernels/gpu_attention.h"

namespace ferry::kernels::cuda {

// cuDNN is loaded at run time, so that the program also starts without it.

/// Loads the library once and sets the frontend's handle. Thread-safe. Throws std::runtime_error,
/// saying what to do, if the library is not found or too old.
void load_cudnn();

}  // namespace ferry::kernels::cuda

// The handle in which the frontend looks up the library's functions (required by
// NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING). Set once, by load_cudnn().
namespace cudnn_frontend {
extern void* cudnn_dlhandle;
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace ferry::kernels::cuda {
namespace {

// Earlier versions compute wrong gradients for some shapes, according to the frontend's checks.
constexpr size_t kOldestVersion = 91002;

std::string name() { return "libcudnn.so." + std::to_string(CUDNN_MAJOR); }

void* load() {
  void* const library = dlopen(name().c_str(), RTLD_NOW);
  if (library == nullptr) {
    throw std::runtime_error("cuDNN cannot be loaded (" + std::string(dlerror()) +
                             "): name the folder of " + name() + " in LD_LIBRARY_PATH");
  }
  const auto version_of = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
  const size_t version = version_of == nullptr ? 0 : version_of();
  if (version < kOldestVersion) {
    throw std::runtime_error("cuDNN is version " + std::to_string(version) + ", and " +
                             std::to_string(kOldestVersion) + " or later is needed: name the " +
                             "folder of a later " + name() + " in LD_LIBRARY_PATH");
  }
  cudnn_frontend::cudnn_dlhandle = library;
  return library;
}

}  // namespace

// A later call tries again after a failure.
void load_cudnn() { [[maybe_unused]] static void* const library = load(); }

}  // namespace ferry::kernels::cuda
namespace ferry::kernels::cuda {

namespace {

namespace graphs = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;
using Pointers = std::unordered_map<int64_t, void*>;

enum Tensor : int64_t { kQ = 1, kK, kV, kOutput, kLogSum, kDoutput, kDq, kDk, kDv };

enum class Pass : uint8_t { forward, forward_without_log_sum, backward };

struct GraphKey {
  Pass pass;
  FusedAttention shape;
  auto operator<=>(const GraphKey&) const = default;
};

struct Plan {
  graphs::Graph graph;
  size_t workspace_bytes = 0;
};

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuDNN: ") + what + ": " +
                           cudnn_frontend::detail::get_error_string(status));
}

void check(cudnn_frontend::error_t status, const char* what) {
  if (status.is_good()) return;
  throw std::runtime_error(std::string("cuDNN: ") + what + ": " + status.get_message());
}

graphs::Tensor_attributes tensor(Tensor number, const FusedAttention& x, int64_t heads, int64_t dim,
                                 const FusedStrides& strides) {
  graphs::Tensor_attributes all;
  all.set_uid(number)
      .set_dim({x.batches, heads, x.positions, dim})
      .set_stride({strides.batch, strides.head, strides.position, 1});
  return all;
}

graphs::Tensor_attributes log_sum(const FusedAttention& x) {
  return tensor(kLogSum, x, x.heads, 1, {x.heads * x.positions, x.positions, 1})
      .set_data_type(DataType_t::FLOAT);
}

// Makes a tensor an output of the graph, with the layout of `like`.
void put_out(graphs::Tensor_attributes& result, const graphs::Tensor_attributes& like) {
  result.set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride());
}

template <typename Attributes>
Attributes causal(const FusedAttention& x, const char* name) {
  Attributes all;
  all.set_name(name)
      .set_attn_scale(static_cast<float>(x.scale))
      .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  return all;
}

void describe_forward(graphs::Graph& graph, const FusedAttention& x, bool has_log_sum) {
  auto [output, sums] = graph.sdpa(
      graph.tensor(tensor(kQ, x, x.heads, x.dim, x.q)), graph.tensor(tensor(kK, x, 1, x.dim, x.k)),
      graph.tensor(tensor(kV, x, 1, x.value_dim, x.v)),
      causal<graphs::SDPA_attributes>(x, "attention").set_generate_stats(has_log_sum));
  put_out(*output, tensor(kOutput, x, x.heads, x.value_dim, x.output));
  if (!has_log_sum) return;
  put_out(*sums, log_sum(x));
  sums->set_data_type(DataType_t::FLOAT);
}

void describe_backward(graphs::Graph& graph, const FusedAttention& x, bool deterministic) {
  auto [dq, dk, dv] = graph.sdpa_backward(
      graph.tensor(tensor(kQ, x, x.heads, x.dim, x.q)), graph.tensor(tensor(kK, x, 1, x.dim, x.k)),
      graph.tensor(tensor(kV, x, 1, x.value_dim, x.v)),
      graph.tensor(tensor(kOutput, x, x.heads, x.value_dim, x.output)),
      graph.tensor(tensor(kDoutput, x, x.heads, x.value_dim, x.output)), graph.tensor(log_sum(x)),
      causal<graphs::SDPA_backward_attributes>(x, "gradients of attention")
          .set_deterministic_algorithm(deterministic));
  put_out(*dq, tensor(kDq, x, x.heads, x.dim, x.q));
  put_out(*dk, tensor(kDk, x, 1, x.dim, x.k));
  put_out(*dv, tensor(kDv, x, 1, x.value_dim, x.v));
}

class Cudnn final : public CudnnAttention {
 public:
  Cudnn(Device& device, bool deterministic) : device_(device), deterministic_(deterministic) {
    load_cudnn();
    device_.enter();
    check(cudnn_frontend::detail::create_handle(&handle_), "starting");
    check(cudnn_frontend::detail::set_stream(handle_, device_.stream()), "choosing a stream");
  }
  ~Cudnn() override {
    // Queued operations may still use the plans. Errors cannot be reported.
    (void)cudaSetDevice(device_.index());
    (void)cudaStreamSynchronize(device_.stream());
    plans_.clear();
    (void)cudnn_frontend::detail::destroy_handle(handle_);
  }

  bool run(const AttentionForward& x) override {
    const auto shape = fused(x);
    if (!shape) return false;
    Plan* const plan = plan_of({x.log_sum ? Pass::forward : Pass::forward_without_log_sum, *shape});
    if (plan == nullptr) return false;
    Pointers pointers{{kQ, at(x.q)}, {kK, at(x.k)}, {kV, at(x.v)}, {kOutput, x.output.data}};
    if (x.log_sum) pointers.emplace(kLogSum, x.log_sum);
    execute(*plan, pointers);
    return true;
  }

  bool run(const AttentionBackward& x) override {
    auto part = fused(x);
    if (!part) return false;
    const int64_t batches = part->batches;
    if (deterministic_) part->batches = batches_at_once(*part);
    if (part->batches == 0) return false;
    Plan* const plan = plan_of({Pass::backward, *part});
    if (plan == nullptr) return false;
    for (int64_t first = 0; first < batches; first += part->batches) {
      const int64_t q = first * part->q.batch, k = first * part->k.batch;
      const int64_t v = first * part->v.batch, output = first * part->output.batch;
      const float* const sums = x.log_sum + first * part->heads * part->positions;
      Pointers pointers{{kQ, at(x.q.from(q))},
                        {kK, at(x.k.from(k))},
                        {kV, at(x.v.from(v))},
                        {kOutput, at(x.output.from(output))},
                        {kDoutput, at(x.doutput.from(output))},
                        {kLogSum, const_cast<float*>(sums)},
                        {kDq, x.dq.from(q).data},
                        {kDk, x.dk.from(k).data},
                        {kDv, x.dv.from(v).data}};
      execute(*plan, pointers);
    }
    return true;
  }

  // Otherwise an unknown GPU or missing parts of the library would only show in the speed.
  void check_kernels() {
    const FusedStrides strides{128 * 64, 64, 64};
    const FusedAttention least{Type::bf16, 1,       1,       128,     64,     64,
                               0.125,      strides, strides, strides, strides};
    if (plan_of({Pass::backward, least}) != nullptr) return;
    throw std::runtime_error("cuDNN cannot compute attention on this GPU: " + refusal_);
  }

  const std::string& refusal() const override { return refusal_; }

 private:
  // The library takes inputs and outputs as non-const pointers.
  static void* at(const ConstArray& array) { return const_cast<void*>(array.data); }

  // Null if the library has no kernel for it.
  Plan* plan_of(const GraphKey& key) {
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, build(key)).first;
    return found->second.get();
  }

  std::unique_ptr<Plan> build(const GraphKey& key) {
    auto plan = std::make_unique<Plan>();
    graphs::Graph& graph = plan->graph;
    graph.set_io_data_type(key.shape.type == Type::bf16 ? DataType_t::BFLOAT16 : DataType_t::HALF)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT)
        .set_sm_version(device_.architecture());
    if (key.pass == Pass::backward) {
      describe_backward(graph, key.shape, deterministic_);
    } else {
      describe_forward(graph, key.shape, key.pass == Pass::forward);
    }
    auto status = graph.validate();
    if (status.is_good()) status = graph.build_operation_graph(handle_);
    if (status.is_good()) status = graph.create_execution_plans({cudnn_frontend::HeurMode_t::A});
    if (status.is_good()) status = graph.check_support();
    if (status.is_bad()) {
      refusal_ = status.get_message();
      return nullptr;
    }
    // The first of the heuristics' choices that can be built: nothing is timed, so the same library
    // always chooses the same one.
    check(graph.build_plans(), "making kernels of attention");
    int64_t bytes = 0;
    check(graph.get_workspace_size(bytes), "making kernels of attention");
    plan->workspace_bytes = static_cast<size_t>(bytes);
    return plan;
  }

  void execute(const Plan& plan, Pointers& pointers) {
    void* const workspace = device_.workspace(plan.workspace_bytes);
    check(plan.graph.execute(handle_, pointers, workspace), "attention");
  }

  Device& device_;
  bool deterministic_;
  cudnnHandle_t handle_ = nullptr;
  std::map<GraphKey, std::unique_ptr<Plan>> plans_;
  std::string refusal_;
};

}  // namespace

std::unique_ptr<CudnnAttention> cudnn_attention(Device& device, bool deterministic) {
  auto cudnn = std::make_unique<Cudnn>(device, deterministic);
  cudnn->check_kernels();
  return cudnn;
}

}  // namespace ferry::kernels::cuda
