// What option schema, help and completion need of a model family: its tasks and the
// options that mean something to it. Torch-free.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/options.h"

namespace moonshard::models {

class Family;

/// What a model learns, and the fields of a batch (core/batch.h) that it requires.
struct Task {
  std::string name;
  std::string learned;  ///< "the next token": completes "what is learned: …"
  std::vector<std::string> batch_fields;
};

struct FamilyDescription {
  std::string name;
  std::vector<Task> tasks;
  /// Names of model options that it takes, besides those that every family takes.
  std::vector<std::string> options;
  /// Options that must be positive once the preset has filled them in.
  std::vector<std::string> sizes;
};

/// A compile-time list of families. An entry is a struct with
///   using Options              fields of its own options, which ModelOptions inherits;
///   add_options<T>(schema)     their descriptors, T derives from Options;
///   describe()                 its FamilyDescription, without its own options;
///   make()                     the Family itself, which uses torch (family.h).
template <class... Entries>
struct FamilyList {
  /// One base class with the fields of all.
  struct Options : Entries::Options... {};

  template <class T>
  static void add_options(OptionSchema& schema) {
    (Entries::template add_options<T>(schema), ...);
  }
  /// Every task once, in the order of the families.
  static std::vector<Task> tasks() {
    std::vector<Task> all;
    for (const FamilyDescription& family : {Entries::describe()...}) {
      for (const Task& task : family.tasks) {
        const auto same = [&](const Task& other) { return other.name == task.name; };
        if (std::none_of(all.begin(), all.end(), same)) all.push_back(task);
      }
    }
    return all;
  }
  static std::vector<std::unique_ptr<Family>> make_all() {
    std::vector<std::unique_ptr<Family>> all;
    (all.push_back(Entries::make()), ...);
    return all;
  }
};

/// An entry's description with the names of its own options in front.
template <class Entry>
FamilyDescription description_of() {
  FamilyDescription description = Entry::describe();
  OptionSchema own("model");
  Entry::template add_options<typename Entry::Options>(own);
  std::vector<std::string> options = own.names();
  options.insert(options.end(), description.options.begin(), description.options.end());
  description.options = std::move(options);
  return description;
}

}  // namespace moonshard::models
