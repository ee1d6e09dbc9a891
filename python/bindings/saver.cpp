// AsyncSaver and its tickets, as ferry/saving.py calls them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <limits>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/memory/async_saver.h"
#include "python/bindings/group.h"
#include "python/bindings/record.h"
#include "python/bindings/running.h"
#include "python/bindings/saving.h"
#include "python/bindings/text.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;
using std::chrono::milliseconds;

constexpr milliseconds kSignalInterval{50};

/// Waits with `is_over(time)` until it is true; signals are handled meanwhile.
template <typename IsOver>
void wait_interruptibly(const IsOver& is_over) {
  for (;;) {
    bool over = false;
    {
      const WithoutGil without;
      over = is_over(kSignalInterval);
    }
    if (over) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

/// A snapshot that a saver takes, and what keeps its memory.
struct HandedIn {
  AsyncSaver::Ticket ticket;
  nb::object owners;
  bool is_over = false;
};

/// The error of tickets that nobody waits for; the next call on the saver throws it.
using DroppedError = std::shared_ptr<std::optional<Error>>;

void rethrow(const DroppedError& dropped) {
  if (const auto error = std::exchange(*dropped, std::nullopt)) throw *error;
}

class PythonTicket {
 public:
  PythonTicket(std::shared_ptr<HandedIn> handed_in, DroppedError dropped)
      : handed_in_(std::move(handed_in)), dropped_(std::move(dropped)) {}
  ~PythonTicket() {
    if (!process_.is_here()) new std::shared_ptr<HandedIn>(std::move(handed_in_));
  }
  PythonTicket(PythonTicket&&) = default;

  bool is_ready() const {
    process_.check_here("a ticket");
    return handed_in_->is_over || handed_in_->ticket.is_ready();
  }

  void wait() {
    process_.check_here("a ticket");
    const std::shared_ptr<HandedIn> own = handed_in_;
    if (own->is_over) return;
    wait_interruptibly([&](milliseconds time) { return own->ticket.is_ready_within(time); });
    if (own->is_over) return;  // another thread has waited, too
    own->is_over = true;
    own->owners = nb::none();
    own->ticket.wait();
    rethrow(dropped_);
  }

 private:
  OfThisProcess process_;
  std::shared_ptr<HandedIn> handed_in_;
  DroppedError dropped_;
};

class PythonSaver {
 public:
  PythonSaver(const std::string& path, const PythonGroup& group, const SaveFormat& format,
              const SaveSettings& settings)
      : group_(group.group()),
        format_(format),
        stager_(std::make_shared<CudaStager>(settings.options.engine.threads)) {
    AsyncSaverOptions options;
    options.save = settings.options;
    options.most_in_flight = settings.most_in_flight;
    options.staging_bytes = settings.staging_bytes;
    options.stager = stager_;
    const WithoutGil without;
    saver_ = std::make_shared<AsyncSaver>(posix_file_system(), path, group_, options);
  }
  ~PythonSaver() {
    if (process_.is_here()) {
      end_within(60);
    } else {
      new std::shared_ptr<AsyncSaver>(std::move(saver_));
      new std::shared_ptr<Group>(std::move(group_));
      for (auto& one : handed_in_) new std::shared_ptr<HandedIn>(std::move(one));
    }
  }
  PythonSaver(const PythonSaver&) = delete;
  PythonSaver& operator=(const PythonSaver&) = delete;

  PythonTicket save(nb::handle tensors, nb::handle given_iteration, nb::handle objects) {
    AsyncSaver& saver = *here();
    const int64_t iteration = iteration_of(given_iteration);
    sweep();
    const auto handed_in = std::make_shared<HandedIn>();
    try {
      Given given = given_by(tensors, iteration, objects, format_, group_->rank(), *stager_);
      stager_->set_streams(std::move(given.tensors.streams));
      handed_in->owners = std::move(given.tensors.owners);
      handed_in->ticket = saver.save(std::move(given.snapshot));
    } catch (...) {
      if (group_->size() > 1) saver.give_up(iteration, for_others(std::current_exception()));
      throw;
    }
    handed_in_.push_back(handed_in);
    return {handed_in, dropped_};
  }

  void prepare(nb::handle tensors) {
    AsyncSaver& saver = *here();
    saver.prepare(given_tensors(tensors, *stager_).regions);
  }

  void check() {
    AsyncSaver& saver = *here();
    sweep();
    rethrow(dropped_);
    saver.check();
  }

  void finish() { finish_within(std::numeric_limits<double>::infinity()); }

  /// Waits for so many seconds at most for other ranks; for files, without an end.
  void finish_within(double seconds) {
    const std::shared_ptr<AsyncSaver> saver = here();
    const bool is_alone = group_->size() == 1;
    double waited = 0;
    wait_interruptibly([&](milliseconds time) {
      waited += std::chrono::duration<double>(time).count();
      return saver->finish_within(time) || (!is_alone && waited > seconds);
    });
    sweep();
    rethrow(dropped_);
  }

  void stop(bool at_once) { here()->stop(at_once ? StopMode::at_once : StopMode::after_writes); }
  bool is_stopped() { return here()->is_stopped(); }
  bool is_closed() const noexcept { return saver_ == nullptr; }

  AsyncSaver::Status status() {
    sweep();
    return here()->status();
  }

  /// Waits until the savers of all ranks have ended. Where that is interrupted, this rank gives up
  /// what is in flight, and the others get an error.
  void end() {
    if (is_closed()) return;
    process_.check_here("an AsyncSaver");
    EngineOptions engine;
    std::shared_ptr<AsyncSaver> saver = std::exchange(saver_, nullptr);
    AsyncSaver* const stopped = saver.get();
    run_interruptibly(
        nb::none(), engine, [&] { saver.reset(); },
        [&] {
          stopped->stop(StopMode::at_once);
          if (group_->size() > 1) group_->abort(Error(ErrorKind::cancelled, "interrupted"));
        });
    sweep();
  }

  /// The same without an error, waiting for so many seconds at most, after which the other ranks
  /// get one.
  void end_within(double seconds) noexcept {
    if (is_closed() || !process_.is_here()) return;
    {
      const WithoutGil without;
      const auto most = milliseconds(static_cast<int64_t>(seconds * 1000));
      const auto saver =
          std::make_shared<std::shared_ptr<AsyncSaver>>(std::exchange(saver_, nullptr));
      const bool is_alone = group_->size() == 1;
      try {
        // A process of its own waits for its files alone.
        if (is_alone) return saver->reset();
        if (!run_within(most, [saver, group = group_] { saver->reset(); })) {
          group_->abort(Error(ErrorKind::cancelled, "ended before its AsyncSaver was closed"));
        }
      } catch (const std::exception&) {
        // No thread or memory: what is in flight is lost with the process.
      }
    }
    sweep();
  }

 private:
  const std::shared_ptr<AsyncSaver>& here() const {
    process_.check_here("an AsyncSaver");
    if (is_closed()) fail(ErrorKind::invalid, "the AsyncSaver is closed");
    return saver_;
  }

  // Lets go of tensors that have been copied.
  void sweep() noexcept {
    std::erase_if(handed_in_, [&](const std::shared_ptr<HandedIn>& one) {
      if (!one->is_over && !one->ticket.is_ready()) return false;
      one->owners = nb::none();
      if (!one->is_over && one.use_count() == 1) take_error(*one);
      return true;
    });
  }
  void take_error(HandedIn& one) noexcept {
    try {
      one.ticket.wait();
    } catch (const Error& error) {
      if (!*dropped_) *dropped_ = error;
    }
  }

  OfThisProcess process_;
  std::shared_ptr<Group> group_;
  SaveFormat format_;
  std::shared_ptr<CudaStager> stager_;
  std::shared_ptr<AsyncSaver> saver_;
  std::deque<std::shared_ptr<HandedIn>> handed_in_;
  DroppedError dropped_ = std::make_shared<std::optional<Error>>();
};

}  // namespace

void bind_saver(nb::module_& module) {
  Record<AsyncSaver::Status>(module, "SaverStatus", "What an AsyncSaver is at.")
      .field("in_flight", &AsyncSaver::Status::in_flight,
             "Snapshots that are being copied or written.")
      .field("staging_bytes", &AsyncSaver::Status::staging_bytes, "Of all its buffers.")
      .field("in_pieces", &AsyncSaver::Status::in_pieces,
             "Snapshots so far that were larger than the buffers.")
      .field("last_saved", &AsyncSaver::Status::last_saved,
             "The iteration that is complete on disk; None: none yet.")
      .field("notes", &AsyncSaver::Status::notes, "Warnings of rank 0; each is given once.");
  nb::class_<PythonTicket>(module, "Ticket", "A snapshot that an AsyncSaver takes.")
      .def("is_ready", &PythonTicket::is_ready,
           "True when wait() would return at once: the tensors may change.")
      .def("wait", &PythonTicket::wait,
           "Returns when the tensors may change: all of them have been copied. Ctrl-C interrupts "
           "it. Raises, once, why this snapshot is not taken, or the error of an earlier save.");
  nb::class_<PythonSaver>(module, "_Saver")
      .def(nb::init<const std::string&, const PythonGroup&, const SaveFormat&,
                    const SaveSettings&>())
      .def("save", &PythonSaver::save, nb::arg("tensors").none(), nb::arg("iteration").none(),
           nb::arg("objects").none())
      .def("prepare", &PythonSaver::prepare, nb::arg("tensors").none())
      .def("check", &PythonSaver::check)
      .def("finish", &PythonSaver::finish)
      .def("stop", &PythonSaver::stop)
      .def("finish_within", &PythonSaver::finish_within)
      .def("end", &PythonSaver::end)
      .def("end_within", &PythonSaver::end_within)
      .def("status", &PythonSaver::status)
      .def_prop_ro("is_stopped", &PythonSaver::is_stopped)
      .def_prop_ro("is_closed", &PythonSaver::is_closed);
}

}  // namespace ferry::python
