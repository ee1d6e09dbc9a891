// The normalizer of tokenizer.json, applied before text is split.
// Source: huggingface/tokenizers, tokenizers/src/normalizers.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ferry {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Thread-safe. Sets `starts` to false if characters at the start are removed.
  virtual void apply(std::string& text, bool& starts) const = 0;
};

/// Reads the member `normalizer`; returns null if it is null. corrupt and unsupported name `path`.
std::unique_ptr<const Normalizer> read_normalizer(const nlohmann::json& normalizer,
                                                  const std::string& path);

}  // namespace ferry
