// The page of `ferry report`, and what it is drawn from.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/staging/write_lock.h"
#include "tests/tools/program.h"
#include "tools/report/chunk_map.h"
#include "tools/report/histogram.h"
#include "tools/report/html.h"
#include "tools/report/module_tree.h"
#include "tools/report/report_page.h"
#include "tools/report/tensor_kinds.h"

namespace ferry::tool {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Entry entry(const std::string& name, const Dims& shape, Role role = Role::model) {
  return {name, DType::f32, shape, {}, role};
}

void add_chunk(Entry& to, const Dims& offset, const Dims& size, uint32_t file) {
  to.chunks.push_back({{{offset, size}}, {}, {file, 0, 0, Encoding::raw}});
}

// Like a 70B run of 8 ranks: 2,169 tensors, 13,971 chunks.
Catalog large_catalog() {
  Catalog catalog;
  for (int rank = 0; rank < 8; ++rank) {
    catalog.add_file("run/__" + std::to_string(rank) + "_0.distcp", 1 << 30);
  }
  uint32_t turn = 0;
  const auto add = [&](const std::string& name, const Dims& shape, Role role) {
    Entry& one = catalog.entries.emplace_back(entry(name, shape, role));
    if (shape.size() < 2) return add_chunk(one, {0}, shape, turn++ % 8);
    for (uint32_t rank = 0; rank < 8; ++rank) {
      add_chunk(one, {rank * shape[0] / 8, 0}, {shape[0] / 8, shape[1]}, rank);
    }
  };
  for (const auto& [prefix, role] : {std::pair{"", Role::model},
                                     {"optimizer.state.exp_avg.", Role::optimizer},
                                     {"optimizer.state.exp_avg_sq.", Role::optimizer}}) {
    const std::string before = prefix;
    for (const char* name : {"tok_embeddings.weight", "output.weight"}) {
      add(before + name, {128256, 8192}, role);
    }
    add(before + "norm.weight", {8192}, role);
    for (int layer = 0; layer < 80; ++layer) {
      const std::string at = before + "layers." + std::to_string(layer) + ".";
      for (const char* name : {"attention.wq", "attention.wo", "attention.wk", "attention.wv",
                               "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"}) {
        add(at + name + ".weight", {8192, 8192}, role);
      }
      add(at + "attention_norm.weight", {8192}, role);
      add(at + "ffn_norm.weight", {8192}, role);
    }
  }
  return catalog;
}

std::string page_of(Checkpoint checkpoint) {
  const InspectReport report = inspect(std::make_shared<const Checkpoint>(std::move(checkpoint)));
  return report_page({&report, {}});
}

TEST(ModuleTree, AddsLayersUp) {
  Catalog catalog;
  catalog.entries = {entry("m.layers.0.a.weight", {4}), entry("m.layers.1.a.weight", {4}),
                     entry("m.layers.1.b", {1}), entry("m.norm", {2}),
                     entry("optimizer.state.exp_avg.m.norm", {2}, Role::optimizer)};
  const ModuleNode root = module_tree(catalog);
  EXPECT_EQ(root.bytes(), 52u);
  EXPECT_EQ(root.parameters, 11);
  ASSERT_EQ(root.children.size(), 1u);
  const ModuleNode& m = root.children[0];
  ASSERT_EQ(m.children.size(), 2u);
  EXPECT_EQ(m.children[0].name, "layers.*");
  EXPECT_EQ(m.children[0].numbers.size(), 2u);
  EXPECT_EQ(m.children[0].bytes(), 36u);
  EXPECT_EQ(m.children[0].children[0].name, "a.weight");
  EXPECT_EQ(m.children[1].name, "norm");
  EXPECT_EQ(m.children[1].model_bytes, 8u);
  EXPECT_EQ(m.children[1].optimizer_bytes, 8u);
}

TEST(ModuleTree, IsNoDeeperThanAPageCanBe) {
  Catalog catalog;
  std::string name;
  for (int i = 0; i < 100'000; ++i) name += "a.b.";
  catalog.entries = {entry(name, {1}), entry("a.b.a.c", {1}), entry("", {1})};
  int depth = 0;
  const ModuleNode root = module_tree(catalog);
  for (const ModuleNode* at = &root; !at->children.empty(); at = &at->children[0]) ++depth;
  EXPECT_LE(depth, 12);
}

TEST(TensorKinds, AreAlikeInAllButNumbers) {
  Catalog catalog;
  catalog.add_file("run/__0_0.distcp", 1);
  catalog.add_file("run/__1_0.distcp", 1);
  for (int layer : {0, 1, 2, 5}) {
    Entry& one =
        catalog.entries.emplace_back(entry("layers." + std::to_string(layer) + ".w", {4, 4}));
    add_chunk(one, {0, 0}, {4, 4}, layer < 5 ? 0 : 1);
  }
  const auto kinds = tensor_kinds(catalog);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].name, "layers.*.w");
  EXPECT_EQ(kinds[0].numbers, "0-2");
  EXPECT_EQ(kinds[0].tensors, 3);
  EXPECT_EQ(kinds[0].bytes, 192u);
  EXPECT_EQ(kinds[1].numbers, "5");
}

