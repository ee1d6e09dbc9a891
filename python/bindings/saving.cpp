// save() and AsyncSaver, as ferry/saving.py calls them.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <limits>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/memory/async_saver.h"
#include "ckpt/memory/load.h"
#include "ckpt/memory/save.h"
#include "ops/output/paths.h"
#include "ops/output/write_output.h"
#include "python/bindings/bindings.h"
#include "python/bindings/group.h"
#include "python/bindings/keywords.h"
#include "python/bindings/record.h"
#include "python/bindings/running.h"
#include "python/bindings/saving_tensors.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;
using std::chrono::milliseconds;

constexpr milliseconds kSignalInterval{50};

// SharedError and others of kind cancelled: another rank, or stop(), ended the save. That is no
// Ctrl-C of this process.
template <typename Work>
auto with_cancelled_as_error(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::cancelled) throw;
    const nb::object made =
        nb::module_::import_("ferry.errors").attr("Error")(to_str(in_keywords(error.what())));
    made.attr("kind") = "cancelled";
    PyErr_SetObject(made.type().ptr(), made.ptr());
    throw nb::python_error();
  }
}

/// Waits with `is_over(time)` until it is true; signals are handled meanwhile.
template <typename IsOver>
void wait_interruptibly(const IsOver& is_over) {
  for (;;) {
    bool over = false;
    {
      const nb::gil_scoped_release release;
      over = is_over(kSignalInterval);
    }
    if (over) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

struct Format {
  std::shared_ptr<const SnapshotFormat> format;
};

struct Settings {
  SaveOptions options;
  int most_in_flight = 1;
  uint64_t staging_bytes = UINT64_MAX;
  /// Where the checkpoint is to be a folder of its own, and no iteration of a run.
  std::optional<OutputKind> alone;

  void set_tracker(const std::string& word) {
    if (word == "forward") {
      options.begin.tracker = TrackerMove::forward;
    } else if (word == "always") {
      options.begin.tracker = TrackerMove::always;
    } else if (word == "never") {
      options.begin.tracker = TrackerMove::never;
    } else {
      fail(ErrorKind::invalid, "tracker='{}' is not 'forward', 'always' or 'never'", word);
    }
  }
};

// What is wrong with what a rank wants to give, for the others, which wait for it.
Error for_others(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::invalid, error.what());
  }
}

struct Given {
  GivenTensors tensors;
  Snapshot snapshot;
};

// Objects are rank 0's.
Given given_by(nb::handle tensors, int64_t iteration, nb::handle objects, const Format& format,
               int rank, CudaStager& stager) {
  Given given{given_tensors(tensors, stager), {}};
  given.snapshot.iteration = iteration;
  given.snapshot.tensors = std::move(given.tensors.regions);
  given.snapshot.format = format.format;
  if (objects.is_none() || rank != 0) return given;
  for (const nb::handle item : objects.attr("items")()) {
    const auto name = nb::cast<std::string>(item[0]);
    given.snapshot.objects.push_back({name, archive_of(name, item[1])});
  }
  return given;
}

/// A snapshot that a saver takes, and what keeps its memory.
struct HandedIn {
  AsyncSaver::Ticket ticket;
  nb::object owners;
  bool is_over = false;
};

/// Of tickets that nobody waits for: thrown where errors of earlier saves are.
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
    with_cancelled_as_error([&] {
      own->ticket.wait();
      rethrow(dropped_);
    });
  }

 private:
  OfThisProcess process_;
  std::shared_ptr<HandedIn> handed_in_;
  DroppedError dropped_;
};

