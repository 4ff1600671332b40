"""Reads the source of Google's command line and prints what it offers, as JSON.

    wheel.py WHEEL

The answer has the commands by name: options, each with its flags and whether a value follows,
and the number of arguments, least and most. Nothing of the wheel is imported or run: it wants a
newer Python than this one and many packages.
"""

import ast
import json
import sys
import zipfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

Function = ast.FunctionDef


def modules(wheel: str) -> Dict[str, ast.Module]:
    """The syntax trees of the wheel's modules, by path."""
    with zipfile.ZipFile(wheel) as files:
        return {
            name: ast.parse(files.read(name), name)
            for name in files.namelist()
            if name.endswith(".py")
        }


def is_call_of(node: ast.AST, attribute: str) -> bool:
    """Whether node is a call of something's attribute, such as typer.Option."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == attribute
    )


def keyword(call: ast.Call, name: str) -> Optional[str]:
    """The text of a keyword argument."""
    for given in call.keywords:
        if given.arg == name and isinstance(given.value, ast.Constant):
            return str(given.value.value)
    return None


def registered(tree: ast.Module) -> Iterator[Tuple[str, Function]]:
    """Each app.command(...)(function) or decorated function of a module, with its name."""
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Call)
            and is_call_of(node.func, "command")
            and isinstance(node.args[0], ast.Name)
        ):
            function = functions[node.args[0].id]
            yield keyword(node.func, "name") or function.name.replace("_", "-"), function
    for function in functions.values():
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and is_call_of(decorator, "command"):
                yield keyword(decorator, "name") or function.name.replace("_", "-"), function


def parameters(function: Function) -> Iterator[Tuple[str, ast.expr, bool]]:
    """The name, annotation and whether there is a default, of each parameter."""
    args = function.args.args
    defaults = [None] * (len(args) - len(function.args.defaults)) + list(function.args.defaults)
    for arg, default in zip(args, defaults):
        if arg.annotation is not None:
            required = isinstance(default, ast.Constant) and default.value is Ellipsis
            yield arg.arg, arg.annotation, default is not None and not required


def interface(function: Function) -> Dict[str, Any]:
    """The options and arguments of a command."""
    options: List[Dict[str, Any]] = []
    least = most = 0
    for name, annotation, has_default in parameters(function):
        kind = ast.unparse(annotation)
        calls = [node for node in ast.walk(annotation) if isinstance(node, ast.Call)]
        if any(is_call_of(call, "Argument") for call in calls):
            most += 1
            least += 0 if has_default else 1
        elif any(is_call_of(call, "Option") for call in calls):
            call = next(call for call in calls if is_call_of(call, "Option"))
            flags = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
            is_flag = kind.startswith("Annotated[bool")
            options.append(
                {"flags": flags or ["--" + name.replace("_", "-")], "value": not is_flag}
            )
    return {"options": options, "arguments": [least, most]}


def main() -> None:
    trees = modules(sys.argv[1])
    commands = {
        name: interface(function) for tree in trees.values() for name, function in registered(tree)
    }
    json.dump(commands, sys.stdout)


if __name__ == "__main__":
    main()
