// Attention on a GPU held against its definition on the processor.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/attention/cudnn/cudnn_attention.h"
#include "kernels/cuda/operations.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {

/// Elements and what is between them, on the device.
class OnDevice {
 public:
  explicit OnDevice(const Numbers& numbers) : type_(numbers.type()), bytes_(numbers.bits().size()) {
    cuda::check(cudaMalloc(&memory_, bytes_ + 1), "taking memory");
    const auto bits = numbers.bits();
    cuda::check(cudaMemcpy(memory_, bits.data(), bytes_, cudaMemcpyDefault), "uploading");
  }
  template <typename T>
  explicit OnDevice(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    cuda::check(cudaMalloc(&memory_, bytes_ + 1), "taking memory");
    cuda::check(cudaMemcpy(memory_, values.data(), bytes_, cudaMemcpyDefault), "uploading");
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;

  Array array() const { return {memory_, type_}; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  std::string bits() const {
    std::string bits(bytes_, ' ');
    cuda::check(cudaMemcpy(bits.data(), memory_, bytes_, cudaMemcpyDefault), "downloading");
    return bits;
  }
  Numbers numbers(const Numbers& like) const {
    Numbers result(like.size(), type_);
    const auto all = bits();
    std::memcpy(result.array().data, all.data(), all.size());
    return result;
  }

 private:
  void* memory_ = nullptr;
  Type type_ = Type::f32;
  size_t bytes_;
};

/// One tensor of heads: rows of `dim` elements with gaps between them.
struct Tensor {
  HeadStrides strides;
  int64_t size = 0;
};

struct Case {
  AttentionShape shape;
  Type type, output_type, gradient_type;
  bool accumulate;
  Tensor q, k, v, output;
  std::vector<int32_t> documents;
  std::vector<int64_t> ids;
};

using Random = std::mt19937_64;
inline int64_t number(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}
inline bool chance(Random& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}

inline std::string describe(const Case& c) {
  const auto& s = c.shape;
  std::string text = name_of(c.type);
  const auto add = [&](const char* name, int64_t value) {
    text += std::string(" ") + name + "=" + std::to_string(value);
  };
  add("B", s.sequences);
  add("H", s.heads);
  add("G", s.groups);
  add("Q", s.queries);
  add("K", s.keys);
  add("d", s.dim);
  add("dv", s.value_dim);
  add("q0", s.query_begin);
  add("k0", s.key_begin);
  add("window", s.window);
  add("documents", !c.documents.empty());
  add("dropout", s.dropout > 0);
  return text + " out=" + name_of(c.output_type) + " grad=" + name_of(c.gradient_type) +
         (c.accumulate ? " accumulate" : "");
}

/// How far results of a type that was computed with may be from the definition: of the length of
/// all differences, and of each one, to those of the numbers.
inline double tolerance(Type type) {
  return type == Type::f32 ? 2e-6 : type == Type::bf16 ? 8e-3 : 1.2e-3;
}

inline void expect_same(const Numbers& got, const Numbers& reference, Type type,
                        const std::string& what) {
  double difference = 0, length = 0, largest = 0, most = 0;
  size_t worst = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double d = std::fabs(got[i] - reference[i]);
    difference += d * d;
    length += reference[i] * reference[i];
    most = std::max(most, std::fabs(reference[i]));
    if (!(d <= largest)) {
      largest = d;
      worst = i;
    }
  }
  // Where all is about zero, as gradients of a single key are, what is left is rounding.
  const double least = 0.01 * static_cast<double>(reference.size());
  const double relative = std::sqrt(difference / std::max(length, least));
  if (reference.size() == 0) return;
  EXPECT_TRUE(relative <= tolerance(type) && largest <= 8 * tolerance(type) * std::max(most, 0.1))
      << what << ": relative " << relative << ", largest " << largest << " at " << worst << " (got "
      << got[worst] << ", expected " << reference[worst] << "), most " << most;
}

/// By our own kernels, or by cuDNN's, which have to take every case.
class AttentionOnGpu {
 public:
  explicit AttentionOnGpu(cuda::Device& device, cuda::CudnnAttention* cudnn = nullptr)
      : device_(device), cudnn_(cudnn), cpu_(cpu_kernels()) {}

