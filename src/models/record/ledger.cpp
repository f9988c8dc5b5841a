#include "models/record/ledger.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/strategy/variable.hpp>

#include "core/base/digest.hpp"
#include "core/base/file_io.hpp"
#include "core/base/own_file.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

constexpr std::string_view chain_key = ",\"chain\":\"";
constexpr std::size_t hex_digits = 16;
constexpr int newest_format = 2;
constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
// Far more than the digests of a step take.
constexpr std::size_t longest_entry = std::size_t{64} << 20;
// Of the two files.
constexpr std::string_view head_begin = R"({"kind":"ledger",)", values_begin = R"({"step":0,"values":[)";
constexpr const char* expected = "another folder, or none of that name";

std::string name_of(std::string_view name, const std::filesystem::path& path) {
  return fmt::format("{} {}", name, path.string());
}

std::uint64_t digest_in(std::string_view hex) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (hex.size() != hex_digits || error != std::errc{} || end != hex.data() + hex.size())
    throw Error{fmt::format("has the digest '{}'", hex.substr(0, 2 * hex_digits))};
  return value;
}

std::uint64_t digest_of_values(std::span<const std::uint64_t> values) {
  return digest_of(std::as_bytes(values));
}

const OrderedJson& member(const OrderedJson& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end()) throw Error{fmt::format("has no \"{}\"", key)};
  return *found;
}

std::string text_in(const OrderedJson& line, const char* key) {
  const OrderedJson& value = member(line, key);
  if (!value.is_string()) throw Error{fmt::format("has \"{}\": {}", key, shown(value))};
  return value.get<std::string>();
}

std::int64_t step_in(const OrderedJson& line) {
  const OrderedJson& value = member(line, "step");
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    throw Error{fmt::format("has \"step\": {}", shown(value))};
  return value.get<std::int64_t>();
}

OrderedJson object_in(std::string_view line) {
  OrderedJson object = parse_foreign_json(line);
  if (!object.is_object()) throw Error{"is no JSON object"};
  return object;
}

/// The chain of a line that begins with `text` and follows one of the chain `before`.
std::string chain_after(std::string_view before, std::string_view text) {
  return to_hex(Digest{}.update(before).update(text).value());
}

/// Calls `use` for each line. CheckpointError that begins with the path and the line's number if it throws.
void for_each_line(const std::filesystem::path& path, const std::function<void(std::string_view line)>& use) {
  LineReader lines{open_to_read(path, path.string()), path.string(), longest_entry};
  // What is left of a line that was cut off is none.
  for (auto line = lines.next(); line && line->is_whole; line = lines.next()) {
    try {
      with_memory(path.string(), [&] { use(line->text); });
    } catch (const FileError&) {
      throw;
    } catch (const Error& fault) {
      throw CheckpointError{fmt::format("{}:{}: {}", path.string(), line->number, fault.what())};
    }
  }
}

/// Reads line after line of a ledger.
class Reader {
 public:
  /// Returns whether the line is about the first `until` steps.
  bool take(std::string_view text, std::int64_t until) {
    const auto chain_begin = text.rfind(chain_key);
    if (chain_begin == text.npos) throw Error{"has no \"chain\""};
    OrderedJson line = object_in(text);
    const std::string chain = chain_after(chain_, text.substr(0, chain_begin));
    if (text_in(line, "chain") != chain) throw Error{"is not as it was written, or the line before it is not"};
    if (ledger.is_complete) throw Error{"comes after the end"};
    if (line.contains("kind")) {
      take_head(std::move(line));
    } else if (line.contains("end")) {
      check_end(line);
      if (until != all) return false;
      ledger.is_complete = true;
    } else {
      if (!has_head_) throw Error{"is no head of a ledger"};
      const Ledger::Entry entry = entry_in(line);
      if (entry.step > until) return false;
      if (!ledger.entries.empty() && place_of(entry) <= place_of(ledger.entries.back()))
        throw Error{fmt::format("is of step {}, after step {}", entry.step, ledger.entries.back().step)};
      ledger.entries.push_back(entry);
    }
    chain_ = chain;
    return true;
  }

  bool has_head() const { return has_head_; }
  const std::string& chain() const { return chain_; }

  Ledger ledger;

 private:
  void take_head(OrderedJson line) {
    if (text_in(line, "kind") != "ledger") throw Error{fmt::format("has \"kind\": {}", shown(line["kind"]))};
    if (member(line, "format") != newest_format)
      throw Error{fmt::format("has format {}; expected {}", shown(line["format"]), newest_format)};
    ledger.about = member(line, "about");
    ledger.about_from = ledger.entries.empty() ? 0 : ledger.entries.back().step;
    has_head_ = true;
  }

