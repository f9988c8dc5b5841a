// Files of 16-bit tokens, as llm.c writes them.
#pragma once

#include <cstdint>
#include <cstring>
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
  std::string content(header.size() * sizeof header[0] + tokens.size() * sizeof tokens[0], '\0');
  std::memcpy(content.data(), header.data(), header.size() * sizeof header[0]);
  std::memcpy(content.data() + header.size() * sizeof header[0], tokens.data(), tokens.size() * sizeof tokens[0]);
  return content;
}

}  // namespace lockstep::test
