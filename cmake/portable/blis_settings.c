// In C: one generation of BLIS has this as a function, the next as an initialiser that C++ does not take.
#include <blis.h>

rntm_t ferry_blis_settings(void) {
  rntm_t settings = BLIS_RNTM_INITIALIZER;
  return settings;
}