  void check_end(const OrderedJson& line) const {
    if (line["end"] != true) throw Error{fmt::format("has \"end\": {}; expected true", shown(line["end"]))};
    const std::int64_t last = ledger.entries.empty() ? 0 : ledger.entries.back().step;
    if (const std::int64_t step = step_in(line); step < last)
      throw Error{fmt::format("is the end after step {}, and comes after step {}", step, last)};
  }

  static std::pair<std::int64_t, bool> place_of(const Ledger::Entry& entry) {
    return {entry.step, entry.weights.has_value()};
  }

  static Ledger::Entry entry_in(const OrderedJson& line) {
    Ledger::Entry entry{.step = step_in(line)};
    if (line.contains("weights")) {
      entry.weights = digest_in(text_in(line, "weights"));
      return entry;
    }
    entry.samples = digest_in(text_in(line, "samples"));
    entry.shards = digest_in(text_in(line, "shards"));
    const OrderedJson& loss = member(line, "loss");
    if (!loss.is_number() && !loss.is_null()) throw Error{fmt::format("has \"loss\": {}", shown(loss))};
    if (!loss.is_null()) entry.loss = loss.get<double>();
    return entry;
  }

  std::string chain_;
  bool has_head_ = false;
};

std::vector<std::uint64_t> digests_in(const OrderedJson& line, std::size_t values) {
  std::vector<std::uint64_t> digests;
  for (const OrderedJson& each : member(line, "shards")) {
    if (!each.is_string()) throw Error{"has a shard that is no text"};
    const auto text = each.get<std::string>();
    if (text.size() != values * hex_digits)
      throw Error{fmt::format("has a shard of {} digits; expected {}", text.size(), values * hex_digits)};
    for (std::size_t at = 0; at < text.size(); at += hex_digits)
      digests.push_back(digest_in(std::string_view{text}.substr(at, hex_digits)));
  }
  return digests;
}

/// How many bytes of a file are whole lines that `take`, called for each of them, keeps: up to the first for which it
/// returns false or throws an Error. 0 if there is no file.
std::uint64_t bytes_kept(const std::filesystem::path& path, const std::string& name,
                         const std::function<bool(std::string_view line)>& take) {
  std::uint64_t bytes = 0;
  std::optional<Descriptor> file = find_to_read(path, name);
  if (!file) return bytes;
  LineReader lines{*std::move(file), name, longest_entry};
  for (auto line = lines.next(); line && line->is_whole; line = lines.next()) {
    try {
      if (!with_memory(name, [&] { return take(line->text); })) break;
    } catch (const FileError&) {
      throw;
    } catch (const Error&) {
      break;
    }
    bytes += line->text.size() + 1;
  }
  return bytes;
}

}  // namespace

Ledger Ledger::read(const std::filesystem::path& path) {
  Reader reader;
  for_each_line(path, [&](std::string_view line) { (void)reader.take(line, all); });
  if (!reader.has_head()) throw ConfigError{fmt::format("{}: is empty; expected a ledger", path.string())};
  reader.ledger.chain = reader.chain();
  return std::move(reader.ledger);
}

Ledger::Entry Ledger::entry_of(const Observer::Digests& digests) {
  std::vector<std::uint64_t> samples;
  for (std::size_t at = 0; at < digests.of_shards.size(); at += digests.values.size())
    samples.push_back(digests.of_shards[at]);
  return {.step = digests.step,
          .samples = digest_of_values(samples),
          .shards = digest_of_values(digests.of_shards),
          .loss = std::isfinite(digests.loss) ? std::optional{digests.loss} : std::nullopt};
}

std::vector<std::uint64_t> Ledger::shards_of(const std::filesystem::path& shards_path, const Entry& entry,
                                             std::size_t values) {
  std::optional<std::vector<std::uint64_t>> found;
  for_each_line(shards_path, [&](std::string_view text) {
    if (found) return;
    const OrderedJson line = object_in(text);
    if (step_in(line) != entry.step) return;
    found = digests_in(line, values);
    if (digest_of_values(*found) != entry.shards)
      throw Error{fmt::format("has other digests for step {} than the ledger", entry.step)};
  });
  if (!found) throw CheckpointError{fmt::format("{}: has no line for step {}", shards_path.string(), entry.step)};
  return *std::move(found);
}

