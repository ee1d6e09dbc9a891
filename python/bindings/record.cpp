#include "python/bindings/record.h"

#include <string>

#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

nb::tuple names_of(nb::handle record) {
  return nb::borrow<nb::tuple>(record.type().attr("__match_args__"));
}

std::string class_of(nb::handle record) {
  return nb::cast<std::string>(record.type().attr("__name__"));
}

nb::object plain(nb::handle value) {
  if (nb::hasattr(value, "to_dict")) return value.attr("to_dict")();
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    nb::list made;
    for (const nb::handle element : value) made.append(plain(element));
    return made;
  }
  if (nb::isinstance<nb::dict>(value)) {
    nb::dict made;
    for (const auto& [key, member] : nb::borrow<nb::dict>(value)) {
      made[nb::isinstance<nb::str>(key) ? nb::borrow(key) : nb::str(key)] = plain(member);
    }
    return made;
  }
  const bool is_plain = value.is_none() || nb::isinstance<nb::str>(value) ||
                        nb::isinstance<nb::int_>(value) || nb::isinstance<nb::float_>(value);
  if (is_plain) return nb::borrow(value);
  // An object of a checkpoint's.
  if (nb::hasattr(value, "__dict__")) return plain(value.attr("__dict__"));
  return nb::str(value);
}

}  // namespace

nb::dict record_to_dict(nb::handle record) {
  nb::dict made;
  for (const nb::handle name : names_of(record)) made[name] = plain(nb::getattr(record, name));
  return made;
}

nb::str record_repr(nb::handle record) {
  nb::list fields;
  for (const nb::handle name : names_of(record)) {
    fields.append(nb::str("{}={!r}").format(name, nb::getattr(record, name)));
  }
  return nb::str(nb::object(nb::str("{}({})").format(record.type().attr("__name__"),
                                                     nb::str(", ").attr("join")(fields))));
}

bool records_equal(nb::handle a, nb::handle b) {
  if (!a.type().is(b.type())) return false;
  for (const nb::handle name : names_of(a)) {
    if (!nb::getattr(a, name).equal(nb::getattr(b, name))) return false;
  }
  return true;
}

void refuse_hashing(nb::handle record) {
  throw nb::type_error(("unhashable type: '" + class_of(record) + "'").c_str());
}

void refuse_pickling(nb::handle record) {
  const std::string message =
      "a " + class_of(record) + " cannot be pickled or copied; its to_dict() can be";
  throw nb::type_error(message.c_str());
}

}  // namespace ferry::python
