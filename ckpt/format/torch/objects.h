// Objects of a catalog, parsed on request.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Reads and parses one object (a torch.save archive or a bare pickle; zstd streams are decoded).
/// corrupt naming file and object; exhausted when it is larger than 1 GiB.
LoadedValue read_object(const Catalog& catalog, const Object& object);

/// The same, with the bytes of the storages that the value's tensors view (Document::storages): all
/// that is needed to write it into another archive. exhausted when they are larger than 1 GiB.
LoadedValue read_object_with_storages(const Catalog& catalog, const Object& object);

/// The same for some parts of a value that read_object() gave for `object`: of the others the
/// storages, which may be large, stay where they are.
LoadedValue with_storages(const Catalog& catalog, const Object& object, const LoadedValue& loaded,
                          std::span<const Value> parts);

/// The object of that name; nothing where there is none, or where it cannot be read: then the
/// reason is appended to `notes`, if given.
LoadedValue read_object_if_readable(const Catalog& catalog, std::string_view name,
                                    std::vector<std::string>* notes = nullptr);

/// An object's bytes as they are stored (zstd streams are decoded), not parsed; `path` does not
/// matter.
std::string read_object_bytes(const Catalog& catalog, const Object& object);

}  // namespace ferry
