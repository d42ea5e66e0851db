"""From the tokens of a script to its commands; tree-sitter-bash tells their structure.

It is given the structure only. Words, redirections and here-documents it reads in ways of its
own (`>&2 word`, two `<<` in one line, `[ ]`, `x=1 >file`), so every word is shown to it as `w`
and what else it would mistake is left out; both are put back by their places.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxio.core.errors import BackendNotInstalled
from sandboxio.testing._shell.ast import (
    AndOr,
    Background,
    Case,
    CaseItem,
    For,
    Function,
    If,
    Literal,
    Not,
    Pipeline,
    Redirect,
    Redirected,
    Sequence,
    Simple,
    Subshell,
    SyntaxRefused,
    While,
    assignment,
)
from sandboxio.testing._shell.grammar import CLOSERS, unexpected
from sandboxio.testing._shell.scan import Scanner

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

    from sandboxio.testing._shell.ast import Command, Word
    from sandboxio.testing._shell.grammar import Token

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SEPARATORS = frozenset({";", "&", "\n", ";;"})
_DEPTH = {"if": 1, "fi": -1, "do": 1, "done": -1, "{": 1, "}": -1}
_BOTH = Redirect(2, ">&", (Literal("1", quoted=False),))


def parse(text: str, *, bash: bool = False, line: int = 1) -> Command:
    """Return the commands of a script; `bash` adds `$'...'`, `&>`, `<<<` and `|&`.

    Raises:
        SyntaxRefused: it is no script, or needs what this shell lacks.
        BackendNotInstalled: tree-sitter is missing.
    """
    try:
        return Scanner(text, _build, bash=bash, line=line).script()
    except RecursionError:
        raise SyntaxRefused("Syntax error: nested too deeply", line) from None


def _build(tokens: list[Token]) -> Command:
    return _Tree(tokens).convert()


@lru_cache(maxsize=1)
def parser() -> Parser:
    """Return the parser of tree-sitter, or raise `BackendNotInstalled`."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as exc:
        raise BackendNotInstalled(
            "Shell strings of the fake backend need tree-sitter, which is not installed.",
            hint="pip install 'sandboxio[testing]'",
        ) from exc
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Tree:
    """The tokens of one script, what tree-sitter was shown of them, and how to find them again."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._shown = ""
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._negated: set[int] = set()
        """Where pipelines begin that a `!` stands before."""
        self._mask()

    def convert(self) -> Command:
        root = parser().parse(self._shown.encode()).root_node
        if root.has_error:
            raise self._error(root)
        return self._sequence(root.children)

    def _mask(self) -> None:
        negate, at, shown = False, 0, list[str]()
        for index, token in enumerate(self._tokens):
            if token.text == "!" and token.kind == "keyword":
                negate = True
                continue
            mask = self._mask_of(index, token)
            if not mask:
                continue
            if token.separate:
                mask, at = f"; {mask}", at + 2
            shown.append(mask)
            self._starts[at] = index
            if negate:
                self._negated.add(at)
                negate = False
            at += len(mask) - 2 * token.separate
            self._ends[at - mask.endswith(" ")] = index
        self._shown = "".join(shown)

    def _mask_of(self, index: int, token: Token) -> str:
        if token.role == "name":
            about = next(t.text for t in reversed(self._tokens[:index]) if t.kind == "keyword")
            return "w in w " if about == "for" else "w in "
        if token.role in ("in", "list") and not (token.role == "in" and token.text == "do"):
            ends_list = token.role == "list" and token.kind != "word"
            return "; " if ends_list else ""
        if token.role == "in":
            return "; do "
        if token.attached or (token.role == "pattern" and token.text == "("):
            return ""
        if token.kind in ("word", "redirect"):
            return "w "
        if token.kind == "newline":  # shown as such, it would be lost after `a | b | c`
            return "; " if token.role in ("words", "closed") else ""
        return f"{token.text} "

    def _error(self, root: Node) -> SyntaxRefused:
        """Name the keyword that is too early, or the end where something is still open."""
        keywords = [token for token in self._tokens if token.kind == "keyword"]
        depth = sum(_DEPTH.get(token.text, 0) for token in keywords)
        closers = [token for token in keywords if token.text in CLOSERS]
        if depth > 0 or not closers:
            line = self._tokens[-1].line if self._tokens else 1
            return unexpected("end of file", line)
        at = _first_error(root).end_byte
        late = [t for t in closers if t not in self._tokens[: self._before(at)]]
        return unexpected((late or closers[-1:])[0].text, (late or closers[-1:])[0].line)

    def _before(self, at: int) -> int:
        """Return how many tokens come before a place in the text that was shown."""
        return max((i for start, i in self._starts.items() if start < at), default=0)

    def _token(self, node: Node) -> Token:
        return self._tokens[self._starts[node.start_byte]]

    def _sequence(self, nodes: list[Node]) -> Command:
        commands: list[Command] = []
        for node in nodes:
            if node.type == "&":
                commands[-1] = Background(commands[-1])
            elif node.type not in _SEPARATORS:
                commands.append(self._command(node))
        return commands[0] if len(commands) == 1 else Sequence(tuple(commands))

    def _command(self, node: Node) -> Command:
        """Group what `&&`, `||` and `|` connect: tree-sitter groups `a | b | c && d` wrongly."""
        first, *rest = self._pipelines(node)
        if not rest:
            return first[1]
        return AndOr(first[1], tuple(rest))

    def _pipelines(self, node: Node) -> list[tuple[str, Command]]:
        """Return the pipelines of a node, each with what stands before it."""
        found: list[tuple[str, list[tuple[str, Node]]]] = []
        for operator, element in _chain(node):
            if operator in ("|", "|&"):
                found[-1][1].append((operator, element))
            else:
                found.append((operator, [("", element)]))
        return [(operator, self._pipeline(elements)) for operator, elements in found]

    def _pipeline(self, elements: list[tuple[str, Node]]) -> Command:
        commands = [self._element(element) for _, element in elements]
        for index, (operator, element) in enumerate(elements):
            if operator == "|&":
                line = self._token(element).line
                commands[index - 1] = Redirected(commands[index - 1], (_BOTH,), line)
        made = commands[0] if len(commands) == 1 else Pipeline(tuple(commands))
        return Not(made) if elements[0][1].start_byte in self._negated else made

    def _element(self, node: Node) -> Command:
        """Convert what can stand in a pipeline, with the redirections behind it."""
        if node.type == "command":
            return self._simple(node)
        if node.type == "function_definition":
            return self._function(node)
        redirects = self._redirects(node)
        found = self._compound(node)
        if not redirects:
            return found
        return Redirected(found, redirects, self._token(node).line)

    def _redirects(self, node: Node) -> tuple[Redirect, ...]:
        index = self._ends[node.end_byte] + 1
        found: list[Redirect] = []
        while index < len(self._tokens) and self._tokens[index].attached:
            found += [r for r in (self._tokens[index].redirect,) if r]
            index += 1
        return tuple(found)

    def _compound(self, node: Node) -> Command:
        if node.type == "subshell":
            return Subshell(self._sequence(node.children[1:-1]))
        if node.type == "compound_statement":
            return self._sequence(node.children[1:-1])
        if node.type == "if_statement":
            return self._if(node.children)
        if node.type == "while_statement":
            return self._while(node)
        if node.type == "for_statement":
            return self._for(node)
        if node.type == "case_statement":
            return self._case(node)
        raise unexpected(self._token(node).text or "word", self._token(node).line)

    def _simple(self, node: Node) -> Command:
        first = self._starts[node.start_byte]
        last = self._ends[node.end_byte]
        tokens = self._tokens[first : last + 1]
        strange = next((t for t in tokens if t.kind not in ("word", "redirect")), None)
        if strange is not None:
            raise unexpected(strange.text, strange.line)
        words = [token.word for token in tokens if token.kind == "word"]
        assignments: list[tuple[str, Word]] = []
        while words and (made := assignment(words[0])):
            assignments.append(made)
            del words[0]
        redirects = tuple(token.redirect for token in tokens if token.redirect)
        return Simple(tuple(assignments), tuple(words), redirects, tokens[0].line)

    def _if(self, nodes: list[Node]) -> Command:
        then = next(i for i, node in enumerate(nodes) if node.type == "then")
        rest = next(
            (i for i, node in enumerate(nodes) if node.type in ("elif_clause", "else_clause")),
            len(nodes) - (nodes[-1].type == "fi"),
        )
        return If(
            self._sequence(nodes[1:then]),
            self._sequence(nodes[then + 1 : rest]),
            self._otherwise([n for n in nodes[rest:] if n.type != "fi"]),
        )

    def _otherwise(self, clauses: list[Node]) -> Command | None:
        if not clauses:
            return None
        if clauses[0].type == "else_clause":
            return self._sequence(clauses[0].children[1:])
        return self._if([*clauses[0].children, *clauses[1:]])

    def _while(self, node: Node) -> Command:
        *condition, group = node.children[1:]
        return While(
            self._sequence(condition),
            self._sequence(group.children[1:-1]),
            node.children[0].type == "until",
        )

    def _for(self, node: Node) -> Command:
        index = self._starts[node.start_byte] + 1
        name = self._tokens[index]
        if not _NAME.fullmatch(name.text):
            raise SyntaxRefused("Syntax error: Bad for loop variable", name.line)
        body = next(child for child in node.children if child.type == "do_group")
        return For(name.text, self._listed(index + 1), self._sequence(body.children[1:-1]))

    def _listed(self, index: int) -> tuple[Word, ...] | None:
        """Return the words after `in`, or `None` where there is no `in`."""
        found: list[Word] | None = None
        for token in self._tokens[index:]:
            if token.role not in ("in", "list") or token.text == "do":
                break
            if token.kind == "keyword":
                found = []
            elif token.kind == "word" and found is not None:
                found.append(token.word)
        return None if found is None else tuple(found)

    def _case(self, node: Node) -> Command:
        word = self._tokens[self._starts[node.start_byte] + 1].word
        items = [child for child in node.children if child.type == "case_item"]
        return Case(word, tuple(self._item(item) for item in items))

    def _item(self, node: Node) -> CaseItem:
        end = next(i for i, child in enumerate(node.children) if child.type == ")")
        patterns = [child for child in node.children[:end] if child.is_named]
        return CaseItem(
            tuple(self._token(pattern).word for pattern in patterns),
            self._sequence(node.children[end + 1 :]),
        )

    def _function(self, node: Node) -> Command:
        name = self._token(node)
        if not _NAME.fullmatch(name.text):
            raise SyntaxRefused("Syntax error: Bad function name", name.line)
        return Function(name.text, self._element(node.children[-1]))


def _first_error(root: Node) -> Node:
    node = root
    while not (node.is_error or node.is_missing):
        inner = next((child for child in node.children if child.has_error), None)
        if inner is None:
            break
        node = inner
    return node


def _chain(node: Node) -> list[tuple[str, Node]]:
    """Return the commands of nested lists and pipelines, each with the operator before it."""
    found: list[tuple[str, Node]] = []
    pending = [("", node)]
    while pending:
        before, each = pending.pop()
        if each.type not in ("list", "pipeline"):
            found.append((before, each))
            continue
        parts: list[tuple[str, Node]] = []
        for child in each.children:
            if child.is_named:
                parts.append((before, child))
            else:
                before = child.type
        pending += reversed(parts)
    return found
