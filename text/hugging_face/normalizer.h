// What tokenizer.json does to text before it is divided.
// Source: huggingface/tokenizers, tokenizers/src/normalizers.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ferry {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Safe from several threads. `starts` becomes false when characters before all others go.
  virtual void apply(std::string& text, bool& starts) const = 0;
};

/// Of the member `normalizer`: nothing where it is null. corrupt and unsupported name `path`.
std::unique_ptr<const Normalizer> read_normalizer(const nlohmann::json& normalizer,
                                                  const std::string& path);

}  // namespace ferry
