// The ledger of a run: what its steps came from and yielded, in a form that others can check.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/models/fit/observer.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/foreign_json.hpp"
#include "models/record/kept_file.hpp"

namespace lockstep {

/// Two files of JSON objects, one per line:
///   ledger.jsonl        {"kind":"ledger","format":2,"about":{…},"chain"}
///                       {"step","samples":DIGEST,"shards":DIGEST,"loss","chain"}
///                       {"step","weights":DIGEST,"chain"} for each checkpoint, and of step 0 for weights from a file
///                       {"step","end":true,"chain"} if the run is complete: the last line
///   ledger.shards.jsonl {"step":0,"values":[NAME,…]}
///                       {"step","shards":[DIGESTS,…]}
/// DIGEST is 16 hexadecimal digits, and DIGESTS are those of all values of a shard. "samples" is the digest of the
/// samples' digests of all shards, "shards" that of all digests. "chain" is the digest of the "chain" of the line
/// before and of its own line up to there, so no line can be changed, added or taken out without all that follow.
/// Digests are xxHash64, those of gradients XXH3: they find accidents and edits, but are no signature.
///
/// Nothing in it depends on ranks or times.
struct Ledger {
  struct Entry {
    std::int64_t step = 0;
    // Of a recorded step.
    std::uint64_t samples = 0, shards = 0;
    std::optional<double> loss = {};            ///< empty if it was no finite number
    std::optional<std::uint64_t> weights = {};  ///< if it is an entry about weights

    bool operator==(const Entry&) const = default;
  };

  OrderedJson about;            ///< the last that it says
  std::int64_t about_from = 0;  ///< the steps before are of another training, with which this one went on
  std::vector<Entry> entries;   ///< ascending; that about weights after that of its step
  bool is_complete = false;     ///< nothing was cut off at its end
  std::string chain;            ///< of the last line

  /// CheckpointError, which names the file and the line, for a ledger that cannot be read, or of which a line is not as
  /// it was written; ConfigError for one without a line. What is left of a line that was cut off at the end is ignored.
  static Ledger read(const std::filesystem::path& path);

  /// The digests of the shards of `step`, as in Observer::Digests. CheckpointError if the file of shards does not have
  /// them, or has others than the ledger.
  static std::vector<std::uint64_t> shards_of(const std::filesystem::path& shards_path, const Entry& entry,
                                              std::size_t values);

  /// What the digests of a shard are of, as the file of shards says. CheckpointError if it does not.
  static std::vector<std::string> values_in(const std::filesystem::path& shards_path);

  /// What the ledger says of a step.
  static Entry entry_of(const Observer::Digests& digests);
};

/// LOCAL. Of all mirrored variables and of all that are averaged when they are read, such as moving averages, in order
/// of creation. Of the latter, this rank's components: `fit` keeps them the same on every rank.
std::uint64_t digest_of_weights(VariableStore& store);

/// Adds lines. One at a time, under the lock of the run's folder. Failures are a CheckpointError that begins with
/// `name` and the file's path.
class LedgerFile {
 public:
  struct Paths {
    std::filesystem::path ledger, shards;
  };

  /// What there is to keep.
  struct Kept {
    std::uint64_t bytes = 0, bytes_of_shards = 0;
    std::optional<OrderedJson> about = {};  ///< of the last head
    std::string chain = {};                 ///< of the last line
    std::optional<Ledger::Entry> last = {};
  };

  /// Reads what is there about the first `steps` steps, up to a line that is damaged and but for the end, in memory for
  /// a line. ConfigError for a file of something else.
  static Kept find(const Paths& paths, std::int64_t steps, std::string_view name);

  /// Keeps that, and cuts off the rest. Whoever is killed meanwhile leaves files that can be kept so again. `about`
  /// goes into the head.
  LedgerFile(const Paths& paths, Kept kept, OrderedJson about, const std::string& name);
  LedgerFile(const Paths& paths, std::int64_t steps, OrderedJson about, const std::string& name)
      : LedgerFile{paths, find(paths, steps, name), std::move(about), name} {}

  void add(const Observer::Digests& digests);
  void add_weights(std::int64_t step, std::uint64_t digest);

  /// Nothing may follow.
  void end(std::int64_t step);

  /// Whether the last entry is about the checkpoint of `step`.
  bool has_weights_of(std::int64_t step) const;

  /// CheckpointError if one of the files is no longer where it was.
  void require_in_place() const;

 private:
  void add_entry(OrderedJson line);
  void add_line(const OrderedJson& line);

  OrderedJson about_;
  KeptFile ledger_, shards_;
  bool has_head_ = false;    ///< with this `about_`
  bool has_values_ = false;  ///< in the file of shards
  std::string chain_;        ///< of the last line
  std::optional<Ledger::Entry> last_;
};

}  // namespace lockstep
