// A small checkpoint in memory, as ferry writes it: sharded safetensors, config.json, a manifest.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/engine/run.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/integrity/checks/small_files.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

struct WrittenFolder {
  static constexpr const char* kFolder = "model";

  explicit WrittenFolder(const IntegrityOptions& options = {}, uint64_t max_shard_bytes = 1000) {
    std::string content;
    Catalog source;
    source.file_system = memory;
    for (const int64_t rows : {1, 9, 40}) {
      Entry& entry = source.entries.emplace_back();
      entry.name = "layer." + std::to_string(rows) + ".weight";
      entry.shape = {rows, 8};
      entry.chunks.push_back({{Box::whole(entry.shape)}, {}, {}});
      entry.chunks[0].extent = {0, content.size(), static_cast<uint64_t>(entry.bytes())};
      for (int64_t i = 0; i < entry.bytes(); ++i) content += static_cast<char>(7 * i + rows);
    }
    source.add_file("source", content.size());
    memory->put("source", content);
    memory->create_folder(kFolder);

    SafetensorsExport target = plan_safetensors(std::move(source), {false, {}, max_shard_bytes});
    PlannedOutput planned;
    planned.plan = std::move(target.plan);
    complete_items(planned.plan);
    check(planned.plan);
    const std::vector<Digest> digests = run(planned.plan, *memory, kFolder, {});
    if (!target.index_json.empty()) {
      planned.small_files.emplace_back("model.safetensors.index.json", target.index_json);
    }
    planned.small_files.emplace_back("config.json", "{\"model_type\": \"llama\"}\n");
    planned.small_files.emplace_back("empty", "");
    write_small_files(planned, digests, options, *memory, kFolder, {});
  }

  static std::string path(const std::string& name) { return join(kFolder, name); }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
};

}  // namespace ferry::test
