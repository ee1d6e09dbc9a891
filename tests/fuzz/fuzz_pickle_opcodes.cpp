#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/dcp/dcp_metadata.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/pickle/pickle_writer.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/values/plain_value.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/model/pipeline_checks.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/param_groups.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/metadata_folder.h"
#include "tests/same_value.h"

namespace {

using namespace ferry;
using namespace ferry::test;

// How many inputs came how far, said at the end: mutations that nothing parses would test nothing.
struct Counts {
  uint64_t inputs = 0, parsed = 0, written = 0, metadata = 0, catalogs = 0, runs = 0, layouts = 0;
  ~Counts() {
    std::printf(
        "of %llu inputs %llu parsed, %llu were written again; of their parts %llu were read "
        "as metadata, %llu as catalogs, %llu as arguments, %llu as layouts\n",
        ull(inputs), ull(parsed), ull(written), ull(metadata), ull(catalogs), ull(runs),
        ull(layouts));
  }
  static unsigned long long ull(uint64_t number) { return number; }
};

Counts& counts() {
  static Counts all;
  return all;
}

std::shared_ptr<const Document> parse(std::string_view bytes) {
  return parse_pickle(std::as_bytes(std::span(bytes)), "fuzz");
}

void check_same(const Value& a, const Value& b, const char* step) {
  const std::string problem = Comparison::difference(a, b);
  if (!problem.empty()) finding(std::string(step) + ": " + problem);
}

// A copy is equal, and what is written is read as the same value and written as the same bytes.
void check_copies(const Value& value) {
  Draft draft;
  LoadedValue copy;
  if (succeeds("copy", [&] { copy = std::move(draft).finish(draft.copy(value)); })) {
    check_same(value, copy.value, "copy");
  }
  std::string bytes;
  if (!succeeds("write", [&] { bytes = write_pickle(value); })) return;
  std::shared_ptr<const Document> again;
  if (!succeeds("read again", [&] { again = parse(bytes); }))
    finding("what is written is not read");
  check_same(value, again->root(), "read again");
  std::string twice;
  if (!succeeds("write again", [&] { twice = write_pickle(again->root()); }) || twice != bytes) {
    finding("what was written is not written so again");
  }
  ++counts().written;
}

void check_metadata(const std::string& bytes, const Value& root) {
  if (!root.has("state_dict_metadata")) return;
  succeeds("metadata", [&] {
    const DcpMetadata metadata = read_dcp_metadata(root, "fuzz");
    const DcpStorage storage(root.get("storage_data"), "fuzz");
    for (const std::string& name : metadata.objects) storage.find(name);
    ++counts().metadata;
  });
  const auto folder = std::make_shared<MetadataFolder>(
      reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  succeeds("catalog", [&] {
    const DcpCheckpoint dcp = open_dcp(folder, MetadataFolder::kPath);
    const EntryIndex no_name_stands_twice(dcp.catalog);
    for (const Entry& entry : dcp.catalog.entries) check_chunks(dcp.catalog, entry);
    ++counts().catalogs;
  });
  succeeds("torch_dist", [&] { open_torch_dist(folder, MetadataFolder::kPath); });
}

void check_model_layout(const RunArguments& run) {
  const int64_t layers = run.layers;
  const ModelLayout model({{"embedding.word_embeddings.weight", {64, 8}, DType::bf16},
                           {"decoder.layers.mlp.linear_fc2.weight", {layers, 8, 32}, DType::bf16},
                           {"decoder.final_layernorm.weight", {8}, DType::f32}},
                          run);
  const int64_t last = model.pipeline().stages() - 1;
  for (const int64_t stage : {int64_t{0}, last}) {
    model.parameters({.stage = stage, .chunk = model.pipeline().chunks() - 1},
                     default_modules(run));
  }
  ++counts().layouts;
}

void check_arguments(const Value& args) {
  layout_from_args(args);
  release_from_args(args);
  RunArguments run;
  if (!succeeds("arguments", [&] { run = read_run_arguments(args); })) return;
  ++counts().runs;
  run.stage_stride();
  run.bucket_limit(0, 0, 1 << 20);
  run.dense_data_parallel();
  run.expert_data_parallel();
  succeeds("stages", [&] { check_stages(run); });
  succeeds("letters", [&] { check_stage_letters(run.stage_letters, run.pipeline); });
  succeeds("pipeline", [&] { PipelineLayout{run}; });
  succeeds("layout", [&] { check_model_layout(run); });
}

}  // namespace

// Any bytes are a pickle or an Error. What parses can be walked, printed, copied and written again,
// equal, and be met as the metadata of a checkpoint, as the arguments of a run and as an
// optimizer's groups, within memory that is proportional to the bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  ++counts().inputs;
  std::shared_ptr<const Document> document;
  if (!succeeds("parse", [&] { document = parse(bytes); })) return 0;
  ++counts().parsed;
  if (document->slots.size() > 64 * size + 100'000) finding("too many slots");
  const Value root = document->root();
  for (const uint32_t node : reachable_nodes(root)) {
    const Value value = document->root_at(node);
    value.integer();
    value.real();
    value.string();
    storage_id(value);
  }
  to_json(root).dump();
  check_copies(root);
  check_metadata(bytes, root);
  if (root.pair_count() > 0) check_arguments(root);
  if (const Value args = root.get("args")) check_arguments(args);
  // Writes shared structure out, up to millions of values: of every sixteenth alone.
  if (counts().parsed % 16 == 0) succeeds("plain", [&] { plain_value(root); });
  succeeds("groups", [&] { adapt_param_groups({{document, root}}, true, true); });
  return 0;
}
