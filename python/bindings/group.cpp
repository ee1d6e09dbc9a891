#include "python/bindings/group.h"

#include <nanobind/stl/unique_ptr.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/group/tcp/mesh.h"
#include "python/bindings/bindings.h"
#include "python/bindings/keywords.h"
#include "python/bindings/running.h"
#include "python/bindings/text.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

// They have just exchanged the address.
constexpr std::chrono::seconds kMeetingPatience{60};

/// Where rank 0 waits for the others before they know its port.
struct Door {
  TcpSocket socket = listen_on(0);
  int port() const { return port_of(socket); }
};

std::unique_ptr<PythonGroup> meet_at(Door* door, const std::string& host, int port, int rank,
                                     int size, const std::string& job, double timeout) {
  std::shared_ptr<TcpMesh> mesh;
  EngineOptions engine;
  run_interruptibly(nb::none(), engine, [&] {
    mesh = std::make_shared<TcpMesh>(MeetingPlace{host, port, rank, size, job}, kMeetingPatience,
                                     SayWait(), kMeetingPatience,
                                     door == nullptr ? TcpSocket() : std::move(door->socket));
  });
  mesh->limit_silence(std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000)));
  return std::make_unique<PythonGroup>(message_group(tcp_transport(std::move(mesh))));
}

}  // namespace

void OfThisProcess::check_here(const char* what) const {
  if (is_here()) return;
  fail(ErrorKind::invalid,
       "{} of process {} cannot be used in process {}, which was forked from it", what, process_,
       ::getpid());
}

bool run_within(std::chrono::milliseconds time, std::function<void()> work) {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_over = false;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, work = std::move(work)]() mutable {
    work();
    work = nullptr;
    const std::lock_guard lock(state->mutex);
    state->is_over = true;
    state->changed.notify_all();
  }).detach();
  std::unique_lock lock(state->mutex);
  return state->changed.wait_for(lock, time, [&] { return state->is_over; });
}

const std::shared_ptr<Group>& PythonGroup::group() const {
  process_.check_here("a group of ranks");
  if (!group_) fail(ErrorKind::invalid, "the group of ranks was closed");
  return group_;
}

void PythonGroup::close(std::chrono::milliseconds patience) noexcept {
  if (!group_) return;
  auto group = std::make_shared<std::shared_ptr<Group>>(std::move(group_));
  group_ = nullptr;
  if (!process_.is_here()) {
    // Its threads are not here, which its destructor would wait for.
    new std::shared_ptr<std::shared_ptr<Group>>(std::move(group));
    return;
  }
  try {
    run_within(patience, [group = std::move(group)] { group->reset(); });
  } catch (const std::exception&) {
    // No thread or memory for it: as in a child.
  }
}

void take(const Argument& argument, std::shared_ptr<Group>& group) {
  group = nb::cast<const PythonGroup&>(argument.value).group();
}

void bind_groups(nb::module_& module) {
  nb::class_<Door>(module, "_Door").def(nb::init<>()).def_prop_ro("port", &Door::port);
  nb::class_<PythonGroup>(module, "_Group")
      .def_prop_ro("rank", &PythonGroup::rank)
      .def_prop_ro("size", &PythonGroup::size)
      .def("split_off",
           [](const PythonGroup& whole) {
             EngineOptions engine;
             const std::shared_ptr<Group> group = whole.group();
             std::shared_ptr<Group> part;
             run_interruptibly(
                 nb::none(), engine, [&] { part = group->split(0, group->rank()); },
                 abort_of(group));
             return std::make_unique<PythonGroup>(std::move(part));
           })
      .def("barrier",
           [](const PythonGroup& whole) {
             EngineOptions engine;
             const std::shared_ptr<Group> group = whole.group();
             run_interruptibly(
                 nb::none(), engine, [&] { group->barrier(); }, abort_of(group));
           })
      .def(
          "close",
          [](PythonGroup& group, double patience) {
            const WithoutGil without;
            group.close(std::chrono::milliseconds(static_cast<int64_t>(patience * 1000)));
          },
          nb::arg("patience"));
  module.def("_lone_group", [] { return std::make_unique<PythonGroup>(lone_group()); });
  module.def("_meet", meet_at, nb::arg("door").none(), nb::arg("host"), nb::arg("port"),
             nb::arg("rank"), nb::arg("size"), nb::arg("job"), nb::arg("timeout"));
}

}  // namespace ferry::python
