#include "fuzz/targets.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/input/idx.hpp>
#include <lockstep/models/input/schema.hpp>
#include <lockstep/models/input/text.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/rank_map.hpp"
#include "core/cluster/tf_config.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/shared_data.hpp"
#include "sync/checkpoint/manifest.hpp"
#include "sync/checkpoint/safetensors.hpp"
#include "sync/checkpoint/tensor_file.hpp"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

void require(bool holds, std::string_view promise) {
  if (!holds) throw BrokenPromise{std::string{promise}};
}

/// A file in memory. Its path goes with it.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : descriptor_{::memfd_create("fuzz", MFD_CLOEXEC)} {
    if (descriptor_ < 0) throw std::system_error{errno, std::generic_category(), "memfd_create"};
    write(content);
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  fs::path path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

  void write(std::string_view content) const {
    const auto size = static_cast<ssize_t>(content.size());
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, content.data(), content.size(), 0) != size)
      throw std::system_error{errno, std::generic_category(), "a file in memory"};
  }

 private:
  int descriptor_;
};

/// Calls `read`: whether it accepts. A refusal is one `Refusal` of one line that begins with `begin`.
template <class Refusal>
bool accepts(std::string_view begin, const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Refusal& refusal) {
    const std::string_view line = refusal.what();
    require(line.starts_with(begin), fmt::format("a refusal begins with '{}': {}", begin, line));
    require(std::none_of(line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
            fmt::format("a refusal is one line: {}", line));
    return false;
  }
}

/// What holds of every spec that was accepted.
void check_spec(const ClusterSpec& spec) {
  require(spec.num_tasks() > 0 && spec.world_size() >= spec.num_tasks(), "a spec has a task, and a rank for each");
  const std::string canonical = spec.canonical();
  require(ClusterSpec::parse(canonical).canonical() == canonical, "the canonical text means the same spec");
  constexpr int many = 1000;
  if (spec.world_size() > many) return;
  const RankMap ranks{spec, spec.world_size()};
  int rank = 0;
  for (const Task& task : spec.tasks())
    for (int replica = 0; replica < spec.replicas_per_task(); ++replica, ++rank)
      require(ranks.task_of(rank) == task && ranks.replica_in_task(rank) == replica, "a rank is one replica of a task");
}

bool read_cluster_spec_text(std::string_view input) {
  return accepts<ConfigError>("SPEC: ", [&] { check_spec(ClusterSpec::parse(input, "SPEC")); });
}

bool read_tf_config(std::string_view input) {
  return accepts<ConfigError>("TF_CONFIG: ", [&] {
    const TfConfig config = parse_tf_config(input);
    check_spec(config.cluster);
    require(!config.task || config.cluster.contains(*config.task), "the task is one of the cluster's");
  });
}

