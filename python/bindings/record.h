// Structs of the library as objects of Python that can be read, printed, compared and made a dict.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace ferry::python {

/// Name of a member and its value, for each of the record's fields; "bytes=1, path='a'" and so on.
nanobind::dict record_to_dict(nanobind::handle record);
nanobind::str record_repr(nanobind::handle record);
bool records_equal(nanobind::handle a, nanobind::handle b);
[[noreturn]] void refuse_hashing(nanobind::handle record);
[[noreturn]] void refuse_pickling(nanobind::handle record);

/// Binds T as a class with read-only attributes, `to_dict()`, `repr` and `==`:
///   Record<DiffSide>(module, "DiffSide", "One side.").field("path", &DiffSide::path);
/// Fields may be members or functions of a `const T&`. Their names are the class's __match_args__.
template <typename T>
class Record {
 public:
  Record(nanobind::handle module, const char* name, const char* documentation)
      : class_(module, name, documentation) {
    class_.attr("__match_args__") = names_;
    class_.def(
        "to_dict", [](nanobind::handle self) { return record_to_dict(self); },
        nanobind::sig("def to_dict(self) -> dict[str, typing.Any]"),
        "All fields, nested ones too, as what json.dumps() takes.");
    class_.def("__repr__", [](nanobind::handle self) { return record_repr(self); });
    class_.def(
        "__eq__",
        [](nanobind::handle self, nanobind::handle other) { return records_equal(self, other); },
        nanobind::arg("other").none(), nanobind::sig("def __eq__(self, other: object, /) -> bool"));
    class_.def(  // as of what is compared by what it holds
        "__hash__", [](nanobind::handle self) -> Py_ssize_t { refuse_hashing(self); },
        nanobind::sig("def __hash__(self) -> int"));
    class_.def(
        "__reduce__", [](nanobind::handle self) { refuse_pickling(self); },
        nanobind::sig("def __reduce__(self) -> typing.NoReturn"));
  }

  template <typename Member>
  Record& field(const char* name, Member member, const char* documentation = nullptr) {
    if constexpr (std::is_member_object_pointer_v<Member>) {
      document([&](auto&&... more) { class_.def_ro(name, member, more...); }, documentation);
    } else {
      document([&](auto&&... more) { class_.def_prop_ro(name, member, more...); }, documentation);
    }
    names_ = nanobind::tuple(names_ + nanobind::make_tuple(name));
    class_.attr("__match_args__") = names_;
    return *this;
  }

  nanobind::class_<T>& python_class() { return class_; }

 private:
  template <typename Define>
  static void document(const Define& define, const char* documentation) {
    documentation == nullptr ? define() : define(documentation);
  }

  nanobind::class_<T> class_;
  nanobind::tuple names_;
};

}  // namespace ferry::python
