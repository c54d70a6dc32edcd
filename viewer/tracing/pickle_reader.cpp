#include "viewer/tracing/pickle_reader.h"

#include <bit>

#include "viewer/tracing/pickle_input.h"

namespace moonshard::viewer {

// Look-ups in what a pickle held; a value of another kind is simply not there.

const std::vector<PickleValue>& PickleData::items(const PickleValue& container) const {
  static const std::vector<PickleValue> kNone;
  const bool holds =
      container.kind == Kind::List || container.kind == Kind::Tuple || container.kind == Kind::Dict;
  return holds ? containers_[container.place] : kNone;
}

const std::string& PickleData::text(const PickleValue& value) const {
  static const std::string kNone;
  return value.kind == Kind::Text ? texts_[value.place] : kNone;
}

PickleValue PickleData::get(const PickleValue& dict, std::string_view key) const {
  const auto place = text_places_.find(key);
  if (dict.kind != Kind::Dict || place == text_places_.end()) return {};
  const std::vector<PickleValue>& entries = items(dict);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (entries[i].kind == Kind::Text && entries[i].place == place->second) return entries[i + 1];
  }
  return {};
}

double PickleData::number(const PickleValue& value, double fallback) const {
  if (value.kind == Kind::Int || value.kind == Kind::Bool)
    return static_cast<double>(value.integer);
  return value.kind == Kind::Float ? value.real : fallback;
}

/// Runs the opcodes that build data, and refuses the others.
class PickleMachine : private PickleInput {
 public:
  using Kind = PickleValue::Kind;

  PickleMachine(ByteSource& source, const std::string& where, const PickleLimits& limits,
                const PickleDictTaker& take_dict)
      : PickleInput(source, where, limits.max_bytes), limits_(limits), take_dict_(take_dict) {}

  PickleData run() {
    if (bytes(1)[0] != '\x80') refuse("no pickle of protocol 2 or newer");
    const auto protocol = static_cast<unsigned>(small(1));
    if (protocol < 2 || protocol > 5) refuse(fmt::format("pickle protocol {}", protocol));
    for (;;) {
      const auto code = static_cast<uint8_t>(bytes(1)[0]);
      if (code == '.') break;
      if (!push_plain(code) && !push_text(code) && !build(code) && !remember(code) && !call(code)) {
        refuse(fmt::format("opcode 0x{:02x}", code));
      }
    }
    data_.root_ = pop();
    return std::move(data_);
  }

 private:
  void count_values(uint64_t count) {
    num_values_ += count;
    if (num_values_ > limits_.max_values) {
      refuse(fmt::format("more than {} values", limits_.max_values));
    }
  }

