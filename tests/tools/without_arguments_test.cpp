// Runs in Megatron-LM's format without its arguments, as verl saves them: made here by taking the
// arguments out of runs that ferry wrote for Megatron Core 0.16, whose common state is common.pt,
// as that of verl 0.9 with that release is.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/format/torch/objects.h"
#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using testing::HasSubstr;

struct WithoutArguments : Program {
  void run_well(const std::string& arguments) const {
    const Outcome outcome = ferry(arguments);
    ASSERT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
  }

  // verl/global_step_5/actor/dist_ckpt of a run, and huggingface/config.json next to it.
  void make(const std::string& run, const std::string& form) const {
    run_well("reshard " + run + " " + path("whole") + " --core-release 0.16 --optimizer " + form);
    run_well("convert " + run + " " + path("hf") + " --to hf");
    const fs::path actor = path("verl/global_step_5/actor"), dist = actor / "dist_ckpt";
    fs::create_directories(actor / "huggingface");
    fs::copy(path("whole/iter_0000005"), dist, fs::copy_options::recursive);
    fs::copy(path("hf/config.json"), actor / "huggingface");
    fs::remove(dist / "ferry.manifest.json");
    take_arguments_out(dist / "common.pt");
  }

  static void take_arguments_out(const fs::path& file) {
    using namespace ferry;
    const auto opened = posix_file_system()->open(file.string());
    const TorchArchive archive = read_torch_archive(*opened, 0, opened->size());
    const Value root = archive.pickle->root();
    Draft draft;
    const Value common = draft.dict();
    for (size_t i = 0; i < root.pair_count(); ++i) {
      const std::string key(root.pair_key(i).string().value_or(""));
      if (key == "args" || key == "iteration") continue;
      draft.put(common, key == "opt_param_scheduler" ? "lr_scheduler" : key, root.pair_value(i));
    }
    const std::string bytes = write_torch_archive(std::move(draft).finish(common).value, "common");
    fs::remove(file);
    write(file.string(), bytes);
  }
};

TEST_F(WithoutArguments, AreReshardedByTheirConfiguration) {
  for (const std::string form : {"fully_reshardable", "dp_reshardable"}) {
    make(fixture("megatron/llama_tp2dp2_dpr"), form);
    run_well("reshard " + path("verl") + " " + path("out") + " --tp 1 --pp 2");
    const Outcome same = ferry("diff " + path("whole") + " " + path("out"));
    EXPECT_EQ(same.code, 0) << form << same.out << same.err;
    const auto report = nlohmann::json::parse(ferry("inspect " + path("out") + " --json").out);
    EXPECT_EQ(report["iteration"], 5);
    EXPECT_EQ(report["optimizer"]["masters"], "fp32");
    const auto objects = report["objects"].dump();
    EXPECT_THAT(objects, HasSubstr("opt_param_scheduler"));
    for (const char* name : {"verl", "out", "whole", "hf"}) fs::remove_all(path(name));
  }
}

TEST_F(WithoutArguments, NeedTheirConfiguration) {
  make(fixture("megatron/llama_tp2dp2_dpr"), "fully_reshardable");
  fs::rename(path("verl/global_step_5/actor/huggingface"), path("elsewhere"));
  const Outcome without = ferry("reshard " + path("verl") + " " + path("out"));
  EXPECT_EQ(without.code, 3);
  EXPECT_THAT(without.err, HasSubstr("--config DIR names a folder with its config.json"));
  run_well("reshard " + path("verl") + " " + path("out") + " --config " + path("elsewhere"));
  const Outcome known = ferry("reshard " + fixture("megatron/hot_llama") + " " + path("other") +
                              " --config " + path("elsewhere"));
  EXPECT_EQ(known.code, 2);
  EXPECT_THAT(known.err, HasSubstr("--config is for runs of Megatron-LM's format without"));
}

}  // namespace
