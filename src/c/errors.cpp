#include "c/errors.hpp"

#include <array>
#include <new>
#include <string>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/lockstep.h>

#include "core/base/exit_code.hpp"
#include "core/base/site.hpp"

namespace lockstep::in_c {
namespace {

static_assert(LOCKSTEP_FAILURE == static_cast<int>(Error::ExitCode::failure));
static_assert(LOCKSTEP_USER_INPUT == static_cast<int>(Error::ExitCode::user_input));
static_assert(LOCKSTEP_MISMATCH == static_cast<int>(Error::ExitCode::mismatch));
static_assert(LOCKSTEP_PEER_FAILED == static_cast<int>(Error::ExitCode::peer_failed));
static_assert(LOCKSTEP_STALL == static_cast<int>(Error::ExitCode::stall));
static_assert(LOCKSTEP_REPLICAS_DIFFER == static_cast<int>(Error::ExitCode::replicas_differ));
static_assert(LOCKSTEP_CHECKPOINT == static_cast<int>(Error::ExitCode::checkpoint));
static_assert(LOCKSTEP_STOPPED == static_cast<int>(Error::ExitCode::stopped));

struct LastError {
  int code = LOCKSTEP_OK;
  std::exception_ptr exception;  ///< by which the ranks know that they have the same
  std::string text;
  const char* without_memory = nullptr;  ///< the text, if there was no memory for a better one
};
thread_local LastError last;

}  // namespace

int keep_error(const std::exception_ptr& exception) noexcept {
  try {
    last.code = static_cast<int>(exit_code_of(exception));
    last.exception = exception;
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    last.without_memory = "no memory is left";
  } catch (const std::exception& error) {
    try {
      last.text = error.what();
      last.without_memory = nullptr;
    } catch (...) {
      last.without_memory = "this call failed, and no memory is left to say how";
    }
  } catch (...) {
    last.without_memory = "an exception of an unknown type";
  }
  return last.code;
}

void rethrow_in_call(const std::exception_ptr& exception, const char* call, const Here& here) {
  const auto in_call = [&](const std::exception& error) { return call_text(call, here) + error.what(); };
  try {
    std::rethrow_exception(exception);
  } catch (const ConfigError& error) {
    throw ConfigError{in_call(error)};
  } catch (const ContextError& error) {
    throw ContextError{in_call(error)};
  } catch (const InvalidArgument& error) {
    throw InvalidArgument{in_call(error)};
  }
}

}  // namespace lockstep::in_c

using lockstep::in_c::last;

const char* lockstep_last_error(void) {
  return last.without_memory ? last.without_memory : last.text.c_str();
}

int lockstep_last_code(void) {
  return last.code;
}

void lockstep_abort(void) {
  if (!last.exception)
    (void)lockstep::in_c::code_of([] { throw lockstep::Error{"lockstep_abort was called, and nothing had failed"}; });
  lockstep::Runtime::end_job(last.exception);
}

const char* lockstep_version(void) {
  return LOCKSTEP_VERSION;
}
