// Reads the bytes of a cluster-spec file.
#include <cerrno>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/file_type.hpp"
#include "cluster/cluster_spec.hpp"

namespace lockstep {

std::string read_cluster_spec(const std::filesystem::path& file) {
  constexpr std::size_t largest_bytes = std::size_t{16} << 20;
  const auto fail = [&](std::string_view what) -> ConfigError {
    return ConfigError{fmt::format("{}: {}; expected a cluster spec (a JSON file)", file.string(), what)};
  };

  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::not_found) throw fail("there is no such file");
  if (error) throw fail("cannot be read: " + error.message());
  if (const std::string why = why_not_regular(file); !why.empty()) throw fail(why);

  errno = 0;
  std::ifstream in{file, std::ios::binary};
  if (!in) throw fail("cannot be read: " + std::generic_category().message(errno));

  // The file's size would not do: one in /proc has none. Reading a byte more than allowed detects one that is too
  // large.
  std::string bytes(largest_bytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.bad()) throw fail("cannot be read: " + std::generic_category().message(errno));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  if (bytes.size() > largest_bytes) throw fail("is larger than 16 MiB");
  if (bytes.empty()) throw fail("the file is empty");
  return bytes;
}

}  // namespace lockstep
