// The tag of an agreement: what a rank is about to do, in a form that other ranks can compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>

namespace lockstep {

namespace detail {

// In `detail`, because public headers declare it.
enum class TagKind : std::uint8_t {
  start,      ///< starting the job; `text` is compared
  create,     ///< creating a variable, or a strategy
  seal,       ///< laying out variables, or broadcasting them again
  compare,    ///< same_on_all
  input,      ///< the next input, or making an iterator over inputs
  steps,      ///< a loop of steps; `text` holds their number
  attest,     ///< comparing what all replicas hold; `text` lists it
  save,       ///< writing a checkpoint
  restore,    ///< reading a checkpoint
  reduce,     ///< a reduction or a read in cross-replica context
  merge,      ///< merge_call, with its operands or its reduction
  close,      ///< the end of a run
  error,      ///< this rank failed; `text` is the message
  leave,      ///< the end of the job; `text` says how, if the process ends by itself
  broadcast,  ///< a broadcast of tensors, or of an object
  chief,      ///< the end of what the chief does alone in a call of all
  group,      ///< making a group of some of the ranks; `text` lists them
  agree,      ///< that all ranks are at this place; `text` is the program's label
  request,    ///< what a group was asked for, and does while the program goes on
  sum,        ///< no agreement: a sum that an earlier one covers, numbered by `count`
  open_sum,   ///< no agreement: the sum of an all_reduce_async
};

}  // namespace detail

using detail::TagKind;
inline constexpr std::size_t tag_kinds = static_cast<std::size_t>(TagKind::open_sum) + 1;

/// Where in the training, or in another program, a rank is, as its user counts.
struct Position {
  static constexpr std::size_t site_capacity = 48;
  enum class Where : std::uint8_t {
    before_runs,
    in_run,
    after_run,
    in_phase,  ///< of a program that has no runs
  };

  Where where = Where::before_runs;
  detail::RunKind kind = detail::RunKind::step;  ///< of the latest outermost run
  std::uint8_t unused[6] = {};                   ///< it consists of whole words
  std::uint64_t step = 0;                        ///< of the latest outermost run, from 1
  std::uint64_t since = 0;                       ///< the number of agreements before this position
  std::uint64_t group = 0;                       ///< the key of the group whose agreements these are; 0 for all ranks
  char site[site_capacity] = {};                 ///< of the latest outermost run, as in a Tag; empty if unknown. Of
                                                 ///< a phase: the name that the program gives it, or empty
};

/// What sentences say of a tag. Of whole words, without padding, as a Position is.
struct TagName {
  TagKind kind = TagKind::start;
  std::uint8_t unused[3] = {};
  std::uint32_t count = 0;                  ///< as in Tag
  char site[Position::site_capacity] = {};  ///< as in Tag

  std::string_view site_text() const;
};

/// A tag as it travels when ranks disagree: of fixed size, without pointers, and with the same bytes on every rank.
struct Tag {
  static constexpr std::size_t site_capacity = Position::site_capacity;
  static constexpr std::size_t text_capacity = 144;

  /// What the place of a call in the program is for.
  enum class Site : std::uint8_t {
    compared,  ///< ranks agree only at the same one
    told,      ///< for messages alone
  };

  // For sentences only, and left out of the digest: a rank that missed a run, and knows it, agrees with the others.
  std::uint64_t step = 0;   ///< as in Position
  std::uint32_t count = 0;  ///< agreements of this kind so far: in this outermost run, or outside of all runs
  detail::RunKind run_kind = detail::RunKind::step;
  Position::Where where = Position::Where::before_runs;
  TagKind after = TagKind::error;     ///< of an error: the kind of the agreement before it, with `count` and `site`
  Site use_of_site = Site::compared;  ///< of an error, whose place is compared in any case: whether messages tell it

  // What ranks compare.
  TagKind kind = TagKind::start;
  std::uint8_t depth = 0;                         ///< how many runs deep
  std::uint16_t strategy = 0;                     ///< which of the group's strategies
  Error::ExitCode cause = Error::ExitCode::done;  ///< for an error: the exit code of the failing rank's exception, or
                                                  ///< of the process that ends by itself
  std::uint64_t run = 0;                          ///< outermost runs so far
  std::uint64_t sequence = 0;                     ///< agreements since the outermost run began
  std::uint64_t text_digest = 0;
  std::uint64_t text_size = 0;
  std::uint64_t compared = 0;     ///< digest of what this rank holds; 0 if nothing is compared
  char site[site_capacity] = {};  ///< see `use_of_site`
  char text[text_capacity] = {};

  /// Stores `here` as "trainer.cpp:120": text, because addresses differ between processes. A long file name is cut at
  /// its end. An unknown place is empty, as in `site_of`.
  void set_site(const Here& here);

  /// Keeps what fits, with control characters as spaces, and the digest of the whole original.
  void set_text(std::string_view full);

  std::string_view kept_text() const;
  std::string_view site_text() const;
  operator TagName() const;

  /// Equal tags have equal digests on every rank. Always even: the lowest bit is free for what travels with it.
  std::uint64_t digest() const;

  /// A digest of where the rank is in the program, and of whether it compares something, but not of what.
  std::uint64_t place() const;
};
static_assert(sizeof(Tag) == 256);

/// "merge_call #5 (trainer.cpp:120)", "the end of the step", …
std::string describe(const TagName& tag);

/// " (trainer.cpp:120)", as it follows what happened there; empty without a site.
std::string bracketed(std::string_view site);

/// Whether the program makes this agreement by a call, whose place the tag names.
bool is_call(TagKind kind);

/// "step 5", "the evaluation after step 5".
std::string name_of_run(detail::RunKind kind, std::uint64_t step);

/// "in step 5", "after step 5", "before the first step"; empty in a phase.
std::string describe(Position::Where where, detail::RunKind kind, std::uint64_t step);

/// Where a rank announced the failure `tag`: "in step 5, computing after merge_call #1 (trainer.cpp:120)".
std::string place_of_failure(const Tag& tag);

/// Stores the beginning of `text` in `kept`, with control characters as spaces and zeros after it.
void keep_text(std::string_view text, std::span<char> kept);

/// `text` on one line: control characters become spaces, and bytes that are no UTF-8 as `printable` has them.
std::string one_line(std::string_view text);

}  // namespace lockstep
