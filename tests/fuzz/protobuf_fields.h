// Mutations of protobuf messages field by field.
#pragma once

#include <string>

#include "tests/fuzz/mutator.h"

namespace ferry::test {

/// `message` with a field removed, repeated, moved, cut, of another number or value; or with such a
/// change in a field that is itself a message. Bytes that are not a message get other bytes.
std::string changed_message(const std::string& message, Random& random, int depth);

}  // namespace ferry::test
