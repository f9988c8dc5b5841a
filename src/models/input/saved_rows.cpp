#include "models/input/saved_rows.hpp"

#include "models/input/csv_rows.hpp"
#include "models/input/selected_rows.hpp"

namespace lockstep {

std::size_t save_rows(const std::shared_ptr<const NumberRows>& rows, BlockWriter& block) {
  if (const auto found = block.numbers.find(rows.get()); found != block.numbers.end()) return found->second;
  nlohmann::json saved = rows->save(block);  // may add others first
  nlohmann::json& all = block.header["rows"];
  all.push_back(std::move(saved));
  return block.numbers.emplace(rows.get(), all.size() - 1).first->second;
}

std::vector<std::shared_ptr<const NumberRows>> restore_rows(const BlockReader& block) {
  std::vector<std::shared_ptr<const NumberRows>> rows;
  for (const nlohmann::json& saved : block.header().at("rows")) {
    const auto kind = saved.at("kind").get<std::string>();
    if (kind == SelectedRows::kind)
      rows.push_back(std::make_shared<SelectedRows>(rows.at(saved.at("of").get<std::size_t>()),
                                                    block.array<std::int64_t>(saved.at("selected"))));
    else if (kind == CsvRows::kind)
      rows.push_back(std::make_shared<CsvRows>(saved, block));
    else
      rows.push_back(std::make_shared<StoredRows>(saved, block));
  }
  return rows;
}

}  // namespace lockstep
