// Tags, and the sentence that is made of them where ranks disagree.
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/base/site.hpp"
#include "core/control/tag.hpp"
#include "core/control/verdict.hpp"

using namespace lockstep;

namespace {

Tag tag_of(TagKind kind, const std::string& site = "trainer.cpp:120", std::uint64_t sequence = 5) {
  Tag tag;
  tag.kind = kind;
  tag.depth = 1;
  tag.run = 3;
  tag.sequence = sequence;
  tag.count = static_cast<std::uint32_t>(sequence);
  site.copy(tag.site, Tag::site_capacity);
  return tag;
}

Tag with_text(Tag tag, std::string_view text) {
  tag.set_text(text);
  return tag;
}

Tag failure_tag(std::string_view text, Error::ExitCode cause = Error::ExitCode::failure) {
  Tag tag = with_text(tag_of(TagKind::error, ""), text);
  tag.cause = cause;
  return tag;
}

const Tag merge = tag_of(TagKind::merge);
const Tag closing = [] {
  Tag tag = tag_of(TagKind::close, "strategy.cpp:9");
  tag.step = 3;
  return tag;
}();

Verdict judged(const std::vector<Tag>& tags) {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < tags.size(); ++rank)
    names.push_back("replica " + std::to_string(rank) + " (worker:" + std::to_string(rank) + ", host a)");
  return judge_tags(tags, names);
}

Here here_in_a_long_name();

}  // namespace

TEST_CASE("a tag's site is the file's name without its folder, and the line") {
  Tag tag;
  const Here here = Here::current();
  tag.set_site(here);
  CHECK(tag.site_text() == "control_verdict.cpp:" + std::to_string(here.line()));
  CHECK(tag.site_text().find('/') == std::string::npos);
}

TEST_CASE("a place that nobody knows is left out") {
  Tag tag = tag_of(TagKind::seal);
  tag.set_site(Here{});
  CHECK(describe(tag) == "the sealing of the variables");
  tag.kind = TagKind::merge;
  tag.count = 2;
  CHECK(describe(tag) == "merge_call #2");
  CHECK(site_of(Here{}).empty());
  // Made by hand, and without a line.
  CHECK(site_of(Here{"solver/cg.c", 41}) == "cg.c:41");
  tag.set_site(Here{"solver/cg.c", 41});
  CHECK(tag.site_text() == "cg.c:41");
  CHECK(site_of(Here{"the residual/norm", 0}) == "the residual/norm");
  tag.set_site(Here{"the residual/norm", 0});
  CHECK(tag.site_text() == "the residual/norm");
}

TEST_CASE("a header of the standard library is no place in a program") {
  struct Placed {
    explicit Placed(Here here = Here::current()) : place{here} {}
    Here place;
  };
  const Here inside = std::make_unique<Placed>()->place;
  REQUIRE(inside.file_name() != Here::current().file_name());
  CHECK(site_of(inside).empty());
  Tag tag;
  tag.set_site(inside);
  CHECK(tag.site_text().empty());
  const Here here = Here::current();
  CHECK(site_of(std::make_unique<Placed>(here)->place) == site_of(here));
}

TEST_CASE("a file name too long for a tag loses its end, never its line number") {
  Tag tag;
  tag.set_site(here_in_a_long_name());
  CHECK(tag.site_text() == "a_file_whose_name_is_longer_than_a_tag_h:4294967");
  CHECK(tag.site_text().size() == Tag::site_capacity);
  tag.set_site(Here::current());
  CHECK_THAT(std::string{tag.site_text()}, Catch::StartsWith("control_verdict.cpp:"));
  CHECK(tag.site_text().size() < 25);  // nothing of the longer one is left
}

TEST_CASE("text too long for a tag is cut, between characters") {
  Tag tag;
  tag.set_text(std::string(1000, 'x'));
  CHECK(tag.kept_text() == std::string(Tag::text_capacity, 'x'));
  CHECK(tag.text_size == 1000);
  tag.set_text("short");
  CHECK(tag.kept_text() == "short");  // nothing of the longer one is left
  const std::string room_for_half = std::string(Tag::text_capacity - 1, 'x');
  tag.set_text(room_for_half + "é and more");
  CHECK(tag.kept_text() == room_for_half);
  tag.set_text(room_for_half.substr(1) + "é");
  CHECK(tag.kept_text() == room_for_half.substr(1) + "é");  // fits to the last byte
}

