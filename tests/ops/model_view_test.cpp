// Models under the names of Hugging Face, read from checkpoints, against the files of convert().
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ops/convert.h"
#include "tests/random_cases.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;

std::string run_folder(const std::string& name) {
  const std::string core = fixture("core/" + name);
  return std::filesystem::exists(core) ? core : fixture("megatron/" + name);
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(fixture("hf_golden"))) {
    names.push_back(file.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string load_whole(const TensorSet& tensors, const Entry& entry) {
  std::string bytes(static_cast<size_t>(entry.bytes()), '?');
  load(tensors,
       std::vector<Region>{whole_region(entry.name, entry.dtype, entry.shape, bytes.data())});
  return bytes;
}

class ModelViews : public testing::Test {
 protected:
  ModelViews() : folder_(testing::TempDir() + "views_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ModelViews() override { std::filesystem::remove_all(folder_); }

  // Writes what the options ask for, and expects a view to be the same.
  void expect_as_written(ConvertOptions options) {
    const ModelView view = view_as_hugging_face(options);
    expect_as_written(view, options);
    const std::string source = std::exchange(options.source, {});
    const OpenOptions open = std::exchange(options.open, {});
    const Checkpoint checkpoint = open_checkpoint(posix_file_system(), source, open);
    const ModelView of_open = view_as_hugging_face(checkpoint, options);
    options.source = source;
    options.open = open;
    expect_as_written(of_open, options);
  }

  void expect_as_written(const ModelView& view, ConvertOptions options) {
    options.target = folder_ + "/model";
    options.write.overwrite = true;
    const ConvertReport report = convert(options);
    EXPECT_EQ(view.family, report.family);
    EXPECT_EQ(view.parameters, report.parameters);
    EXPECT_EQ(view.integers, report.integers);
    EXPECT_EQ(view.warnings, report.warnings);
    const Checkpoint written = open_checkpoint(posix_file_system(), options.target);
    std::map<std::string, std::string> files;
    for (const auto& [name, bytes] : report.written.files) {
      if (!name.ends_with(".safetensors")) {
        files[name] = read_file(*posix_file_system(), options.target + "/" + name, 1 << 30);
      }
    }
    EXPECT_EQ(std::map(view.files.begin(), view.files.end()), files);
    const std::vector<Entry>& entries = written.catalog->entries;
    ASSERT_EQ(view.tensors.tensors().size(), entries.size());
    for (const Entry& entry : entries) {
      const Entry* const viewed = view.tensors.find(entry.name);
      ASSERT_NE(viewed, nullptr) << entry.name;
      EXPECT_EQ(viewed->dtype, entry.dtype) << entry.name;
      EXPECT_EQ(viewed->shape, entry.shape) << entry.name;
      EXPECT_TRUE(load_whole(view.tensors, *viewed) ==
                  read_tensor(written.catalog, entry, uint64_t{1} << 30))
          << entry.name;
    }
    // In the order of the file.
    std::vector<std::pair<uint64_t, std::string>> order;
    for (const Entry& entry : entries) {
      order.emplace_back(entry.chunks[0].extent.offset, entry.name);
    }
    std::ranges::stable_sort(order, {}, [](const auto& each) { return each.first; });
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(view.tensors.tensors()[i].name, order[i].second);
    }
  }

  ErrorKind kind_of_error(const ConvertOptions& options, const char* message) const {
    try {
      view_as_hugging_face(options);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
      return error.kind();
    }
    ADD_FAILURE() << "no error: " << message;
    return ErrorKind::internal;
  }

  const std::string folder_;
};

class FamilyViews : public ModelViews, public testing::WithParamInterface<std::string> {};

TEST_P(FamilyViews, AreWhatConvertWrites) { expect_as_written({.source = run_folder(GetParam())}); }

TEST_P(FamilyViews, WithAnotherDtypeAndAllRows) {
  ConvertOptions options{.source = run_folder(GetParam())};
  options.dtype = DType::f32;
  options.keep_padding = true;
  expect_as_written(options);
}

TEST_P(FamilyViews, QuantisedOnTheWay) {
  ConvertOptions options{.source = run_folder(GetParam())};
  options.quantise = "fp8";
  if (GetParam() == "hot_gpt2") {
    EXPECT_EQ(kind_of_error(options, "to quantise"), ErrorKind::unsupported);
  } else {
    expect_as_written(options);
  }
}

// A box of the elements of a row-major tensor, as another dtype.
std::string cut(const std::string& whole, const Entry& entry, const Box& box, DType dtype) {
  const Dims strides = row_major_strides(entry.shape);
  const auto in = static_cast<size_t>(size_bytes(entry.dtype));
  std::string bytes;
  Dims index(box.size.size(), 0);
  for (int64_t left = element_count(box.size, "box"); left > 0; --left) {
    size_t at = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      at += static_cast<size_t>((box.offset[axis] + index[axis]) * strides[axis]);
    }
    std::string element(static_cast<size_t>(size_bytes(dtype)), '?');
    convert(reinterpret_cast<const std::byte*>(whole.data()) + at * in, 0, entry.dtype,
            reinterpret_cast<std::byte*>(element.data()), 0, dtype, 1);
    bytes += element;
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == box.size[axis];)
      index[axis] = 0;
  }
  return bytes;
}