std::string big_endian(std::initializer_list<std::uint32_t> numbers) {
  std::string bytes;
  for (const std::uint32_t number : numbers)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

/// A folder of links to files in memory.
class LinkFolder {
 public:
  LinkFolder() {
    std::string name = fs::temp_directory_path() / "lockstep-fuzz-XXXXXX";
    if (!::mkdtemp(name.data())) throw std::system_error{errno, std::generic_category(), name};
    path_ = name;
  }
  LinkFolder(const LinkFolder&) = delete;
  ~LinkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  void link(const char* name, const MemoryFile& file) const { fs::create_symlink(file.path(), path_ / name); }

 private:
  fs::path path_;
};

/// A folder of images that is right but for one file.
class ImageFolder {
 public:
  ImageFolder() {
    folder_.link("train-images-idx3-ubyte", images_);
    folder_.link("train-labels-idx1-ubyte", labels_);
    folder_.link("t10k-images-idx3-ubyte", images_);
    folder_.link("t10k-labels-idx1-ubyte", labels_);
  }

  bool accepts_images(std::string_view content) const { return accepts_content(images_, right_images, content); }
  bool accepts_labels(std::string_view content) const { return accepts_content(labels_, right_labels, content); }

 private:
  static inline const std::string right_images = big_endian({0x803, 2, 2, 3}) + std::string(12, 'p');
  static inline const std::string right_labels = big_endian({0x801, 2}) + std::string(2, '\1');

  /// With `content` in the file, in which `right` is before and afterwards.
  bool accepts_content(const MemoryFile& file, const std::string& right, std::string_view content) const {
    file.write(content);
    const bool accepted = accepts<ConfigError>(folder_.path().string(), [&] {
      const ImageData data = ImageData::load(folder_.path(), 10);
      for (const ImageData::Set* set : {&data.train, &data.test}) {
        require(set->rows > 0 && set->columns > 0 && set->count() > 0, "there are images, and they have pixels");
        require(static_cast<std::int64_t>(set->pixels.size()) == set->count() * set->features(), "no pixel is missing");
        require(std::all_of(set->labels.begin(), set->labels.end(), [](int label) { return label < 10; }),
                "labels are below the number of classes");
      }
      (void)data.digest();
    });
    file.write(right);
    return accepted;
  }

  LinkFolder folder_;
  MemoryFile images_{right_images}, labels_{right_labels};
};

bool read_idx(std::string_view input) {
  static const ImageFolder folder;
  const bool images = folder.accepts_images(input), labels = folder.accepts_labels(input);
  require(!(images && labels), "a file holds images or labels");
  return images || labels;
}

/// The numbers of all rows.
std::vector<double> numbers_in(const NumberRows& rows) {
  const auto width = static_cast<std::size_t>(rows.width());
  std::vector<double> all(static_cast<std::size_t>(rows.count()) * width);
  for (std::size_t row = 0; row * width < all.size(); ++row)
    rows.read(static_cast<std::int64_t>(row), std::span{all}.subspan(row * width, width));
  require(std::all_of(all.begin(), all.end(), [](double number) { return std::isfinite(number); }),
          "every number is finite");
  return all;
}

void check_part(const LabelledRows& part, std::int64_t classes) {
  require(part.rows->count() > 0, "a part has rows");
  require(std::ssize(part.labels) == part.rows->count(), "every row has a label");
  require(std::all_of(part.labels.begin(), part.labels.end(), [&](int label) { return label >= 0 && label < classes; }),
          "labels are below the number of classes");
}

LabelledData::Options all_in_memory() {
  return {.dtype = DType::f64};
}
LabelledData::Options none_in_memory() {
  return {.dtype = DType::f64, .memory_bytes = 1};
}

bool is_packed(std::string_view input) {
  return input.starts_with("\x1f\x8b");
}

/// What holds of sets that were accepted: they are the same if they are streamed.
void check_sets(std::string_view input, const std::function<LabelledSets(const LabelledData::Options&)>& load) {
  const LabelledSets sets = load(all_in_memory());
  check_part(sets.train, std::ssize(sets.schema.classes));
  check_part(sets.test, std::ssize(sets.schema.classes));
  const std::vector<double> numbers = numbers_in(*sets.train.rows);
  if (is_packed(input)) return;
  const LabelledSets streamed = load(none_in_memory());
  require(streamed.digest.value() == sets.digest.value(), "streamed data have the same digest");
  require(numbers_in(*streamed.train.rows) == numbers, "streamed data have the same numbers");
}

bool read_cifar(std::string_view input) {
  static const MemoryFile file{""}, right{std::string(3074, '\1')};
  static const LinkFolder folder;
  static const bool linked = [] {
    folder.link("train.bin", file);
    folder.link("test.bin", right);
    return true;
  }();
  (void)linked;
  file.write(input);
  return accepts<ConfigError>(folder.path().string(), [&] {
    check_sets(input, [](const LabelledData::Options& options) { return load_cifar_100(folder.path(), options); });
    require(is_packed(input) || input.size() % 3074 == 0, "a plain file is records");
  });
}

bool read_npy(std::string_view input) {
  static const MemoryFile file{""};
  file.write(input);
  return accepts<ConfigError>(file.path().string(), [&] {
    const UnlabelledRows rows = load_npy_rows(file.path(), all_in_memory());
    require(rows.rows->width() == element_count(rows.schema.sample), "a row is a sample");
    const std::vector<double> numbers = numbers_in(*rows.rows);
    if (is_packed(input)) return;
    const UnlabelledRows streamed = load_npy_rows(file.path(), none_in_memory());
    require(numbers_in(*streamed.rows) == numbers, "a streamed array has the same numbers");
  });
}

bool read_csv(std::string_view input) {
  static const MemoryFile file{""};
  file.write(input);
  return accepts<ConfigError>(file.path().string(), [&] {
    check_sets(input, [](const LabelledData::Options& options) { return load_csv_sets(file.path(), options); });
  });
}

bool read_text(std::string_view input) {
  static const MemoryFile file{""};
  file.write(input);
  return accepts<ConfigError>(file.path().string(), [&] {
    constexpr std::int64_t context = 4;
    const TextSets data = load_digested_text(file.path(), {.context = context}).data;
    const auto bytes = static_cast<std::size_t>(data.train.tokens->count() + data.test.tokens->count());
    require(data.test.tokens->count() == static_cast<std::int64_t>(bytes / 10), "the last tenth is for the test");
    require(data.train.count() > 0 && data.test.count() > 0, "each part has a sample");
    const bool packed = input.starts_with("\x1f\x8b");
    require(packed || bytes == input.size(), "a plain text is its bytes");
    (void)digest(data);
  });
}

bool read_tokens(std::string_view input) {
  static const MemoryFile file{""};
  file.write(input);
  return accepts<ConfigError>(file.path().string(), [&] {
    constexpr std::int64_t context = 2, vocabulary = 1000;
    const TextSets data = load_digested_text(file.path(), {.context = context, .vocabulary = vocabulary}).data;
    const std::int64_t count = data.train.tokens->count() + data.test.tokens->count();
    require(input.size() == 1024 + 2 * static_cast<std::size_t>(count), "every byte after the header is of a token");
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.test.tokens->count()));
    data.test.tokens->read(0, tokens);
    require(std::ranges::all_of(tokens, [](std::int32_t token) { return token >= 0 && token < vocabulary; }),
            "tokens are below the vocabulary");
    (void)digest(data);
  });
}

