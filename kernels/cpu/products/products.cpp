#include "kernels/cpu/products/products.h"

#include <omp.h>

#include <array>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "kernels/cpu/host_kernels.h"
#include "kernels/cpu/signals.h"
#include "kernels/host_products.h"

namespace ferry::kernels {

using dnnl::memory;

namespace {

/// Key of a prepared product.
struct Key {
  std::array<int64_t, 6> sizes;  // m, n, k and the strides
  std::array<Type, 4> types;
  bool a_transposed, b_transposed, accumulate, has_bias;

  explicit Key(const Product& p)
      : sizes{p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride},
        types{p.a.type, p.b.type, p.bias.type, p.c.type},
        a_transposed(p.a_transposed),
        b_transposed(p.b_transposed),
        accumulate(p.accumulate),
        has_bias(static_cast<bool>(p.bias)) {}
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = key.a_transposed | key.b_transposed << 1 | key.accumulate << 2;
    for (const auto size : key.sizes) hash = hash * 1000003 + static_cast<size_t>(size);
    for (const auto type : key.types) hash = hash * 31 + static_cast<size_t>(type);
    return hash;
  }
};

memory::data_type data_type(Type type) {
  switch (type) {
    case Type::bf16:
      return memory::data_type::bf16;
    case Type::f16:
      return memory::data_type::f16;
    default:
      return memory::data_type::f32;
  }
}

memory::desc matrix(int64_t rows, int64_t columns, Type type, int64_t stride, bool transposed) {
  return {{rows, columns},
          data_type(type),
          transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

/// Supports both generations of the library: version 2 has operation descriptors.
template <typename Matmul>
typename Matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& a,
                                         const memory::desc& b, const memory::desc& bias,
                                         const memory::desc& c, const dnnl::primitive_attr& how) {
  using Description = typename Matmul::primitive_desc;
  if constexpr (std::is_constructible_v<Description, dnnl::engine, memory::desc, memory::desc,
                                        memory::desc, memory::desc, dnnl::primitive_attr>) {
    return Description(engine, a, b, bias, c, how);
  } else {
    return Description(typename Matmul::desc(a, b, bias, c), how, engine);
  }
}

/// A product's primitive and its memory views; no primitive if the library has none.
struct Prepared {
  dnnl::matmul primitive;
  memory a, b, bias, c, scratch;
  size_t scratch_bytes = 0;
  bool is_there = false;
};

/// Whether the CPU has the instructions and the library may use them (ONEDNN_MAX_CPU_ISA). Without
/// them it takes four times as long as fp32, so factors are converted first. Unknown for CPUs whose
/// instruction sets the library does not name.
bool has_bf16_instructions() {
  const auto known = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return known == 0 || (known & needed) == needed;
}

Prepared prepare(const Product& p, const dnnl::engine& engine) {
  static const bool has_bf16 = has_bf16_instructions();
  if (p.a.type == Type::bf16 && !has_bf16) return {};
  dnnl::primitive_attr how;
  how.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    how.set_post_ops(sum);
  }
  const auto a = matrix(p.m, p.k, p.a.type, p.a_stride, p.a_transposed);
  const auto b = matrix(p.k, p.n, p.b.type, p.b_stride, p.b_transposed);
  const auto c = matrix(p.m, p.n, p.c.type, p.c_stride, false);
  const auto bias = p.bias ? matrix(1, p.n, p.bias.type, p.n, false) : memory::desc();
  Prepared prepared;
  try {
    const auto description = describe<dnnl::matmul>(engine, a, b, bias, c, how);
    const bool is_slow = std::string_view(description.impl_info_str()).starts_with("ref");
    if (is_slow && p.a.type != Type::f32) return prepared;
    prepared.primitive = dnnl::matmul(description);
    const auto scratch = description.scratchpad_desc();
    prepared.scratch_bytes = scratch.get_size();
    prepared.scratch = memory(scratch, engine, nullptr);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented || p.a.type == Type::f32) throw;
    return prepared;
  }
  prepared.a = memory(a, engine, nullptr);
  prepared.b = memory(b, engine, nullptr);
  prepared.c = memory(c, engine, nullptr);
  if (p.bias) prepared.bias = memory(bias, engine, nullptr);
  prepared.is_there = true;
  return prepared;
}

/// The library uses as many threads as OpenMP would give to the calling thread.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadCount() { omp_set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace

bool bf16_instructions_unused() { return false; }

struct Products::State {
  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Workspace scratch;
  std::unordered_map<Key, Prepared, KeyHash> prepared;
};

Products::Products(int threads)
    : state_(new State{.threads = threads, .scratch = {}, .prepared = {}}) {}
Products::~Products() = default;

bool Products::run(const Product& product) {
  const SignalsBlocked blocked;
  const ThreadCount count(state_->threads);
  auto& known = state_->prepared;
  const Key key(product);
  auto found = known.find(key);
  if (found == known.end()) {
    constexpr size_t kMostShapes = 1024;
    if (known.size() == kMostShapes) known.clear();
    found = known.emplace(key, prepare(product, state_->engine)).first;
  }
  auto& prepared = found->second;
  if (!prepared.is_there) return false;

  std::array<dnnl_exec_arg_t, 5> arguments;
  int used = 0;
  const auto add = [&](int role, memory& view, const void* data) {
    view.set_data_handle(const_cast<void*>(data));
    arguments[static_cast<size_t>(used++)] = {role, view.get()};
  };
  add(DNNL_ARG_SRC, prepared.a, product.a.data);
  add(DNNL_ARG_WEIGHTS, prepared.b, product.b.data);
  add(DNNL_ARG_DST, prepared.c, product.c.data);
  if (product.bias) add(DNNL_ARG_BIAS, prepared.bias, product.bias.data);
  if (prepared.scratch_bytes > 0) {
    add(DNNL_ARG_SCRATCHPAD, prepared.scratch, state_->scratch.take(prepared.scratch_bytes));
  }
  dnnl::error::wrap_c_api(dnnl_primitive_execute(prepared.primitive.get(), state_->stream.get(),
                                                 used, arguments.data()),
                          "a matrix product failed");
  return true;
}

}  // namespace ferry::kernels