TEST_P(FamilyViews, AnyBoxOfAnyTensor) {
  const ModelView view = view_as_hugging_face({.source = run_folder(GetParam())});
  const std::span<const Entry> entries = view.tensors.tensors();
  for_random_cases(20, [&](uint64_t number) {
    std::mt19937_64 random(number);
    const auto below = [&](int64_t end) {
      return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
    };
    std::vector<const Entry*> chosen;
    std::vector<std::string> memory;
    std::vector<Region> regions;
    for (int i = 0; i < 8; ++i) {
      const Entry& entry =
          entries[static_cast<size_t>(below(static_cast<int64_t>(entries.size())))];
      Box box = Box::whole(entry.shape);
      for (size_t axis = 0; axis < box.size.size(); ++axis) {
        box.offset[axis] = below(entry.shape[axis]);
        box.size[axis] = 1 + below(entry.shape[axis] - box.offset[axis]);
      }
      static constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
      const DType dtype = kDtypes[below(4)];
      chosen.push_back(&entry);
      memory.emplace_back(
          static_cast<size_t>(element_count(box.size, entry.name) * size_bytes(dtype)), '?');
      regions.push_back({entry.name, dtype, entry.shape, {box}, nullptr});
    }
    for (size_t i = 0; i < regions.size(); ++i) {
      regions[i].data = reinterpret_cast<std::byte*>(memory[i].data());
    }
    load(view.tensors, regions);
    for (size_t i = 0; i < regions.size(); ++i) {
      const std::string whole = load_whole(view.tensors, *chosen[i]);
      EXPECT_TRUE(memory[i] == cut(whole, *chosen[i], regions[i].shard.box, regions[i].dtype))
          << regions[i].name << to_string(regions[i].shard.box);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Real, FamilyViews, testing::ValuesIn(families()),
                         [](const auto& each) { return each.param; });

class RunViews : public ModelViews, public testing::WithParamInterface<const char*> {};

TEST_P(RunViews, OfAnyLayoutAreWhatConvertWrites) {
  expect_as_written({.source = fixture(std::string("megatron/") + GetParam())});
}

TEST_P(RunViews, OfMasterWeights) {
  ConvertOptions options{.source = fixture(std::string("megatron/") + GetParam())};
  options.from_masters = true;
  options.dtype = DType::f32;
  expect_as_written(options);
}

INSTANTIATE_TEST_SUITE_P(Peers, RunViews,
                         testing::Values("llama_legacy_tp2pp2", "llama_pp2vpp", "llama_tp2dp2_dpr",
                                         "qwen3moe_te_ep2pp2_dpr"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(ModelViews, OfHuggingFaceModels) {
  expect_as_written({.source = fixture("fp8_blocks/model")});
  ConvertOptions options{.source = fixture("fp8_blocks/model")};
  options.dtype = DType::bf16;  // dequantised
  expect_as_written(options);
  options.quantise = "fp8";  // and quantised anew
  expect_as_written(options);
}

TEST_F(ModelViews, OfStateDicts) {
  expect_as_written({.source = fixture("foreign/dcp"), .config_folder = fixture("foreign/model")});
  expect_as_written({.source = fixture("foreign/verl/fsdp2")});
}

TEST_F(ModelViews, FilledFromAnotherModel) {
  ConvertOptions base{.source = run_folder("hot_llama"), .target = folder_ + "/original"};
  convert(base);
  ConvertOptions options{.source = run_folder("hot_llama")};
  options.fill_from = base.target;
  expect_as_written(options);
}

TEST_F(ModelViews, AreStreamedInTheirOrder) {
  ConvertOptions options{.source = run_folder("hot_llama")};
  for (const bool quantised : {false, true}) {
    options.quantise = quantised ? "fp8" : "";
    const ModelView view = view_as_hugging_face(options);
    TensorStream stream(view.tensors, {.engine = {.memory_bytes = 400'000}});
    for (const Entry& entry : view.tensors.tensors()) {
      const std::optional<OwnedTensor> tensor = stream.next();
      ASSERT_TRUE(tensor);
      EXPECT_EQ(tensor->name, entry.name);
      const std::string expected = load_whole(view.tensors, entry);
      ASSERT_EQ(tensor->bytes.size(), expected.size());
      EXPECT_EQ(std::memcmp(tensor->bytes.data(), expected.data(), expected.size()), 0)
          << entry.name;
    }
    EXPECT_FALSE(stream.next());
  }
}

// Weights and scales are made together, whichever is asked for.
TEST_F(ModelViews, ScalesAreStreamedWithoutTheirWeights) {
  ConvertOptions options{.source = run_folder("hot_llama")};
  options.quantise = "fp8";
  const ModelView view = view_as_hugging_face(options);
  StreamOptions scales;
  scales.names.emplace();
  for (const Entry& entry : view.tensors.tensors()) {
    if (entry.name.ends_with("_scale_inv")) scales.names->push_back(entry.name);
  }
  std::ranges::reverse(*scales.names);
  size_t count = 0;
  scales.ranks = 3;
  for (scales.rank = 0; scales.rank < scales.ranks; ++scales.rank) {
    TensorStream stream(view.tensors, scales);
    while (const std::optional<OwnedTensor> tensor = stream.next()) {
      ++count;
      const std::string expected = load_whole(view.tensors, *view.tensors.find(tensor->name));
      EXPECT_EQ(std::memcmp(tensor->bytes.data(), expected.data(), expected.size()), 0);
    }
  }
  EXPECT_GT(count, 0u);
  EXPECT_EQ(count, scales.names->size());
}

TEST_F(ModelViews, OutliveTheCheckpoint) {
  std::optional<ModelView> view;
  std::map<std::string, std::string> expected;
  {
    const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run_folder("hot_gpt2"));
    view = view_as_hugging_face(checkpoint);
    for (const Entry& entry : view->tensors.tensors()) {
      expected[entry.name] = load_whole(view->tensors, entry);
    }
  }
  const TensorSet copy = view->tensors;
  view.reset();
  for (const Entry& entry : copy.tensors()) {
    EXPECT_TRUE(load_whole(copy, entry) == expected[entry.name]) << entry.name;
  }
}

TEST_F(ModelViews, RefuseWhatConvertRefuses) {
  ConvertOptions options{.source = run_folder("hot_llama")};
  options.family = "gpt2";
  EXPECT_EQ(kind_of_error(options, "gpt2"), ErrorKind::mismatch);
  options.family.reset();
  options.cut_tokens = true;
  EXPECT_EQ(kind_of_error(options, "options.cut_tokens needs options.vocab_size"),
            ErrorKind::invalid);
  EXPECT_EQ(kind_of_error({.source = folder_ + "/none"}, "none"), ErrorKind::not_found);
}

TEST_F(ModelViews, RefuseOptionsOfWriting) {
  const std::string source = run_folder("hot_llama");
  EXPECT_EQ(kind_of_error({.source = source, .target = "x"}, "options.target"), ErrorKind::invalid);
  EXPECT_EQ(kind_of_error({.source = source, .to = ConvertTarget::torch}, "options.to"),
            ErrorKind::invalid);
  EXPECT_EQ(kind_of_error({.source = source, .max_shard_bytes = 5}, "options.max_shard_bytes"),
            ErrorKind::invalid);
  ConvertOptions options{.source = source};
  options.write.overwrite = true;
  EXPECT_EQ(kind_of_error(options, "options.overwrite"), ErrorKind::invalid);
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), source);
  EXPECT_THROW(view_as_hugging_face(checkpoint, {.source = source}), Error);
}

TEST_F(ModelViews, QuantisedTensorsAreReadWhole) {
  ConvertOptions options{.source = run_folder("hot_llama")};
  options.quantise = "fp8";
  const ModelView view = view_as_hugging_face(options);
  const auto weights = std::ranges::find_if(
      view.tensors.tensors(), [](const Entry& entry) { return entry.dtype == DType::f8_e4m3; });
  ASSERT_NE(weights, view.tensors.tensors().end());
  const Entry& scales = *(weights + 1);
  // Each alone, and one of them twice.
  const std::string w = load_whole(view.tensors, *weights), s = load_whole(view.tensors, scales);
  std::vector<std::string> again(3, std::string(w.size(), '?'));
  std::string scales_again(s.size(), '?');
  std::vector<Region> regions;
  for (std::string& bytes : again) {
    regions.push_back(whole_region(weights->name, weights->dtype, weights->shape, bytes.data()));
  }
  regions.insert(regions.begin() + 1,
                 whole_region(scales.name, scales.dtype, scales.shape, scales_again.data()));
  load(view.tensors, regions);
  for (const std::string& bytes : again) EXPECT_TRUE(bytes == w);
  EXPECT_TRUE(scales_again == s);

  std::vector<float> values(static_cast<size_t>(weights->elements()));
  Region region = whole_region(weights->name, DType::f32, weights->shape, values.data());
  try {
    load(view.tensors, std::vector{region});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_THAT(error.what(), HasSubstr(weights->name + " is quantised as it is read"));
  }
}

}  // namespace
}  // namespace ferry::test
