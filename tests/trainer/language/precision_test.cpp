// --use-precision-aware-optimizer: 16 bits of fp32 copies, moments and gradients in bf16.
#include <cmath>
#include <cstring>

#include "tests/trainer/checkpoint/saved_again.h"
#include "trainer/language/memory_plan.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::string kSharded = "--use-distributed-optimizer ";
const std::string kAware = "--use-precision-aware-optimizer ";
const std::string kSmall =
    kAware + "--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ";

// Arguments of a small model in bf16, with random weights.
std::string words(const Scratch& scratch, const std::string& more) {
  return common_words(scratch) + kSharded +
         "--bf16 --num-layers 2 --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4 "
         "--group-query-attention --num-query-groups 2 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --max-position-embeddings 64 "
         "--untie-embeddings-and-output-weights --eval-iters 0 --save-interval 100 " +
         more;
}

std::string until(int64_t iteration) {
  return "--exit-interval " + std::to_string(iteration) + " ";
}

std::vector<float> floats_in(const std::string& bytes) {
  std::vector<float> all(bytes.size() / sizeof(float));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

bool is_master(const std::string& name) { return name.starts_with("optimizer.state.param."); }

// Names of tensors that differ; of masters, those that differ by more than the last bit of a few,
// which may have become smaller since.
std::vector<std::string> differences_beyond_a_bit(const std::string& a, const std::string& b) {
  const auto left = tensors_in(a), right = tensors_in(b);
  std::vector<std::string> names;
  EXPECT_EQ(left.size(), right.size());
  for (const auto& [name, bytes] : left) {
    const std::string& others = right.at(name);
    if (bytes == others) continue;
    const auto ours = floats_in(bytes), theirs = floats_in(others);
    float largest = 0, furthest = 0;
    size_t differing = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      differing += ours[i] == theirs[i] ? 0 : 1;
      largest = std::max(largest, std::fabs(ours[i]));
      furthest = std::max(furthest, std::fabs(ours[i] - theirs[i]));
    }
    const bool are_few = differing <= ours.size() / 1000 + 1;
    if (!is_master(name) || furthest > 0x1p-24F * largest || !are_few) names.push_back(name);
  }
  return names;
}

struct PrecisionRun {
  std::string layout, format;
};

void PrintTo(const PrecisionRun& one, std::ostream* out) { *out << one.layout << one.format; }

class PrecisionAware : public testing::TestWithParam<PrecisionRun> {
 protected:
  std::string run(const std::string& name, const std::string& more) const {
    return run_of("--load " + scratch_.path(name) + " --save " + scratch_.path(name) +
                  words(scratch_, GetParam().layout + GetParam().format + more));
  }

  const Scratch scratch_;
};

// Weights are rounded from the same fp32 copies; of those that lie halfway between two weights, one
// of 65,536, the last bit is lost where the weight is the lower one.
TEST_P(PrecisionAware, HasTheBitsOfFp32Copies) {
  const auto plain = figures_in(run("plain", until(8)));
  const auto aware = figures_in(run("aware", kAware + until(8)));
  ASSERT_EQ(aware.size(), 8u);
  for (const auto& [iteration, figures] : plain) {
    EXPECT_EQ(figures.loss, aware.at(iteration).loss) << iteration;
    EXPECT_EQ(figures.norm, aware.at(iteration).norm) << iteration;
  }
  EXPECT_THAT(differences_beyond_a_bit(scratch_.path("plain"), scratch_.path("aware")), IsEmpty());
}

