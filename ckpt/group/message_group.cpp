#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "ckpt/group/group.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

enum class Operation : uint64_t { exchange, gather, broadcast, scatter, barrier, split };

constexpr uint64_t kOperations = 8;  // that a label has room for

std::string text_of_label(uint64_t label) {
  constexpr std::array<std::string_view, kOperations> kNames = {
      "exchange", "gather", "broadcast", "scatter", "barrier", "split", "nothing", "nothing"};
  return fmt::format("{}() as operation {}", kNames[label % kOperations], label / kOperations);
}

// Adds `count` texts to `texts`.
void unpack_texts(const Message& message, size_t count, std::vector<std::string>& texts) {
  Unpacker unpacker(message.bytes);
  for (size_t i = 0; i < count; ++i) texts.push_back(unpacker.text());
  unpacker.finish();
}

std::string pack_texts(std::span<const std::string> texts) {
  Packer packer;
  for (const std::string& text : texts) packer.text(text);
  return packer.take();
}

// What ranks say when a group is split.
struct Place {
  int color = 0, key = 0;
};

// Ranks are the nodes of a binomial tree: the parent of a rank is the rank without its lowest bit,
// and what is below a rank follows it without a gap. So half of all are below rank 0's last child,
// and texts that are gathered are in the order of ranks without being sorted.
class MessageGroup final : public Group {
  // Whatever goes wrong on one rank only must not leave the others waiting for it.
  template <typename Work>
  auto perform(Operation operation, const Work& work) {
    try {
      transport_->check();
      label_ = ++operations_ * kOperations + static_cast<uint64_t>(operation);
      return work();
    } catch (const Departed&) {
      transport_->leave(number_, members_);
      throw;
    } catch (...) {
      abort_with_current_exception(*this);
      throw;
    }
  }

 public:
  MessageGroup(std::shared_ptr<Transport> transport, uint64_t number, std::vector<int> members,
               size_t rank)
      : transport_(std::move(transport)),
        number_(number),
        members_(std::move(members)),
        rank_(rank) {}
  ~MessageGroup() override { transport_->leave(number_, members_); }
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;

  int rank() const noexcept override { return static_cast<int>(rank_); }
  int size() const noexcept override { return static_cast<int>(members_.size()); }

  std::vector<std::string> exchange(std::string bytes) override {
    return perform(Operation::exchange, [&] { return exchange_texts(std::move(bytes)); });
  }
  std::vector<std::string> gather(std::string bytes) override {
    return perform(Operation::gather, [&] { return gather_texts(std::move(bytes)); });
  }
  std::string broadcast(std::string bytes) override {
    return perform(Operation::broadcast, [&] {
      if (rank_ != 0) bytes = receive(parent()).bytes;
      if (const std::vector<size_t> below = children(); !below.empty()) send(below, bytes);
      return std::move(bytes);
    });
  }
  std::string scatter(std::vector<std::string> parts) override {
    return perform(Operation::scatter, [&] { return scatter_texts(std::move(parts)); });
  }
  void barrier() override {
    perform(Operation::barrier, [&] {
      for (size_t step = 1; step < count(); step *= 2) {
        send({after(step)}, {});
        receive(before(step));
      }
      return 0;
    });
  }
  std::shared_ptr<Group> split(int color, int key) override {
    return perform(Operation::split, [&] { return split_off({color, key}); });
  }
  void abort(const Error& error) noexcept override { transport_->abort(error); }
  void check() override { transport_->check(); }

 private:
  size_t count() const { return members_.size(); }
  size_t after(size_t step) const { return (rank_ + step) % count(); }
  size_t before(size_t step) const { return (rank_ + count() - step) % count(); }

  size_t parent() const { return rank_ & (rank_ - 1); }
  // How many ranks the part of the tree at `rank` may have at most.
  size_t reach(size_t rank) const { return rank == 0 ? count() : rank & -rank; }
  // One past the last rank of that part.
  size_t end_of(size_t rank) const { return std::min(rank + reach(rank), count()); }
  // By rising rank, and so by rising number of ranks below.
  std::vector<size_t> children() const {
    std::vector<size_t> children;
    for (size_t step = 1; step < reach(rank_) && rank_ + step < count(); step *= 2) {
      children.push_back(rank_ + step);
    }
    return children;
  }

  void send(const std::vector<size_t>& ranks, std::string bytes) {
    std::vector<int> receivers;
    for (const size_t rank : ranks) receivers.push_back(members_[rank]);
    transport_->send(number_, receivers, {label_, std::move(bytes)});
  }

