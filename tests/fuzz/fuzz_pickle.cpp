#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle.h"

// Any bytes parse or are an Error, and what parses can be walked, within memory that is
// proportional to the bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  try {
    const auto document = parse_pickle(std::as_bytes(std::span(data, size)), "fuzz");
    if (document->slots.size() > 64 * size + 100'000) std::abort();
    to_json(document->root(), 8).dump();
  } catch (const Error&) {
  }
  return 0;
}
