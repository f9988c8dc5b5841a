#include "sync/checkpoint/checkpoint_folder.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/base/file_type.hpp"
#include "core/tensor/digest.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/file_system.hpp"
#include "sync/checkpoint/folder.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {
namespace {

constexpr std::string_view prefix = "step-", part_suffix = ".part", manifest_name = "manifest.json";

// Far more than the names and digests of any model take.
constexpr std::uint64_t largest_manifest = 256 << 20;

/// Nothing happens if there is nothing, which is told later, or which is no fault.
void require_folder(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    fail_checkpoint(path.string(), fmt::format("is {}; expected a folder", name_of_type(status.st_mode)));
}

/// The names in a folder, of which there are none if it does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder) {
  require_folder(folder);
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory)
    fail_checkpoint(folder.string(), fmt::format("cannot be read: {}", error.message()));
  return names;
}

/// The best checkpoint, as the link says or, on a file system without links, the manifest of the one that was written.
std::filesystem::path best_beside(const std::filesystem::path& written) {
  const std::filesystem::path folder = written.parent_path();
  std::error_code no_link;
  if (const auto best = std::filesystem::read_symlink(folder / best_link, no_link); !no_link) return folder / best;
  try {
    if (const auto best = read_manifest(written).best) return folder / checkpoint_name(best->step);
  } catch (const CheckpointError&) {
    // It is gone already, or was never written.
  }
  return {};
}

Manifest::File described(const TensorFile& file, std::uint64_t bytes) {
  Manifest::File described{.name = file.name, .bytes = bytes};
  for (const auto& [name, value] : file.tensors)
    described.digests.emplace_back(name, detail::digest_of_elements(value));
  return described;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{}", prefix, step);
}

std::optional<std::int64_t> step_in(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool whole = error == std::errc{} && end == name.data() + name.size();
  return whole && checkpoint_name(step).substr(prefix.size()) == name ? std::optional{step} : std::nullopt;
}

void write_checkpoint(const std::filesystem::path& folder, Manifest manifest, std::span<const TensorFile> files,
                      const std::function<void()>& before_it_appears) {
  require_folder(folder);
  const std::string name = checkpoint_name(manifest.step);
  NewFolder checkpoint{folder / name};
  for (const TensorFile& file : files) {
    const std::filesystem::path path = checkpoint.part() / file.name;
    write_tensors(path, file.tensors, metadata_of(manifest, file.name));
    manifest.files.push_back(described(file, ExistingFile{path}.size()));
  }
  const std::string text = to_json(manifest) + "\n";
  NewFile written{checkpoint.part() / manifest_name};
  written.write(std::as_bytes(std::span{text}));
  written.commit();
  before_it_appears();
  checkpoint.commit();
  // An optional checkpoint that could not be written may be the best.
  std::error_code unknown;
  if (manifest.best && std::filesystem::exists(folder / checkpoint_name(manifest.best->step), unknown))
    switch_link(folder / best_link, checkpoint_name(manifest.best->step));
  switch_link(folder / latest_link, name);
}

std::vector<std::filesystem::path> all_checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (const auto step = step_in(name)) steps.push_back(*step);
  std::ranges::sort(steps, std::greater{});
  std::vector<std::filesystem::path> checkpoints;
  for (const std::int64_t step : steps) checkpoints.push_back(folder / checkpoint_name(step));
  return checkpoints;
}

void require_one_checkpoint(const std::filesystem::path& path) {
  if (const auto inside = checkpoints_in(path); !inside.empty())
    fail_checkpoint(path.string(), fmt::format("is a folder of checkpoints; expected one of them, such as {}",
                                               inside.front().filename().string()));
  for (const std::string& name : names_in(path)) {
    std::error_code none;
    if (!std::filesystem::is_directory(path / name, none)) continue;
    if (const auto below = checkpoints_in(path / name); !below.empty())
      fail_checkpoint(path.string(),
                      fmt::format("is no checkpoint, but has some in it; expected one of them, such as {}",
                                  below.front().string()));
  }
}

