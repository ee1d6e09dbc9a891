#include "ckpt/memory/together.h"

#include <new>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/memory/wire.h"

namespace ferry {
namespace {

constexpr uint64_t kDone = 0, kFailed = 1;

std::string failure(ErrorKind kind, std::string_view message) {
  return Packer().number(kFailed).number(static_cast<uint64_t>(kind)).text(message).take();
}

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return Packer().number(kDone).text(work()).take();
  } catch (const Error& error) {
    return failure(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorKind::exhausted, "out of memory");
  } catch (const std::exception& error) {
    return failure(ErrorKind::internal, error.what());
  }
}

}  // namespace

std::vector<std::string> together(Group& group, const std::function<std::string()>& work) {
  std::vector<std::string> results = group.exchange(outcome_of(work));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    Unpacker outcome(results[rank]);
    if (outcome.number() == kDone) {
      results[rank] = outcome.text();
      continue;
    }
    const auto kind = static_cast<ErrorKind>(outcome.number());
    const std::string message = outcome.text();
    if (results.size() == 1) throw Error(kind, message);
    fail(kind, "rank {}: {}", rank, message);
  }
  return results;
}

}  // namespace ferry
