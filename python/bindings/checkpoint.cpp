// Checkpoints that are open, and their models under Hugging Face's names; python/ferry/reading.py
// is what users see of both.
#include "ckpt/checkpoint.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "ops/convert.h"
#include "ops/inspect.h"
#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/operations.h"
#include "python/bindings/reader.h"
#include "python/bindings/running.h"
#include "python/bindings/text.h"
#include "python/bindings/values.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

/// A checkpoint, whose catalog goes when it is closed.
struct Opened {
  Checkpoint facts;  // without its catalog
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<Reader> reader;

  const Checkpoint& open() const {
    static_cast<void>(reader->set());  // refuses when it is closed
    return *checkpoint;
  }

  void close() noexcept {
    reader->close();
    checkpoint.reset();
  }
};

Opened open_path(nb::handle path, nb::handle iteration, nb::handle raw) {
  std::string text;
  take({"path", path}, text);
  OpenOptions options;
  take({"raw", raw}, options.raw);
  if (!iteration.is_none()) take_iteration({"iteration", iteration}, options.iteration);
  return abandonably([text, options] {
    auto checkpoint =
        std::make_shared<const Checkpoint>(open_checkpoint(posix_file_system(), text, options));
    Opened opened{*checkpoint, checkpoint,
                  std::make_shared<Reader>(TensorSet(*checkpoint), checkpoint->path)};
    opened.facts.catalog = Catalog();
    return opened;
  });
}

std::optional<std::string> family_of(const Opened& opened) {
  static_cast<void>(opened.open());
  return abandonably([checkpoint = opened.checkpoint] {
    std::string family = inspect(checkpoint).model.family;
    return family.empty() ? std::nullopt : std::optional(std::move(family));
  });
}

std::map<std::string, std::string> metadata_of(const Opened& opened) {
  const SharedCatalog catalog = opened.open().catalog;
  std::map<std::string, std::string> metadata;
  if (opened.facts.format != Format::hugging_face && opened.facts.format != Format::safetensors) {
    return metadata;
  }
  const WithoutGil without;
  for (const FileInfo& file : catalog->files) {
    const bool is_lone = opened.facts.format == Format::safetensors;
    if (!is_lone && !file.path.ends_with(".safetensors")) continue;
    metadata.merge(read_safetensors_header(*catalog->file_system->open(file.path), 0).metadata);
  }
  return metadata;
}

std::vector<std::string> object_names(const Opened& opened) {
  std::vector<std::string> names;
  for (const Object& object : opened.open().catalog->objects) names.push_back(object.name);
  return names;
}

nb::object read_object_named(const Opened& opened, const std::string& name) {
  const SharedCatalog catalog = opened.open().catalog;
  const Object* object = catalog->find_object(name);
  if (object == nullptr) {
    fail(ErrorKind::not_found, "{}: has no object {}; objects has those that there are",
         opened.facts.path, name);
  }
  return read_python_object(*catalog, *object);
}

/// A model that is made of a checkpoint as it is read.
struct Model {
  ModelView view;
  std::shared_ptr<Reader> reader;
};

Model hugging_face_model(const Opened& opened, nb::dict given) {
  ConvertOptions options;
  convert_keywords().take_all(given, options);
  static_cast<void>(opened.open());
  return abandonably([checkpoint = opened.checkpoint, options] {
    ModelView view =
        with_paths({checkpoint->path}, [&] { return view_as_hugging_face(*checkpoint, options); });
    auto reader = std::make_shared<Reader>(view.tensors, checkpoint->path);
    return Model{std::move(view), std::move(reader)};
  });
}

nb::dict files_of(const Model& model) {
  nb::dict files;
  for (const auto& [name, content] : model.view.files) {
    files[to_str(name)] = nb::bytes(content.data(), content.size());
  }
  return files;
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  const auto fact = [](auto member) {
    return [member](const Opened& opened) { return opened.facts.*member; };
  };
  nb::class_<Opened>(module, "OpenCheckpoint")
      .def_ro("reader", &Opened::reader)
      .def_prop_ro("path", fact(&Checkpoint::path))
      .def_prop_ro("format", fact(&Checkpoint::format))
      .def_prop_ro("writer", fact(&Checkpoint::writer))
      .def_prop_ro("iteration", fact(&Checkpoint::iteration))
      .def_prop_ro("layout", fact(&Checkpoint::layout))
      .def_prop_ro("notes",
                   [](const Opened& opened) { return messages<&Checkpoint::notes>(opened.facts); })
      .def_prop_ro("damage", fact(&Checkpoint::damage))
      .def_prop_ro("optimizer_problem",
                   [](const Opened& opened) {
                     return message_or_none<&Checkpoint::optimizer_problem>(opened.facts);
                   })
      .def_prop_ro(
          "args", [](const Opened& opened) { return to_python(opened.facts.args); },
          nb::sig("def args(self) -> typing.Any"))
      .def("family", family_of)
      .def("metadata", metadata_of)
      .def("object_names", object_names)
      .def("read_object", read_object_named, nb::arg("name"),
           nb::sig("def read_object(self, name: str) -> typing.Any"))
      .def("hf", hugging_face_model, nb::arg("options"),
           nb::sig("def hf(self, options: dict[str, typing.Any]) -> ModelView"))
      .def("close", &Opened::close);
  module.def("open", open_path, nb::arg("path").none(), nb::arg("iteration").none(),
             nb::arg("raw").none(),
             nb::sig("def open(path: typing.Any, iteration: int | str | None, raw: bool) -> "
                     "OpenCheckpoint"));
  nb::class_<Model>(module, "ModelView")
      .def_ro("reader", &Model::reader)
      .def_prop_ro("family",
                   [](const Model& model) { return text_or_none<&ModelView::family>(model.view); })
      .def_prop_ro("parameters", [](const Model& model) { return model.view.parameters; })
      .def_prop_ro("files", files_of, nb::sig("def files(self) -> dict[str, bytes]"))
      .def_prop_ro("warnings",
                   [](const Model& model) { return messages<&ModelView::warnings>(model.view); });
}

}  // namespace ferry::python
