// The decoder of tokenizer.json: tokens to text.
// Source: huggingface/tokenizers, tokenizers/src/decoders.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ferry {

/// Changes tokens in place.
using DecoderStep = std::function<void(std::vector<std::string>& tokens)>;

/// Reads the member `decoder`. Without one, tokens are joined by spaces. corrupt and unsupported
/// name `path`.
std::vector<DecoderStep> read_decoder(const nlohmann::json& decoder, const std::string& path);

}  // namespace ferry
