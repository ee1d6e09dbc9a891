// fsdp_dtensor checkpoints that contradict themselves: what is said of them, and that nothing else
// happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/fsdp/write/writer.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "tests/megatron/reshard_support.h"
#include "tests/megatron/small_run.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Memory = std::shared_ptr<MemoryFileSystem>;

OpenOptions as_stored() {
  OpenOptions options;
  options.raw = true;
  return options;
}

// tests/fixtures/fsdp/dense, changed, written anew and opened.
class ChangedFsdp : public testing::Test {
 protected:
  Checkpoint open(const std::function<void(RunState&)>& change) {
    const Checkpoint stored =
        open_checkpoint(posix_file_system(), test::fixture("fsdp/dense"), as_stored());
    RunState state = plain_state_of(stored);
    change(state);
    for (size_t i = 0; i < stored.catalog->entries.size(); ++i) {
      state.dropped.push_back({static_cast<uint32_t>(i), stored.catalog->entries[i].elements()});
    }
    for (const StateTensor& tensor : state.tensors) {
      for (const Move& move : tensor.recipe.moves) {
        state.dropped.push_back({tensor.recipe.inputs[move.input], -move.elements()});
      }
    }
    test::write(plan_plain_dcp(std::move(state), {}), memory_, "changed");
    return open_checkpoint(memory_, "changed");
  }

  static StateTensor& tensor(RunState& state, std::string_view part) {
    const auto found = std::ranges::find_if(state.tensors, [&](const StateTensor& one) {
      return one.name.find(part) != std::string::npos;
    });
    if (found == state.tensors.end()) throw std::runtime_error("no tensor " + std::string(part));
    return *found;
  }

  static void remove(RunState& state, std::string_view part) {
    std::erase_if(state.tensors,
                  [&](const StateTensor& one) { return one.name.find(part) != std::string::npos; });
  }

  void expect_as_stored(const Checkpoint& checkpoint, const std::string& why) {
    EXPECT_EQ(checkpoint.format, Format::dcp);
    EXPECT_THAT(checkpoint.notes, Contains(HasSubstr(why)));
    EXPECT_THAT(checkpoint.notes, Contains(HasSubstr("as they are stored")));
  }

  Memory memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ChangedFsdp, WithoutAChangeItIsWhatItWas) {
  const Checkpoint checkpoint = open([](RunState&) {});
  EXPECT_EQ(checkpoint.format, Format::fsdp_dtensor);
  EXPECT_EQ(checkpoint.optimizer_problem, "");
}

TEST_F(ChangedFsdp, AHalfIsMissing) {
  expect_as_stored(
      open([](RunState& state) {
        remove(state, "model.module.decoder.layers.1.mlp.linear_fc1.weight_v");
      }),
      "decoder.layers.1.mlp.linear_fc1.weight_w is half of a gated projection: the other half is "
      "missing");
}

TEST_F(ChangedFsdp, HalvesDiffer) {
  expect_as_stored(open([](RunState& state) {
                     StateTensor& half =
                         tensor(state, "model.module.decoder.layers.0.mlp.linear_fc1.weight_w");
                     half.dtype = DType::bf16;
                   }),
                   "differ in shape or dtype");
}

TEST_F(ChangedFsdp, ALayerIsMissing) {
  expect_as_stored(open([](RunState& state) { remove(state, "decoder.layers.1."); }),
                   "layer 1 of the 2");
}

TEST_F(ChangedFsdp, ALayerTooMany) {
  expect_as_stored(
      open([](RunState& state) {
        tensor(state, "model.module.decoder.layers.0.self_attention.linear_proj.weight").name =
            "model.module.decoder.layers.7.self_attention.linear_proj.weight";
      }),
      "the run's arguments say that there are 2 layers");
}

TEST_F(ChangedFsdp, ATensorOfALayerIsMissing) {
  expect_as_stored(open([](RunState& state) {
                     remove(state, "decoder.layers.0.self_attention.linear_proj.weight");
                   }),
                   "layer 1 lacks tensors that other layers of its kind have");
}

TEST_F(ChangedFsdp, VirtualStagesThatNumberAlike) {
  expect_as_stored(open([](RunState& state) {
                     for (StateTensor& one : state.tensors) {
                       if (one.name.starts_with("model.module.decoder.layers.1.")) {
                         one.name.replace(0, 30, "model1.module.decoder.layers.0.");
                       }
                     }
                   }),
                   "is there twice");
}

TEST_F(ChangedFsdp, StateOfNoParameter) {
  const Checkpoint checkpoint = open([](RunState& state) {
    tensor(state, "layers.0.self_attention.linear_proj.weight.exp_avg").name =
        "optimizer.state.module.module.module.decoder.layers.0.other.weight.exp_avg";
  });
  EXPECT_EQ(checkpoint.format, Format::fsdp_dtensor);
  EXPECT_THAT(checkpoint.optimizer_problem, HasSubstr("belongs to no parameter of the model"));
  EXPECT_TRUE(std::ranges::none_of(checkpoint.catalog->entries, [](const Entry& entry) {
    return entry.role == Role::optimizer;
  }));
}

TEST_F(ChangedFsdp, StateOfAnotherShape) {
  const Checkpoint checkpoint = open([](RunState& state) {
    std::swap(tensor(state, "layers.0.self_attention.linear_proj.weight.exp_avg").name,
              tensor(state, "layers.0.self_attention.linear_qkv.weight.exp_avg").name);
  });
  EXPECT_THAT(checkpoint.optimizer_problem, HasSubstr("its parameter of"));
}

TEST_F(ChangedFsdp, StateOfSomeLayersOnly) {
  const Checkpoint checkpoint = open(
      [](RunState& state) { remove(state, "layers.0.self_attention.linear_proj.weight.exp_avg"); });
  EXPECT_THAT(checkpoint.optimizer_problem, HasSubstr("the ranks hold"));
}

// Keys and shapes changed at random: opened as something, or refused, and then the same for what is
// made of it.
TEST_F(ChangedFsdp, RandomChangesAreOpenedOrRefused) {
  uint64_t opened = 0, refused = 0;
  test::for_random_cases(120, [&](uint64_t number) {
    test::Random random(number);
    try {
      const Checkpoint checkpoint = open([&](RunState& state) {
        const std::vector<std::string> words = {
            "layers.0", "layers.1", "layers.99999999999", "_w",         "_v",
            "module.",  ".weight",  "optimizer",          "experts.3.", "state."};
        for (int64_t i = test::pick(random, 1, 3); i > 0; --i) {
          StateTensor& one = state.tensors[static_cast<size_t>(
              test::pick(random, 0, static_cast<int64_t>(state.tensors.size()) - 1))];
          const std::string& word = words[static_cast<size_t>(
              test::pick(random, 0, static_cast<int64_t>(words.size()) - 1))];
          const auto at =
              static_cast<size_t>(test::pick(random, 0, static_cast<int64_t>(one.name.size())));
          if (test::chance(random, 40)) {
            one.name.insert(at, word);
          } else if (test::chance(random, 50)) {
            one.name.erase(at, word.size());
          } else {
            std::swap(one.name, state.tensors[0].name);
          }
        }
      });
      ++opened;
      if (!holds_run(checkpoint)) return;
      test::reshard(checkpoint, {}, std::make_shared<MemoryFileSystem>(), "made");
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
      ++refused;
    }
  });
  EXPECT_GT(opened + refused, 0u);
}

}  // namespace
}  // namespace ferry
