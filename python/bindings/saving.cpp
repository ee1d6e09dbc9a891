// save(), as ferry/saving.py calls it.
#include "python/bindings/saving.h"

#include <nanobind/stl/vector.h>

#include <atomic>
#include <filesystem>
#include <utility>

#include "ckpt/memory/async_saver.h"
#include "ops/output/paths.h"
#include "python/bindings/bindings.h"
#include "python/bindings/group.h"
#include "python/bindings/keywords.h"
#include "python/bindings/running.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

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

std::vector<std::string> save_now(const std::string& path, nb::handle tensors, nb::handle iteration,
                                  nb::handle objects, const SaveFormat& format,
                                  const PythonGroup& python_group, const SaveSettings& settings,
                                  nb::handle progress) {
  const bool is_alone = iteration.is_none();
  const int64_t number = is_alone ? 0 : iteration_of(iteration);
  const std::shared_ptr<Group> group = python_group.group();
  const auto stager = std::make_shared<CudaStager>(settings.options.engine.threads);
  Given given;
  std::exception_ptr problem;
  try {
    given = given_by(tensors, number, objects, format, group->rank(), *stager);
    stager->set_streams(given.tensors.streams);
  } catch (...) {
    problem = std::current_exception();
  }
  SaveOptions options = settings.options;
  std::string run = path;
  if (is_alone) {
    const std::filesystem::path target = canonical(path);
    run = target.parent_path().string();
    options.begin.folder = target.filename().string();
    options.begin.tracker = TrackerMove::never;
  }
  StagedSave staged;
  std::vector<std::string> notes;
  const auto work = [&] {
    const bool has_devices = any_has_devices(*group, given, problem);
    if (is_alone) check_folder(*group, path, format.alone, options.begin.overwrite);
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
  try {
    run_interruptibly(progress, options.engine, work, on_cancel);
  } catch (const Error&) {
    if (problem) std::rethrow_exception(problem);
    throw;
  }
  return notes;
}

}  // namespace

Given given_by(nb::handle tensors, int64_t iteration, nb::handle objects, const SaveFormat& format,
               int rank, CudaStager& stager) {
  Given given{given_tensors(tensors, stager), {}};
  given.snapshot.iteration = iteration;
  given.snapshot.tensors = std::move(given.tensors.regions);
  given.snapshot.format = format.format;
  if (objects.is_none() || rank != 0) return given;
  for (const nb::handle item : items_of("objects", objects)) {
    std::string name = name_of("an object", item[0]);
    std::string archive = archive_of(name, item[1]);
    given.snapshot.objects.push_back({std::move(name), std::move(archive)});
  }
  return given;
}

Error for_others(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::invalid, error.what());
  }
}

void bind_saving(nb::module_& module) {
  bind_save_options(module);
  module.def("_save", save_now, nb::arg("path"), nb::arg("tensors").none(),
             nb::arg("iteration").none(), nb::arg("objects").none(), nb::arg("format"),
             nb::arg("group"), nb::arg("settings"), nb::arg("progress").none());
  bind_saver(module);
}

}  // namespace ferry::python
