// Which digests are written with a checkpoint.
#pragma once

namespace ferry {

struct IntegrityOptions {
  bool manifest = true;  // ferry.manifest.json
  bool sha256 = false;   // integrity.json; reads all files of the folder once more
};

}  // namespace ferry
