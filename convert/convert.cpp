#include "convert/convert.h"

#include "ckpt/core/error.h"

namespace ferry {

ModelSummary recognise(const Checkpoint&) { return {}; }

std::vector<std::string> export_families() { return {}; }

Export plan_export(const Checkpoint& checkpoint, const ExportOptions&) {
  fail(ErrorKind::unsupported, "{}: no model family can be exported yet", checkpoint.path);
}

}  // namespace ferry
