#include "trainer/run/inputs.h"

#include <fmt/format.h>

#include <string>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "trainer/data/open_datasets.h"
#include "trainer/run/options.h"
#include "trainer/run/sample_warnings.h"
#include "trainer/run/source.h"

namespace ferry {

void check_train_data(const TrainArguments& arguments, bool has_train_split) {
  if (has_train_split || arguments.skip_train) return;
  const bool is_divided = !arguments.data_path.empty() || !arguments.data_args_path.empty();
  fail(ErrorKind::invalid, "there is nothing to train on: {}",
       is_divided
           ? fmt::format("--split {} gives the train split, its first number, no share; give "
                         "it one, or --skip-train",
                         arguments.split)
           : std::string("data of other splits alone are given; give those of the train "
                         "split (--train-data-path), or --skip-train"));
}

void check_outputs(const FileSystem& files, const TrainArguments& arguments) {
  check_save_folder(files, arguments.save);
  const std::string& metrics = arguments.metrics_json;
  if (!metrics.empty() && files.status(metrics).kind == PathKind::folder) {
    fail(ErrorKind::invalid, "--metrics-json {} is a folder: give the path of a file", metrics);
  }
}

std::vector<std::string> check_inputs(const std::shared_ptr<const FileSystem>& files,
                                      const TrainArguments& arguments) {
  check_outputs(*files, arguments);
  TrainArguments metadata_alone = arguments;
  metadata_alone.verify_integrity = false;  // which reads all
  const auto source = open_source(files, metadata_alone, *thread_groups(1).front());
  check_train_data(arguments, check_datasets(files, data_options(arguments)).train);
  std::vector<std::string> warnings = loop_warnings(arguments);
  const auto add = [&](std::vector<std::string> more) {
    for (std::string& warning : more) warnings.push_back(std::move(warning));
  };
  add(folder_warnings(*files, arguments, source != nullptr));
  if (source) add(sample_warnings(files, arguments, *source));
  return warnings;
}

}  // namespace ferry
