// A small set of colour images that a convnet can learn, in the format of CIFAR-10.
#pragma once

#include <string>

#include <lockstep/core/base/philox.hpp>

#include "support/job.hpp"
#include "support/labelled_files.hpp"

namespace lockstep::test {

/// `count` records. The class says which channel is bright, and where: that is lost without the channels, since the
/// images of three classes are as bright in the same places.
inline std::string colour_records(int count, std::uint64_t set) {
  const RandomStream random{5, RandomStream::Purpose::simulation, set};
  std::string records;
  for (int image = 0; image < count; ++image) {
    const int label = image % 10;
    records += cifar_record({label}, [&](int channel, int row, int column) {
      const auto index = static_cast<std::uint64_t>(((image * 3 + channel) * 32 + row) * 32 + column);
      const bool bright = channel == label % 3 && row / 8 == label / 3;
      return (bright ? 128 : 0) + static_cast<int>(random.below(128, index));
    });
  }
  return records;
}

/// A folder of 160 images to train on and 40 to test.
class ColourImages {
 public:
  ColourImages() {
    for (int file = 1; file <= 5; ++file)
      folder_.write("data_batch_" + std::to_string(file) + ".bin",
                    colour_records(32, static_cast<std::uint64_t>(file)));
    folder_.write("test_batch.bin", colour_records(40, 6));
  }

  std::string path() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

}  // namespace lockstep::test
