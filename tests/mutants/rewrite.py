"""Puts many small mistakes into a C++ source at once, each behind a switch: the variable MUTANT chooses one of them when
the program starts, so that one build serves them all. Needs libclang (pip install libclang==14.0.6)."""
import collections
import re

import clang.cindex as clang

Mutant = collections.namedtuple("Mutant", "number file line kind text")

KIND = clang.CursorKind
ARITHMETIC = {"+": "minus_for_plus", "-": "plus_for_minus", "*": "plus_for_times", "/": "times_for_divided"}
RELATIONS = {"<": "at_most_for_less", "<=": "less_for_at_most", ">": "at_least_for_more", ">=": "more_for_at_least",
             "==": "unequal_for_equal", "!=": "equal_for_unequal"}
LOGIC = {"&&": "yes", "||": "no"}

# Values that the compiler needs: nothing in them can wait for the program's start.
CONSTANT = {KIND.CASE_STMT, KIND.STATIC_ASSERT, KIND.ENUM_CONSTANT_DECL, KIND.TEMPLATE_NON_TYPE_PARAMETER}
FUNCTIONS = {KIND.FUNCTION_DECL, KIND.CXX_METHOD, KIND.CONSTRUCTOR, KIND.DESTRUCTOR, KIND.FUNCTION_TEMPLATE,
             KIND.LAMBDA_EXPR, KIND.CONVERSION_FUNCTION}
STATEMENTS = {KIND.CALL_EXPR, KIND.BINARY_OPERATOR, KIND.COMPOUND_ASSIGNMENT_OPERATOR, KIND.UNARY_OPERATOR,
              KIND.UNEXPOSED_EXPR, KIND.BREAK_STMT, KIND.CONTINUE_STMT}


# In front of every rewritten source. Compilers' messages keep its own lines.
PROLOGUE = '#include "tests/mutants/mutants.h"\n#line 1\n'


class Source:
    """Mutants of one file. Their edits are (offset, order, removed characters, text)."""

    def __init__(self, path, arguments, first_number):
        self.path, self.number = path, first_number
        self.mutants, self.edits_of = [], {}
        with open(path) as file:
            self.text = PROLOGUE + file.read()
        # The headers are read once, whatever is behind them.
        self.unit = clang.Index.create().parse(path, args=arguments, unsaved_files=[(path, self.text)], options=0x104)
        self.unit.reparse([(path, self.text)])

    def add(self, line, kind, text, *edits):
        self.mutants.append(Mutant(self.number, self.path, line - PROLOGUE.count("\n"), kind, text))
        self.edits_of[self.number] = edits
        self.number += 1

    def save(self):
        with open(self.path, "w") as file:
            file.write(self.rewritten())

    def restore(self):
        with open(self.path, "w") as file:
            file.write(self.text[len(PROLOGUE):])

    def rewritten(self):
        """The source with all mutants in it."""
        edits = [edit for parts in self.edits_of.values() for edit in parts]
        result, place = [], 0
        for offset, _, removed, text in sorted(edits, key=lambda edit: (edit[0], edit[1])):
            result.append(self.text[place:offset])
            result.append(text)
            place = offset + removed
        result.append(self.text[place:])
        return "".join(result)

    def drop(self, lines):
        gone = [mutant.number for mutant in self.mutants if mutant.line in lines]
        self.mutants = [mutant for mutant in self.mutants if mutant.number not in gone]
        for number in gone:
            self.edits_of.pop(number)
        return len(gone)

    def lines_with_errors(self, text):
        self.unit.reparse([(self.path, text)])
        lines = set()

        def look(diagnostic):
            if diagnostic.location.file is not None and diagnostic.location.file.name == self.path:
                lines.add(diagnostic.location.line - PROLOGUE.count("\n"))
            for child in diagnostic.children:
                look(child)

        for diagnostic in self.unit.diagnostics:
            if diagnostic.severity >= clang.Diagnostic.Error:
                look(diagnostic)
        return lines


def inside(cursor, path):
    start, end = cursor.extent.start, cursor.extent.end
    return start.file is not None and start.file.name == path and end.file.name == path and start.offset < end.offset


def computes(kind):
    canonical = kind.get_canonical()
    return canonical.kind.value in range(3, 24) or re.search(r"at::Tensor|std::complex", canonical.spelling) is not None


