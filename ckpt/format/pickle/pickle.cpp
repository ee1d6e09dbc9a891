#include "ckpt/format/pickle/pickle.h"

#include "ckpt/format/pickle/pickle_machine.h"

namespace ferry {

std::shared_ptr<const Document> parse_pickle(std::span<const std::byte> bytes,
                                             std::string_view what, PickleLimits limits,
                                             uint64_t* consumed) {
  PickleMachine machine(bytes, what, limits);
  auto document = machine.run();
  if (consumed) *consumed = machine.consumed();
  return document;
}

}  // namespace ferry