  Message receive(size_t from) {
    Message message = transport_->receive(number_, members_[from]);
    if (message.label != label_) {
      fail(ErrorKind::mismatch,
           "rank {} calls {} of a group in which rank {} calls {}: all ranks must call the same "
           "operations in the same order",
           from, text_of_label(message.label), rank_, text_of_label(label_));
    }
    return message;
  }

  // By doubling: before each step a rank has the texts of as many ranks, from itself on.
  std::vector<std::string> exchange_texts(std::string own) {
    std::vector<std::string> texts;
    texts.push_back(std::move(own));
    for (size_t step = 1; step < count(); step *= 2) {
      const size_t more = std::min(step, count() - step);
      send({before(step)}, pack_texts(std::span(texts).first(more)));
      unpack_texts(receive(after(step)), more, texts);
    }
    std::rotate(texts.begin(), texts.end() - static_cast<std::ptrdiff_t>(rank_), texts.end());
    return texts;
  }

  std::vector<std::string> gather_texts(std::string own) {
    if (rank_ == 0) {
      std::vector<std::string> texts;
      texts.reserve(count());
      texts.push_back(std::move(own));
      for (const size_t child : children()) {
        unpack_texts(receive(child), end_of(child) - child, texts);
      }
      return texts;
    }
    std::string packed = Packer().text(own).take();
    for (const size_t child : children()) packed += receive(child).bytes;
    send({parent()}, std::move(packed));
    return {};
  }

  std::string scatter_texts(std::vector<std::string> texts) {
    if (rank_ == 0 && texts.size() != count()) {
      fail(ErrorKind::invalid, "{} parts are scattered to {} ranks", texts.size(), count());
    }
    if (rank_ != 0) {
      texts.clear();
      unpack_texts(receive(parent()), end_of(rank_) - rank_, texts);
    }
    std::vector<size_t> receivers = children();
    std::reverse(receivers.begin(), receivers.end());  // who passes on most comes first
    for (const size_t child : receivers) {
      send({child}, pack_texts(std::span(texts).subspan(child - rank_, end_of(child) - child)));
      texts.resize(child - rank_);
    }
    return std::move(texts[0]);
  }

  std::shared_ptr<Group> split_off(Place own) {
    const uint64_t first_number = rank_ == 0 ? transport_->reserve_groups(count()) : 0;
    const std::vector<std::string> texts =
        exchange_texts(Packer()
                           .number(static_cast<uint32_t>(own.color))
                           .number(static_cast<uint32_t>(own.key))
                           .number(first_number)
                           .take());
    std::vector<Place> places;
    for (const std::string& text : texts) {
      Unpacker unpacker(text);
      const auto color = static_cast<int>(static_cast<uint32_t>(unpacker.number()));
      places.push_back({color, static_cast<int>(static_cast<uint32_t>(unpacker.number()))});
    }
    if (own.color < 0) return nullptr;
    Unpacker first(texts[0]);
    first.number(), first.number();
    return make_part(places, first.number());
  }

  // Each color has the number of its place among all.
  std::shared_ptr<Group> make_part(const std::vector<Place>& places, uint64_t first_number) const {
    const int color = places[rank_].color;
    std::set<int> colors;
    std::vector<size_t> ranks;
    for (size_t rank = 0; rank < count(); ++rank) {
      if (places[rank].color < color) colors.insert(places[rank].color);
      if (places[rank].color == color) ranks.push_back(rank);
    }
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](size_t a, size_t b) { return places[a].key < places[b].key; });
    const auto own =
        static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    std::vector<int> members;
    for (const size_t rank : ranks) members.push_back(members_[rank]);
    return std::make_shared<MessageGroup>(transport_, first_number + colors.size(),
                                          std::move(members), own);
  }

  std::shared_ptr<Transport> transport_;
  uint64_t number_;
  std::vector<int> members_;  // by rank, their ranks in the first group of the family
  size_t rank_;
  uint64_t operations_ = 0;  // that were called
  uint64_t label_ = 0;       // of the one that goes on
};

}  // namespace

std::shared_ptr<Group> message_group(std::shared_ptr<Transport> transport) {
  std::vector<int> members(static_cast<size_t>(transport->size()));
  std::iota(members.begin(), members.end(), 0);
  const auto rank = static_cast<size_t>(transport->rank());
  return std::make_shared<MessageGroup>(std::move(transport), 0, std::move(members), rank);
}

}  // namespace ferry
