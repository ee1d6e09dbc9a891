#include "ckpt/format/deepspeed/universal.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

constexpr std::string_view kMaster = "fp32.pt", kStep = "step.pt", kEnd = ".pt";

// A tensor, or {"param": tensor, ...}. `shape`, if known, is the parameter's.
void add_state(Catalog& catalog, const std::string& path, const std::string& name, Role role,
               const Dims* shape) {
  const auto file = catalog.file_system->open(path);
  const TorchArchive archive = read_torch_file(*file);
  const Value root = archive.pickle->root();
  const Value of_dict = root.get("param");
  const StoredTensor* tensor = of_dict ? of_dict.tensor() : root.tensor();
  if (tensor == nullptr) {
    fail(ErrorKind::corrupt, "{}: holds neither a tensor nor a dict with one called param", path);
  }
  const uint32_t number = catalog.add_file(path, file->size());
  Entry entry{name, tensor->dtype, tensor->shape, {}, role};
  entry.chunks.push_back(stored_chunk(archive, *tensor, number, path));
  if (shape != nullptr && entry.shape != *shape) {
    if (entry.shape.size() != 1 || !entry.chunks[0].strides.empty() ||
        entry.elements() != element_count(*shape, name)) {
      fail(ErrorKind::corrupt, "{}: its tensor is of shape {}, the model's parameter of {}", path,
           to_string(entry.shape), to_string(*shape));
    }
    entry.shape = *shape;
    entry.chunks[0].box = Box::whole(*shape);
  }
  catalog.entries.push_back(std::move(entry));
}

}  // namespace

void add_universal_parameters(Catalog& catalog, const std::string& folder,
                              const std::vector<ZeroGroup>& groups) {
  std::unordered_map<std::string_view, const Dims*> shapes;
  for (const ZeroGroup& group : groups) {
    for (const ZeroParameter& parameter : group) shapes.emplace(parameter.name, &parameter.shape);
  }
  const auto shape_of_parameter = [&](const std::string& name) {
    const auto found = shapes.find(name);
    return found == shapes.end() ? nullptr : found->second;
  };
  const FileSystem& files = *catalog.file_system;
  std::vector<std::string> parameters;
  for (const std::string& name : files.list(folder)) {
    if (files.status(join(folder, name)).kind == PathKind::folder) parameters.push_back(name);
  }
  for (const bool masters : {true, false}) {
    for (const std::string& parameter : parameters) {
      const std::string inside = join(folder, parameter);
      const std::vector<std::string> names = files.list(inside);
      if (masters) {
        if (std::ranges::find(names, kMaster) == names.end()) {
          fail(ErrorKind::not_found, "{}: has no {}; complete the copy", inside, kMaster);
        }
        add_state(catalog, join(inside, std::string(kMaster)), parameter, Role::model,
                  shape_of_parameter(parameter));
        continue;
      }
      for (const std::string& name : names) {
        if (!name.ends_with(kEnd) || name == kMaster || name == kStep) continue;
        const std::string kind = name.substr(0, name.size() - kEnd.size());
        add_state(catalog, join(inside, name), "optimizer.state." + kind + "." + parameter,
                  Role::optimizer, shape_of_parameter(parameter));
      }
    }
  }
}

}  // namespace ferry
