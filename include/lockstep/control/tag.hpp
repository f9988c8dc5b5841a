// The tag of an agreement: what a rank is about to do, in a form that other ranks can compare.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <lockstep/base/error.hpp>

namespace lockstep {

using Here = std::source_location;

enum class TagKind : std::uint8_t {
  start,    ///< starting the job; `text` is compared
  create,   ///< creating a variable, or a strategy
  seal,     ///< laying out variables, or broadcasting them again
  compare,  ///< same_on_all
  input,    ///< the next input, or making an iterator over inputs
  steps,    ///< a loop of steps; `text` holds their number
  attest,   ///< comparing what all replicas hold; `text` lists it
  save,     ///< writing a checkpoint
  restore,  ///< reading a checkpoint
  reduce,   ///< a reduction, a broadcast or a read in cross-replica context
  merge,    ///< merge_call, with its operands or its reduction
  close,    ///< the end of a run
  error,    ///< this rank failed; `text` is the message
  leave,    ///< the end of the job
};

/// A tag as it travels when ranks disagree: of fixed size, without pointers, and with the same bytes on every rank.
struct Tag {
  static constexpr std::size_t site_capacity = 48;
  static constexpr std::size_t text_capacity = 160;

  TagKind kind = TagKind::start;
  std::uint8_t depth = 0;           ///< how many runs deep
  std::uint16_t strategy = 0;       ///< which of the process's strategies
  ExitCode cause = ExitCode::done;  ///< for an error: the exit code of the failing rank's exception
  std::uint64_t run = 0;            ///< outermost runs so far
  std::uint64_t sequence = 0;       ///< agreements since the outermost run began
  std::uint64_t text_digest = 0;
  std::uint64_t text_size = 0;
  std::uint64_t compared = 0;  ///< digest of what this rank holds; 0 if nothing is compared
  char site[site_capacity] = {};
  char text[text_capacity] = {};

  /// Stores `here` as "trainer.cpp:120": text, because addresses differ between processes. A long file name is cut at
  /// its end.
  void set_site(const Here& here);

  /// Keeps what fits, with control characters as spaces, and the digest of the whole original.
  void set_text(std::string_view full);

  std::string_view site_text() const;
  std::string_view kept_text() const;

  /// Equal tags have equal digests on every rank. Always even: the lowest bit is free for what travels with it.
  std::uint64_t digest() const;

  /// A digest of where the rank is in the program: whether the tag compares something counts, what it compares does
  /// not.
  std::uint64_t place() const;
};
static_assert(sizeof(Tag) == 256);

/// "merge_call #5 (trainer.cpp:120)", "the end of the step", …
std::string describe(const Tag& tag);

/// `text` on one line: line breaks and control characters become spaces.
std::string one_line(std::string_view text);

}  // namespace lockstep
