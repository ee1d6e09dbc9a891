// A catalog that several own.
#include "ckpt/core/catalog.h"

#include <gtest/gtest.h>

#include <utility>

namespace ferry {
namespace {

Catalog one_entry() {
  Catalog catalog;
  catalog.entries.push_back({"a", DType::f32, {2}, {}, Role::model});
  return catalog;
}

TEST(SharedCatalog, CopiesReferToTheSameCatalog) {
  SharedCatalog first = one_entry();
  const SharedCatalog second = first;
  EXPECT_EQ(&*first, &*second);
  first = {};
  EXPECT_EQ(second->entries[0].name, "a");
  EXPECT_TRUE(first->entries.empty());
}

TEST(SharedCatalog, AChangeIsSeenByItsOwnerAlone) {
  SharedCatalog first = one_entry();
  const Catalog* const before = &*first;
  first.edit().entries[0].name = "b";
  EXPECT_EQ(&*first, before);  // nobody else's: changed in place
  const SharedCatalog second = first;
  first.edit().entries[0].name = "c";
  EXPECT_EQ(first->entries[0].name, "c");
  EXPECT_EQ(second->entries[0].name, "b");
}

TEST(SharedCatalog, ABorrowedCatalogIsNotChanged) {
  const Catalog catalog = one_entry();
  SharedCatalog shared = SharedCatalog::borrow(catalog);
  EXPECT_EQ(&*shared, &catalog);
  shared.edit().entries[0].name = "b";
  EXPECT_EQ(catalog.entries[0].name, "a");
  EXPECT_EQ(shared->entries[0].name, "b");
}

}  // namespace
}  // namespace ferry