std::vector<std::string> Ledger::values_in(const std::filesystem::path& shards_path) {
  std::vector<std::string> values;
  for_each_line(shards_path, [&](std::string_view text) {
    if (!values.empty()) return;
    const OrderedJson line = object_in(text);
    for (const OrderedJson& each : member(line, "values")) {
      if (!each.is_string()) throw Error{fmt::format("has \"values\": {}", shown(line["values"]))};
      values.push_back(each.get<std::string>());
    }
  });
  if (values.empty()) throw CheckpointError{fmt::format("{}: is empty", shards_path.string())};
  return values;
}

std::uint64_t digest_of_weights(VariableStore& store) {
  const auto counts = [](const detail::VariableState& state) {
    return state.synchronization == Variable::Synchronization::on_write ||
           state.aggregation == Variable::Aggregation::mean;
  };
  std::vector<Variable> weights;
  for (const auto& state : inside(store).variables())
    if (state->segment && counts(*state)) weights.push_back(handle_of<MirroredVariable>(state));
  return weights_digest(weights);
}

LedgerFile::Kept LedgerFile::find(const Paths& paths, std::int64_t steps, std::string_view name) {
  const std::string ledger = name_of(name, paths.ledger), shards = name_of(name, paths.shards);
  require_own(paths.ledger, {head_begin}, ledger, expected);
  require_own(paths.shards, {values_begin}, shards, expected);
  if (steps == 0) return {};
  Reader reader;
  Kept kept;
  kept.bytes = bytes_kept(paths.ledger, ledger, [&](std::string_view line) { return reader.take(line, steps); });
  kept.bytes_of_shards =
      bytes_kept(paths.shards, shards, [&](std::string_view line) { return step_in(object_in(line)) <= steps; });
  if (reader.has_head()) kept.about = std::move(reader.ledger.about);
  kept.chain = reader.chain();
  if (!reader.ledger.entries.empty()) kept.last = reader.ledger.entries.back();
  return kept;
}

LedgerFile::LedgerFile(const Paths& paths, Kept kept, OrderedJson about, const std::string& name)
    : about_(std::move(about)),
      ledger_{paths.ledger, name_of(name, paths.ledger)},
      shards_{paths.shards, name_of(name, paths.shards)},
      has_head_{kept.about && *kept.about == about_},
      has_values_{kept.bytes_of_shards > 0},
      chain_{std::move(kept.chain)},
      last_{std::move(kept.last)} {
  // First what refers to the other.
  ledger_.cut(kept.bytes);
  shards_.cut(kept.bytes_of_shards);
}

bool LedgerFile::has_weights_of(std::int64_t step) const {
  return last_ && last_->weights && last_->step == step;
}

void LedgerFile::add(const Observer::Digests& digests) {
  if (!has_values_) {
    shards_.write(OrderedJson{{"step", 0}, {"values", digests.values}}.dump() + '\n');
    has_values_ = true;
  }
  OrderedJson shards = OrderedJson::array();
  for (std::size_t at = 0; at < digests.of_shards.size(); at += digests.values.size()) {
    std::string text;
    for (const std::uint64_t digest : digests.of_shards.subspan(at, digests.values.size())) text += to_hex(digest);
    shards.push_back(std::move(text));
  }
  // First what the ledger refers to.
  shards_.write(OrderedJson{{"step", digests.step}, {"shards", std::move(shards)}}.dump() + '\n');
  last_ = Ledger::entry_of(digests);
  add_entry({{"step", last_->step},
             {"samples", to_hex(last_->samples)},
             {"shards", to_hex(last_->shards)},
             {"loss", last_->loss ? OrderedJson(*last_->loss) : OrderedJson(nullptr)}});
}

void LedgerFile::add_weights(std::int64_t step, std::uint64_t digest) {
  if (has_weights_of(step)) return;
  last_ = Ledger::Entry{.step = step, .weights = digest};
  add_entry({{"step", step}, {"weights", to_hex(digest)}});
}

void LedgerFile::end(std::int64_t step) {
  add_entry({{"step", step}, {"end", true}});
}

void LedgerFile::add_entry(OrderedJson line) {
  if (!has_head_) add_line({{"kind", "ledger"}, {"format", newest_format}, {"about", about_}});
  has_head_ = true;
  add_line(line);
}

void LedgerFile::add_line(const OrderedJson& line) {
  std::string text = line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  text.pop_back();  // the brace
  chain_ = chain_after(chain_, text);
  ledger_.write(fmt::format("{}{}{}\"}}\n", text, chain_key, chain_));
}

void LedgerFile::require_in_place() const {
  ledger_.require_in_place();
  shards_.require_in_place();
}

}  // namespace lockstep