TEST_CASE("control characters in a tag's text become spaces") {
  Tag tag;
  const std::string_view text{
      "a\nb\tc\0d\x7f"
      "e",
      9};
  tag.set_text(text);
  CHECK(tag.kept_text() == "a b c d e");
  CHECK(tag.text_size == 9);
  Tag spaces;
  spaces.set_text("a b c d e");
  CHECK(tag.digest() != spaces.digest());  // what is compared is the text as it was
}

TEST_CASE("one_line keeps what is printable and drops the spaces at the end") {
  CHECK(one_line("first\nsecond\r\n\x1b[31m é\n") == "first second   [31m é");
  CHECK(one_line("from a file: \xef\x01z") == "from a file: \\xef z");
  CHECK(one_line("\n\n").empty());
  CHECK(one_line("").empty());
}

TEST_CASE("tags with the same fields have the same digest, and every field counts") {
  const Tag plain = with_text(merge, "f32 tensor");
  CHECK(plain.digest() == with_text(merge, "f32 tensor").digest());
  const std::vector<std::function<void(Tag&)>> changes{
      [](Tag& tag) { tag.kind = TagKind::reduce; },
      [](Tag& tag) { tag.depth = 2; },
      [](Tag& tag) { tag.strategy = 1; },
      [](Tag& tag) { tag.cause = Error::ExitCode::user_input; },
      [](Tag& tag) { tag.run += std::uint64_t{1} << 40; },
      [](Tag& tag) { ++tag.sequence; },
      [](Tag& tag) { tag.set_site(Here::current()); },
      [](Tag& tag) { tag.set_text("f64 tensor"); },
      [](Tag& tag) { tag.set_text(""); },
  };
  std::set<std::uint64_t> digests{plain.digest()};
  for (const auto& change : changes) {
    Tag changed = plain;
    change(changed);
    digests.insert(changed.digest());
  }
  CHECK(digests.size() == changes.size() + 1);
  // What only sentences say does not keep a rank that missed a run from agreeing.
  Tag elsewhere = plain;
  elsewhere.step = 7;
  elsewhere.count = 9;
  elsewhere.run_kind = detail::RunKind::evaluation;
  elsewhere.where = Position::Where::after_run;
  CHECK(elsewhere.digest() == plain.digest());
  for (const std::uint64_t digest : digests) CHECK(digest % 2 == 0);
}

TEST_CASE("text beyond what a tag keeps counts too") {
  const std::string head = std::string(500, 'x');
  CHECK(with_text(merge, head + "a").digest() != with_text(merge, head + "b").digest());
  CHECK(with_text(merge, head + "a").digest() != with_text(merge, head + "aa").digest());
  CHECK(with_text(merge, head + "a").digest() == with_text(merge, head + "a").digest());
}

