// torch.distributed's store, without an address or a port.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "python/store_server.hpp"
#include "python/torch_version.hpp"

namespace lockstep::python {

/// The store of the job, which any backend may use. Keys outlive the object. Methods block, without Python's lock, and
/// throw c10::DistStoreError after the timeout.
class JobStore final : public c10d::Store {
 public:
  explicit JobStore(std::chrono::milliseconds timeout) : Store{timeout} {}

  using Bytes = std::vector<std::uint8_t>;
  using Keys = std::vector<std::string>;

  c10::intrusive_ptr<Store> clone() LOCKSTEP_SINCE_2_8(override);
  void set(const std::string& key, const Bytes& value) override;
  Bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& wanted) override;
  bool deleteKey(const std::string& key) override;
  bool check(const Keys& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const Keys& keys) override { wait(keys, timeout_); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override;
  std::vector<std::string> listKeys() LOCKSTEP_SINCE_2_10(override);

 private:
  Bytes ask(Packer question, const std::string& about, std::chrono::milliseconds timeout) const;
  std::int64_t number(Packer question, const std::string& about) const;
};

}  // namespace lockstep::python
