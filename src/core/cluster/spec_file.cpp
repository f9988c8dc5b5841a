// Reads the bytes of a cluster-spec file.
#include <cerrno>
#include <optional>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/cluster/cluster_spec.hpp"

namespace lockstep {

std::string read_cluster_spec(const std::filesystem::path& file) {
  constexpr std::size_t largest_bytes = std::size_t{16} << 20;
  const auto fail = [&](std::string_view what) -> ConfigError {
    return ConfigError{fmt::format("{}: {}; expected a cluster spec (a JSON file)", file.string(), what)};
  };

  std::optional<Descriptor> opened;
  std::string bytes;
  try {
    opened = find_to_read(file, file.string());
    if (opened) bytes = read_text(*opened, largest_bytes, file.string());
  } catch (const FileError& error) {
    if (error.code() == EFBIG) throw fail("is larger than 16 MiB");
    throw ConfigError{fmt::format("{}; expected a cluster spec (a JSON file)", error.what())};
  }
  if (!opened) throw fail("there is no such file");
  if (bytes.empty()) throw fail("the file is empty");
  return bytes;
}

}  // namespace lockstep