def find(source):
    """Walks the file's functions and adds its mutants."""

    # Where several begin at one place the outer comes first, where several end there the inner.
    def before(cursor, depth, text):
        return (cursor.extent.start.offset, (1, depth), 0, text)

    def behind(cursor, depth, text):
        return (cursor.extent.end.offset, (0, -depth), 0, text)

    def words(cursor):
        return re.sub(r"\s+", " ", source.text[cursor.extent.start.offset:cursor.extent.end.offset])[:100]

    def binary(cursor, depth):
        children = list(cursor.get_children())
        if len(children) == 3:  # an operator of a class: its name is between its operands
            children = [children[0], children[2]]
        if len(children) != 2 or not all(inside(child, source.path) for child in children):
            return
        left, right = children
        start, end = left.extent.end.offset, right.extent.start.offset
        operator = source.text[start:end].strip() if start < end else ""
        place = source.text.find(operator, start) if operator else -1
        line = cursor.extent.start.line
        if operator in LOGIC:
            for operand in children:
                source.add(line, LOGIC[operator], words(operand), before(operand, depth, "::mutants::%s(@, " % LOGIC[operator]),
                           behind(operand, depth, ")"))
        elif operator in ARITHMETIC or operator in RELATIONS:
            name = ARITHMETIC.get(operator) or RELATIONS.get(operator)
            # Texts and iterators have one of the two operators alone.
            if operator in ARITHMETIC and not all(computes(child.type) for child in children):
                return
            source.add(line, name, words(cursor), before(left, depth, "::mutants::%s(@, " % name),
                       (place, (0, 0), len(operator), ","), behind(right, depth, ")"))

    def literal(cursor, depth):
        text = words(cursor)
        if re.fullmatch(r"[0-9]+[uUlL]*", text):
            other = text[:1].replace("0", "1") + text[1:] if re.fullmatch(r"0[uUlL]*", text) else "%s + 1" % text
        elif re.fullmatch(r"[0-9.]+(e-?[0-9]+)?[fF]?", text):
            other = "1.0" if float(text.rstrip("fF")) == 0 else "%s * 1.5" % text
            other += "f" if text[-1] in "fF" else ""
        else:
            return
        source.add(cursor.extent.start.line, "number", "%s: %s" % (text, other),
                   before(cursor, depth, "::mutants::number(@, "), behind(cursor, depth, ", %s)" % other))

    def condition(statement, depth):
        children = list(statement.get_children())
        first = children[0] if children else None
        if first is None or first.kind in (KIND.DECL_STMT, KIND.VAR_DECL) or not inside(first, source.path):
            return
        opening = source.text[statement.extent.start.offset:first.extent.start.offset]
        if not re.fullmatch(r"if\s*\(\s*", opening):  # neither `if constexpr` nor one with a declaration
            return
        source.add(statement.extent.start.line, "turned_round", words(first), before(first, depth, "::mutants::turned_round(@, "),
                   behind(first, depth, ")"))

    def left_out(statement, depth):
        text = words(statement)
        if statement.kind in STATEMENTS and inside(statement, source.path) and not text.startswith("MS_ASSERT"):
            source.add(statement.extent.start.line, "left_out", text, before(statement, depth, "if (!::mutants::on(@)) "))

    def visit(cursor, depth, in_function):
        if cursor.kind in CONSTANT:
            return
        if cursor.kind == KIND.VAR_DECL and re.match(r"(static |inline |const )*constexpr\b", words(cursor)):
            return
        if cursor.kind in FUNCTIONS:
            if re.search(r"\b(constexpr|consteval)\b", words(cursor)):
                return
            in_function = True
        if in_function and inside(cursor, source.path):
            if cursor.kind == KIND.COMPOUND_STMT:
                for child in cursor.get_children():
                    left_out(child, depth + 1)
            elif cursor.kind == KIND.IF_STMT:
                condition(cursor, depth)
                children = list(cursor.get_children())
                if len(children) == 2 and children[1].kind != KIND.COMPOUND_STMT:
                    left_out(children[1], depth + 1)
            elif cursor.kind in (KIND.BINARY_OPERATOR, KIND.CALL_EXPR):
                binary(cursor, depth)
            elif cursor.kind in (KIND.INTEGER_LITERAL, KIND.FLOATING_LITERAL):
                literal(cursor, depth)
        for child in cursor.get_children():
            visit(child, depth + 1, in_function)

    for cursor in source.unit.cursor.get_children():
        if cursor.location.file is not None and cursor.location.file.name == source.path:
            visit(cursor, 0, False)


def numbered(source, keep):
    """Writes each mutant's number into its edits, for those that are kept."""
    source.mutants = [mutant for mutant in source.mutants if mutant.number in keep]
    source.edits_of = {number: [(offset, order, removed, text.replace("@", str(number)))
                                for offset, order, removed, text in source.edits_of[number]] for number in keep}
