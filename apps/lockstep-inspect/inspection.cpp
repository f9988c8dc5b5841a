#include "apps/lockstep-inspect/inspection.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/element_count.hpp"
#include "core/base/excerpt.hpp"
#include "core/cluster/counted.hpp"
#include "core/tensor/digest.hpp"
#include "models/record/run_folder.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/checkpoint/tensor_file.hpp"

namespace lockstep {
namespace {

constexpr std::size_t longest_value = 80;

/// "name   value" with the values in a column.
void print_facts(std::string& text, const std::vector<Fact>& facts) {
  std::size_t width = 0;
  for (const auto& [name, value] : facts) width = widened(width, excerpt(name));
  for (const auto& [name, value] : facts)
    fmt::format_to(std::back_inserter(text), "  {:{}}  {}\n", excerpt(name), width,
                   value.size() <= longest_value
                       ? excerpt(value)
                       : fmt::format("{}… ({} bytes)", excerpt(value.substr(0, longest_value)), value.size()));
}

void print_manifest(std::string& text, const Manifest& manifest) {
  std::vector<Fact> facts = facts_of(manifest);
  facts.emplace_back("program", manifest.program);
  print_facts(text, facts);
}

/// What the manifest says of a file of tensors.
class Described {
 public:
  Described(const Manifest& manifest, const std::string& name) : metadata_{metadata_of(manifest, name)} {
    if (const Manifest::File* const file = manifest.file(name))
      digests_.insert(file->digests.begin(), file->digests.end());
  }

  bool has_metadata(const WeightsMetadata& metadata) const { return metadata == metadata_; }

  /// What is wrong with this digest of a tensor; nothing if it is right. The tensor is not missing then.
  std::string verdict_on(const std::string& tensor, std::uint64_t digest) {
    const auto given = digests_.extract(tensor);
    if (!given) return "  is not in the manifest";
    if (given.mapped() == digest) return {};
    return fmt::format("  has been altered: the manifest has {}", to_hex(given.mapped()));
  }

  /// The tensors on which there was no verdict.
  std::vector<std::string> missing() const {
    std::vector<std::string> names;
    for (const auto& [name, digest] : digests_) names.push_back(name);
    return names;
  }

