#include "kernels/cpu/workspace.h"

#include <new>

namespace ferry::kernels {

static constexpr std::align_val_t kAlignment{64};

Workspace::~Workspace() { ::operator delete(memory_, kAlignment); }

std::byte* Workspace::take(size_t bytes) {
  if (bytes > bytes_) {
    auto* larger = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    ::operator delete(memory_, kAlignment);
    memory_ = larger;
    bytes_ = bytes;
  }
  return memory_;
}

}  // namespace ferry::kernels
