// Loading checkpoints of the peers into memory: whole tensors, parts of them, other dtypes.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/memory/run_state_memory.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;

Checkpoint open_fixture(const std::string& name) {
  return open_checkpoint(posix_file_system(), fixture("megatron/" + name));
}

std::string load_box(const Checkpoint& checkpoint, const Entry& entry, const Box& box) {
  const int64_t elements = element_count(box.size, entry.name);
  std::string bytes(static_cast<size_t>(elements * size_bytes(entry.dtype)), '?');
  const std::vector<Region> regions{
      {entry.name, entry.dtype, entry.shape, {box}, reinterpret_cast<std::byte*>(bytes.data())}};
  load(checkpoint, regions);
  return bytes;
}

// The box out of the bytes of the whole tensor, element by element.
std::string cut(const std::string& whole, const Entry& entry, const Box& box) {
  const auto element = static_cast<size_t>(size_bytes(entry.dtype));
  const Dims strides = row_major_strides(entry.shape);
  std::string bytes;
  Dims index(box.size.size(), 0);
  for (int64_t left = element_count(box.size, "box"); left > 0; --left) {
    int64_t at = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      at += (box.offset[axis] + index[axis]) * strides[axis];
    }
    bytes.append(whole, static_cast<size_t>(at) * element, element);
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == box.size[axis];)
      index[axis] = 0;
  }
  return bytes;
}

class LoadFixture : public testing::TestWithParam<const char*> {};

TEST_P(LoadFixture, AllTensorsAtOnceAreWhatPyTorchReads) {
  const Checkpoint checkpoint = open_fixture(GetParam());
  const nlohmann::json truth = truth_of(GetParam());
  std::vector<std::string> memory;
  std::vector<Region> regions;
  for (const Entry& entry : checkpoint.catalog->entries) memory.emplace_back(entry.bytes(), '?');
  for (size_t i = 0; i < memory.size(); ++i) {
    const Entry& entry = checkpoint.catalog->entries[i];
    regions.push_back(whole_region(entry.name, entry.dtype, entry.shape, memory[i].data()));
  }
  load(checkpoint, regions);
  for (size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(hash_of(memory[i]), truth[regions[i].name]["xxh3_128"].get<std::string>())
        << regions[i].name;
  }
  EXPECT_EQ(memory.size(), truth.size());
}

TEST_P(LoadFixture, PartsLieAcrossChunks) {
  const Checkpoint checkpoint = open_fixture(GetParam());
  for (const Entry& entry : checkpoint.catalog->entries) {
    const std::string whole = read_tensor(checkpoint.catalog, entry, 1 << 30);
    for (size_t axis = 0; axis < entry.shape.size(); ++axis) {
      Box box = Box::whole(entry.shape);
      box.offset[axis] = entry.shape[axis] / 3;
      box.size[axis] = entry.shape[axis] - entry.shape[axis] / 3 - entry.shape[axis] / 4;
      EXPECT_TRUE(load_box(checkpoint, entry, box) == cut(whole, entry, box))
          << entry.name << to_string(box);
    }
  }
}

// Copies only when it is waited for, and spoils what it has copied.
class LateStager final : public Stager {
 public:
  StagingMemory allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  void copy(std::span<const StagingCopy>, const std::shared_ptr<void>&) override {}
  std::function<void()> place(std::span<const StagingCopy> copies) override {
    ++turns;
    return [all = std::vector<StagingCopy>(copies.begin(), copies.end())] {
      for (const StagingCopy& one : all) {
        std::memcpy(one.to, one.from, one.bytes);
        std::memset(const_cast<std::byte*>(one.from), '!', one.bytes);
      }
    };
  }

  int turns = 0;

 private:
  const std::shared_ptr<Stager> inner_ = host_stager(1);
};

