// The ids that tokenizer.json's post-processor puts around a text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ferry {

struct AroundText {
  std::vector<int32_t> before, after;
};

/// Of the member `post_processor`. corrupt and unsupported name `path`.
AroundText read_post_processor(const nlohmann::json& post_processor, const std::string& path);

}  // namespace ferry