std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> checkpoints = all_checkpoints_in(folder);
  if (const auto newest = newest_that_stays(folder))
    std::erase_if(checkpoints, [&](const auto& each) { return step_in(each.filename().string()).value() > *newest; });
  return checkpoints;
}

std::string remove_old_checkpoints(const std::filesystem::path& folder, std::int64_t keep,
                                   const std::filesystem::path& written,
                                   const std::function<bool(const std::filesystem::path&)>& counts) {
  const std::filesystem::path best = best_beside(written);
  std::string trouble;
  for (const std::filesystem::path& checkpoint : checkpoints_in(folder)) {
    if (keep > 0) {
      keep -= checkpoint == written || counts(checkpoint) ? 1 : 0;
      continue;
    }
    if (checkpoint == written || checkpoint == best) continue;
    if (std::string left = remove_folder(checkpoint); !left.empty()) trouble = std::move(left);
  }
  remove_parts(folder);
  return trouble;
}

void remove_parts(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> parts;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry{folder, ignored}, end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') || !name.ends_with(part_suffix)) continue;
    const std::string_view whole = std::string_view{name}.substr(1, name.size() - 1 - part_suffix.size());
    if (whole.starts_with(latest_link) || whole.starts_with(best_link) || whole.starts_with(prefix))
      parts.push_back(entry->path());
  }
  for (const std::filesystem::path& part : parts) {
    // Where two folders cannot be exchanged, a writer that is killed in between has moved the old one here.
    constexpr std::string_view old_suffix = ".old.part";
    if (const std::string name = part.filename().string(); name.ends_with(old_suffix))
      finish_move_over(folder / name.substr(1, name.size() - 1 - old_suffix.size()));
    else
      std::filesystem::remove_all(part, ignored);
  }
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / manifest_name;
  require_folder(checkpoint);
  const ExistingFile file{path};
  if (file.size() > largest_manifest)
    fail_checkpoint(path.string(), fmt::format("has {} bytes; expected a manifest", file.size()));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span{text}));
  Manifest manifest = parse_manifest(text, path.string());
  if (const auto step = step_in(checkpoint.filename().string()); step && *step != manifest.step)
    fail_checkpoint(path.string(),
                    fmt::format("is of step {}; expected {}, as its folder is called", manifest.step, *step));
  if (!manifest.file(weights_file)) fail_checkpoint(path.string(), fmt::format("names no {}", weights_file));
  return manifest;
}

Manifest read_checkpoint(const std::filesystem::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const Manifest::File& each : manifest.files) {
    const std::filesystem::path tensors = checkpoint / each.name;
    if (const std::uint64_t bytes = ExistingFile{tensors}.size(); bytes != each.bytes)
      fail_checkpoint(tensors.string(),
                      fmt::format("has {} bytes; expected {}, as the manifest says", bytes, each.bytes));
  }
  return manifest;
}

void require_whole(const std::filesystem::path& checkpoint) {
  const Manifest manifest = read_checkpoint(checkpoint);
  for (const Manifest::File& each : manifest.files) {
    const OpenTensorFile file = open_checkpoint_file(checkpoint, manifest, each.name);
    for (const safetensors::Entry& entry : file.entries()) (void)file.read(entry);
  }
}

bool has_manifest(const std::filesystem::path& checkpoint) {
  std::error_code none;
  return std::filesystem::exists(std::filesystem::symlink_status(checkpoint / manifest_name, none));
}

WeightsMetadata metadata_of(const Manifest& manifest, std::string_view name) {
  return name == weights_file ? manifest.metadata : WeightsMetadata{};
}

OpenTensorFile open_checkpoint_file(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                    std::string_view name) {
  const Manifest::File* const file = manifest.file(name);
  if (!file) fail_checkpoint(checkpoint.string(), fmt::format("has no {}", name));
  return OpenTensorFile{checkpoint / name, {metadata_of(manifest, name), {file->digests.begin(), file->digests.end()}}};
}

}  // namespace lockstep
