// Pinned memory that is used again.
#include <cstddef>
#include <memory>
#include <utility>

#include <catch2/catch.hpp>

#include "core/device/pinned_pool.hpp"

using namespace lockstep;

TEST_CASE("pinned memory that was given back is taken again for as many bytes, and for no others") {
  detail::PinnedPool pool{Stream::host()};
  auto first = pool.take(100);
  const auto second = pool.take(100);
  CHECK(first->bytes() == 100);
  CHECK(first->data() != second->data());
  const std::byte* const at = first->data();
  pool.give_back(std::move(first));
  CHECK(pool.take(200)->bytes() == 200);
  const auto again = pool.take(100);
  CHECK(again->data() == at);
  CHECK(pool.take(100)->data() != at);
}

TEST_CASE("of pinned memory that nobody takes again, the last 64 pieces are kept") {
  detail::PinnedPool pool{Stream::host()};
  std::weak_ptr<const Buffer> first, second;
  for (std::size_t bytes = 1; bytes <= 65; ++bytes) {
    auto pinned = pool.take(bytes);
    if (bytes == 1) first = pinned;
    if (bytes == 2) second = pinned;
    pool.give_back(std::move(pinned));
  }
  CHECK(first.expired());
  CHECK_FALSE(second.expired());
}
