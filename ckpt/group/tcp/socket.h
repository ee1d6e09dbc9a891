// Connections between the processes of a run, by TCP.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace ferry {

using TcpClock = std::chrono::steady_clock;

/// An open socket; closes it when it goes.
class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int descriptor) : descriptor_(descriptor) {}
  ~TcpSocket() { close(); }
  TcpSocket(TcpSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int descriptor() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  void close() noexcept;
  /// Wakes whoever reads or writes, on both sides.
  void shut_down() noexcept;

  /// io where the connection is gone.
  void write(std::span<const std::byte> first, std::span<const std::byte> second = {});
  /// False where the other side has closed it before the first byte; io where it has within them,
  /// or `deadline` passes.
  bool read(std::span<std::byte> bytes,
            TcpClock::time_point deadline = TcpClock::time_point::max());

 private:
  int descriptor_ = -1;
};

/// Listens on all addresses of this host; port 0: any that is free. io, naming the port.
TcpSocket listen_on(int port);
int port_of(const TcpSocket& socket);
/// The next connection, which came already; an empty one where it has gone again. exhausted where
/// the process may open no more.
TcpSocket accept_from(const TcpSocket& listener);

/// What came of trying to connect: a socket, or why there is none ("nobody listens there").
struct TcpConnection {
  TcpSocket socket;
  std::string problem;
};

/// A host and a port; tries until `deadline` as long as nobody listens there, or the name is not
/// known yet. `on_problem` is called after each try that failed.
TcpConnection connect_to(const std::string& host, int port, TcpClock::time_point deadline,
                         const std::function<void(const std::string& problem)>& on_problem = {});

/// Why `host` is not a name of a host here ("its name cannot be resolved: ..."); empty: it is one.
std::string problem_of_name(const std::string& host);

/// The address of the other side, as connect_to() takes it.
std::string address_of_peer(const TcpSocket& socket);

}  // namespace ferry
