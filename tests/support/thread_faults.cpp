// Stands before the C library, as every program's functions do.
#include "support/thread_faults.hpp"

#include <cerrno>

#include <pthread.h>

#include "support/next_function.hpp"

namespace {

thread_local bool has_threads = true;

}  // namespace

lockstep::test::NoThreads::NoThreads() {
  has_threads = false;
}

lockstep::test::NoThreads::~NoThreads() {
  has_threads = true;
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* of) {
  if (!has_threads) return EAGAIN;
  return lockstep::test::next<decltype(pthread_create)>("pthread_create")(thread, attributes, work, of);
}
