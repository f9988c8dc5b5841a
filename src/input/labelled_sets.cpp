#include "input/labelled_sets.hpp"

#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>

namespace lockstep {

std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name) {
  for (const std::filesystem::path& path : {folder / name, folder / fmt::format("{}.gz", name)}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
    if (error) throw ConfigError{fmt::format("{}: cannot be read: {}", path.string(), error.message())};
  }
  throw ConfigError{fmt::format("{0}: neither {1} nor {1}.gz is there; expected one of them", folder.string(), name)};
}

std::string extents_text(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

std::string samples_text(std::int64_t count, const Shape& sample) {
  return sample.size() > 1
             ? fmt::format("{} images of {}", count, extents_text(sample))
             : fmt::format("{} rows of {} number{}", count, sample.front(), sample.front() == 1 ? "" : "s");
}

LabelRule LabelRule::of(const LabelledOptions& options, std::int64_t usual, std::string origin) {
  if (options.classes) return {*options.classes, fmt::format(" (--classes {})", *options.classes)};
  return {usual, std::move(origin)};
}

void LabelRule::require(const std::filesystem::path& path, std::int64_t label, std::int64_t number,
                        const char* what) const {
  if (label < 0 || label >= classes)
    throw ConfigError{fmt::format("{}: {} {} (counted from 0) is {}; expected 0 to {}{}", path.string(), what, number,
                                  label, classes - 1, origin)};
}

}  // namespace lockstep
