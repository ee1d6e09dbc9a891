// Random operations of a group whose results every rank can compute by itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"

namespace ferry::test {

/// All ranks of a group run the same; throws Error(internal) when a result is not what it must be.
class RandomOperations {
 public:
  explicit RandomOperations(size_t most_bytes) : most_bytes_(most_bytes) {}

  void run(Group& group, uint32_t seed, int count) {
    std::vector<int> members(static_cast<size_t>(group.size()));
    std::iota(members.begin(), members.end(), 0);
    run(group, members, seed, count, 2);
  }

 private:
  // What member `rank` gives in the step of this seed.
  std::string text(uint32_t seed, int rank, int part = 0) const {
    std::seed_seq seeds{seed, static_cast<uint32_t>(rank), static_cast<uint32_t>(part)};
    std::mt19937 random(seeds);
    const size_t most = std::array<size_t, 4>{0, 10, 3000, most_bytes_}[random() % 4];
    std::string text(most == 0 ? 0 : random() % most, static_cast<char>(random()));
    for (size_t i = 0; i < text.size(); i += 97) text[i] = static_cast<char>(random());
    return text;
  }

  std::vector<std::string> texts(uint32_t seed, const std::vector<int>& members) const {
    std::vector<std::string> all;
    for (const int member : members) all.push_back(text(seed, member));
    return all;
  }

  static void expect(bool holds, const char* operation, uint32_t seed) {
    if (!holds) fail(ErrorKind::internal, "{}() gives something else, seed {}", operation, seed);
  }

  void run(Group& group, const std::vector<int>& members, uint32_t seed, int count, int depth) {
    std::mt19937 random(seed);
    const auto rank = static_cast<size_t>(group.rank());
    expect(static_cast<size_t>(group.size()) == members.size(), "size", seed);
    for (int i = 0; i < count; ++i) {
      const auto step = static_cast<uint32_t>(random());
      const std::string own = text(step, members[rank]);
      switch (random() % 6) {
        case 0:
          expect(group.exchange(own) == texts(step, members), "exchange", step);
          break;
        case 1: {
          const auto all = rank == 0 ? texts(step, members) : std::vector<std::string>();
          expect(group.gather(own) == all, "gather", step);
          break;
        }
        case 2:
          expect(group.broadcast(own) == text(step, members[0]), "broadcast", step);
          break;
        case 3: {
          const auto parts = rank == 0 ? texts(step, members) : std::vector<std::string>();
          expect(group.scatter(parts) == own, "scatter", step);
          break;
        }
        case 4:
          group.barrier();
          break;
        default:
          if (depth > 0) split(group, members, step, count / 2, depth - 1);
      }
    }
  }

  static std::pair<int, int> place(uint32_t seed, int member) {
    std::seed_seq seeds{seed, static_cast<uint32_t>(member)};
    std::mt19937 random(seeds);
    const int color = static_cast<int>(random() % 4) - 1;
    return {color, static_cast<int>(random() % 5) - 2};
  }

  void split(Group& group, const std::vector<int>& members, uint32_t seed, int count, int depth) {
    const int own = members[static_cast<size_t>(group.rank())];
    const auto [color, key] = place(seed, own);
    const std::shared_ptr<Group> part = group.split(color, key);
    expect((part != nullptr) == (color >= 0), "split", seed);
    if (!part) return;
    std::vector<std::tuple<int, size_t, int>> order;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto [its_color, its_key] = place(seed, members[i]);
      if (its_color == color) order.emplace_back(its_key, i, members[i]);
    }
    std::sort(order.begin(), order.end());
    std::vector<int> in_part;
    for (const auto& one : order) in_part.push_back(std::get<2>(one));
    expect(static_cast<size_t>(part->size()) == in_part.size(), "split", seed);
    expect(in_part[static_cast<size_t>(part->rank())] == own, "split", seed);
    run(*part, in_part, seed + static_cast<uint32_t>(color), count, depth);
  }

  size_t most_bytes_;
};

}  // namespace ferry::test