  void check(const Case& c) {
    SCOPED_TRACE(describe(c));
    Case here = c, there = c;
    const OnDevice ids(c.ids), documents(c.documents);
    here.shape.sequence_ids = c.ids.data();
    there.shape.sequence_ids = ids.as<int64_t>();
    if (!c.documents.empty()) {
      here.shape.document_begin = c.documents.data();
      there.shape.document_begin = documents.as<int32_t>();
    }
    const Numbers q = random_numbers(c.q.size, c.type, 1), k = random_numbers(c.k.size, c.type, 2);
    const Numbers v = random_numbers(c.v.size, c.type, 3);
    const OnDevice dq(q), dk(k), dv(v);
    const auto rows = static_cast<size_t>(c.shape.sequences * c.shape.heads * c.shape.queries);

    // Forward. What is between the rows stays as it was.
    const Numbers before = random_numbers(c.output.size, c.output_type, 4);
    Numbers reference = before, log_sum(rows, Type::f32);
    const auto forward = [&](const Case& x, ConstArray a, ConstArray b, ConstArray e, Array out,
                             float* sums) {
      return AttentionForward{
          x.shape, a, b, e, c.q.strides, c.k.strides, c.v.strides, out, c.output.strides, sums};
    };
    cpu_->run(forward(here, q, k, v, reference, log_sum.floats()));
    std::string first;
    for (int time = 0; time < 2; ++time) {
      const OnDevice output(before), sums(log_sum);
      run(forward(there, dq.array(), dk.array(), dv.array(), output.array(), sums.as<float>()));
      if (time == 0) {
        expect_same(output.numbers(before), reference, c.type, "output");
        expect_log_sums(sums.numbers(log_sum), log_sum);
        first = output.bits() + sums.bits();
      } else {
        EXPECT_TRUE(first == output.bits() + sums.bits()) << "forward: other bits the second time";
      }
    }

    // Backward, of the definition's own outputs.
    Numbers output = random_numbers(c.output.size, c.type, 5);
    cpu_->run(forward(here, q, k, v, output, log_sum.floats()));
    const Numbers doutput = random_numbers(c.output.size, c.type, 6);
    const Numbers q_before = random_numbers(c.q.size, c.gradient_type, 7);
    const Numbers k_before = random_numbers(c.k.size, c.gradient_type, 8);
    const Numbers v_before = random_numbers(c.v.size, c.gradient_type, 9);
    Numbers q_reference = q_before, k_reference = k_before, v_reference = v_before;
    const auto backward = [&](const Case& x, ConstArray a, ConstArray b, ConstArray e,
                              ConstArray out, ConstArray dout, const float* sums, Array ga,
                              Array gb, Array ge) {
      return AttentionBackward{x.shape, a,           b,           e,           out,
                               dout,    c.q.strides, c.k.strides, c.v.strides, c.output.strides,
                               sums,    ga,          gb,          ge,          c.accumulate};
    };
    cpu_->run(backward(here, q, k, v, output, doutput, log_sum.floats(), q_reference, k_reference,
                       v_reference));
    const OnDevice there_output(output), there_doutput(doutput), sums(log_sum);
    for (int time = 0; time < 2; ++time) {
      const OnDevice gq(q_before), gk(k_before), gv(v_before);
      run(backward(there, dq.array(), dk.array(), dv.array(), there_output.array(),
                   there_doutput.array(), sums.as<float>(), gq.array(), gk.array(), gv.array()));
      if (time == 0) {
        expect_same(gq.numbers(q_before), q_reference, c.type, "dq");
        expect_same(gk.numbers(k_before), k_reference, c.type, "dk");
        expect_same(gv.numbers(v_before), v_reference, c.type, "dv");
        first = gq.bits() + gk.bits() + gv.bits();
      } else {
        EXPECT_TRUE(first == gq.bits() + gk.bits() + gv.bits())
            << "backward: other bits the second time";
      }
    }
  }

