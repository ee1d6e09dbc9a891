#include "python/bindings/reader.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <atomic>
#include <tuple>
#include <utility>

#include "ckpt/base/error.h"
#include "python/bindings/bindings.h"
#include "python/bindings/keywords.h"
#include "python/bindings/running.h"
#include "python/bindings/selection.h"
#include "python/bindings/text.h"
#include "python/bindings/without_gil.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

// None, too, for what is not a name of a tensor at all.
std::optional<LazyTensor> find(const std::shared_ptr<Reader>& reader, nb::handle given) {
  std::string name;
  const TensorSet& set = reader->set();
  const Entry* const entry = from_str(given, name) ? set.find(name) : nullptr;
  if (entry == nullptr) return std::nullopt;
  return LazyTensor{reader, entry->name, entry->dtype, entry->shape, entry->role};
}

std::vector<std::string> names_of(const Reader& reader, const std::string& role) {
  std::vector<std::string> names;
  for (const Entry& entry : reader.set().tensors()) {
    if (role_name(entry.role) == role) names.push_back(entry.name);
  }
  return names;
}

Array read_selected(const LazyTensor& tensor, nb::handle index, nb::handle dtype) {
  const Selection selection = select(index, tensor.shape);
  const ReadRequest request{tensor.name, dtype_or_none(dtype).value_or(tensor.dtype),
                            selection.box};
  Array box = read(*tensor.reader, {request}, {}, nb::none()).front();
  if (!selection.is_box()) return take_steps(box, selection);
  box.shape = selection.shape;
  return box;
}

Array read_whole(const LazyTensor& tensor, nb::handle dtype) {
  return read_selected(tensor, nb::ellipsis(), dtype);
}

std::vector<const Entry*> entries_of(const Reader& reader, nb::list names) {
  std::vector<const Entry*> entries;
  std::string name;
  for (const nb::handle given : names) {
    entries.push_back(from_str(given, name) ? reader.set().find(name) : nullptr);
    if (entries.back() == nullptr) {
      fail(ErrorKind::not_found, "{}: there is no tensor {}; keys() has those that there are",
           reader.path(), nb::cast<std::string>(nb::repr(given)));
    }
  }
  return entries;
}

// As PyTorch's .to(dtype) of a module: what is not a floating-point number stays.
std::vector<Array> read_many(const Reader& reader, nb::list names, nb::handle dtype,
                             nb::dict options, nb::handle progress) {
  const std::optional<DType> target = dtype_or_none(dtype);
  std::vector<ReadRequest> requests;
  for (const Entry* entry : entries_of(reader, names)) {
    const bool is_cast = target && is_floating_point(entry->dtype);
    requests.push_back({entry->name, is_cast ? *target : entry->dtype, Box::whole(entry->shape)});
  }
  return read(reader, requests, engine_options(options), progress);
}

/// Memory to read into: name, dtype, shape of the tensor, offset and size of the box of it that is
/// there, address.
using Target = std::tuple<std::string, nb::object, Dims, Dims, Dims, uintptr_t>;

void read_into(const Reader& reader, const std::vector<Target>& targets, nb::dict given,
               nb::handle progress) {
  std::vector<Region> regions;
  for (const auto& [name, dtype, shape, offset, size, address] : targets) {
    const std::string dtype_of_target = "the dtype of into['" + name + "']";
    DType type{};
    take({dtype_of_target, dtype}, type);
    regions.push_back({name,
                       type,
                       shape,
                       {{offset, size}},
                       reinterpret_cast<std::byte*>(address)});  // NOLINT: whose it is keeps it
  }
  EngineOptions options = engine_options(given);
  const TensorSet set = reader.set();
  interruptibly(progress, options,
                [&] { with_paths({reader.path()}, [&] { load(set, regions, options); }); });
}

/// The tensors of a TensorStream.
class Stream {
 public:
  Stream(const Reader& reader, nb::list names, nb::dict given, nb::handle rank, nb::handle world) {
    StreamOptions options;
    options.names.emplace();
    for (const Entry* entry : entries_of(reader, names)) options.names->push_back(entry->name);
    take({"rank", rank}, options.rank);
    take({"world", world}, options.ranks);
    const EngineOptions engine = engine_options(given);
    if (given.contains("memory")) options.engine.memory_bytes = engine.memory_bytes;
    options.engine.threads = engine.threads;
    options.engine.cancel = &cancel_;
    const WithoutGil without;
    stream_ = std::make_unique<TensorStream>(reader.set(), options);
  }

