#include "trainer/communicator/tcp/tcp_links.h"

#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

class TcpLinks final : public Links {
 public:
  TcpLinks(std::shared_ptr<TcpMesh> mesh, std::shared_ptr<Group> group)
      : mesh_(std::move(mesh)), group_(std::move(group)) {}

  int rank() const noexcept override { return mesh_->rank(); }
  int size() const noexcept override { return mesh_->size(); }

  uint64_t offer(int channel, int to, std::span<const std::byte> bytes) override {
    mesh_->send(to, {kLinks, static_cast<uint64_t>(channel)}, 0, bytes);
    return ++last_offer_;
  }
  void wait(uint64_t) override {}
  void withdraw() noexcept override { abort_with_current_exception(*group_); }

  void take(int channel, int from, size_t bytes, const Use& use) override {
    const Message message = mesh_->receive(from, {kLinks, static_cast<uint64_t>(channel)});
    if (message.bytes.size() != bytes) {
      fail(ErrorKind::internal, "rank {} sends {} bytes where rank {} expects {}", from,
           message.bytes.size(), rank(), bytes);
    }
    use(std::as_bytes(std::span(message.bytes)));
  }

 private:
  static constexpr uint64_t kLinks = 1;

  std::shared_ptr<TcpMesh> mesh_;
  std::shared_ptr<Group> group_;
  uint64_t last_offer_ = 0;
};

}  // namespace

std::shared_ptr<Links> tcp_links(std::shared_ptr<TcpMesh> mesh, std::shared_ptr<Group> group) {
  return std::make_shared<TcpLinks>(std::move(mesh), std::move(group));
}

}  // namespace ferry
