#include "torch_c/calls.hpp"

#include <algorithm>
#include <cctype>
#include <new>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::in_c {
namespace {

/// A script's exception comes after a trace of lines, as "RuntimeError: WORDS". Everything else says it first.
std::string line_of(std::string_view text) {
  std::string_view found = text.substr(0, text.find('\n'));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string_view line = text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
    const std::size_t colon = line.find(": ");
    if (colon != std::string_view::npos && colon > 0 && line.substr(0, colon).ends_with("Error") &&
        std::ranges::all_of(line.substr(0, colon),
                            [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_'; }))
      found = line.substr(colon + 2);
    begin += line.size() + 1;
  }
  return std::string{found.empty() ? "it did not say why" : found};
}

}  // namespace

void rethrow_in_line(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    throw InvalidArgument{"LibTorch: " + line_of(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    throw InvalidArgument{"LibTorch: " + line_of(error.what())};
  }
}

void require_path(const char* path, const char* name) {
  require(path && *path, "{} is {}; expected a path", name, path ? "empty" : "NULL");
}

}  // namespace lockstep::in_c