TEST(TensorKinds, TakeStatesOfTheOptimizerTogether) {
  Catalog catalog;
  for (const char* state : {"exp_avg", "exp_avg_sq"}) {
    for (const char* layer : {"0", "1"}) {
      const std::string name = std::string("optimizer.state.") + state + ".layers." + layer + ".w";
      catalog.entries.push_back(entry(name, {4}, Role::optimizer));
    }
  }
  const auto kinds = tensor_kinds(catalog);
  ASSERT_EQ(kinds.size(), 1u);
  EXPECT_EQ(kinds[0].name, "layers.*.w");
  EXPECT_EQ(kinds[0].states, (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(kinds[0].numbers, "0-1");
  EXPECT_EQ(kinds[0].tensors, 4);
}

TEST(TensorKinds, NameFilesShortly) {
  const auto labels = [](const std::vector<std::string>& paths) {
    Catalog catalog;
    for (const std::string& path : paths) catalog.add_file(path, 1);
    return file_labels(catalog);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(labels({"a/__10_0.distcp", "a/__3_0.distcp"}), (Names{"10", "3"}));
  EXPECT_EQ(labels({"a/__0_0.distcp", "a/__0_1.distcp"}), (Names{"0", "0.1"}));
  EXPECT_EQ(labels({"i/mp_rank_00_001/model_optim_rng.pt", "i/mp_rank_01_001/model_optim_rng.pt"}),
            (Names{"0.1", "1.1"}));
  EXPECT_EQ(labels({"i/mp_rank_00/model_optim_rng.pt", "i/mp_rank_00/distrib_optim.pt"}),
            (Names{"0", "1"}));
  EXPECT_EQ(labels({"model.safetensors"}), Names{"0"});
}

TEST(ChunkMap, DrawsBoxesWhereTheyLie) {
  Entry grid = entry("w", {4, 6});
  for (int i = 0; i < 4; ++i) add_chunk(grid, {i / 2 * 2, i % 2 * 3}, {2, 3}, i);
  const ChunkMap map = chunk_map(grid, 100);
  EXPECT_TRUE(map.to_scale);
  EXPECT_EQ(map.cut, "rows in 2, columns in 2");
  ASSERT_EQ(map.cells.size(), 4u);
  EXPECT_EQ(map.cells[3].x, 0.5);
  EXPECT_EQ(map.cells[3].y, 0.5);
  EXPECT_EQ(map.cells[3].width, 0.5);
  EXPECT_EQ(chunk_map(entry("whole", {}), 10).cells.size(), 0u);
}

TEST(ChunkMap, NeighboursShareACellWhereThereAreMany) {
  Entry many = entry("w", {1000});
  for (int i = 0; i < 1000; ++i) add_chunk(many, {i}, {1}, i);
  const ChunkMap map = chunk_map(many, 24);
  EXPECT_FALSE(map.to_scale);
  ASSERT_EQ(map.cells.size(), 24u);
  size_t chunks = 0;
  for (const ChunkMap::Cell& cell : map.cells) {
    EXPECT_EQ(cell.first, chunks);
    chunks += cell.chunks;
  }
  EXPECT_EQ(chunks, 1000u);
}

TEST(Report, StaysSmallForALargeCheckpoint) {
  Checkpoint checkpoint;
  checkpoint.path = "run";
  checkpoint.catalog = large_catalog();
  size_t chunks = 0;
  for (const Entry& one : checkpoint.catalog->entries) chunks += one.chunks.size();
  ASSERT_GT(chunks, 13'900u);
  const std::string page = page_of(checkpoint);
  EXPECT_LT(page.size(), 300'000u);
  EXPECT_THAT(page, HasSubstr("layers.*.attention.wq.weight"));
  EXPECT_THAT(page, HasSubstr("* = 0-79"));
  EXPECT_THAT(page, HasSubstr("[16032:32064, 0:8192] in file 1<"));
}

TEST(Report, NamesAreTextAndNeverMarkup) {
  EXPECT_EQ(html("a<b>\"'&\x1b[0m"), "a&lt;b&gt;&quot;&#39;&amp;\\x1b[0m");
  Checkpoint checkpoint;
  checkpoint.path = "<script>alert(1)</script>";
  Catalog& catalog = checkpoint.catalog.edit();
  catalog.add_file("\"><img src=x>", 1);
  Entry& one = catalog.entries.emplace_back(entry("<b onclick='x'>.0.\"w\"", {1}));
  add_chunk(one, {0}, {1}, 0);
  catalog.objects.push_back({"</ul><script>", {}, {}});
  checkpoint.notes = {"<i>note</i>"};
  const std::string page = page_of(checkpoint);
  for (const char* markup : {"<script", "<img", "<b onclick", "<i>note", "</ul><script"}) {
    EXPECT_THAT(page, Not(HasSubstr(markup)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

struct ReportProgram : test::Program {};

TEST_F(ReportProgram, WritesAPageOnce) {
  const std::string run = std::string(FERRY_FIXTURES) + "/megatron/llama_tp2dp2_dpr";
  const test::Outcome first = ferry("report " + run + " -o " + path("r.html"));
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("wrote "));
  const std::string page = read(path("r.html"));
  EXPECT_THAT(page, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("TP 2, PP 1, DP 2"),
                          HasSubstr("__3_0.distcp"), HasSubstr("decoder.layers"),
                          HasSubstr("Arguments of the run"), Not(HasSubstr("class=\"hist\""))));
  EXPECT_EQ(ferry("report " + run + " -o " + path("r.html")).code, 2);
  const test::Outcome again =
      ferry("report " + run + " --overwrite -o " + path("r.html") + " --histograms '*norm*'");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(read(path("r.html")), HasSubstr("class=\"hist\""));
  EXPECT_EQ(ferry("report " + run + " -o " + path("s.html") + " --histograms no").code, 3);
  EXPECT_EQ(ferry("report " + run + " -o " + path("no/such/s.html")).code, 3);
  EXPECT_EQ(ferry("report " + run).code, 2);
}

TEST_F(ReportProgram, AMissingFolderIsNamed) {
  const std::string run = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";
  const test::Outcome outcome = ferry("report " + run + " -o " + path("no/page.html"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("there is no folder " + path("no") + "; make it"));
}

TEST_F(ReportProgram, ReplacesNothingButPages) {
  const std::string run = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";
  ASSERT_EQ(ferry("convert " + run + " " + path("hf") + " --to hf").code, 0);
  const std::string model = read(path("hf/model.safetensors"));
  const std::string report = "report " + path("hf") + " --overwrite -o ";
  const test::Outcome over = ferry(report + path("hf/model.safetensors"));
  EXPECT_EQ(over.code, 2);
  EXPECT_THAT(over.err, HasSubstr("is not a page that ferry wrote"));
  EXPECT_EQ(read(path("hf/model.safetensors")), model);
  const test::Outcome inside = ferry(report + path("hf/new.html"));
  EXPECT_EQ(inside.code, 2);
  EXPECT_THAT(inside.err, HasSubstr("would be inside the checkpoint"));
  const test::Outcome unnamed = ferry(report + "''");
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("-o needs the name of a file"));
  EXPECT_EQ(ferry("verify " + path("hf")).code, 0);

  ASSERT_EQ(ferry(report + path("r.html")).code, 0);
  std::filesystem::create_symlink("r.html", path("link.html"));
  EXPECT_EQ(ferry(report + path("link.html")).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.html")));
  EXPECT_EQ(ferry(report + "-").out, read(path("r.html")));
}

TEST_F(ReportProgram, PutsNoPageIntoAnyIterationOfTheRun) {
  std::filesystem::copy(std::string(FERRY_FIXTURES) + "/megatron/hot_llama", path("run"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(path("run/iter_0000005"), path("run/iter_0000001"),
                        std::filesystem::copy_options::recursive);
  for (const char* opened : {"run", "run/iter_0000005"}) {
    const test::Outcome other =
        ferry("report " + path(opened) + " -o " + path("run/iter_0000001/page.html"));
    EXPECT_EQ(other.code, 2) << opened;
    EXPECT_THAT(other.err, HasSubstr("run/iter_0000001; choose a place outside"));
  }
  EXPECT_FALSE(std::filesystem::exists(path("run/iter_0000001/page.html")));
  EXPECT_EQ(ferry("report " + path("run") + " -o " + path("run/page.html")).code, 0);
}

TEST_F(ReportProgram, WaitsForAnotherWriterAndLeavesNothing) {
  const std::string command =
      "report " + std::string(FERRY_FIXTURES) + "/megatron/hot_llama -o " + path("r.html");
  {
    const WriteLock other(posix_file_system(), path("r.html"));
    EXPECT_EQ(ferry(command).code, 10);
  }
  EXPECT_TRUE(left().empty());
  EXPECT_EQ(ferry(command).code, 0);
  EXPECT_THAT(left(), testing::ElementsAre("r.html"));
}

TEST_F(ReportProgram, ALogIsNoCheckpoint) {
  write(path("job.log"), "text\n");
  const test::Outcome outcome = ferry("report " + path("job.log") + " -o " + path("r.html"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("is a log of training, as its name says; give --training"));
  const test::Outcome saves = ferry("report --training " + std::string(FERRY_FIXTURES) +
                                    "/megatron/hot_llama -o " + path("r.html"));
  EXPECT_EQ(saves.code, 0);
  EXPECT_THAT(saves.err, HasSubstr("has saves, but no log or metrics: no figures over iterations"));
}

// A weight that went astray does not press all others into one bar.
TEST_F(ReportProgram, OneValueFarAwayDoesNotFlattenTheRest) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(static_cast<float>(std::sin(i)));
  const std::string header = R"({"w":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}})";
  const uint64_t length = header.size();
  for (const float astray : {1e30f, -1e30f, 3e38f}) {
    values[500] = astray;
    std::string content(reinterpret_cast<const char*>(&length), sizeof length);
    content += header;
    content.append(reinterpret_cast<const char*>(values.data()), 4000);
    write(path("w.safetensors"), content);
    const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path("w.safetensors"));
    const Histogram result =
        histogram(checkpoint.catalog, checkpoint.catalog->entries.front(), 8, 1 << 20);
    EXPECT_EQ(result.below + result.above, 1);
    EXPECT_GE(result.low, -2);
    EXPECT_LE(result.high, 2);
    int64_t count = 0;
    for (const int64_t bin : result.bins) count += bin;
    EXPECT_EQ(count, 999);
    EXPECT_LT(*std::ranges::max_element(result.bins), 500);
  }
  ASSERT_EQ(ferry("report " + path("w.safetensors") + " --histograms w -o " + path("w.html")).code,
            0);
  const std::string page = read(path("w.html"));
  EXPECT_TRUE(page.find("1 above, up to 3e+38") != std::string::npos);
  EXPECT_TRUE(page.find("elements at most in a bar</text>") != std::string::npos);
}

TEST(Histogram, CountsEveryFiniteValue) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), std::string(FERRY_FIXTURES) + "/megatron/hot_llama");
  const Entry& norm = *checkpoint.catalog->find("decoder.final_layernorm.weight");
  const Histogram result = histogram(checkpoint.catalog, norm, 8, 1 << 20);
  ASSERT_EQ(result.bins.size(), 8u);
  int64_t count = 0;
  for (int64_t bin : result.bins) count += bin;
  EXPECT_EQ(count, norm.elements());
  EXPECT_GT(result.bins.front(), 0);
  EXPECT_GT(result.bins.back(), 0);
}

}  // namespace
}  // namespace ferry::tool
