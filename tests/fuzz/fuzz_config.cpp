#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "convert/export.h"
#include "tests/io/memory_file_system.h"

// Any bytes, met as an index and as a model's config.json, are read or are an Error; what is read
// as a tree can be printed and read again; recognise() never throws.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    parse_weight_map(text, "fuzz");
  } catch (const Error&) {
  }
  try {
    const nlohmann::json tree = parse_json(text, "fuzz");
    if (parse_json(tree.dump(), "fuzz") != tree) std::abort();
  } catch (const Error&) {
  }
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("m/config.json", text);
  Checkpoint checkpoint;
  checkpoint.format = Format::hugging_face;
  checkpoint.path = "m";
  checkpoint.catalog.edit().file_system = memory;
  recognise(checkpoint);
  return 0;
}