 private:
  WeightsMetadata metadata_;
  std::map<std::string, std::uint64_t> digests_;
};

/// The tensors of a file, each with its digest. Adds to `altered` the names of what is not as `described` has it.
void print_tensors(std::string& text, const OpenTensorFile& file, std::optional<Described> described,
                   std::vector<std::string>& altered) {
  std::size_t names = 0, shapes = 0;
  std::int64_t elements = 0;
  for (const safetensors::Entry& entry : file.entries()) {
    names = widened(names, excerpt(entry.name));
    shapes = std::max(shapes, describe(entry).size());
    if (entry.foreign.empty()) elements += element_count(entry.shape);
  }
  fmt::format_to(std::back_inserter(text), "{}: {}, {} elements\n", file.path().filename().string(),
                 counted(std::ssize(file.entries()), "tensor"), elements);
  if (!described || !described->has_metadata(file.metadata())) print_facts(text, facts_of(file.metadata()));
  if (described && !described->has_metadata(file.metadata())) altered.push_back("metadata");
  for (const safetensors::Entry& entry : file.entries()) {
    const std::uint64_t digest = detail::digest_of_elements(file.read(entry).view());
    const std::string verdict = described ? described->verdict_on(entry.name, digest) : "";
    if (!verdict.empty()) altered.push_back(entry.name);
    fmt::format_to(std::back_inserter(text), "  {:{}}  {:{}}  {}{}\n", excerpt(entry.name), names, describe(entry),
                   shapes, to_hex(digest), verdict);
  }
  if (!described) return;
  for (const std::string& name : described->missing()) {
    fmt::format_to(std::back_inserter(text), "  {:{}}  is missing\n", excerpt(name), names);
    altered.push_back(name);
  }
}

Report inspect_contents(const Contents& contents) {
  Report report{contents.path.string() + "\n"};
  if (contents.manifest) print_manifest(report.text, *contents.manifest);
  std::vector<std::string> altered;
  for (const std::filesystem::path& path : contents.tensors) {
    std::optional<Described> described;
    if (contents.manifest) described.emplace(*contents.manifest, path.filename().string());
    print_tensors(report.text, OpenTensorFile{path}, std::move(described), altered);
  }
  if (altered.empty()) return report;
  std::vector<std::string_view> names{altered.begin(), altered.end()};
  report.trouble = fmt::format("{}: {} {} not what the manifest says", contents.path.string(), listed(names),
                               altered.size() == 1 ? "is" : "are");
  return report;
}

/// One line.
std::string summary_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
  for (const Manifest::File& file : manifest.files) {
    bytes += file.bytes;
    tensors += file.digests.size();
  }
  return fmt::format("complete  {}, {} bytes", counted(tensors, "tensor"), bytes);
}

/// The names of checkpoints that a training has left in the folder.
std::vector<std::string> set_aside_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry{folder, ignored}, end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (const auto dot = name.find(aside_suffix); dot != name.npos && step_in(name.substr(0, dot)))
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Report inspect_folder(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& checkpoints) {
  const auto name_at = [&](std::string_view link) { return checkpoint_at(folder / link).filename().string(); };
  const std::string latest = name_at(latest_link), best = name_at(best_link);
  Report report{fmt::format("{}: {}\n", folder.string(), counted(std::ssize(checkpoints), "checkpoint"))};
  std::size_t damaged = 0;
  std::string first;
  const auto summary_at = [](const std::filesystem::path& checkpoint) {
    const Contents contents = contents_of_checkpoint(checkpoint);
    if (const std::string trouble = inspect_contents(contents).trouble; !trouble.empty())
      throw CheckpointError{trouble};
    return summary_of(*contents.manifest);
  };
  for (const std::filesystem::path& checkpoint : checkpoints) {
    const std::string name = checkpoint.filename().string();
    std::string line;
    try {
      line = read_checkpoint_at(checkpoint, summary_at);
    } catch (const CheckpointError& error) {
      const bool is_there = !is_gone(checkpoint);
      line = is_there ? fmt::format("damaged   {}", error.what()) : "removed   while it was to be read";
      if (is_there && ++damaged == 1) first = name;
    }
    fmt::format_to(std::back_inserter(report.text), "  {:12}  {}{}{}\n", name, line, name == latest ? "  (latest)" : "",
                   name == best ? "  (best)" : "");
  }
  for (const std::string& name : set_aside_in(folder))
    fmt::format_to(std::back_inserter(report.text), "  {:12}  set aside\n", excerpt(name));
  if (damaged > 0)
    report.trouble = fmt::format("{}: {} of {} damaged, such as {}", folder.string(), damaged,
                                 counted(std::ssize(checkpoints), "checkpoint"), first);
  return report;
}

/// A file, or a checkpoint that `named` leads to. Damage that a reader beside a writer sees is told as an exception.
Report inspect_named(const std::filesystem::path& named, const std::filesystem::path& found) {
  const auto before = folder_identity(found);
  Report report = inspect_contents(contents_of(found));
  if (!report.trouble.empty() && (checkpoint_at(named) != found || folder_identity(found) != before))
    throw CheckpointError{report.trouble};
  return report;
}

}  // namespace

Report inspect(const std::filesystem::path& path) {
  const RunLayout run{path};
  std::error_code none;
  if (std::filesystem::exists(run.description(), none) && std::filesystem::exists(run.checkpoints(), none))
    return inspect(run.checkpoints());
  const auto checkpoints = checkpoints_at(path);
  if (!checkpoints.empty()) return inspect_folder(path, checkpoints);
  return read_checkpoint_at(path, [&](const std::filesystem::path& found) { return inspect_named(path, found); });
}

}  // namespace lockstep
