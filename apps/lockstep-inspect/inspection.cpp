#include "apps/lockstep-inspect/inspection.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>

#include "checkpoint/tensor_file.hpp"
#include "tensor/digest.hpp"

namespace lockstep {
namespace {

constexpr std::size_t longest_value = 80;

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// "name   value" with the values in a column.
void print_pairs(std::string& text, const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::size_t width = 0;
  for (const auto& [name, value] : pairs) width = std::max(width, name.size());
  for (const auto& [name, value] : pairs)
    fmt::format_to(std::back_inserter(text), "  {:{}}  {}\n", name, width,
                   value.size() <= longest_value
                       ? value
                       : fmt::format("{}… ({} bytes)", value.substr(0, longest_value), value.size()));
}

void print_manifest(std::string& text, const Manifest& manifest) {
  std::vector<std::pair<std::string, std::string>> pairs{{"step", fmt::format("{}", manifest.step)}};
  pairs.insert(pairs.end(), manifest.training.begin(), manifest.training.end());
  pairs.emplace_back("kernels", manifest.kernels);
  if (manifest.best)
    pairs.emplace_back("best", fmt::format("step {}, loss {}", manifest.best->step, manifest.best->loss));
  for (const auto& [name, state] : manifest.state) pairs.emplace_back("state of " + name, state);
  pairs.emplace_back("program", manifest.program);
  print_pairs(text, pairs);
}

/// The tensors of a file, each with its digest. Adds to `altered` the names of those of which `described` gives
/// another.
void print_tensors(std::string& text, const std::filesystem::path& path, const Manifest::File* described,
                   std::vector<std::string>& altered) {
  const OpenTensorFile file{path};
  std::size_t names = 0, shapes = 0;
  std::int64_t elements = 0;
  for (const safetensors::Entry& entry : file.entries()) {
    names = std::max(names, entry.name.size());
    shapes = std::max(shapes, describe(entry).size());
    elements += element_count(entry.shape);
  }
  fmt::format_to(std::back_inserter(text), "{}: {}, {} elements\n", path.filename().string(),
                 counted(file.entries().size(), "tensor"), elements);
  std::vector<std::string> missing;
  if (described)
    for (const auto& [name, digest] : described->digests) missing.push_back(name);
  for (const safetensors::Entry& entry : file.entries()) {
    const std::uint64_t digest = detail::digest_of_elements(file.read(entry).view());
    std::string verdict;
    if (described) {
      std::erase(missing, entry.name);
      const auto given =
          std::ranges::find(described->digests, entry.name, &std::pair<std::string, std::uint64_t>::first);
      if (given == described->digests.end())
        verdict = "  is not in the manifest";
      else if (given->second != digest)
        verdict = fmt::format("  has been altered: the manifest has {}", to_hex(given->second));
      if (!verdict.empty()) altered.push_back(entry.name);
    }
    fmt::format_to(std::back_inserter(text), "  {:{}}  {:{}}  {}{}\n", entry.name, names, describe(entry), shapes,
                   to_hex(digest), verdict);
  }
  for (const std::string& name : missing) {
    fmt::format_to(std::back_inserter(text), "  {:{}}  is missing\n", name, names);
    altered.push_back(name);
  }
}

Report inspect_contents(const Contents& contents) {
  Report report{contents.path.string() + "\n"};
  if (contents.manifest) print_manifest(report.text, *contents.manifest);
  std::vector<std::string> altered;
  for (const std::filesystem::path& path : contents.tensors)
    print_tensors(report.text, path, contents.manifest ? contents.manifest->file(path.filename().string()) : nullptr,
                  altered);
  if (altered.empty()) return report;
  std::vector<std::string_view> names{altered.begin(), altered.end()};
  report.trouble = fmt::format("{}: {} {} not what the manifest says", contents.path.string(), listed(names),
                               altered.size() == 1 ? "is" : "are");
  return report;
}

/// One line.
std::string summary_of(const Contents& contents) {
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
  for (const Manifest::File& file : contents.manifest->files) {
    bytes += file.bytes;
    tensors += file.digests.size();
  }
  return fmt::format("complete  {}, {} bytes", counted(tensors, "tensor"), bytes);
}

Report inspect_folder(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& checkpoints) {
  const auto target_of = [&](const char* link) {
    std::error_code none;
    return std::filesystem::read_symlink(folder / link, none).string();
  };
  const std::string latest = target_of("latest"), best = target_of("best");
  Report report{fmt::format("{}: {}\n", folder.string(), counted(checkpoints.size(), "checkpoint"))};
  std::size_t damaged = 0;
  std::string first;
  for (const std::filesystem::path& checkpoint : checkpoints) {
    const std::string name = checkpoint.filename().string();
    std::string line;
    try {
      const Contents contents = contents_of(checkpoint);
      line = summary_of(contents);
      if (const std::string trouble = inspect_contents(contents).trouble; !trouble.empty())
        throw CheckpointError{trouble};
    } catch (const CheckpointError& error) {
      line = fmt::format("damaged   {}", error.what());
      if (++damaged == 1) first = name;
    }
    fmt::format_to(std::back_inserter(report.text), "  {:12}  {}{}{}\n", name, line, name == latest ? "  (latest)" : "",
                   name == best ? "  (best)" : "");
  }
  if (damaged > 0)
    report.trouble = fmt::format("{}: {} of {} damaged, such as {}", folder.string(), damaged,
                                 counted(checkpoints.size(), "checkpoint"), first);
  return report;
}

}  // namespace

Report inspect(const std::filesystem::path& path) {
  const auto checkpoints = checkpoints_at(path);
  return checkpoints.empty() ? inspect_contents(contents_of(path)) : inspect_folder(path, checkpoints);
}

}  // namespace lockstep