TEST_CASE("what a tag is about, in words") {
  CHECK(describe(merge) == "merge_call #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::reduce)) == "reduction #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::input)) == "input #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::steps)) == "run_steps_on_iterator #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::compare)) == "same_on_all #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::create)) == "the creation of a variable (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::seal)) == "the sealing of the variables (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::close)) == "the end of the step");
  CHECK(describe(tag_of(TagKind::start)) == "the start of the job");
  CHECK(describe(tag_of(TagKind::leave)) == "the end of the job");
  CHECK(describe(tag_of(TagKind::error)) == "a failure");
  CHECK(describe(tag_of(TagKind::broadcast)) == "broadcast #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::agree)) == "agree #5 (trainer.cpp:120)");
  CHECK(describe(tag_of(TagKind::chief)) == "the end of the chief's work (trainer.cpp:120)");
}

TEST_CASE("a place in the training is told as its user counts") {
  using Where = Position::Where;
  CHECK(describe(Where::before_runs, detail::RunKind::step, 0) == "before the first step");
  CHECK(describe(Where::in_run, detail::RunKind::step, 5) == "in step 5");
  CHECK(describe(Where::after_run, detail::RunKind::step, 5) == "after step 5");
  CHECK(describe(Where::in_run, detail::RunKind::evaluation, 5) == "in the evaluation after step 5");
  CHECK(describe(Where::in_run, detail::RunKind::setup, 0) == "in the setup");
  CHECK(describe(Where::after_run, detail::RunKind::setup, 0) == "after the setup");
  CHECK(describe(Where::in_run, detail::RunKind::sample, 5) == "in the sample after step 5");
  CHECK(describe(Where::in_run, detail::RunKind::sample, 0) == "in the sample");
  CHECK(describe(Where::in_run, detail::RunKind::prediction, 0) == "in the prediction");
  Tag failed = failure_tag("no such file");
  failed.where = Where::in_run;
  failed.step = 5;
  CHECK(place_of_failure(failed) == "in step 5, computing");
  std::string_view{"trainer.cpp:120"}.copy(failed.site, Tag::site_capacity);
  CHECK(place_of_failure(failed) == "in step 5, computing (trainer.cpp:120)");
  failed.after = TagKind::merge;
  failed.count = 2;
  CHECK(place_of_failure(failed) == "in step 5, computing after merge_call #2 (trainer.cpp:120)");
  failed.where = Where::in_phase;
  CHECK(place_of_failure(failed) == "computing after merge_call #2 (trainer.cpp:120)");
}

TEST_CASE("ranks that disagree in a step name it") {
  Tag inside = merge;
  inside.where = Position::Where::in_run;
  inside.step = 7;
  CHECK(judged({closing, inside}).sentence ==
        "replica 0 (worker:0, host a) has finished step 3; replica 1 (worker:1, host a) is at merge_call #5 "
        "(trainer.cpp:120) in step 7: some replicas made a different number of collective calls");
}

TEST_CASE("a rank that failed is to blame before any that is elsewhere, the lowest of several first") {
  const Verdict one = judged({merge, merge, failure_tag("disk full", Error::ExitCode::checkpoint), closing});
  CHECK(one.failed);
  CHECK(one.rank == 2);
  CHECK(one.code == Error::ExitCode::checkpoint);
  CHECK(one.sentence == "replica 2 (worker:2, host a) failed: disk full");
  const Verdict several = judged({merge, failure_tag("b"), merge, failure_tag("a", Error::ExitCode::user_input)});
  CHECK(several.rank == 1);
  CHECK(several.code == Error::ExitCode::failure);
}

TEST_CASE("the smaller group is to blame") {
  const Verdict verdict = judged({tag_of(TagKind::merge, "a.cpp:1"), merge, merge, merge});
  CHECK_FALSE(verdict.failed);
  CHECK(verdict.rank == 0);
  CHECK(verdict.code == Error::ExitCode::mismatch);
  CHECK(verdict.sentence ==
        "replica 0 (worker:0, host a) is at merge_call #5 (a.cpp:1); "
        "replicas 1, 2, 3 are at merge_call #5 (trainer.cpp:120)");
}

TEST_CASE("the smaller group is to blame though others left early", "[B-42]") {
  const Verdict verdict = judged({closing, merge, closing});
  CHECK(verdict.rank == 1);
  CHECK(verdict.sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120); replicas 0, 2 have finished step 3: "
        "some replicas made a different number of collective calls");
}

TEST_CASE("of two equally small groups the one that left early is to blame, rank 0 or not", "[B-42]") {
  const Verdict chief = judged({closing, merge});
  CHECK(chief.rank == 0);
  CHECK(chief.sentence ==
        "replica 0 (worker:0, host a) has finished step 3; "
        "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120): "
        "some replicas made a different number of collective calls");
  const Verdict gone = judged({merge, merge, tag_of(TagKind::leave), tag_of(TagKind::leave)});
  CHECK(gone.rank == 2);
  CHECK(gone.sentence ==
        "replica 2 (worker:2, host a) and replica 3 have finished the job; "
        "replicas 0, 1 are at merge_call #5 (trainer.cpp:120)");
}

TEST_CASE("of two equally small groups that both stayed, rank 0's is not to blame") {
  CHECK(judged({merge, tag_of(TagKind::reduce)}).rank == 1);
  CHECK(judged({merge, tag_of(TagKind::reduce), merge, tag_of(TagKind::reduce)}).rank == 1);
  CHECK(judged({merge, tag_of(TagKind::reduce), tag_of(TagKind::seal)}).rank == 2);
}

TEST_CASE("a group to blame begins with its lowest rank by its full name") {
  const Tag other = tag_of(TagKind::merge, "a.cpp:1");
  const Verdict verdict = judged({merge, other, merge, other, merge, other, merge});
  CHECK(verdict.rank == 1);
  CHECK(verdict.sentence ==
        "replica 1 (worker:1, host a) and replicas 3, 5 are at merge_call #5 (a.cpp:1); "
        "replicas 0, 2, 4, 6 are at merge_call #5 (trainer.cpp:120)");
}

TEST_CASE("runs that returned results of another structure show both", "[B-13]") {
  CHECK(
      judged({with_text(closing, "[2 f32]"), with_text(closing, "[3 f32]"), with_text(closing, "[2 f32]")}).sentence ==
      "replica 1 (worker:1, host a) has finished step 3 and returned [3 f32]; "
      "replicas 0, 2 have finished step 3 and returned [2 f32]");
}

TEST_CASE("calls that differ in what they were called with show it, and only those") {
  const Verdict two = judged({with_text(merge, "f32 tensor"), with_text(merge, "")});
  CHECK(two.sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120) with nothing; "
        "replica 0 (worker:0, host a) is at merge_call #5 (trainer.cpp:120) with f32 tensor");
  const Verdict places = judged({with_text(merge, "f32 tensor"), with_text(tag_of(TagKind::merge, "a.cpp:1"), "i32")});
  CHECK(places.sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (a.cpp:1); "
        "replica 0 (worker:0, host a) is at merge_call #5 (trainer.cpp:120)");
}