TEST_P(PrecisionAware, GoesOnAsTheUnbrokenRun) {
  const auto whole = figures_in(run("whole", kSmall + until(12)));
  run("broken", kSmall + until(5));
  const auto broken = figures_in(run("broken", kSmall + until(12)));
  ASSERT_EQ(broken.rbegin()->first, 12);
  EXPECT_EQ(broken.rbegin()->second.loss, whole.rbegin()->second.loss);
  EXPECT_THAT(differences(scratch_.path("whole"), scratch_.path("broken")), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PrecisionAware,
    testing::Values(PrecisionRun{"", ""}, PrecisionRun{layout::kAll, ""},
                    PrecisionRun{layout::kData, "--dist-ckpt-optim-fully-reshardable "},
                    PrecisionRun{layout::kTensor, "--dist-ckpt-optim-fully-reshardable "},
                    PrecisionRun{layout::kInterleaved, ""}, PrecisionRun{layout::kData, "--async-save "},
                    PrecisionRun{layout::kAll, "--ckpt-format torch "},
                    PrecisionRun{layout::kContext, "--ckpt-format torch "}));

class PrecisionAwareRun : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return scratch_.path(name); }
  std::string train(const std::string& name, const std::string& more) const {
    return run_of("--save " + path(name) + words(scratch_, more));
  }
  void again(const std::string& from, const std::string& to, const std::string& more) const {
    save_again("--load " + path(from) + " --save " + path(to) + words(scratch_, more));
  }
  std::vector<std::string> differing(const std::string& a, const std::string& b) const {
    return differences(path(a), path(b));
  }

  const Scratch scratch_;
};

TEST_F(PrecisionAwareRun, LearnsAsInFp32) {
  const std::string longer = "--train-iters 50 ";
  const auto plain = figures_in(train("plain", longer));
  for (const std::string& some : {kAware + "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ", kSmall,
                                  kSmall + "--exp-avg-sq-dtype fp32 " + layout::kAll}) {
    const auto figures = figures_in(train("small", some + longer));
    EXPECT_LT(figures.at(50).loss, 0.97 * figures.at(1).loss);
    EXPECT_NEAR(figures.at(50).loss, plain.at(50).loss, 0.01 * plain.at(50).loss) << some;
    EXPECT_NEAR(figures.at(1).norm, plain.at(1).norm, 0.01 * plain.at(1).norm) << some;
  }
}

// The checkpoint of any layout and format, at any other.
TEST_F(PrecisionAwareRun, LoadsEveryBitAtAnyLayout) {
  train("run", kSmall + layout::kAll + until(6));
  for (const std::string& other :
       {std::string(), std::string(layout::kTensor), std::string(layout::kPipeline),
        std::string(layout::kData) + "--dist-ckpt-optim-fully-reshardable ",
        std::string(layout::kAll) + "--ckpt-format torch "}) {
    fs::remove_all(path("again"));
    again("run", "again", kSmall + other);
    EXPECT_THAT(differing("run", "again"), IsEmpty()) << other;
    fs::remove_all(path("back"));
    again("again", "back", kSmall + layout::kAll);
    EXPECT_THAT(differing("run", "back"), IsEmpty()) << other;
  }
}

// fp32 copies are cut into halves, and put together, without a loss.
TEST_F(PrecisionAwareRun, TakesOverFromARunWithoutItAndBack) {
  train("plain", until(6));
  again("plain", "aware", kAware);
  const auto plain = tensors_in(path("plain")), aware = tensors_in(path("aware"));
  for (const auto& [name, bytes] : plain) {
    if (!name.starts_with("optimizer.")) continue;
    EXPECT_TRUE(bytes == aware.at(name)) << name;
  }
  again("aware", "plain_again", "");
  EXPECT_THAT(differing("plain", "plain_again"), IsEmpty());
  EXPECT_EQ(outcome_of("--load " + path("plain") + words(scratch_, kAware + until(7))).problem, "");
}

