// What a file is, by its first bytes: for messages to users who named the wrong one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// "an xz archive", if `first` begins a known archive or compressed file; empty otherwise. 512 bytes tell all kinds.
std::string_view archive_name(std::span<const std::uint8_t> first);

/// What to do with `file` instead of reading it as a folder of images: "; this is a text, which trains --model gpt".
/// Empty if its first bytes say nothing, or cannot be read.
std::string hint_for_file(const std::filesystem::path& file);

}  // namespace lockstep