TEST_CASE("calls of other methods at other places are told with the methods and what they were called with") {
  const auto at = [](const std::string& site, std::string_view text) {
    return with_text(tag_of(TagKind::merge, site), text);
  };
  const Tag reduces = at("train.cpp:10", "all_reduce: sum of f32[3]"),
            gathers = at("train.cpp:14", "all_gather: f32[…]");
  CHECK(judged({reduces, gathers}).sentence ==
        "replica 1 (worker:1, host a) is at all_gather #5 (train.cpp:14) with f32[…]; "
        "replica 0 (worker:0, host a) is at all_reduce #5 (train.cpp:10) with sum of f32[3]");
  CHECK(judged({reduces, at("train.cpp:20", "step 1 of 'optimizer': apply_gradients: 'w'")}).sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (train.cpp:20) with step 1 of 'optimizer': apply_gradients: "
        "'w'; replica 0 (worker:0, host a) is at all_reduce #5 (train.cpp:10) with sum of f32[3]");
  CHECK(judged({reduces, closing}).sentence ==
        "replica 1 (worker:1, host a) has finished step 3; replica 0 (worker:0, host a) is at all_reduce #5 "
        "(train.cpp:10): some replicas made a different number of collective calls");
  const Tag to_one = with_text(tag_of(TagKind::reduce), "reduce_to replica 0: sum of i32[]"),
            to_other = with_text(tag_of(TagKind::reduce), "reduce_to replica 1: sum of i32[]");
  CHECK(judged({to_one, to_other}).sentence ==
        "replica 1 (worker:1, host a) is at reduce_to #5 (trainer.cpp:120) with replica 1: sum of i32[]; "
        "replica 0 (worker:0, host a) is at reduce_to #5 (trainer.cpp:120) with replica 0: sum of i32[]");
  const std::string many = "batch_reduce_to: sum of " + std::string(Tag::text_capacity, 'x');
  CHECK_THAT(judged({with_text(tag_of(TagKind::reduce), many), to_one}).sentence,
             Catch::Contains("is at batch_reduce_to #5 (trainer.cpp:120) with sum of xxx") &&
                 Catch::Contains("... (" + std::to_string(many.size()) + " bytes, digest "));
  // Not the name of a method, but the beginning of something else.
  CHECK_THAT(judged({at("a.cpp:1", "reduced: i32"), merge}).sentence, Catch::Contains("merge_call #5 (a.cpp:1)"));
}

