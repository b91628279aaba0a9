"""The stubs say what there is: every name, and the same text as `help()`."""

import ast
import inspect
import os

import pmindex

FOLDER = os.path.dirname(pmindex.__file__)


def stub():
    with open(os.path.join(FOLDER, "__init__.pyi"), encoding="utf-8") as file:
        return ast.parse(file.read())


def words(text):
    return " ".join((text or "").split())


def test_every_name_is_there():
    assert os.path.exists(os.path.join(FOLDER, "py.typed"))
    classes = {node.name: node for node in stub().body if isinstance(node, ast.ClassDef)}
    for name in pmindex.__all__:
        thing = getattr(pmindex, name)
        if not inspect.isclass(thing) or issubclass(thing, pmindex.Error):
            continue
        functions = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        there = {each for each in vars(thing) if not each.startswith("_")}
        assert {each for each in functions if not each.startswith("_")} == there


def test_help_says_what_the_stubs_say():
    compared = 0
    for node in stub().body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        thing = getattr(pmindex, node.name)
        texts = {None: ast.get_docstring(node)}
        for function in node.body:
            if isinstance(function, ast.FunctionDef) and not function.name.startswith("__"):
                # Of overloads the first one that says something.
                texts[function.name] = texts.get(function.name) or ast.get_docstring(function)
        for name, text in texts.items():
            if text:
                found = thing if name is None else getattr(thing, name)
                assert words(text) == words(found.__doc__), (node.name, name)
                compared += 1
    assert compared > 50


def test_errors_have_texts_and_names():
    errors = [e for e in vars(pmindex).values() if isinstance(e, type) and issubclass(e, pmindex.Error)]
    assert len(errors) > 20
    for error in errors:
        assert error.__doc__ and error.__module__ == "pmindex"
