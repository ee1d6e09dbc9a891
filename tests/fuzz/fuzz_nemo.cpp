#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/megatron/config/nemo_config.h"
#include "ckpt/megatron/config/yaml.h"

// Any bytes, met as a context/model.yaml and as a context/io.json, are values that can be printed
// and read as arguments, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ParallelLayout layout = layout_from_nemo_io(text);
  try {
    const auto document = parse_yaml(text, "fuzz");
    to_json(document->root());
    const LoadedValue args = args_from_nemo_model(document->root(), layout);
    to_json(args.value);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) std::abort();
  }
  return 0;
}