class PythonSaver {
 public:
  PythonSaver(const std::string& path, const PythonGroup& group, const Format& format,
              const Settings& settings)
      : group_(group.group()),
        format_(format),
        stager_(std::make_shared<CudaStager>(settings.options.engine.threads)) {
    AsyncSaverOptions options;
    options.save = settings.options;
    options.most_in_flight = settings.most_in_flight;
    options.staging_bytes = settings.staging_bytes;
    options.stager = stager_;
    const nb::gil_scoped_release release;
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

  PythonTicket save(nb::handle tensors, int64_t iteration, nb::handle objects) {
    AsyncSaver& saver = *here();
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
    with_cancelled_as_error([&] {
      rethrow(dropped_);
      saver.check();
    });
  }

  void finish() { finish_within(std::numeric_limits<double>::infinity()); }

  /// Waits for so many seconds at most for other ranks; for files, without an end.
  void finish_within(double seconds) {
    const std::shared_ptr<AsyncSaver> saver = here();
    const bool is_alone = group_->size() == 1;
    with_cancelled_as_error([&] {
      double waited = 0;
      wait_interruptibly([&](milliseconds time) {
        waited += std::chrono::duration<double>(time).count();
        return saver->finish_within(time) || (!is_alone && waited > seconds);
      });
      sweep();
      rethrow(dropped_);
    });
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
      const nb::gil_scoped_release release;
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
  Format format_;
  std::shared_ptr<CudaStager> stager_;
  std::shared_ptr<AsyncSaver> saver_;
  std::deque<std::shared_ptr<HandedIn>> handed_in_;
  DroppedError dropped_ = std::make_shared<std::optional<Error>>();
};

/// Whether any rank has tensors on a device; throws on all ranks what any could not give.
bool any_has_devices(Group& group, const Given& given, const std::exception_ptr& problem) {
  const auto own = [&] {
    if (problem) throw for_others(problem);
    return std::string(given.tensors.on_devices ? "device" : "");
  };
  for (const std::string& one : together(group, own)) {
    if (!one.empty()) return true;
  }
  return false;
}

// That nothing is replaced but such a checkpoint. There is no source that it could be inside of.
void check_folder(Group& group, const std::string& path, OutputKind kind, bool overwrite) {
  from_first_together(group, [&] {
    check_output(*posix_file_system(), {kind, path, {}}, "/dev/null", overwrite);
    return std::string();
  });
}

// Memory of devices passes through staging memory.
class StagedSave {
 public:
  std::vector<std::string> save(const std::string& path, const Snapshot& snapshot,
                                const std::shared_ptr<Group>& group,
                                const AsyncSaverOptions& options) {
    AsyncSaver saver(posix_file_system(), path, group, options);
    saver_ = &saver;
    if (is_cancelled_) saver.stop(StopMode::at_once);
    AsyncSaver::Ticket ticket = saver.save(snapshot);
    const std::exception_ptr refusal = problem_of([&] { ticket.wait(); });
    const std::exception_ptr failure = problem_of([&] { saver.finish(); });
    saver_ = nullptr;
    if (refusal) std::rethrow_exception(refusal);
    if (failure) std::rethrow_exception(failure);
    return saver.status().notes;
  }

  void cancel() {
    is_cancelled_ = true;
    if (AsyncSaver* const saver = saver_) saver->stop(StopMode::at_once);
  }

 private:
  template <typename Work>
  static std::exception_ptr problem_of(const Work& work) {
    try {
      work();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  std::atomic<AsyncSaver*> saver_{nullptr};
  std::atomic<bool> is_cancelled_{false};
};

std::vector<std::string> save_now(const std::string& path, nb::handle tensors, int64_t iteration,
                                  nb::handle objects, const Format& format,
                                  const PythonGroup& python_group, const Settings& settings,
                                  nb::handle progress) {
  const std::shared_ptr<Group> group = python_group.group();
  const auto stager = std::make_shared<CudaStager>(settings.options.engine.threads);
  Given given;
  std::exception_ptr problem;
  try {
    given = given_by(tensors, iteration, objects, format, group->rank(), *stager);
    stager->set_streams(given.tensors.streams);
  } catch (...) {
    problem = std::current_exception();
  }
  SaveOptions options = settings.options;
  std::string run = path;
  if (settings.alone) {
    const std::filesystem::path target = canonical(path);
    run = target.parent_path().string();
    options.begin.folder = target.filename().string();
    options.begin.tracker = TrackerMove::never;
  }
  StagedSave staged;
  std::vector<std::string> notes;
  const auto work = [&] {
    const bool has_devices = any_has_devices(*group, given, problem);
    if (settings.alone) check_folder(*group, path, *settings.alone, options.begin.overwrite);
    if (!has_devices) {
      notes = save(posix_file_system(), run, given.snapshot, *group, options);
      return;
    }
    AsyncSaverOptions staging;
    staging.save = options;
    staging.stager = stager;
    staging.staging_bytes = settings.staging_bytes;
    notes = staged.save(run, given.snapshot, group, staging);
  };
  const auto on_cancel = [&] {
    staged.cancel();
    if (group->size() > 1) group->abort(Error(ErrorKind::cancelled, "interrupted"));
  };
  with_cancelled_as_error([&] {
    try {
      run_interruptibly(progress, options.engine, work, on_cancel);
    } catch (const Error&) {
      if (problem) std::rethrow_exception(problem);
      throw;
    }
  });
  return notes;
}

ShardedOptimizer optimizer_form(const std::string& word) {
  if (word == "fully_reshardable") return ShardedOptimizer::fully_reshardable;
  if (word == "dp_reshardable") return ShardedOptimizer::dp_reshardable;
  if (word == "plain") return ShardedOptimizer::plain;
  if (word == "none") return ShardedOptimizer::none;
  fail(ErrorKind::invalid,
       "optimizer='{}' is not 'fully_reshardable', 'dp_reshardable', 'plain' or 'none'", word);
}

/// Formats that need the checkpoint which the run began with.
Format format_like(const std::string& like, const std::string& iteration, const PythonGroup& ranks,
                   bool is_torch_dist, const std::string& optimizer, const std::string& release,
                   int files_per_rank) {
  const std::shared_ptr<Group> group = ranks.group();
  EngineOptions engine;
  Format format;
  run_interruptibly(nb::none(), engine, [&] {
    OpenOptions open;
    open.iteration = iteration;
    const Checkpoint checkpoint = open_together(posix_file_system(), like, *group, open);
    if (!is_torch_dist) {
      format.format = legacy_format(checkpoint, optimizer != "none");
    } else {
      TorchDistOptions options;
      if (!release.empty()) options.release = parse_core_release(release);
      options.optimizer = optimizer_form(optimizer);
      options.files_per_rank = files_per_rank;
      format.format = torch_dist_format(checkpoint, options);
    }
    group->barrier();  // rank 0 holds what keeps the checkpoint there
  });
  return format;
}

void bind_settings(nb::module_& module) {
  nb::class_<Settings>(module, "_SaveSettings")
      .def(nb::init<>())
      .def_rw("most_in_flight", &Settings::most_in_flight)
      .def_rw("staging_bytes", &Settings::staging_bytes)
      .def("set_tracker", &Settings::set_tracker)
      .def("set_engine",
           [](Settings& s, int threads, uint64_t memory_bytes) {
             s.options.engine.threads = threads;
             s.options.engine.memory_bytes = memory_bytes;
           })
      .def("set_files",
           [](Settings& s, bool overwrite, bool manifest, bool sha256, int files_per_rank) {
             s.options.begin.overwrite = overwrite;
             s.options.integrity = {manifest, sha256};
             s.options.files_per_rank = files_per_rank;
           })
      .def("set_alone",
           [](Settings& s, bool is_model) {
             s.alone = is_model ? OutputKind::model_folder : OutputKind::checkpoint_folder;
           })
      .def(
          "set_keep",
          [](Settings& s, std::optional<int64_t> last, std::optional<int64_t> every) {
            s.options.keep.keep_last = last;
            s.options.keep.keep_every = every;
          },
          nb::arg("last").none(), nb::arg("every").none());
  nb::class_<Format>(module, "_SaveFormat");
  module.def("_bytes", [](const std::string& name, nb::handle size) {
    uint64_t bytes = 0;
    take({name, size}, bytes);
    return bytes;
  });
  module.def("_dcp_format", [] { return Format{dcp_format()}; });
  module.def("_safetensors_format",
             [](uint64_t max_shard_bytes, const std::map<std::string, nb::bytes>& files) {
               std::vector<std::pair<std::string, std::string>> small;
               for (const auto& [name, content] : files) {
                 small.emplace_back(name, std::string(content.c_str(), content.size()));
               }
               return Format{safetensors_format(max_shard_bytes, std::move(small))};
             });
  module.def("_format_like", format_like);
}

}  // namespace

void bind_saving(nb::module_& module) {
  bind_settings(module);
  module.def("_save", save_now, nb::arg("path"), nb::arg("tensors"), nb::arg("iteration"),
             nb::arg("objects").none(), nb::arg("format"), nb::arg("group"), nb::arg("settings"),
             nb::arg("progress").none());
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
      .def(nb::init<const std::string&, const PythonGroup&, const Format&, const Settings&>())
      .def("save", &PythonSaver::save, nb::arg("tensors"), nb::arg("iteration"),
           nb::arg("objects").none())
      .def("prepare", &PythonSaver::prepare)
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
