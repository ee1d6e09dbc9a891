#include "kernels/cuda/attention/cudnn/cudnn_library.h"

#include <cudnn_version.h>
#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>

// Where the frontend looks for the library's functions: so it wants it of programs that load the
// library themselves (NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING). Set once, by load_cudnn().
namespace cudnn_frontend {
extern void* cudnn_dlhandle;
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace ferry::kernels::cuda {
namespace {

// Those before it compute wrong gradients of some shapes, as the frontend's checks say.
constexpr size_t kOldestVersion = 91002;

std::string name() { return "libcudnn.so." + std::to_string(CUDNN_MAJOR); }

void* load() {
  void* const library = dlopen(name().c_str(), RTLD_NOW);
  if (library == nullptr) {
    throw std::runtime_error("cuDNN cannot be loaded (" + std::string(dlerror()) +
                             "): name the folder of " + name() + " in LD_LIBRARY_PATH");
  }
  const auto version_of = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
  const size_t version = version_of == nullptr ? 0 : version_of();
  if (version < kOldestVersion) {
    throw std::runtime_error("cuDNN is version " + std::to_string(version) + ", and " +
                             std::to_string(kOldestVersion) +
                             " or a later one is wanted: name the " + "folder of a later " +
                             name() + " in LD_LIBRARY_PATH");
  }
  cudnn_frontend::cudnn_dlhandle = library;
  return library;
}

}  // namespace

// Another call tries again where one has failed.
void load_cudnn() { [[maybe_unused]] static void* const library = load(); }

}  // namespace ferry::kernels::cuda
