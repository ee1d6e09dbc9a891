#include "ckpt/group/tcp/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

void set_option(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

// A host that vanishes is noticed within some two minutes.
void prepare_connection(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 9);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
}

[[noreturn]] void fail_connection(const char* what) {
  fail(ErrorKind::io, "the connection to another rank: {}: {}", what, std::strerror(errno));
}

struct Addresses {
  explicit Addresses(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    // A container without /etc/hosts cannot resolve this name, which always means this host
    // (RFC 6761, section 6.3); no name at all gives its loopback addresses.
    const char* const name = host == "localhost" ? nullptr : host.c_str();
    error = ::getaddrinfo(name, std::to_string(port).c_str(), &hints, &first);
  }
  ~Addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  std::string problem() const {
    if (first != nullptr) return "";
    return std::string("its name cannot be resolved: ") +
           (error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error));
  }

  addrinfo* first = nullptr;
  int error = 0;
};

std::string problem_of_connect(int error) {
  if (error == ECONNREFUSED) return "nobody listens there";
  if (error == EINPROGRESS || error == EAGAIN || error == ETIMEDOUT) return "it does not answer";
  return std::strerror(error);
}

// A host that answers nothing, not even that nobody listens, holds a try for so long.
constexpr timeval kLongestTry{10, 0};

// Where nobody listens at a port from which the system gives connections their own, one may get
// that very port, and is connected to itself then.
bool is_connected_to_itself(const TcpSocket& socket) {
  sockaddr_storage own{}, other{};
  socklen_t own_length = sizeof own, other_length = sizeof other;
  const int descriptor = socket.descriptor();
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

TcpConnection connect_once(const std::string& host, int port) {
  const Addresses addresses(host, port);
  TcpConnection connection{{}, addresses.problem()};
  for (const addrinfo* one = addresses.first; one != nullptr; one = one->ai_next) {
    TcpSocket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const timeval none{};
    const auto limit_sends = [&](const timeval& time) {  // and the time that connect() takes
      ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    };
    limit_sends(kLongestTry);
    if (::connect(socket.descriptor(), one->ai_addr, one->ai_addrlen) != 0) {
      connection.problem = problem_of_connect(errno);
      continue;
    }
    if (is_connected_to_itself(socket)) {
      connection.problem = problem_of_connect(ECONNREFUSED);
      continue;
    }
    limit_sends(none);
    prepare_connection(socket.descriptor());
    return {std::move(socket), ""};
  }
  return connection;
}

TcpSocket listen_in(int family, int port) {
  TcpSocket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  set_option(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    set_option(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    length = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
  }
  if (::bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.descriptor(), 4096) != 0) {
    return {};
  }
  return socket;
}

// Waits until there is something to read, or the other side is gone.
void wait_readable(int descriptor, TcpClock::time_point deadline) {
  while (deadline != TcpClock::time_point::max()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - TcpClock::now()).count();
    pollfd poll{descriptor, POLLIN, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready > 0) return;
    if (left <= 0) {
      errno = ETIMEDOUT;
      fail_connection("nothing came");
    }
  }
}

}  // namespace

void TcpSocket::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void TcpSocket::shut_down() noexcept {
  if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
}

void TcpSocket::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  while (!first.empty() || !second.empty()) {
    iovec parts[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                      {const_cast<std::byte*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t written = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_connection("cannot be written to");
    const auto count = static_cast<size_t>(written);
    const size_t of_first = std::min(count, first.size());
    first = first.subspan(of_first);
    second = second.subspan(count - of_first);
  }
}

bool TcpSocket::read(std::span<std::byte> bytes, TcpClock::time_point deadline) {
  for (size_t done = 0; done < bytes.size();) {
    wait_readable(descriptor_, deadline);
    const ssize_t count = ::recv(descriptor_, bytes.data() + done, bytes.size() - done, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_connection("cannot be read");
    if (count == 0 && done == 0) return false;
    if (count == 0) fail(ErrorKind::io, "the connection to another rank has ended");
    done += static_cast<size_t>(count);
  }
  return true;
}

TcpSocket listen_on(int port) {
  TcpSocket socket = listen_in(AF_INET6, port);
  if (!socket) socket = listen_in(AF_INET, port);
  if (!socket) {
    const int error = errno;
    const char* const advice =
        error == EADDRINUSE
            ? ". Another program has it, perhaps another run; choose another MASTER_PORT"
        : error == EACCES ? ". Ports below 1024 are the system's; choose another MASTER_PORT"
                          : "";
    fail(ErrorKind::io, "port {} cannot be listened on: {}{}", port, std::strerror(error), advice);
  }
  return socket;
}

int port_of(const TcpSocket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail_connection("has no port");
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

TcpSocket accept_from(const TcpSocket& listener) {
  TcpSocket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) prepare_connection(socket.descriptor());
  if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    fail(ErrorKind::exhausted,
         "a connection of another rank cannot be taken: {}. Each takes one of the files that a "
         "process may open (ulimit -n): raise that",
         std::strerror(errno));
  }
  return socket;
}

TcpConnection connect_to(const std::string& host, int port, TcpClock::time_point deadline,
                         const std::function<void(const std::string& problem)>& on_problem) {
  constexpr milliseconds kFirstPause{20}, kLongestPause{1000};
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    TcpConnection connection = connect_once(host, port);
    if (connection.socket || TcpClock::now() + pause > deadline) return connection;
    if (on_problem) on_problem(connection.problem);
    std::this_thread::sleep_for(pause);
  }
}

std::string problem_of_name(const std::string& host) { return Addresses(host, 0).problem(); }

std::string address_of_peer(const TcpSocket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST] = "";
  if (::getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr,
                  0, NI_NUMERICHOST);
  }
  return text;
}

}  // namespace ferry
