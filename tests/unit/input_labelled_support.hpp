// Small labelled data in each format, and what is read of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/labelled_data.hpp>

#include "support/job.hpp"
#include "support/labelled_files.hpp"

namespace lockstep::test {

using Files = std::vector<std::pair<std::string, std::string>>;
using Labels = std::vector<std::int32_t>;

/// A folder of these files.
struct Folder : TemporaryDirectory {
  Folder() = default;
  explicit Folder(const Files& files) { write_all(files); }
  void write_all(const Files& files) const {
    for (const auto& [name, content] : files) write(name, content);
  }
};

/// All samples of a source, in its order.
struct Samples {
  std::vector<double> inputs;
  Labels labels;
  bool operator==(const Samples&) const = default;
};

template <class Real = double>
Samples samples_of(const SampleSource& source) {
  SampleBatch batch = source.make_batch(source.count(), Stream::host());
  std::vector<std::int64_t> all(static_cast<std::size_t>(source.count()));
  std::iota(all.begin(), all.end(), 0);
  source.fill(all, batch);
  const auto inputs = batch.inputs.to_vector<Real>();
  return {{inputs.begin(), inputs.end()}, batch.labels.to_vector<std::int32_t>()};
}

inline const LabelledData::Options in_f64{.dtype = DType::f64};

/// What the ConfigError says, with FOLDER for the folder's name.
inline std::string refusal(const Folder& folder, const std::string& name = "", LabelledData::Options options = {}) {
  std::string messages[2];
  // The same whether the data fit into memory or not.
  for (const bool streams : {false, true}) {
    if (streams) options.memory_bytes = 1;
    std::string& message = messages[streams];
    try {
      LabelledData::load(name.empty() ? folder.path() : folder.path() / name, options);
      message = "not refused";
    } catch (const ConfigError& error) {
      message = error.what();
      CHECK_THAT(message, !Catch::Contains("\n"));
      for (std::size_t at = 0; (at = message.find(folder.path().string(), at)) != message.npos;)
        message.replace(at, folder.path().string().size(), "FOLDER");
    }
  }
  CHECK(messages[0] == messages[1]);
  return messages[0];
}

/// What the digest of the data is, and the samples, must not depend on the memory there is.
inline void check_streams(const std::filesystem::path& path, LabelledData::Options options = in_f64) {
  const LabelledData in_memory = LabelledData::load(path, options);
  CHECK_THAT(in_memory.text, !Catch::Contains("--data-memory"));
  options.memory_bytes = 1;
  const LabelledData streamed = LabelledData::load(path, options);
  CHECK_THAT(streamed.text, Catch::EndsWith(", read from the files batch by batch (--data-memory)"));
  CHECK(streamed.digest == in_memory.digest);
  CHECK(samples_of(*streamed.train) == samples_of(*in_memory.train));
  CHECK(samples_of(*streamed.test) == samples_of(*in_memory.test));
}

/// Pixel 10 * channel + label of every image, but for the place (row 1, column 2), which is 200.
inline std::string cifar(std::initializer_list<int> labels) {
  return cifar_record(labels, [&](int channel, int row, int column) {
    return row == 1 && column == 2 ? 200 : 10 * channel + *(labels.end() - 1);
  });
}

inline Files cifar_10() {
  return {{"data_batch_1.bin", cifar({0}) + cifar({1})},
          {"data_batch_2.bin", cifar({2})},
          {"data_batch_3.bin", cifar({3})},
          {"data_batch_4.bin", cifar({4})},
          {"data_batch_5.bin", cifar({9})},
          {"test_batch.bin", cifar({7}) + cifar({8})}};
}

inline Files cifar_100() {
  return {{"train.bin", cifar({19, 99}) + cifar({0, 5})}, {"test.bin", cifar({1, 2})}};
}

/// 3 and 2 samples of 2 numbers.
inline Files arrays() {
  return {{"x_train.npy", npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6.5})},
          {"y_train.npy", npy<std::int64_t>("<i8", "3,", {0, 4, 1})},
          {"x_test.npy", npy<float>("<f4", "2, 2", {-1, 0, 1e30F, 7})},
          {"y_test.npy", npy<std::int64_t>("<i8", "2,", {4, 2})}};
}

inline std::string csv_rows(int count) {
  std::string text = "label,x\n";
  for (int i = 0; i < count; ++i) text += std::to_string(i % 3) + "," + std::to_string(i) + "\n";
  return text;
}

}  // namespace lockstep::test
