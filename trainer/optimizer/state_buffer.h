// A flat buffer of a rank's parameters and gradients, and its buckets: for ModelState alone.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "trainer/optimizer/model_state.h"

namespace ferry {

/// What is reduced and gathered at once.
struct ModelState::Bucket {
  struct Transfer {
    Communicator* ranks = nullptr;  // null: nothing is under way
    Communicator::Ticket ticket = 0;

    void wait() {
      if (ranks != nullptr) ranks->wait(ticket);
      ranks = nullptr;
    }
  };

  Buffer* buffer = nullptr;
  int64_t begin = 0;                     // elements, in the buffer
  int64_t part = 0;                      // elements whose state one data rank keeps
  size_t first_run = 0, end_run = 0;     // of runs()
  std::vector<size_t> parameters;        // of the buffer
  std::vector<Parameter> partial, tied;  // whose gradients other ranks than fellows have parts of

  /// Parts of the model that have parameters in it: (chunk, part) as PassWatcher has them.
  std::set<std::pair<int64_t, int64_t>> users;
  size_t unfinished = 0;  // users whose gradients are not complete yet in this step
  bool is_reduced = false;
  Transfer gradients, values;

  /// The rank's chunks compute with it in the order of their first users.
  bool operator<(const Bucket& other) const { return *users.begin() < *other.users.begin(); }
};

/// Buckets lie one after another. Each data rank keeps the state of an equal part of each bucket;
/// its parts lie one after another, too.
struct ModelState::Buffer {
  ModelBuffer layout;
  kernels::Type type = kernels::Type::f32;
  std::vector<Bucket> buckets;
  int64_t elements = 0;
  kernels::Array values, gradients;
  std::unique_ptr<bool[]> has_gradient;  // by parameter
  Communicator* fellows = nullptr;       // that hold the same parameters
  Communicator* aside = nullptr;         // the same ranks, beside what passes ask of others
  int64_t owners = 1, owner = 0;  // those that share the state, and which of them this rank is

  int64_t begin_of(size_t parameter) const {
    const FlatPlace& place = layout.flat.places[parameter];
    return buckets[place.bucket].begin + place.begin;
  }
};

}  // namespace ferry
