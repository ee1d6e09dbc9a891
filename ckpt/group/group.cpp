#include "ckpt/group/group.h"

#include <new>

namespace ferry {
namespace {

// Made while there is memory.
const Error kOutOfMemory(ErrorKind::exhausted, "out of memory");
const Error kUnknown(ErrorKind::internal, "an unknown exception");

}  // namespace

void abort_with_current_exception(Group& group) noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      group.abort(error);
    } catch (const std::bad_alloc&) {
      group.abort(kOutOfMemory);
    } catch (const std::exception& error) {
      group.abort(Error(ErrorKind::internal, error.what()));
    } catch (...) {
      group.abort(kUnknown);
    }
  } catch (...) {  // no memory for the text of another
    group.abort(kOutOfMemory);
  }
}

}  // namespace ferry
