// A list of findings while it grows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ckpt/summary.h"

namespace ferry {

/// Whether it is a program that serves models, with classes of its own.
constexpr bool is_engine(Loader loader) {
  return loader == Loader::vllm || loader == Loader::sglang;
}

class Findings {
 public:
  /// `advice` may be empty where no more can be said than what is usual for findings of the kind.
  void problem(std::string kind, std::string subject, std::string what, std::string advice = {}) {
    list_.push_back(
        {true, std::move(kind), std::move(subject), std::move(what), std::move(advice)});
  }
  void warning(std::string kind, std::string subject, std::string what, std::string advice = {}) {
    problem(std::move(kind), std::move(subject), std::move(what), std::move(advice));
    list_.back().is_problem = false;
  }
  void add(bool is_problem, std::string kind, std::string subject, std::string what,
           std::string advice = {}) {
    problem(std::move(kind), std::move(subject), std::move(what), std::move(advice));
    list_.back().is_problem = is_problem;
  }

  bool empty() const { return list_.empty(); }
  const std::vector<Finding>& list() const { return list_; }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
};

}  // namespace ferry
