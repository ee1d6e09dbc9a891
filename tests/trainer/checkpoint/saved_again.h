// What a run loads, saved again before anything is trained.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/language/runs.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/checkpoint/run_folder_sink.h"
#include "trainer/language/rank_model.h"

namespace ferry::test {

// Words of a run, with --load and --save.
inline void save_again(const std::string& words) {
  const auto files = posix_file_system();
  const TrainArguments arguments = arguments_of(files, words);
  const auto groups = thread_groups(static_cast<int>(arguments.world_size));
  const auto links = thread_links(groups);
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto source = open_source(files, arguments, *groups[rank]);
      RankDevice device = test_device(groups[rank], links[rank]);
      const RunModel model = model_of(arguments, source.get());
      RankModel own(arguments, model, static_cast<int>(rank), device, "the test");
      load_tensors(source->checkpoint, source->state, device.stager.get(), own.memory, Load::all);
      Schedule schedule = schedule_of(arguments);
      const RunProgress progress =
          read_progress_of(source->state, source->checkpoint.path, arguments, schedule, {});
      const RunState state =
          state_to_save(arguments, {}, model, progress, schedule, optimizer_options(arguments));
      RunFolderSink saver(arguments, files, *groups[rank], device.stager, [](std::string_view) {});
      saver.save(SaveKind::persistent, snapshot_of(arguments, own.memory, state));
      saver.finish();
    });
  }
}

}  // namespace ferry::test
