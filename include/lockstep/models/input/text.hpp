// Text as samples for a language model: files of any bytes, or of the tokens that a tokenizer made of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include <lockstep/core/base/export.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/input/schema.hpp>

namespace lockstep {

/// Texts, cut into windows of `context` tokens. Sample i holds the tokens i * context to i * context + context - 1, and
/// its label at each position is the token after it. So every token but the first is a label exactly once, except for a
/// remainder that fills no window.
struct LOCKSTEP_API TextData {
  /// How `load` reads files.
  struct Options {
    std::int64_t context = 128;
    /// For files of tokens: every token is below this number, which is at most 65536. If empty, the tokens are the
    /// bytes of texts.
    std::optional<std::int64_t> vocabulary = {};
    /// Accepts files of any bytes, not only texts. A schema of the kind "bytes" sets it.
    bool binary = false;
    /// Texts are kept in memory, one after the other, as long as they fit into this many bytes. The others stay on
    /// disk, and samples are read when a batch is filled; such files must not be packed.
    std::uint64_t memory_bytes = std::uint64_t{1} << 30;
    /// What a model was trained on. If set, data must match it, and it decides the vocabulary.
    std::optional<DataSchema> schema = {};
  };

  /// Reads a file, or the files of a folder in the order of their names as if they were one. Ignores files whose
  /// names begin with a dot. If some names have the word "val", "valid", "validation" or "test" in them (as in
  /// "shakespeare_val_000.bin"), those files are `test` and the others `train`. Otherwise, the last tenth of all
  /// tokens, rounded down, is `test`, and the rest is `train`.
  ///
  /// Without a vocabulary, files hold text in UTF-8 or a single-byte encoding, plain or packed (gzip); packed content
  /// is recognised by its first bytes, not by its name. With one, they hold 16-bit tokens as llm.c writes them: a
  /// header of 256 little-endian 32-bit integers, 20240520, 1 and the number of tokens, then the tokens. Such files
  /// stay on disk, whatever their size. All tokens are read once, for the digest.
  ///
  /// A one-line ConfigError, which names the file, if it is missing, cannot be read or unpacked, is of the other kind,
  /// has a token outside of the vocabulary, if a part is too short for a sample, or if the data do not match the
  /// schema. The same for a file that is not text, unless `binary` is set: a known kind of file, such as an archive, an
  /// image or HDF5, or one with a zero byte, as UTF-16 has. What stays on disk must not change while the result lives:
  /// if it does, SampleSource::require_unchanged throws a ConfigError, and so does reading its tokens if it has become
  /// shorter or has new tokens outside of the vocabulary. InvalidArgument unless `context` is positive.
  static TextData load(const std::filesystem::path& path, const Options& options);

  std::unique_ptr<const SampleSource> train;
  std::unique_ptr<const SampleSource> test;
  /// A digest of the tokens and how they are cut. It is equal on ranks that loaded the same data, however it is packed
  /// or spread over files.
  std::uint64_t digest = 0;
  DataSchema schema = {};
};

}  // namespace lockstep
