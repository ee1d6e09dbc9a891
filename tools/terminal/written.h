// What a command says of the files that it wrote, or would write.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ops/write_options.h"

namespace ferry::tool {

/// "wrote 27 tensors, 67,808 parameters, 1.4 MB in 0.3 s (4.5 MB/s)", and a table of the files, the
/// middle of a long list left out. `integers`: of quantised weights, whose parameters cannot be
/// counted.
std::string written_text(const WrittenFiles& written, int64_t tensors, int64_t parameters,
                         int64_t integers = 0);

/// [{"path", "bytes"}]
nlohmann::json written_json(const WrittenFiles& written);

}  // namespace ferry::tool
