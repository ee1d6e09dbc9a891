// What MPI's functions return.
#pragma once

#include <mpi.h>

#include "ckpt/base/error.h"

namespace ferry {

/// io, with MPI's own words, unless it is MPI_SUCCESS.
inline void check_code(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(ErrorKind::io, "MPI: {}", text);
}

}  // namespace ferry
