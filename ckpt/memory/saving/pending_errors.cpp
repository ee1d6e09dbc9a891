#include "ckpt/memory/saving/pending_errors.h"

#include <utility>

namespace ferry {
namespace {

// Made before it is needed: then there is no memory for one.
const Error kOutOfMemory(ErrorKind::exhausted, "out of memory");

}  // namespace

const Error& out_of_memory() noexcept { return kOutOfMemory; }

Error error_of(const std::exception& exception) noexcept {
  const auto* error = dynamic_cast<const Error*>(&exception);
  if (error) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception)) return out_of_memory();
  return error_or_out_of_memory([&] { return Error(ErrorKind::internal, exception.what()); });
}

void PendingErrors::add(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    errors_.push_back(error);
  } catch (const std::bad_alloc&) {
    ++without_words_;
  }
}

void PendingErrors::rethrow() {
  std::vector<Error> errors;
  size_t more = 0;
  {
    const std::lock_guard lock(mutex_);
    errors = std::exchange(errors_, {});
    more = std::exchange(without_words_, 0);
  }
  if (errors.empty() && more == 0) return;
  if (errors.empty()) fail(ErrorKind::exhausted, "a save failed: out of memory");
  more += errors.size() - 1;
  if (more == 0) throw errors[0];
  fail(errors[0].kind(), "{} ({} more saves failed)", errors[0].what(), more);
}

}  // namespace ferry
