// Ranks that are threads of a test, and what becomes of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"

namespace ferry::test {

/// Runs `work` as each rank on a thread of its own and returns what each threw: nothing, its Error,
/// or an Error(internal, "exception") for anything else. The groups live until all have ended.
inline std::vector<std::optional<Error>> on_ranks(const std::vector<std::shared_ptr<Group>>& groups,
                                                  const std::function<void(Group& group)>& work) {
  std::vector<std::optional<Error>> errors(groups.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        work(*groups[i]);
      } catch (const Error& error) {
        errors[i].emplace(error);
      } catch (...) {
        errors[i].emplace(ErrorKind::internal, "exception");
      }
    });
  }
  threads.clear();
  return errors;
}

inline std::vector<std::optional<Error>> on_ranks(int size,
                                                  const std::function<void(Group& group)>& work) {
  return on_ranks(thread_groups(size), work);
}

inline std::string text_of(const std::optional<Error>& error) {
  return error ? fmt::format("{}: {}", name(error->kind()), error->what()) : "";
}

/// "kind: message" of each, empty for none.
inline std::vector<std::string> texts_of(const std::vector<std::optional<Error>>& errors) {
  std::vector<std::string> texts;
  for (const auto& error : errors) texts.push_back(text_of(error));
  return texts;
}

}  // namespace ferry::test
