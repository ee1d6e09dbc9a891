// XXH3 by AVX2 where the processor has it, as in xxHash's shared library. Its archive is for any processor.
#include <stddef.h>
#include <stdint.h>

#pragma GCC push_options
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#include <xxhash.h>

static __attribute__((noinline)) XXH128_hash_t by_avx2(const void* data, size_t bytes) {
  return XXH3_128bits(data, bytes);
}
static __attribute__((noinline)) XXH_errorcode update_by_avx2(XXH3_state_t* state, const void* data,
                                                              size_t bytes) {
  return XXH3_128bits_update(state, data, bytes);
}
#pragma GCC pop_options

extern XXH128_hash_t archive_XXH3_128bits(const void* data, size_t bytes) __asm__("XXH3_128bits");
extern XXH_errorcode archive_XXH3_128bits_update(XXH3_state_t* state, const void* data,
                                                 size_t bytes) __asm__("XXH3_128bits_update");

XXH128_hash_t XXH3_128bits_dispatch(const void* data, size_t bytes) {
  return __builtin_cpu_supports("avx2") ? by_avx2(data, bytes) : archive_XXH3_128bits(data, bytes);
}

XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t* state, const void* data, size_t bytes) {
  return __builtin_cpu_supports("avx2") ? update_by_avx2(state, data, bytes)
                                        : archive_XXH3_128bits_update(state, data, bytes);
}
