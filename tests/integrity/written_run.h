// A tiny training checkpoint in memory, as `ferry reshard` writes it in each of its formats, with
// both lists of checksums.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ckpt/engine/compressed_run.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/integrity/checks/small_files.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "ckpt/io/zstd_encoder.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "tests/io/memory_file_system.h"
#include "tests/megatron/writer_support.h"

namespace ferry::test {

enum class RunFormat { torch_dist, torch_dist_zstd, dcp, legacy };

struct WrittenRun {
  static constexpr const char* kFolder = "run";

  explicit WrittenRun(RunFormat format) {
    tensors_.add("embedding.word_embeddings.weight", DType::bf16, {5, 2}, Role::model,
                 "0123456789abcdefghij");
    tensors_.add("decoder.final_layernorm.weight", DType::bf16, {2}, Role::model, "abcd");
    PlannedOutput planned = plan(format);
    complete_items(planned.plan);
    check(planned.plan);
    memory->create_folder(kFolder);
    for (const FileInfo& file : planned.plan.target.files) {
      if (const size_t slash = file.path.rfind('/'); slash != std::string::npos) {
        memory->create_folder(join(kFolder, file.path.substr(0, slash)));
      }
    }
    EngineOptions options;
    options.threads = 1;
    const auto digests =
        format == RunFormat::torch_dist_zstd
            ? run_compressed(planned.plan, *memory, kFolder, kDefaultZstdLevel, options)
            : run(planned.plan, *memory, kFolder, options);
    if (planned.late_file.content) {
      planned.small_files.emplace_back(planned.late_file.name,
                                       planned.late_file.content(planned.plan.target));
    }
    write_small_files(planned, digests, {true, true}, *memory, kFolder, options);
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();

 private:
  PlannedOutput plan(RunFormat format) {
    RunState state = state_of_entries(tensors_.catalog());
    state.args = arguments();
    state.iteration = 5;
    if (format == RunFormat::legacy) return plan_legacy(std::move(state), {});
    if (format == RunFormat::dcp) return plan_plain_dcp(std::move(state), {});
    TorchDistOptions options;
    options.zstd = format == RunFormat::torch_dist_zstd;
    return plan_torch_dist(std::move(state), options);
  }

  static LoadedValue arguments() {
    Draft draft;
    const Value args = draft.instance("argparse.Namespace");
    for (const auto& [name, number] : {std::pair{"num_layers", 1},
                                       {"hidden_size", 2},
                                       {"num_attention_heads", 1},
                                       {"padded_vocab_size", 5},
                                       {"tensor_model_parallel_size", 1},
                                       {"pipeline_model_parallel_size", 1},
                                       {"world_size", 1}}) {
      draft.put(args, name, draft.integer(number));
    }
    return std::move(draft).finish(args);
  }

  MemoryTensors tensors_;
};

}  // namespace ferry::test