  /// Outputs of a query that is not a number are none, and no others.
  void check_nan(const Case& c) {
    SCOPED_TRACE(describe(c));
    Case here = c, there = c;
    const OnDevice ids(c.ids);
    here.shape.sequence_ids = c.ids.data();
    there.shape.sequence_ids = ids.as<int64_t>();
    Numbers q = random_numbers(c.q.size, c.type, 1);
    q.set(q.size() / 4 * 3, std::numeric_limits<double>::quiet_NaN());
    const Numbers k = random_numbers(c.k.size, c.type, 2), v = random_numbers(c.v.size, c.type, 3);
    const OnDevice dq(q), dk(k), dv(v);
    Numbers reference(static_cast<size_t>(c.output.size), c.output_type);
    const OnDevice output(reference);
    const auto forward = [&](const Case& x, ConstArray a, ConstArray b, ConstArray e, Array out) {
      return AttentionForward{
          x.shape, a, b, e, c.q.strides, c.k.strides, c.v.strides, out, c.output.strides, nullptr};
    };
    cpu_->run(forward(here, q, k, v, reference));
    run(forward(there, dq.array(), dk.array(), dv.array(), output.array()));
    const Numbers got = output.numbers(reference);
    int64_t count = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(reference[i])) << "element " << i;
      count += std::isnan(reference[i]);
    }
    EXPECT_EQ(count, c.shape.value_dim);
  }

  /// Two parts of the keys give what all of them do.
  void check_merge(const Case& c) {
    SCOPED_TRACE(describe(c));
    const auto& s = c.shape;
    const auto rows = s.sequences * s.heads * s.queries;
    Numbers a = random_numbers(c.output.size, Type::f32, 1);
    Numbers a_sums = random_numbers(rows, Type::f32, 2);
    const Numbers b = random_numbers(c.output.size, Type::f32, 3);
    Numbers b_sums = random_numbers(rows, Type::f32, 4);
    for (int64_t i = 0; i < rows; i += 3) {  // nothing seen in one part, or in both
      b_sums.set(static_cast<size_t>(i), -std::numeric_limits<double>::infinity());
      if (i % 2 == 0) a_sums.set(static_cast<size_t>(i), -std::numeric_limits<double>::infinity());
    }
    const OnDevice to(a), to_sums(a_sums), from(b), from_sums(b_sums);
    cpu_->run(AttentionMerge{s, b.floats(), b_sums.floats(), a.floats(), c.output.strides,
                             a_sums.floats()});
    run(AttentionMerge{s, from.as<float>(), from_sums.as<float>(), to.as<float>(), c.output.strides,
                       to_sums.as<float>()});
    expect_same(to.numbers(a), a, Type::f32, "merged");
    expect_log_sums(to_sums.numbers(a_sums), a_sums);
  }

 private:
  template <typename Operation>
  void run(const Operation& operation) {
    if constexpr (!std::is_same_v<Operation, AttentionMerge>) {
      if (cudnn_ != nullptr) {
        ASSERT_TRUE(cudnn_->run(operation)) << "not taken: " << cudnn_->refusal();
        cuda::check(cudaStreamSynchronize(device_.stream()), "attention");
        return;
      }
    }
    cuda::run(device_, operation);
    cuda::check(cudaStreamSynchronize(device_.stream()), "attention");
  }
  void expect_log_sums(const Numbers& got, const Numbers& reference) const {
    const double most = cudnn_ != nullptr ? 1e-5 : 2e-6;  // its logarithms are the hardware's
    for (size_t i = 0; i < reference.size(); ++i) {
      if (std::isinf(reference[i]) && got[i] == reference[i]) continue;
      ASSERT_NEAR(got[i], reference[i], most * std::max(8.0, std::fabs(reference[i])))
          << "row " << i;
    }
  }

  cuda::Device& device_;
  cuda::CudnnAttention* cudnn_;
  std::unique_ptr<Kernels> cpu_;
};

}  // namespace ferry::kernels