TEST_P(LoadFixture, PieceByPieceItIsTheSame) {
  const Checkpoint checkpoint = open_fixture(GetParam());
  const RunState state = state_of(checkpoint);
  for (const uint64_t buffer_bytes : {uint64_t{5000}, uint64_t{1} << 30}) {
    LateStager stager;
    std::vector<std::string> memory, expected;
    std::vector<Region> regions, at_once;
    // Whole ones, and runs of others.
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      const StateTensor& tensor = state.tensors[i];
      Shard shard{Box::whole(tensor.shape)};
      const int64_t elements = element_count(tensor.shape, tensor.name);
      if (i % 3 == 1 && elements > 10) {
        shard.run_begin = elements / 5;
        shard.run_count = elements / 2;
      }
      regions.push_back({tensor.name, tensor.dtype, tensor.shape, shard, nullptr});
      const int64_t bytes = shard.elements(tensor.name) * size_bytes(tensor.dtype);
      memory.emplace_back(static_cast<size_t>(bytes), '?');
      expected.push_back(memory.back());
    }
    at_once = regions;
    for (size_t i = 0; i < regions.size(); ++i) {
      regions[i].data = reinterpret_cast<std::byte*>(memory[i].data());
      at_once[i].data = reinterpret_cast<std::byte*>(expected[i].data());
    }
    load(tensors_of(checkpoint, state), at_once);
    load_staged(checkpoint, state, regions, stager, buffer_bytes);
    for (size_t i = 0; i < regions.size(); ++i) {
      EXPECT_TRUE(memory[i] == expected[i]) << regions[i].name;
    }
    EXPECT_EQ(stager.turns == 1, buffer_bytes > 5000) << stager.turns;
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, LoadFixture,
                         testing::Values("hot_llama", "hot_mixtral", "llama_tp2dp2_dpr"),
                         [](const auto& each) { return std::string(each.param); });

class Load : public testing::Test {
 protected:
  // The kind of the error, and a part of its message.
  void expect_error(const Region& region, ErrorKind kind, const char* message) const {
    try {
      load(checkpoint_, std::vector<Region>{region});
      FAIL() << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }

  const Checkpoint checkpoint_ = open_fixture("hot_llama");
  const Entry& entry_ = *checkpoint_.catalog->find("decoder.final_layernorm.weight");
  std::string memory_ = std::string(1 << 20, '?');
};

TEST_F(Load, ConvertsToTheRegionsDtype) {
  ASSERT_EQ(entry_.dtype, DType::bf16);
  const std::string stored = read_tensor(checkpoint_.catalog, entry_, 1 << 20);
  std::vector<float> values(static_cast<size_t>(entry_.elements()));
  load(checkpoint_,
       std::vector<Region>{whole_region(entry_.name, DType::f32, entry_.shape, values.data())});
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    EXPECT_EQ(bits >> 16, static_cast<unsigned char>(stored[2 * i]) |
                              static_cast<unsigned char>(stored[2 * i + 1]) << 8);
    EXPECT_EQ(bits & 0xffff, 0u);
  }
}

TEST_F(Load, TheSameElementsManyTimes) {
  const std::string stored = read_tensor(checkpoint_.catalog, entry_, 1 << 20);
  std::vector<Region> regions;
  for (size_t i = 0; i < 3; ++i) {
    regions.push_back(
        whole_region(entry_.name, entry_.dtype, entry_.shape, memory_.data() + i * stored.size()));
  }
  load(checkpoint_, regions);
  EXPECT_TRUE(memory_.substr(0, 3 * stored.size()) == stored + stored + stored);
  EXPECT_EQ(memory_[3 * stored.size()], '?');
}

TEST_F(Load, NothingIsNoError) { load(checkpoint_, {}); }

TEST_F(Load, SaysWhatDoesNotFit) {
  Region region = whole_region(entry_.name, entry_.dtype, entry_.shape, memory_.data());
  Region wrong = region;
  wrong.name = "decoder.weight";
  expect_error(wrong, ErrorKind::not_found, "has no tensor decoder.weight");
  wrong = region;
  wrong.shape[0] += 1;
  expect_error(wrong, ErrorKind::mismatch, "in memory");
  wrong = region;
  wrong.shard.box.offset[0] = 1;
  expect_error(wrong, ErrorKind::invalid, "is not inside its shape");
  wrong.shard.box.offset[0] = -1;
  expect_error(wrong, ErrorKind::invalid, "is not inside its shape");
  wrong = region;
  wrong.data = nullptr;
  expect_error(wrong, ErrorKind::invalid, "no memory is given");
  wrong = region;
  wrong.dtype = DType::c64;
  expect_error(wrong, ErrorKind::mismatch, entry_.name.c_str());
}

TEST_F(Load, StopsOnRequest) {
  const std::atomic<bool> cancel{true};
  EngineOptions options;
  options.cancel = &cancel;
  const std::vector<Region> regions{
      whole_region(entry_.name, entry_.dtype, entry_.shape, memory_.data())};
  EXPECT_THROW(load(checkpoint_, regions, options), Error);
}

}  // namespace
}  // namespace ferry::test
