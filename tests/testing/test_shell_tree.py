"""The structure of scripts: what is one, and what is refused."""

from __future__ import annotations

import sys

import pytest

from sandboxio.core.errors import BackendNotInstalled
from sandboxio.testing._shell import tree
from sandboxio.testing._shell.ast import AndOr, Pipeline, Sequence, Simple, SyntaxRefused
from sandboxio.testing._shell.tree import parse


@pytest.mark.parametrize(
    ("script", "text", "line"),
    [
        ("a; ; b", '";" unexpected', 1),
        ("a &&", "end of file unexpected", 1),
        (")", '")" unexpected', 1),
        ("\nif true; fi", '"fi" unexpected', 2),
        ("while true; do :", "end of file unexpected", 1),
        ("{ }", '"}" unexpected', 1),
        ("case x in a) b;;", "end of file unexpected", 1),
        ("a;;", '";;" unexpected', 1),
        ('echo "abc', "Unterminated quoted string", 1),
        ("echo `a", "EOF in backquote substitution", 1),
        ("echo $(a", 'end of file unexpected (expecting ")")', 1),
        ("cat <", "end of file unexpected", 1),
        ("x=(1 2)", "word unexpected", 1),
        ("cat <(a)", '"(" unexpected', 1),
        ("a |& b", '"&" unexpected', 1),
        ("for 1x in a; do b; done", "Bad for loop variable", 1),
        ("a | ! b", '"!" unexpected', 1),
        ("{ a; } b", "word unexpected", 1),
        ("f() echo a", "this shell wants { } around the body of a function", 1),
    ],
)
def test_refused(script: str, text: str, line: int) -> None:
    """What is no script is refused as a whole, with the line of the trouble."""
    with pytest.raises(SyntaxRefused, match=r"^Syntax error: ") as caught:
        parse(script)
    assert caught.value.text == f"Syntax error: {text}"
    assert caught.value.line == line


@pytest.mark.parametrize(
    "script",
    ["[[ a ]]", "((1))", "function f { a; }", "select x in a; do b; done", "cat <(a)", "a=(1 2)"],
)
def test_refused_of_bash(script: str) -> None:
    """What bash has and this shell lacks is refused under the name `bash`, never misread."""
    with pytest.raises(SyntaxRefused):
        parse(script, bash=True)


@pytest.mark.parametrize(
    "script",
    [
        "a >&2 b c",
        "x=1 >f",
        "! { a; } >f",
        "for x do a; done",
        "if (a) then (b) else { c; } fi",
        "cat <<A <<B; c\n)\nA\n'\nB\nd",
        "x=$(case a in a) b;; esac)",
        "case in in in) a;; esac",
        "f() { a; } >f; g() (b)",
        "echo if then { } ! esac",
    ],
)
def test_accepted(script: str) -> None:
    """What tree-sitter-bash alone would refuse or misread is understood."""
    parse(script)


@pytest.mark.parametrize("between", ["\n", "; ", " & "])
def test_pipelines_bind_tighter_than_lists(between: str) -> None:
    """`a | b | c && d` is a list of a pipeline and a command, wherever it begins."""
    tree = parse(f"x{between}a | b | c && d || e")
    assert isinstance(tree, Sequence)
    chain = tree.commands[1]
    assert isinstance(chain, AndOr)
    assert isinstance(chain.first, Pipeline)
    assert len(chain.first.commands) == 3
    assert [operator for operator, _ in chain.rest] == ["&&", "||"]


def test_lines_are_known() -> None:
    """Commands know their line, after here-documents and continued lines as well."""
    tree = parse("a <<E\nx\nE\nb\\\nc\nd")
    assert isinstance(tree, Sequence)
    assert [each.line for each in tree.commands if isinstance(each, Simple)] == [1, 4, 6]


def test_missing_tree_sitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tree-sitter the error names the extra that has it."""
    tree.parser.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    with pytest.raises(BackendNotInstalled, match=r"pip install 'sandboxio\[testing\]'"):
        parse("a")
