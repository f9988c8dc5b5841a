#include "core/control/exceptions.hpp"

#include <new>
#include <string_view>

#include "core/base/memory_use.hpp"
#include "core/control/tag.hpp"

namespace lockstep {

std::string message_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    return "out of memory: " + why_no_memory();
  } catch (const std::exception& error) {
    // LibTorch goes on with the call stack.
    const std::string_view text = error.what();
    return one_line(text.substr(0, text.find("\nException raised from ")));
  } catch (...) {
    return "an exception of an unknown type";
  }
}

bool is_common_stall(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const CommonStall&) {
    return true;
  } catch (...) {
    return false;
  }
}

bool is_of_program(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const InvalidArgument&) {
    return true;
  } catch (const ContextError&) {
    return true;
  } catch (const Error&) {
    return false;
  } catch (...) {
    return true;
  }
}

}  // namespace lockstep