  // True, so that an opcode can end with it.
  bool push(PickleValue value) {
    count_values(1);
    stack_.push_back(value);
    return true;
  }
  bool push(Kind kind, int64_t integer = 0) { return push(PickleValue(kind, integer)); }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleValue pop() {
    if (stack_.size() <= floor()) refuse("a value that is missing");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) refuse("a value that is missing");
    return stack_.back();
  }

  size_t pop_mark() {
    if (marks_.empty()) refuse("a mark that is missing");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  PickleValue new_container(Kind kind, size_t from) {
    count_values(2);  // a container is larger than a value
    const PickleValue value = PickleValue::at(kind, data_.containers_.size());
    data_.containers_.emplace_back(stack_.begin() + static_cast<ptrdiff_t>(from), stack_.end());
    stack_.resize(from);
    return value;
  }

  bool push_tuple(size_t count) {
    if (stack_.size() < floor() + count) refuse("a value that is missing");
    return push(new_container(Kind::Tuple, stack_.size() - count));
  }

  PickleValue text_value(std::string_view text, Kind kind = Kind::Text) {
    const auto found = data_.text_places_.find(text);
    if (found != data_.text_places_.end()) return PickleValue::at(kind, found->second);
    texts_bytes_ += text.size();
    if (texts_bytes_ > limits_.max_texts_bytes) {
      refuse(fmt::format("more than {} bytes of text", limits_.max_texts_bytes));
    }
    const PickleValue value = PickleValue::at(kind, data_.texts_.size());
    data_.texts_.emplace_back(text);
    data_.text_places_.emplace(data_.texts_.back(), value.place);
    return value;
  }

  bool push_plain(uint8_t code) {
    switch (code) {
      case 'N':
        return push(Kind::None);
      case 0x88:
        return push(Kind::Bool, 1);
      case 0x89:
        return push(Kind::Bool, 0);
      case 'K':
        return push(Kind::Int, static_cast<int64_t>(small(1)));
      case 'M':
        return push(Kind::Int, static_cast<int64_t>(small(2)));
      case 'J':
        return push(Kind::Int, static_cast<int32_t>(small(4)));
      case 0x8a:
        return push_long(small(1));
      case 0x8b:
        return push_long(small(4));
      case 'G': {  // big-endian
        const char* from = bytes(8);
        uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) bits = bits << 8 | static_cast<uint8_t>(from[i]);
        return push(PickleValue(std::bit_cast<double>(bits)));
      }
      default:
        return false;
    }
  }

  // Two's complement of any length. What 64 bits do not hold becomes a real number.
  bool push_long(uint64_t count) {
    if (count > 1024) refuse(fmt::format("a number of {} bytes", count));
    const char* from = bytes(static_cast<size_t>(count));
    const bool negative = count > 0 && (from[count - 1] & 0x80) != 0;
    if (count <= 8) {
      uint64_t value = negative ? ~0ull : 0;
      for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(from[i]);
      return push(Kind::Int, static_cast<int64_t>(value));
    }
    double value = 0;
    for (size_t i = count; i-- > 0;) {
      const uint8_t byte = static_cast<uint8_t>(from[i]);
      value = value * 256 + (negative && i == count - 1 ? static_cast<int8_t>(byte) : byte);
    }
    return push(PickleValue(value));
  }

  // By how many bytes say the length: unicode, bytes and old strings.
  bool push_text(uint8_t code) {
    const auto letter = static_cast<char>(code);
    const auto is_one_of = [&](std::string_view codes) { return codes.find(letter) != codes.npos; };
    const size_t count_bytes = is_one_of("\x8c\x43U")      ? 1
                               : is_one_of("XBT")          ? 4
                               : is_one_of("\x8d\x8e\x96") ? 8
                                                           : 0;
    if (count_bytes == 0) return false;
    const uint64_t count = small(count_bytes);
    if (count > limits_.max_text_bytes) refuse(fmt::format("a text of {} bytes", count));
    const char* from = bytes(static_cast<size_t>(count));
    return push(text_value({from, static_cast<size_t>(count)}));
  }

  bool build(uint8_t code) {
    switch (code) {
      case '(':
        marks_.push_back(stack_.size());
        count_values(1);  // marks are memory, too
        return true;
      case '0':
        return drop_top();
      case '1':
        stack_.resize(pop_mark());
        return true;
      case '2':
        return push(top());
      case ']':
      case 0x8f:
        return push(new_container(Kind::List, stack_.size()));
      case '}':
        return push(new_container(Kind::Dict, stack_.size()));
      case ')':
        return push_tuple(0);
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(code - 0x84u);
      case 't':
        return push(new_container(Kind::Tuple, pop_mark()));
      case 'l':
      case 0x91:
        return push(new_container(Kind::List, pop_mark()));
      case 'd':
        return push(new_container(Kind::Dict, pop_mark()));
      case 'a':
        return extend(stack_.size() - 1, 1);
      case 's':
        return extend(stack_.size() - 2, 2);
      case 'e':
      case 0x90:
      case 'u':
        return extend(pop_mark(), 0);
      case 0x95:
        small(8);
        return true;  // frames only say how much follows
      case 0x97:
        return push(Kind::None);
      case 0x98:
        return true;
      default:
        return false;
    }
  }

  bool drop_top() {
    if (stack_.size() > floor()) {
      stack_.pop_back();
    } else {
      pop_mark();
    }
    return true;
  }

  // Values from `from` on go into the list or dict below them.
  bool extend(size_t from, size_t least) {
    if (stack_.size() < least + 1 + floor() || from > stack_.size() || from < floor() + 1) {
      refuse("a value that is missing");
    }
    const PickleValue container = stack_[from - 1];
    const bool holds = container.kind == Kind::List || container.kind == Kind::Dict;
    const size_t count = stack_.size() - from;
    if (container.kind == Kind::Dict && count % 2 != 0) refuse("a key without its value");
    if (holds) {
      std::vector<PickleValue>& items = data_.containers_[container.place];
      items.insert(items.end(), stack_.begin() + static_cast<ptrdiff_t>(from), stack_.end());
    }
    stack_.resize(from);
    if (container.kind == Kind::Dict && take_dict_ && take_dict_(data_, container)) {
      std::vector<PickleValue>().swap(data_.containers_[container.place]);
    }
    return true;
  }

  bool remember(uint8_t code) {
    switch (code) {
      case 'q':
        return put(small(1));
      case 'r':
        return put(small(4));
      case 0x94:
        return put(memo_.size());
      case 'h':
        return push(recall(small(1)));
      case 'j':
        return push(recall(small(4)));
      default:
        return false;
    }
  }

  bool put(uint64_t number) {
    const PickleValue value = top();
    // Numbers follow the values; one that is far ahead must not cost what lies between.
    if (number < 2 * num_values_ + 1024) {
      if (number >= memo_.size()) memo_.resize(static_cast<size_t>(number) + 1, unset());
      memo_[static_cast<size_t>(number)] = value;
    } else {
      count_values(4);
      far_memo_[number] = value;
    }
    return true;
  }

  static PickleValue unset() { return PickleValue(Kind::Foreign, -1); }

  PickleValue recall(uint64_t number) const {
    PickleValue value = unset();
    if (number < memo_.size()) {
      value = memo_[static_cast<size_t>(number)];
    } else if (const auto far = far_memo_.find(number); far != far_memo_.end()) {
      value = far->second;
    }
    if (value.kind == Kind::Foreign && value.integer < 0) refuse("a memory of nothing");
    return value;
  }

  // Names of functions and classes. None is looked up, let alone called.
  bool push_foreign(std::string_view name) { return push(text_value(name, Kind::Foreign)); }

  bool call(uint8_t code) {
    switch (code) {
      case 'c':
        line();
        return push_foreign(line());
      case 0x93: {
        const PickleValue name = pop();
        pop();
        return push_foreign(data_.text(name));
      }
      case 'R': {
        const PickleValue arguments = pop();
        const PickleValue function = pop();
        return push(result_of(function, arguments));
      }
      case 0x81: {  // a new object: its arguments stand for it
        const PickleValue arguments = pop();
        pop();
        return push(arguments);
      }
      case 0x92: {
        pop();
        const PickleValue arguments = pop();
        pop();
        return push(arguments);
      }
      case 'b': {  // an object's state says more than its arguments
        const PickleValue state = pop();
        if (state.kind == Kind::Dict && top().kind != Kind::Dict) top() = state;
        return true;
      }
      case 'Q':
        top() = PickleValue();
        return true;
      default:
        return false;
    }
  }

  PickleValue result_of(const PickleValue& function, const PickleValue& arguments) {
    if (function.kind == Kind::Foreign) {
      const std::string& name = data_.texts_[function.place];
      if (name == "OrderedDict" || name == "defaultdict" || name == "dict") {
        return new_container(Kind::Dict, stack_.size());
      }
    }
    const std::vector<PickleValue>& given = data_.items(arguments);
    return given.empty() ? PickleValue() : given.front();
  }

  const PickleLimits& limits_;
  const PickleDictTaker& take_dict_;
  PickleData data_;
  uint64_t num_values_ = 0, texts_bytes_ = 0;
  std::vector<PickleValue> stack_, memo_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue> far_memo_;
};

PickleData read_pickle(ByteSource& source, const std::string& where, const PickleLimits& limits,
                       const PickleDictTaker& take_dict) {
  return PickleMachine(source, where, limits, take_dict).run();
}

}  // namespace moonshard::viewer
