// What a rank is about to do, as the other ranks must see it: the tag of an agreement.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <lockstep/base/error.hpp>

namespace lockstep {

using Here = std::source_location;

enum class TagKind : std::uint8_t {
  start,    ///< starting the job; `text` is what is compared
  create,   ///< creating a variable, or a strategy
  seal,     ///< laying variables out, or broadcasting them again
  compare,  ///< same_on_all
  input,    ///< the next input, or making an iterator over some
  steps,    ///< a loop of steps, with their number
  attest,   ///< comparing what all replicas hold; `text` is the list of it
  save,     ///< writing a checkpoint
  restore,  ///< reading one
  reduce,   ///< a reduction, a broadcast or a read in cross-replica context
  merge,    ///< merge_call, with what its reduction covers
  close,    ///< the end of a run
  error,    ///< this rank failed; `text` is the message
  leave,    ///< the end of the job
};

/// A tag as it travels when ranks disagree: fixed size, no pointers, the same bytes for the same tag on every rank.
struct Tag {
  static constexpr std::size_t site_capacity = 48;
  static constexpr std::size_t text_capacity = 160;

  TagKind kind = TagKind::start;
  std::uint8_t depth = 0;           ///< how many runs this is nested in
  std::uint16_t strategy = 0;       ///< which of the process's strategies
  ExitCode cause = ExitCode::done;  ///< of an error: what the failing rank's exception stands for
  std::uint64_t run = 0;            ///< outermost runs so far
  std::uint64_t sequence = 0;       ///< agreements since the outermost run began
  std::uint64_t text_digest = 0;
  std::uint64_t text_size = 0;
  std::uint64_t compared = 0;  ///< digest of what this rank holds, where that is compared; else 0
  char site[site_capacity] = {};
  char text[text_capacity] = {};

  /// `here` becomes "trainer.cpp:120": text, because addresses differ between processes. Of a file name that
  /// is too long the beginning is kept.
  void set_site(const Here& here);

  /// Keeps what fits, with control characters as spaces, and the digest of all of it as it is.
  void set_text(std::string_view full);

  std::string_view site_text() const;
  std::string_view kept_text() const;

  /// Equal tags have equal digests on every rank. Even: the lowest bit is for what travels beside it.
  std::uint64_t digest() const;

  /// The same of all but what `compared` is, not of whether there is something: where in the program the rank is.
  std::uint64_t place() const;
};
static_assert(sizeof(Tag) == 256);

/// "merge_call #5 (trainer.cpp:120)", "the end of the step", …
std::string describe(const Tag& tag);

/// `text` with every line break and control character as a space: what is printed is one line.
std::string one_line(std::string_view text);

}  // namespace lockstep
