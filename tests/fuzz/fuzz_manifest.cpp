#include <cstdlib>
#include <string>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"

namespace {

// The bytes up to where a manifest's own digest stands, and that digest.
std::string sealed(std::string text) {
  const size_t at = text.rfind("\"digest\": \"");
  text = text.substr(0, at == std::string::npos ? text.size() : at) + "\"digest\": \"";
  return text + to_hex(ferry::digest_of(std::as_bytes(std::span(text)))) + "\"\n}\n";
}

}  // namespace

// Any bytes, met as a manifest whose digest is right, give one that comes back from its own text,
// or an Error; and so as integrity.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Manifest manifest = parse_manifest(sealed(text), "fuzz");
    if (parse_manifest(to_text(manifest), "fuzz") != manifest) std::abort();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) std::abort();
  }
  try {
    parse_sha256_manifest(text, "fuzz");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) std::abort();
  }
  return 0;
}
