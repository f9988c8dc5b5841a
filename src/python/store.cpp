#include "python/store.hpp"

#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "python/process.hpp"

namespace lockstep::python {
namespace {

using Ask = StoreServer::Ask;

Packer question_of(Ask what) {
  return Packer{}.number(static_cast<std::int64_t>(what));
}

Packer question_of(Ask what, const std::string& key) {
  return question_of(what).text(key);
}

Packer question_of(Ask what, const std::vector<std::string>& keys) {
  Packer question = question_of(what);
  question.number(static_cast<std::int64_t>(keys.size()));
  for (const std::string& key : keys) question.text(key);
  return question;
}

}  // namespace

JobStore::Bytes JobStore::ask(Packer question, const std::string& about, std::chrono::milliseconds timeout) const {
  Process::require_own();
  auto answer = Process::current()->store_server().ask(question.take(), timeout);
  if (!answer)
    C10_THROW_ERROR(DistStoreError, fmt::format("the store has no answer within {} s: {}; expected some rank to set it",
                                                static_cast<double>(timeout.count()) / 1000., about));
  return std::move(*answer);
}

std::int64_t JobStore::number(Packer question, const std::string& about) const {
  return Unpacker{ask(std::move(question), about, timeout_)}.number();
}

c10::intrusive_ptr<c10d::Store> JobStore::clone() {
  return c10::make_intrusive<JobStore>(timeout_);
}

void JobStore::set(const std::string& key, const Bytes& value) {
  (void)ask(question_of(Ask::set, key).bytes(value), key, timeout_);
}

JobStore::Bytes JobStore::get(const std::string& key) {
  return ask(question_of(Ask::get, key), key, timeout_);
}

std::int64_t JobStore::add(const std::string& key, std::int64_t value) {
  return number(question_of(Ask::add, key).number(value), key);
}

JobStore::Bytes JobStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& wanted) {
  return ask(question_of(Ask::compare_set, key).bytes(expected).bytes(wanted), key, timeout_);
}

bool JobStore::deleteKey(const std::string& key) {
  return number(question_of(Ask::remove, key), key) != 0;
}

bool JobStore::check(const Keys& keys) {
  return number(question_of(Ask::check, keys), fmt::format("{}", fmt::join(keys, ", "))) != 0;
}

std::int64_t JobStore::getNumKeys() {
  return number(question_of(Ask::count), "the number of keys");
}

void JobStore::wait(const Keys& keys, const std::chrono::milliseconds& timeout) {
  (void)ask(question_of(Ask::wait, keys), fmt::format("{}", fmt::join(keys, ", ")), timeout);
}

std::vector<std::string> JobStore::listKeys() {
  const Bytes answer = ask(question_of(Ask::list), "the keys", timeout_);
  Unpacker rest{answer};
  std::vector<std::string> keys(static_cast<std::size_t>(rest.number()));
  for (std::string& key : keys) key = rest.text();
  return keys;
}

}  // namespace lockstep::python
