#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/checkpoint/checkpoint.hpp>

#include "checkpoint/file.hpp"
#include "checkpoint/safetensors.hpp"

namespace lockstep {
namespace {

using safetensors::Entry;

bool is_sync_on_read(const Variable& variable) {
  return variable.state().synchronization == VariableSynchronization::on_read;
}

/// All of them, in the order of their creation. ContextError if one has no memory yet.
std::vector<Variable> variables_of(Strategy& strategy) {
  std::vector<Variable> variables;
  for (const auto& state : strategy.store().variables()) {
    variables.push_back(MirroredVariable{state});
    (void)variables.back().local();
  }
  return variables;
}

std::vector<Variable> sync_on_read_among(const std::vector<Variable>& variables) {
  std::vector<Variable> found;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(found), is_sync_on_read);
  return found;
}

/// COLL. `work` on the chief, for which the others wait; if it fails there, it fails on all.
template <class Work>
void on_chief(Strategy& strategy, TagKind kind, const Here& here, Work&& work) {
  constexpr std::string_view done = "the chief is done";
  if (!strategy.extended().should_checkpoint()) return strategy.agree(kind, here, done);
  MeetingPoint& meeting = strategy.group().meeting();
  const auto alone = meeting.working_alone();
  try {
    work();
  } catch (...) {
    meeting.fail(std::current_exception());
  }
  strategy.agree(kind, here, done);
}

/// "'a', 'b' and 3 more".
std::string listed(const std::vector<std::string_view>& names) {
  constexpr std::size_t most = 5;
  const std::size_t shown = std::min(names.size(), most);
  std::string text = fmt::format("'{}'", fmt::join(names.begin(), names.begin() + static_cast<long>(shown), "', '"));
  return shown == names.size() ? text : text + fmt::format(" and {} more", names.size() - shown);
}

std::string describe(const Variable& variable) {
  return fmt::format("{} ({})", variable.label(), describe(variable.local()));
}

/// What a file is made of, and what is wanted of one: the variables by name.
class Checkpoint {
 public:
  /// CheckpointError where two variables have one name.
  Checkpoint(const Strategy& strategy, std::span<const Variable> variables, const std::filesystem::path& path)
      : strategy_{strategy}, variables_{variables}, path_{path} {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto [first, is_new] = by_name_.emplace(variables[i].name(), i);
      if (!is_new)
        fail(fmt::format("{} and {} of {} have one name; expected a name of its own for each variable",
                         describe(variables[first->second]), describe(variables[i]), strategy.name()));
    }
  }

  /// `combined` are the values of the sync-on-read variables, in order.
  void write(std::span<const Tensor> combined) const {
    std::vector<Entry> entries;
    std::map<std::string_view, TensorView> values;
    for (const Variable& variable : variables_) {
      entries.push_back({std::string{variable.name()}, variable.dtype(), variable.shape()});
      values[variable.name()] = is_sync_on_read(variable) ? combined.front().view() : variable.local();
      if (is_sync_on_read(variable)) combined = combined.subspan(1);
    }
    safetensors::lay_out(entries);
    const std::string header = safetensors::header_of(entries, path_.string());
    NewFile file{path_};
    file.write(std::as_bytes(std::span{header}));
    for (const Entry& entry : entries) {
      const Tensor value = Tensor::on_host(values.at(entry.name));
      file.write({value.view().data(), value.view().bytes()});
    }
    file.commit();
  }

  /// On the host, in the order of the variables.
  std::vector<Tensor> read() const {
    const ExistingFile file{path_};
    const auto [entries, data] = read_entries(file);
    require_all(entries);
    std::vector<Tensor> values(variables_.size());
    for (const Entry& entry : entries) {
      Tensor value = Tensor::zeros(entry.dtype, entry.shape);
      file.read(data + entry.begin, {value.view().data(), value.view().bytes()});
      values[by_name_.find(entry.name)->second] = std::move(value);
    }
    return values;
  }

 private:
  struct Entries {
    std::vector<Entry> entries;
    std::uint64_t data;  ///< where that begins in the file
  };
  Entries read_entries(const ExistingFile& file) const {
    std::array<std::byte, safetensors::length_bytes> first;
    if (file.size() < first.size())
      fail(fmt::format("has {} bytes; expected a file in the safetensors format", file.size()));
    file.read(0, first);
    const std::uint64_t length = safetensors::header_length(first), behind = file.size() - first.size();
    if (length > behind)
      fail(fmt::format(
          "begins with a header of {} bytes, and has {} more; expected a whole file in the safetensors format", length,
          behind));
    std::string header(length, '\0');
    file.read(first.size(), std::as_writable_bytes(std::span{header}));
    return {safetensors::parse_header(header, behind - length, path_.string()), first.size() + length};
  }

  /// One entry for each variable, of its type and shape, and no other.
  void require_all(std::span<const Entry> entries) const {
    std::vector<std::string_view> missing, unknown;
    std::map<std::string_view, const Entry*> entry_of;
    for (const Entry& entry : entries) {
      entry_of[entry.name] = &entry;
      if (!by_name_.contains(entry.name)) unknown.push_back(entry.name);
    }
    for (const Variable& variable : variables_)
      if (!entry_of.contains(variable.name())) missing.push_back(variable.name());
    std::vector<std::string> wrong;
    if (!missing.empty()) wrong.push_back("has no entry " + listed(missing));
    if (!unknown.empty()) wrong.push_back("has the entry " + listed(unknown));
    if (!wrong.empty())
      fail(fmt::format("{}; expected one for each variable of {}, and no other", fmt::join(wrong, ", and "),
                       strategy_.name()));
    for (const Variable& variable : variables_)
      if (const Entry& entry = *entry_of[variable.name()];
          entry.dtype != variable.dtype() || entry.shape != variable.shape())
        fail(fmt::format("entry '{}' is {}; expected {}", entry.name, safetensors::describe(entry),
                         describe(variable.local())));
  }

  [[noreturn]] void fail(std::string_view what) const { fail_checkpoint(path_.string(), what); }

  const Strategy& strategy_;
  std::span<const Variable> variables_;
  const std::filesystem::path& path_;
  std::map<std::string_view, std::size_t> by_name_;
};

}  // namespace

void save_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = strategy.scope();
  const std::vector<Variable> variables = variables_of(strategy);
  strategy.agree(TagKind::save, here, path.string());
  const std::vector<Tensor> combined = strategy.extended().read_vars(sync_on_read_among(variables), here);
  on_chief(strategy, TagKind::save, here, [&] { Checkpoint{strategy, variables, path}.write(combined); });
}

void restore_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = strategy.scope();
  const std::vector<Variable> variables = variables_of(strategy);
  strategy.agree(TagKind::restore, here, path.string());

  const std::vector<Variable> sync_on_read = sync_on_read_among(variables);
  std::vector<Tensor> combined;
  for (const Variable& variable : sync_on_read) combined.push_back(Tensor::zeros(variable.dtype(), variable.shape()));
  on_chief(strategy, TagKind::restore, here, [&] {
    const std::vector<Tensor> values = Checkpoint{strategy, variables, path}.read();
    auto next = combined.begin();
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (is_sync_on_read(variables[i])) {
        *next++ = values[i];
      } else {
        copy(values[i].view(), variables[i].local(), strategy.stream());
      }
    }
  });
  strategy.rebroadcast(here);
  if (combined.empty()) return;
  combined = strategy.extended().broadcast_to(PerReplica{combined}, here).value();
  for (std::size_t i = 0; i < sync_on_read.size(); ++i) sync_on_read[i].assign(combined[i], here);
}

}  // namespace lockstep
