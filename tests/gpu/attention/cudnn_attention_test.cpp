// Attention by cuDNN on a GPU against its definition on the processor: random sizes, types and
// layouts of those that cuDNN computes.
//
//   FERRY_TEST_CASES, FERRY_TEST_SEED: as tests/random_cases.h says
#include <stdexcept>

#include "kernels/gpu_attention.h"
#include "tests/gpu/attention/attention_on_gpu.h"
#include "tests/random_cases.h"

namespace ferry::kernels {
namespace {

enum class Order : uint8_t { positions_first, heads_first, fused };

/// In Megatron-LM's fused layout the rows of queries, keys and values of a group follow each other:
/// each tensor is one of them, and the others are its gaps.
Tensor tensor_of(const AttentionShape& s, int64_t heads, int64_t dim, Order order) {
  const int64_t per_group = s.heads / s.groups;
  Tensor t;
  t.strides.head = order == Order::heads_first ? s.queries * dim : dim;
  t.strides.group =
      order == Order::fused ? (per_group + 1) * s.dim + s.value_dim : heads * t.strides.head;
  t.strides.sequence = s.groups * t.strides.group;
  t.strides.position = order == Order::heads_first ? dim : s.sequences * t.strides.sequence;
  t.size = s.queries * s.sequences *
           (order == Order::heads_first ? s.groups * heads * dim : t.strides.sequence);
  return t;
}

Case make_case(uint64_t seed) {
  Random random(seed * 6364136223846793005U + 1442695040888963407U);
  constexpr std::pair<int, int> kDims[] = {{64, 64}, {128, 128}, {96, 96},  {80, 80},
                                           {72, 72}, {112, 112}, {192, 128}};
  Case c;
  AttentionShape& s = c.shape;
  c.type = c.output_type = c.gradient_type = chance(random, 0.6) ? Type::bf16 : Type::f16;
  c.accumulate = false;
  const auto dims = kDims[number(random, 0, 6)];
  s.dim = dims.first;
  s.value_dim = dims.second;
  s.sequences = number(random, 1, 3);
  s.groups = number(random, 1, 4);
  s.heads = number(random, 1, 4) * s.groups;
  s.queries = s.keys = 128 * number(random, 1, 4);
  s.scale = 1.3 / std::sqrt(static_cast<double>(s.dim));
  const auto order = static_cast<Order>(number(random, 0, 2));
  const int64_t per_group = s.heads / s.groups;
  c.q = tensor_of(s, per_group, s.dim, order);
  c.k = tensor_of(s, 1, s.dim, order);
  c.v = tensor_of(s, 1, s.value_dim, order);
  c.output =
      tensor_of(s, per_group, s.value_dim, order == Order::fused ? Order::positions_first : order);
  return c;
}

class CudnnOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cudnn_ = cuda::cudnn_attention(device_);
    } catch (const std::runtime_error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  cuda::Device device_{0};
  std::unique_ptr<cuda::CudnnAttention> cudnn_;
};

TEST_F(CudnnOnGpu, EqualsItsDefinition) {
  AttentionOnGpu attention(device_, cudnn_.get());
  test::for_random_cases(100, [&](uint64_t seed) { attention.check(make_case(seed)); });
}

// More than there is room for at once.
TEST_F(CudnnOnGpu, InPartsEqualsOurOwn) {
  Case c;
  AttentionShape& s = c.shape;
  c.type = Type::bf16;
  s.sequences = 2;
  s.groups = s.heads = 20;
  s.queries = s.keys = 4096;
  s.dim = s.value_dim = 64;
  s.scale = 0.125;
  const Tensor t = tensor_of(s, 1, 64, Order::fused),
               o = tensor_of(s, 1, 64, Order::positions_first);
  const Numbers numbers = random_numbers(t.size, c.type, 1);
  const OnDevice qkv(numbers), output(random_numbers(o.size, c.type, 2));
  const OnDevice doutput(random_numbers(o.size, c.type, 3));
  const OnDevice sums(std::vector<float>(static_cast<size_t>(s.sequences * s.heads * s.queries)));
  const auto part = [](const OnDevice& all, int64_t number) {
    return all.array().from(64 * number);
  };
  cuda::run(device_,
            AttentionForward{s, part(qkv, 0), part(qkv, 1), part(qkv, 2), t.strides, t.strides,
                             t.strides, output.array(), o.strides, sums.as<float>()});
  Numbers gradients[2];
  for (const bool by_cudnn : {false, true}) {
    const OnDevice all(numbers);
    const AttentionBackward x{s,
                              part(qkv, 0),
                              part(qkv, 1),
                              part(qkv, 2),
                              output.array(),
                              doutput.array(),
                              t.strides,
                              t.strides,
                              t.strides,
                              o.strides,
                              sums.as<float>(),
                              part(all, 0),
                              part(all, 1),
                              part(all, 2),
                              false};
    const auto shape = fused(x);
    ASSERT_TRUE(shape);
    EXPECT_EQ(batches_at_once(*shape), 20);
    if (by_cudnn) {
      ASSERT_TRUE(cudnn_->run(x)) << cudnn_->refusal();
    } else {
      cuda::run(device_, x);
    }
    cuda::check(cudaStreamSynchronize(device_.stream()), "attention");
    gradients[by_cudnn] = all.numbers(numbers);
  }
  expect_same(gradients[1], gradients[0], c.type, "gradients");
}

TEST_F(CudnnOnGpu, LeavesOtherMasksToUs) {
  Case c = make_case(1);
  const OnDevice memory(random_numbers(c.q.size + c.output.size, c.type, 1));
  const Array all = memory.array();
  AttentionForward x{c.shape,          all,    all, all, c.q.strides, c.k.strides, c.v.strides, all,
                     c.output.strides, nullptr};
  x.shape.window = 7;
  EXPECT_FALSE(cudnn_->run(x));
}

}  // namespace
}  // namespace ferry::kernels
