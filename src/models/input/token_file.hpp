// Files of 16-bit tokens, as llm.c writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "models/input/stored_file.hpp"
#include "models/input/tokens.hpp"

namespace lockstep {

/// Whether `first`, the first bytes of a file, begin a file of tokens. Four bytes tell.
bool begins_token_file(std::span<const std::uint8_t> first);

/// The tokens of a file, which stay there: they are checked whenever they are read. ConfigError, which names the file,
/// if it cannot be read, is no such file, or is not as long as its header says; and from a read of a token that is not
/// below `vocabulary`.
struct TokenFile {
  std::shared_ptr<const StoredFile> file;
  std::shared_ptr<const TokenSequence> tokens;
};
TokenFile open_token_file(const std::filesystem::path& path, std::int64_t vocabulary);

/// The same of `file`, whose header has been read.
std::shared_ptr<const TokenSequence> tokens_in_file(std::shared_ptr<const StoredFile> file, std::int64_t count,
                                                    std::int64_t vocabulary);

}  // namespace lockstep
