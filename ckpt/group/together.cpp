#include "ckpt/group/together.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/wire.h"

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
    const std::string failed = results[rank];
    Unpacker outcome(failed);
    if (outcome.number() == kDone) {
      results[rank] = outcome.text();
      continue;
    }
    const auto kind = static_cast<ErrorKind>(outcome.number());
    const std::string message = outcome.text();
    const bool all_alike =
        std::all_of(results.begin() + static_cast<std::ptrdiff_t>(rank), results.end(),
                    [&](const std::string& other) { return other == failed; });
    if (rank == 0 && all_alike) throw Error(kind, message);
    fail(kind, "rank {}: {}", rank, message);
  }
  return results;
}

std::vector<Digest> digests_together(Group& group, const std::vector<uint32_t>& owners,
                                     const std::function<std::vector<Digest>()>& work) {
  const std::vector<std::string> packed = together(group, [&] {
    Packer packer;
    for (const Digest& digest : work()) packer.number(digest.high).number(digest.low);
    return packer.take();
  });
  std::vector<Unpacker> ranks(packed.begin(), packed.end());
  std::vector<Digest> digests;
  for (const uint32_t owner : owners) {
    const uint64_t high = ranks[owner].number();
    digests.push_back({high, ranks[owner].number()});
  }
  return digests;
}

}  // namespace ferry