/// What holds of every header that was accepted.
void check_header(const safetensors::Header& header, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const safetensors::Entry& entry : header.entries) {
    require(entry.begin == end && entry.end >= entry.begin, "entries lie one after the other");
    require(entry.end - entry.begin == static_cast<std::uint64_t>(element_count(entry.shape)) * size_of(entry.dtype),
            "an entry has the bytes of its shape");
    end = entry.end;
  }
  require(end == data_bytes, "every byte belongs to an entry");
  if (header.metadata.contains("writer")) return;  // another program's, which is not written
  if (std::ranges::any_of(header.entries, [](const auto& entry) { return !entry.foreign.empty(); }))
    return;  // nor these
  const std::string written = safetensors::header_of(header, "FILE");
  const auto again = safetensors::parse_header(written.substr(safetensors::length_bytes), data_bytes, "FILE");
  require(again.entries.size() == header.entries.size(), "a header that is written again has the same entries");
  require(again.metadata == header.metadata, "a header that is written again has the same metadata");
}

bool read_safetensors(std::string_view input) {
  constexpr std::uint64_t length_bytes = safetensors::length_bytes;
  if (input.size() >= length_bytes) {
    const auto bytes = std::as_bytes(std::span{input});
    const std::uint64_t length = safetensors::header_length(bytes.first<length_bytes>());
    if (const std::uint64_t after = input.size() - length_bytes; length <= after)
      (void)accepts<CheckpointError>("checkpoint FILE: ", [&] {
        const std::string_view header = input.substr(length_bytes, length);
        check_header(safetensors::parse_header(header, after - length, "FILE"), after - length);
      });
  }
  // And as a checkpoint of these two.
  static const Tensor weights = Tensor::zeros(DType::f32, {2, 3}), bias = Tensor::zeros(DType::f64, {1});
  static const MemoryFile file{""};
  file.write(input);
  return accepts<CheckpointError>(fmt::format("checkpoint {}: ", file.path().string()), [&] {
    const std::vector<NamedTensor> wanted{{"w", weights.view()}, {"b", bias.view()}};
    const auto values = read_tensors(file.path(), wanted);
    require(values.size() == 2 && values[0].shape() == weights.shape() && values[1].dtype() == DType::f64,
            "what is read has the types and shapes that were wanted");
  });
}

bool read_manifest(std::string_view input) {
  return accepts<CheckpointError>("checkpoint FILE: ", [&] {
    const Manifest manifest = parse_manifest(input, "FILE");
    require(manifest.step >= 0, "a step is not negative");
    for (const Manifest::File& file : manifest.files)
      require(file.name.find('/') == std::string::npos && file.name != "..", "a file is in the checkpoint's folder");
    require(parse_manifest(to_json(manifest), "FILE") == manifest, "what is written means the same");
  });
}

bool read_schema(std::string_view input) {
  return accepts<Error>("FILE: is no schema", [&] {
    const DataSchema schema = DataSchema::parse(input, "FILE");
    require(std::ssize(schema.classes) <= most_classes, "there are not too many classes");
    require(schema.columns.empty() || schema.sample == Shape{std::ssize(schema.columns)}, "a number has a column");
    require(schema.scales.empty() || schema.scales.size() == schema.columns.size(), "a column has a scale");
    require(DataSchema::parse(schema.to_json(), "FILE") == schema, "what is written means the same");
  });
}

constexpr Target all[] = {
    {"cluster-spec", read_cluster_spec_text},
    {"tf-config", read_tf_config},
    {"idx", read_idx},
    {"cifar", read_cifar},
    {"npy", read_npy},
    {"csv", read_csv},
    {"text", read_text},
    {"tokens", read_tokens},
    {"safetensors", read_safetensors},
    {"manifest", read_manifest},
    {"schema", read_schema},
};

}  // namespace

std::span<const Target> targets() {
  return all;
}

const Target* find_target(std::string_view name) {
  const auto found =
      std::find_if(std::begin(all), std::end(all), [&](const Target& each) { return each.name == name; });
  return found == std::end(all) ? nullptr : found;
}

}  // namespace lockstep::fuzz