TEST_CASE("variables that differ are shown, and options at the start") {
  const Tag create = tag_of(TagKind::create);
  CHECK(judged({with_text(create, "variable 'w' f32[2]"), with_text(create, "variable 'w' f32[3]")}).sentence ==
        "replica 1 (worker:1, host a) is creating variable 'w' f32[3] (trainer.cpp:120); "
        "replica 0 (worker:0, host a) is creating variable 'w' f32[2] (trainer.cpp:120)");
  const Tag start = tag_of(TagKind::start);
  CHECK(judged({with_text(start, "--seed 1"), with_text(start, "--seed 2")}).sentence ==
        "replica 1 (worker:1, host a) started with --seed 2; replica 0 (worker:0, host a) started with --seed 1");
}

TEST_CASE("texts that differ only beyond what a tag keeps are told apart by size and digest") {
  const std::string head = std::string(Tag::text_capacity, 'x');
  const Verdict verdict = judged({with_text(merge, head + "a"), with_text(merge, head + "bb")});
  CHECK(verdict.sentence == "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120) with " + head +
                                "... (146 bytes, digest " + to_hex(digest_of(head + "bb")) +
                                "); replica 0 (worker:0, host a) is at merge_call #5 (trainer.cpp:120) with " + head +
                                "... (145 bytes, digest " + to_hex(digest_of(head + "a")) + ")");
}

TEST_CASE("what ranks compare puts them at no other place, but whether they do") {
  const auto comparing = [](std::uint64_t digest) {
    Tag tag = with_text(closing, "nothing, attesting w");
    tag.compared = digest;
    return tag;
  };
  CHECK(comparing(5).digest() != comparing(7).digest());
  CHECK(comparing(5).place() == comparing(7).place());
  CHECK(comparing(5).place() != comparing(0).place());
  CHECK(comparing(5).place() != closing.place());
  // Three tags of their own, and yet two ranks against one.
  CHECK(judged({comparing(5), closing, comparing(7)}).sentence ==
        "replica 1 (worker:1, host a) has finished step 3 and returned nothing; replicas 0, 2 have finished step 3 "
        "and returned nothing, attesting w");
  CHECK(judged({comparing(5), comparing(7), merge, comparing(9)}).rank == 2);
}

TEST_CASE("nesting is shown", "[B-22]") {
  Tag nested = merge;
  nested.depth = 2;
  CHECK(judged({merge, nested}).sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120) nested 2 deep; "
        "replica 0 (worker:0, host a) is at merge_call #5 (trainer.cpp:120) inside of run()");
  Tag outside = tag_of(TagKind::reduce), inside = outside;
  outside.depth = 0;
  CHECK(judged({inside, outside}).sentence ==
        "replica 1 (worker:1, host a) is at reduction #5 (trainer.cpp:120) outside of run(); "
        "replica 0 (worker:0, host a) is at reduction #5 (trainer.cpp:120) inside of run()");
}

TEST_CASE("calls that read alike but belong to other strategies or runs say so") {
  Tag other_strategy = merge, other_run = merge, other_close = closing;
  other_strategy.strategy = 1;
  other_run.run = 4;
  other_close.strategy = 2;
  CHECK(judged({merge, other_strategy}).sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120) of strategy 1; "
        "replica 0 (worker:0, host a) is at merge_call #5 (trainer.cpp:120) of strategy 0");
  CHECK(judged({merge, other_run}).sentence ==
        "replica 1 (worker:1, host a) is at merge_call #5 (trainer.cpp:120) of run 4; "
        "replica 0 (worker:0, host a) is at merge_call #5 (trainer.cpp:120) of run 3");
  CHECK(judged({closing, other_close}).sentence ==
        "replica 1 (worker:1, host a) has finished step 3 of strategy 2; "
        "replica 0 (worker:0, host a) has finished step 3 of strategy 0");  // and no word of merge_calls
}

namespace {

// Last in the file: what follows has another name.
Here here_in_a_long_name() {
#line 4294967 "a/folder/a_file_whose_name_is_longer_than_a_tag_has_room_for.cpp"
  return Here::current();
}

}  // namespace