  ~Stream() {
    if (is_of_a_fork()) {  // the thread that reads ahead is not here, and cannot be waited for
      static_cast<void>(stream_.release());
      return;
    }
    cancel_ = true;
    const WithoutGil without;
    stream_.reset();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  nb::tuple next() {
    if (is_of_a_fork()) {
      fail(ErrorKind::invalid,
           "a stream ends in the process that began it; begin one after a fork");
    }
    if (is_asked_.exchange(true)) {
      fail(ErrorKind::invalid, "a stream is asked for one tensor at a time: another thread waits");
    }
    std::optional<OwnedTensor> tensor;
    EngineOptions unused;
    try {
      run_interruptibly(
          nb::none(), unused, [&] { tensor = stream_->next(); }, [&] { cancel_ = true; });
    } catch (...) {
      is_asked_ = false;
      throw;
    }
    is_asked_ = false;
    if (!tensor) throw nb::stop_iteration();
    return nb::make_tuple(to_str(tensor->name), Array{tensor->dtype, std::move(tensor->shape),
                                                      tensor->bytes, std::move(tensor->owner)});
  }

 private:
  bool is_of_a_fork() const noexcept { return ::getpid() != process_; }

  pid_t process_ = ::getpid();
  std::atomic<bool> cancel_ = false;
  std::atomic<bool> is_asked_ = false;
  std::unique_ptr<TensorStream> stream_;
};

uint64_t bytes_of(const LazyTensor& tensor) {
  return static_cast<uint64_t>(element_count(tensor.shape, tensor.name) * size_bytes(tensor.dtype));
}

int64_t length(const LazyTensor& tensor) {
  if (tensor.shape.empty()) throw nb::type_error("len() of a scalar");
  return tensor.shape[0];
}

std::string text_of(const LazyTensor& tensor) {
  return fmt::format("Tensor('{}', dtype='{}', shape=({}{}))", tensor.name,
                     safetensors_name(tensor.dtype), fmt::join(tensor.shape, ", "),
                     tensor.shape.size() == 1 ? "," : "");
}

nb::object framework_array(const LazyTensor& tensor, nb::handle dtype, nb::handle copy) {
  return nb::module_::import_("ferry._frameworks").attr("lazy_to_array")(tensor, dtype, copy);
}

void bind_tensor(nb::module_& module) {
  nb::class_<LazyTensor>(module, "Tensor",
                         "A tensor of a checkpoint, which is read when its elements are asked for.")
      .def_ro("name", &LazyTensor::name)
      .def_ro("dtype", &LazyTensor::dtype, "safetensors' spelling: 'BF16'.")
      .def_prop_ro(
          "shape", [](const LazyTensor& tensor) { return nb::tuple(nb::cast(tensor.shape)); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "Elements along each axis.")
      .def_prop_ro("nbytes", bytes_of, "Of its elements.")
      .def_prop_ro(
          "role", [](const LazyTensor& tensor) { return role_name(tensor.role); },
          "'model' or 'optimizer'.")
      .def("read", read_whole, nb::arg("dtype") = nb::none(),
           nb::sig("def read(self, dtype: typing.Any = None) -> Array"),
           "All elements, as `dtype` where one is given; without a copy where the file has them "
           "so.")
      .def(
          "numpy",
          [](const LazyTensor& tensor, nb::handle dtype) {
            return nb::cast(read_whole(tensor, dtype)).attr("numpy")();
          },
          nb::arg("dtype") = nb::none(),
          nb::sig("def numpy(self, dtype: typing.Any = None) -> typing.Any"),
          "All elements as a NumPy array; see Array.numpy().")
      .def(
          "torch",
          [](const LazyTensor& tensor, nb::handle dtype) {
            return nb::cast(read_whole(tensor, dtype)).attr("torch")();
          },
          nb::arg("dtype") = nb::none(),
          nb::sig("def torch(self, dtype: typing.Any = None) -> typing.Any"),
          "All elements as a PyTorch tensor on the CPU.")
      .def(
          "__getitem__",
          [](const LazyTensor& tensor, nb::handle index) {
            return read_selected(tensor, index, nb::none());
          },
          nb::arg("index").none(), nb::sig("def __getitem__(self, index: typing.Any, /) -> Array"),
          "The elements that ints, slices and '...' select; reads no others, but for those that "
          "a\nstep other than 1 skips.")
      .def(
          "__iter__",
          [](nb::handle self) {
            if (nb::cast<const LazyTensor&>(self).shape.empty()) {
              throw nb::type_error("iteration over a scalar");
            }
            return nb::steal(PySeqIter_New(self.ptr()));
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Array]"))
      .def("__array__", framework_array, nb::arg("dtype") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                   "typing.Any"))
      .def(
          "__dlpack__",
          [](const LazyTensor& tensor, nb::kwargs keywords) {
            return nb::cast(read_whole(tensor, nb::none())).attr("__dlpack__")(**keywords);
          },
          nb::sig("def __dlpack__(self, **kwargs: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__", [](const LazyTensor&) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__len__", length)
      .def("__repr__", text_of);
}

}  // namespace

const TensorSet& Reader::set() const {
  if (!set_) fail(ErrorKind::invalid, "{}: the checkpoint is closed; open it again", path_);
  return *set_;
}

EngineOptions engine_options(nb::dict given) {
  EngineOptions options;
  if (given.contains("memory")) take({"memory", given["memory"]}, options.memory_bytes);
  if (given.contains("threads")) {
    const nb::object threads = given["threads"];
    take({"threads", threads}, options.threads);
    check_not_negative({"threads", threads}, options.threads);
  }
  return options;
}

std::optional<DType> dtype_or_none(nb::handle given) {
  std::optional<DType> dtype;
  if (!given.is_none()) take({"dtype", given}, dtype);
  return dtype;
}

std::vector<Array> read(const Reader& reader, const std::vector<ReadRequest>& requests,
                        EngineOptions options, nb::handle progress) {
  const TensorSet set = reader.set();
  std::vector<Array> arrays;
  std::vector<Region> regions;
  for (const ReadRequest& request : requests) {
    const Entry& entry = *set.find(request.name);
    std::optional<OwnedTensor> mapped;
    if (request.dtype == entry.dtype && request.box == Box::whole(entry.shape)) {
      mapped = set.map(request.name);
    }
    if (mapped) {
      arrays.push_back({mapped->dtype, mapped->shape, mapped->bytes, std::move(mapped->owner)});
      continue;
    }
    Array& array = arrays.emplace_back(new_array(request.dtype, request.box.size));
    if (array.bytes.empty()) continue;
    regions.push_back(
        {request.name, request.dtype, entry.shape, {request.box}, array.bytes.data()});
  }
  if (regions.empty()) return arrays;
  interruptibly(progress, options,
                [&] { with_paths({reader.path()}, [&] { load(set, regions, options); }); });
  return arrays;
}

void bind_reader(nb::module_& module) {
  note_spelling("ranks", {}, "world", {});
  bind_tensor(module);
  nb::class_<Reader>(module, "Reader")
      .def("names", names_of, nb::arg("role"))
      .def("find", find, nb::arg("name").none(),
           nb::sig("def find(self, name: object) -> Tensor | None"))
      .def("read", read_many, nb::arg("names"), nb::arg("dtype").none(), nb::arg("options"),
           nb::arg("progress").none(),
           nb::sig("def read(self, names: list[str], dtype: typing.Any, "
                   "options: dict[str, "
                   "typing.Any], progress: typing.Any) -> list[Array]"))
      .def("read_into", read_into, nb::arg("targets"), nb::arg("options"),
           nb::arg("progress").none(),
           nb::sig("def read_into(self, targets: collections.abc.Sequence[tuple[str, typing.Any, "
                   "collections.abc.Sequence[int], "
                   "collections.abc.Sequence[int], collections.abc.Sequence[int], int]], options: "
                   "dict[str, typing.Any], progress: "
                   "typing.Any) -> None"))
      .def("close", &Reader::close)
      .def_prop_ro("closed", &Reader::is_closed);
  nb::class_<Stream>(module, "Stream")
      .def(nb::init<const Reader&, nb::list, nb::dict, nb::handle, nb::handle>(), nb::arg("reader"),
           nb::arg("names"), nb::arg("options"), nb::arg("rank").none(), nb::arg("world").none(),
           nb::sig("def __init__(self, reader: Reader, names: list[str], options: dict[str, "
                   "typing.Any], rank: int, world: int) -> None"))
      .def("__next__", &Stream::next, nb::sig("def __next__(self) -> tuple[str, Array]"))
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> Stream"));
}

}  // namespace ferry::python
