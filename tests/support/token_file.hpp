// Files of 16-bit tokens, as llm.c writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::test {

/// The content of such a file. Its header may lie.
inline std::string token_file(const std::vector<std::uint16_t>& tokens, std::int32_t version = 1,
                              std::int32_t magic = 20240520) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  std::string content(reinterpret_cast<const char*>(header.data()), header.size() * sizeof header[0]);
  return content.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof tokens[0]);
}

}  // namespace lockstep::test
