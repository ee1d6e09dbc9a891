// Python values of plain data as what torch.save would write.
#include <fmt/format.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "python/bindings/saving_tensors.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

constexpr size_t kMostNested = 200;

/// Copies values into a draft. What a value shares stays shared.
class Drafting {
 public:
  explicit Drafting(std::string place) : place_(std::move(place)) {}

  LoadedValue finish(nb::handle value) && {
    const Value root = draft(value);
    return std::move(draft_).finish(root);
  }

 private:
  Value draft(nb::handle value) {
    if (value.is_none()) return draft_.none();
    const nb::handle type = value.type();
    if (type.is(&PyBool_Type)) return draft_.boolean(value.is(Py_True));
    if (type.is(&PyLong_Type)) return integer(value);
    if (type.is(&PyFloat_Type)) return draft_.real(nb::cast<double>(value));
    if (type.is(&PyUnicode_Type)) return string(value);
    if (type.is(&PyBytes_Type)) {
      const auto bytes = nb::borrow<nb::bytes>(value);
      return draft_.bytes({bytes.c_str(), bytes.size()});
    }
    if (const auto known = known_.find(value.ptr()); known != known_.end()) {
      if (known->second.document() == nullptr) refuse("a value that holds itself");
      return known->second;
    }
    if (++depth_ > kMostNested) refuse("nested too deep");
    known_.emplace(value.ptr(), Value());
    const Value made = container(value, type);
    known_[value.ptr()] = made;
    --depth_;
    return made;
  }

  Value string(nb::handle value) {
    Py_ssize_t length = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
    if (text == nullptr) {
      PyErr_Clear();
      refuse("a str with halves of surrogate pairs");
    }
    return draft_.string({text, static_cast<size_t>(length)});
  }

  Value integer(nb::handle value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) return draft_.integer(number);
    return draft_.big_integer(
        nb::cast<std::string>(nb::str(nb::module_::import_("builtins").attr("hex")(value))));
  }

  Value container(nb::handle value, nb::handle type) {
    if (type.is(&PyList_Type)) return draft_.list(items(value));
    if (type.is(&PyTuple_Type)) return draft_.tuple(items(value));
    if (type.is(&PySet_Type)) return draft_.set(items(value));
    if (type.is(&PyDict_Type)) return filled(draft_.dict(), value);
    const auto of = [&](const char* module, const char* name) {
      return type.is(nb::module_::import_(module).attr(name));
    };
    if (of("collections", "OrderedDict")) return filled(draft_.ordered_dict(), value);
    if (of("argparse", "Namespace")) {
      const Value made = draft_.instance("argparse.Namespace");
      for (const nb::handle pair : value.attr("__dict__").attr("items")()) {
        const auto name = nb::cast<std::string>(pair[0]);
        draft_.add(made, name, inside("." + name, pair[1]));
      }
      return made;
    }
    refuse("a " + nb::cast<std::string>(nb::str(type.attr("__module__"))) + "." +
           nb::cast<std::string>(nb::str(type.attr("__qualname__"))));
  }

  std::vector<Value> items(nb::handle sequence) {
    std::vector<Value> made;
    for (const nb::handle item : sequence) {
      made.push_back(inside(fmt::format("[{}]", made.size()), item));
    }
    return made;
  }

  Value filled(const Value& dict, nb::handle pairs) {
    for (const nb::handle pair : pairs.attr("items")()) {
      const nb::object key = pair[0];
      const std::string place = "[" + nb::cast<std::string>(nb::repr(key)) + "]";
      const Value drafted_key = inside(place, key);
      draft_.add(dict, drafted_key, inside(place, pair[1]));
    }
    return dict;
  }

  Value inside(const std::string& place, nb::handle value) {
    const size_t length = place_.size();
    place_ += place;
    const Value made = draft(value);
    place_.resize(length);
    return made;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::unsupported,
         "{} is {}: objects hold None, bool, int, float, str, bytes, list, tuple, set, dict and "
         "argparse.Namespace; tensors belong into tensors=, and numbers of NumPy are converted by "
         ".item()",
         place_, what);
  }

  Draft draft_;
  std::string place_;  // of the value in the object
  size_t depth_ = 0;
  std::unordered_map<const PyObject*, Value> known_;  // no value: being made
};

}  // namespace

std::string archive_of(const std::string& name, nb::handle value) {
  const LoadedValue loaded = Drafting("objects['" + name + "']").finish(value);
  return write_torch_archive(loaded.value);
}

}  // namespace ferry::python