// Where copies lie halfway between two weights, the weight becomes the upper one, as Transformer
// Engine's is: then the copy is what it was.
TEST_F(PrecisionAwareRun, KeepsCopiesThatLieHalfway) {
  const std::string whole = "--dist-ckpt-optim-fully-reshardable ";
  train("plain", whole + until(3));
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path("plain"));
  for (const Entry& entry : checkpoint.catalog->entries) {
    if (!is_master(entry.name)) continue;
    for (const Chunk& chunk : entry.chunks) {
      std::string bytes(static_cast<size_t>(4 * chunk.elements(entry.name)), 0);
      const Region region{entry.name, entry.dtype, entry.shape, chunk,
                          reinterpret_cast<std::byte*>(bytes.data())};
      load(checkpoint, std::span(&region, 1));
      const std::string file = checkpoint.catalog->files[chunk.extent.file].path;
      const size_t place = read_text(file).find(bytes, chunk.extent.offset);
      ASSERT_NE(place, std::string::npos) << entry.name;
      for (size_t at = 0; at < bytes.size(); at += 4) {
        bytes[at] = 0;
        bytes[at + 1] = static_cast<char>(0x80);
      }
      std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(place))
          .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
  const auto plain = tensors_in(path("plain"));
  again("plain", "aware", kAware);
  again("aware", "aware_again", kAware + layout::kAll);
  again("aware", "plain_again", whole);
  EXPECT_THAT(differing("aware", "aware_again"), IsEmpty());
  for (const char* name : {"aware", "plain_again"}) {
    const auto others = tensors_in(path(name));
    for (const auto& [tensor, bytes] : plain) {
      if (!is_master(tensor)) continue;
      EXPECT_TRUE(bytes == others.at(tensor)) << name << " " << tensor;
      uint16_t low = 0;
      std::memcpy(&low, bytes.data(), sizeof low);
      EXPECT_EQ(low, 0x8000);
    }
  }
}

// As Megatron-LM and Transformer Engine have it: remainders in buckets, moments in fp32.
TEST_F(PrecisionAwareRun, SavesWhatMegatronLoads) {
  train("run", kSmall + layout::kData + until(2));
  OpenOptions raw;
  raw.raw = true;
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path("run"), raw);
  size_t masters = 0, moments = 0;
  for (const Entry& entry : checkpoint.catalog->entries) {
    if (!entry.name.starts_with("optimizer.distributed.")) continue;
    EXPECT_THAT(entry.name, HasSubstr("dtype_(torch.bfloat16, torch.bfloat16)"));
    const bool is_param = entry.name.ends_with(".param");
    ++(is_param ? masters : moments);
    EXPECT_EQ(entry.dtype, is_param ? DType::i16 : DType::f32) << entry.name;
  }
  EXPECT_EQ(masters, 1u);
  EXPECT_EQ(moments, 2u);
  const Value args = checkpoint.args.value;
  EXPECT_EQ(args.get("use_precision_aware_optimizer").boolean(), true);
  EXPECT_EQ(args.get("exp_avg_dtype").text(), "torch.bfloat16");
}

TEST_F(PrecisionAwareRun, TakesTheMemoryThatItsPlanSays) {
  const auto plan = [&](const std::string& more) {
    const std::vector<std::string> all = split_words(words(scratch_, more), "the test");
    TrainArguments arguments = parse_arguments(all, *posix_file_system());
    std::vector<std::string> notes;
    complete_arguments(arguments, Launch{}, notes);
    complete_vocabulary(arguments, 250);
    return memory_plan(arguments, model_of(arguments, nullptr), kernels::DeviceKind::host)[0].state;
  };
  const ModelState::Bytes plain = plan(""), small = plan(kSmall), mixed = plan(kAware);
  EXPECT_EQ(plain.gradients, 2 * plain.parameters);
  EXPECT_EQ(plain.optimizer, 6 * plain.parameters);
  EXPECT_EQ(small.parameters, plain.parameters);
  EXPECT_EQ(small.gradients, plain.parameters);
  EXPECT_EQ(small.optimizer, 3 * plain.parameters);
  EXPECT_EQ(mixed.gradients, 2 * plain.parameters);
  EXPECT_EQ(mixed.optimizer, 5 * plain.parameters);
}

}  // namespace
}  // namespace ferry::test
