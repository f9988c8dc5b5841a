// For libraries and programs that put functions of their own before those of MPI.
#pragma once

#include <dlfcn.h>

namespace lockstep::test {

/// The function of that name in MPI, or in a library that was loaded before it.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace lockstep::test
