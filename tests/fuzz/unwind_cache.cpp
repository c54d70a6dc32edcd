// Readers refuse most inputs, by an exception, and to walk the unwinder's tables of each function
// on its way takes longer than to parse a short input. The tables never change in a program that
// loads nothing: what was found for an address is found again without a search. For the fast
// programs alone (tests/fuzz/build), by the linker's --wrap.
#include <unwind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <typeinfo>

namespace {

constexpr size_t kEntries = 4096;

size_t place_of(uintptr_t key) {
  return key * 0x9E3779B97F4A7C15ull >> 52;  // 12 bits
}

}  // namespace

struct dwarf_eh_bases {  // of libgcc
  void *text, *data, *function;
};

extern "C" const void* __real__Unwind_Find_FDE(void* address, dwarf_eh_bases* bases);

// The table of the function that an address lies in.
extern "C" const void* __wrap__Unwind_Find_FDE(void* address, dwarf_eh_bases* bases) {
  struct Entry {
    void* address;
    const void* table;
    dwarf_eh_bases bases;
  };
  static thread_local std::array<Entry, kEntries> entries;
  Entry& entry = entries[place_of(reinterpret_cast<uintptr_t>(address))];
  if (entry.address != address || entry.table == nullptr) {
    entry.table = __real__Unwind_Find_FDE(address, &entry.bases);
    entry.address = address;
  }
  if (entry.table != nullptr) *bases = entry.bases;
  return entry.table;
}

extern "C" _Unwind_Reason_Code __real___gxx_personality_v0(int, _Unwind_Action,
                                                           _Unwind_Exception_Class,
                                                           _Unwind_Exception*, _Unwind_Context*);

// What a function does with an exception of this type at this address: passes it on, or cleans up
// first, and where. Frames that catch it are left to the standard library, which notes more.
extern "C" _Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                           _Unwind_Exception_Class language,
                                                           _Unwind_Exception* exception,
                                                           _Unwind_Context* context) {
  struct Entry {
    uintptr_t address;
    const std::type_info* type;
    _Unwind_Action actions;
    _Unwind_Reason_Code answer;
    uintptr_t landing;
    _Unwind_Word selector;
  };
  static thread_local std::array<Entry, kEntries> entries;
  constexpr _Unwind_Exception_Class kPlain = 0x474E5543432B2B00;  // "GNUCC++", thrown here
  // The type stands ten words before the unwinder's part of an exception (__cxa_exception).
  const auto* type = reinterpret_cast<const std::type_info* const*>(exception)[-10];
  const uintptr_t address = _Unwind_GetIP(context);
  Entry& entry = entries[place_of(address * 8 + static_cast<uintptr_t>(actions))];
  if (language == kPlain && entry.address == address && entry.type == type &&
      entry.actions == actions) {
    if (entry.answer == _URC_INSTALL_CONTEXT) {
      _Unwind_SetGR(context, __builtin_eh_return_data_regno(0),
                    reinterpret_cast<_Unwind_Word>(exception));
      _Unwind_SetGR(context, __builtin_eh_return_data_regno(1), entry.selector);
      _Unwind_SetIP(context, entry.landing);
    }
    return entry.answer;
  }
  const _Unwind_Reason_Code answer =
      __real___gxx_personality_v0(version, actions, language, exception, context);
  const bool passes = answer == _URC_CONTINUE_UNWIND;
  const bool cleans_up = answer == _URC_INSTALL_CONTEXT && actions == _UA_CLEANUP_PHASE;
  if (language == kPlain && (passes || cleans_up)) {
    entry = {address, type, actions, answer, 0, 0};
    if (cleans_up) {
      entry.landing = _Unwind_GetIP(context);
      entry.selector = _Unwind_GetGR(context, __builtin_eh_return_data_regno(1));
    }
  }
  return answer;
}
