// A flat buffer of a rank's parameters and gradients, and its buckets. Internal to ModelState.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "trainer/optimizer/model_state.h"

namespace ferry {

/// A unit of reduction and gathering.
struct ModelState::Bucket {
  struct Transfer {
    Communicator* ranks = nullptr;  // null: no transfer in progress
    Communicator::Ticket ticket = 0;

    void wait() {
      if (ranks != nullptr) ranks->wait(ticket);
      ranks = nullptr;
    }
  };

  Buffer* buffer = nullptr;
  int64_t begin = 0;                     // elements, in the buffer
  int64_t part = 0;                      // elements of state per data rank
  size_t first_run = 0, end_run = 0;     // in runs()
  std::vector<size_t> parameters;        // indices in the buffer
  std::vector<Parameter> partial, tied;  // whose gradients ranks other than `peers` have parts of

  /// Parts of the model with parameters in it: (chunk, part) as in PassWatcher.
  std::set<std::pair<int64_t, int64_t>> users;
  size_t unfinished = 0;  // users with incomplete gradients in this step
  bool is_reduced = false;
  Transfer gradients, values;

  /// Chunks use buckets in the order of their first users.
  bool operator<(const Bucket& other) const { return *users.begin() < *other.users.begin(); }
};

/// Buckets are contiguous. Each data rank keeps the state of an equal part of each bucket; its
/// parts are contiguous, too.
struct ModelState::Buffer {
  ModelBuffer layout;
  kernels::Type type = kernels::Type::f32;
  std::vector<Bucket> buckets;
  int64_t elements = 0;
  kernels::Array values, gradients;
  std::unique_ptr<bool[]> has_gradient;  // by parameter
  Communicator* peers = nullptr;         // ranks that hold the same parameters
  Communicator* aside = nullptr;         // the same ranks, concurrent with communication of passes
  int64_t owners = 1, owner = 0;         // ranks that share the state, and this rank's index

  int64_t begin_of(size_t parameter) const {
    const FlatPlace& place = layout.flat.places[parameter];
    return buckets[place.bucket].begin + place.begin;
  }
};

}  // namespace ferry
