"""What a learner's code has that no exercise and no training needs: found by reading it, without running it.

A finding proves nothing, and costs nothing: code that has one waits until a person has looked at it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# By their first names; of the course's own package what trains.
_MODULES = _words(
    "__future__ abc argparse bisect collections contextlib copy csv dataclasses datetime decimal enum fractions "
    "functools gc glob h5py hashlib heapq horovod io itertools json keras logging math matplotlib numbers numpy os "
    "pandas pathlib platform pprint queue random re scipy shutil statistics sys tempfile tensorflow textwrap time tqdm "
    "typing uuid warnings"
)
_COURSE = _words("collectives compression data models optimizers precision statistics")
_NOT = ("course_grader.script.watermarks", "logging.config", "logging.handlers")
_USUAL = _words("np tf hvd pd plt os sys gc")  # names of modules, which the notebook may have imported
_BUILT_INS = _words(
    "__builtins__ __import__ __loader__ __spec__ breakpoint compile delattr eval exec getattr globals locals setattr "
    "vars"
)
_OF_MODULES = {
    "PIL": _words("Image ImageEnhance ImageFilter ImageOps"),
    "gc": _words("collect"),
    "os": _words(
        "PathLike cpu_count devnull environ fsdecode fspath fsync getcwd getenv getpid linesep listdir makedirs mkdir "
        "name path remove rename replace scandir sched_getaffinity sep stat unlink urandom walk"
    ),
    "sys": _words("argv exit float_info maxsize platform stderr stdout version version_info"),
    "timeit": _words("default_timer"),
    "traceback": _words("format_exc print_exc"),
}
# Ways from a module or an object into the interpreter.
_ATTRIBUTES = _words(
    "CodeType FastGFile ForwardAccumulator FunctionType GFile StrFormatStyle StrMethodFormatter attrgetter builtins "
    "cloudpickle codec cr_frame ctypes ctypeslib deserialize deserialize_keras_object dill distutils eval exec "
    "exec_command f2py f_back f_builtins f_globals f_locals func_load gc get_registered_object get_type_hints gi_frame "
    "importlib inspect load_library load_op_library loads_base64 marshal methodcaller model_from_config "
    "model_from_json model_from_yaml modules multiprocessing os pickle pickle_compat pickletools pkl raw_ops read_file "
    "read_pickle rundocs runpy runstring safe_shell_exec shelve singledispatch singledispatchmethod subprocess sys "
    "tb_frame tb_next write_file"
)
# Which a learner's own class may have, or ask of the class above it. Pandas' `query` is written out, if it is.
_OF_OTHERS = _words(
    "atrous_conv2d batch_jacobian conv2d convolution convolution_op delattr extract_patches from_config "
    "fused_batch_norm getattr globals gradients jacobian load_model locals marks query setattr update_step vars"
)
_SPECIAL = _words(
    "__call__ __contains__ __doc__ __enter__ __eq__ __exit__ __file__ __getitem__ __init__ __iter__ __len__ __name__ "
    "__next__ __repr__ __setitem__ __str__ __version__"
)
_OF_NAMED_TUPLES = _words("_asdict _fields _replace")
_TOO_DEEP = "line 1 begins what is nested too deeply to be read"
_STREAMS = ("sys.stdout", "sys.stderr")  # which anybody may put elsewhere
# In a string: what `format` takes for a way into an object, and who asks for the marks on the images.
_WAYS = re.compile(
    r"\{[^{}]*[.\[]_|\b(?:f_(?:back|builtins|globals|locals)|tb_(?:frame|next))\b|COURSE_MARKS|\bmarks\.json|\bclass_name\b"
    r"|__(?:bases|builtins|closure|code|dict|globals|import|mro|subclasses|traceback)__"
)


def findings(source: str | bytes) -> list[str]:
    """A phrase for each thing that a person should look at, with its line; none for what is no Python.

    Bytes are read as Python reads a file, in the encoding that they name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):  # Python itself, which has called fewer functions by then, may read it
        return [_TOO_DEEP]
    try:
        return [f"line {line} {what}" for line, what in dict.fromkeys(sorted(_found(_Plainly(tree).visit(tree))))]
    except RecursionError:
        return [_TOO_DEEP]


class _Plainly(ast.NodeTransformer):
    """Writes plainly what built-ins do that would be found otherwise: `x.lr` for `getattr(x, "lr")`, `x` for `vars(x)`
    where that is only printed."""

    def __init__(self, tree: ast.AST) -> None:
        self._showing = {"print", "str"} - _named(tree)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Called by `visit`."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._showing:
            node.args = [_shown(argument) for argument in node.args]
        if not (_is_call(node, "getattr", 2) or _is_call(node, "getattr", 3)) or node.keywords:
            return node
        value, name, *default = node.args
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier()):
            return node
        plain = ast.copy_location(ast.Attribute(value, name.value, ast.Load()), node)
        return ast.BoolOp(ast.Or(), [plain, *default]) if default else plain

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """Called by `visit`."""
        self.generic_visit(node)
        node.value = _shown(node.value)
        return node


def _shown(node: ast.expr) -> ast.expr:
    return node.args[0] if _is_call(node, "vars", 1) else node


def _is_call(node: ast.expr, name: str, arguments: int) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    return called and len(node.args) == arguments


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    origins, modules = _Origins(tree), dict(_modules(tree))
    local = set(_local(tree))
    owners = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    written_out = set(_queries(tree))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((node.lineno, f"imports {name}") for name in _imported(node) if not _is_known(name))
        elif isinstance(node, ast.Name):
            if (node.id in _BUILT_INS and id(node) not in local) or (node.id in modules and id(node) not in owners):
                yield node.lineno, f"uses {node.id}"
            elif node.id == "_stream":  # what contextlib's `redirect_stdout` puts elsewhere, in whatever module
                yield node.lineno, "redirects what is no stream"
        elif isinstance(node, ast.Constant) and (way := _WAYS.search(_text(node.value))):
            yield node.lineno, f"has {way[0][:40]} in a string"
        elif type(node).__name__ == "MatchClass":  # Python 3.9 has none
            hidden = [name for name in node.kwd_attrs if name.startswith("_") or name in _ATTRIBUTES]
            yield from ((node.lineno, f"reaches for {name}") for name in hidden)
        elif isinstance(node, ast.keyword) and (asked := _asked(node)):
            yield node.value.lineno, asked
        elif isinstance(node, ast.Attribute):
            if id(node) in written_out:
                continue
            if _is_inner(node, modules) and (node.attr, owners.get(id(node))) != ("__class__", "__name__"):
                yield node.lineno, f"reaches for {_written(node)}"
            elif _is_changed(node) and not origins.made(node.value):
                yield node.lineno, f"changes {_written(node)}"


def _text(value: object) -> str:
    """The text of a constant; "" of a number."""
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _asked(node: ast.keyword) -> str:
    """What somebody should look at in an argument with a name."""
    value = node.value.value if isinstance(node.value, ast.Constant) else None
    if node.arg == "allow_pickle" and value is not False:
        return "reads pickles"
    if node.arg == "class_name":
        return "names a class to be found"
    return "formats in a way of its own" if node.arg == "style" and value in ("{", "$") else ""


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    return [f"{module}.{alias.name}" for alias in node.names]


def _is_known(name: str) -> bool:
    first, *rest = name.split(".")
    if name.startswith(_NOT) or any(part in _ATTRIBUTES or part.startswith("_") for part in rest):
        return False
    if first == "course_lib":
        return bool(rest) and rest[0] in _COURSE
    if first in _OF_MODULES and rest and rest[0] not in _OF_MODULES[first]:
        return False
    return first in _MODULES | _OF_MODULES.keys()


def _modules(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, module) of what is imported whole, and of what the notebook may have imported."""
    yield from ((name, name) for name in _USUAL if name in _OF_MODULES or name not in _named(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2 for alias in node.names
            )


def _is_inner(node: ast.Attribute, modules: dict[str, str]) -> bool:
    root = node.value.id if isinstance(node.value, ast.Name) else ""
    if modules.get(root) in _OF_MODULES:
        return node.attr not in _OF_MODULES[modules[root]]
    if (root, node.attr) == ("logging", "config"):
        return True
    if node.attr in ("format", "format_map"):
        return not isinstance(node.value, ast.Constant)
    mine = root in ("self", "cls") or _is_call(node.value, "super", 0)
    if node.attr.startswith("__"):
        return node.attr not in _SPECIAL and (node.attr.endswith("__") or not mine)
    hidden = node.attr in _OF_OTHERS or (node.attr.startswith("_") and node.attr not in _OF_NAMED_TUPLES)
    return node.attr in _ATTRIBUTES or (hidden and not mine)


def _queries(tree: ast.AST) -> Iterator[int]:
    """Identities of what is called as pandas' `query` is, with a string that can be read here."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    literal = [call for call in calls if [type(argument) for argument in call.args] == [ast.Constant]]
    yield from (id(call.func) for call in literal if getattr(call.func, "attr", "") == "query")


def _is_changed(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, (ast.Store, ast.Del)) and ast.unparse(node) not in _STREAMS


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_OWN_SCOPES = (*_SCOPES, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _local(tree: ast.AST) -> Iterator[int]:
    """Identities of the names that are a function's own arguments or variables there, and so no built-ins."""
    shared = {name for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            bound = {name.id for name in _names(function, _OWN_SCOPES) if isinstance(name.ctx, ast.Store)}
            bound = bound.union(_arguments(function)) - shared
            yield from (id(name) for name in _names(function, _SCOPES) if name.id in bound)


def _names(function: ast.AST, but: tuple[type, ...]) -> Iterator[ast.Name]:
    """The names in a function's body, but for those in such parts of it."""
    todo = list(function.body) if isinstance(function.body, list) else [function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            yield node
        if not isinstance(node, but):
            todo.extend(ast.iter_child_nodes(node))


def _arguments(function: ast.AST) -> list[str]:
    of = function.args
    found = [*of.posonlyargs, *of.args, *of.kwonlyargs, *filter(None, (of.vararg, of.kwarg))]
    return [argument.arg for argument in found]


class _Origins:
    """Which names stand for what the code has made itself, and which may stand for what was there before, as a class of
    a module: because they are imported, or because such a thing may get there, in whatever way.

    ".name" is an attribute of whatever object, "name()" what a function gives.
    """

    _PASS_ON = _words("append appendleft add extend insert put setdefault update")
    _HAND_OUT = _words("copy get items pop popleft setdefault values")

    def __init__(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        aliases = [name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for name in node.names]
        self._imported = {*_USUAL, *((alias.asname or alias.name).split(".")[0] for alias in aliases)}
        functions = [node for node in nodes if isinstance(node, _FUNCTIONS[:2])]
        self._arguments = {function.name: _arguments(function) for function in functions}
        self._bound = _named(tree)
        self._strange = set(self._imported)
        ways = [way for node in nodes for way in self._ways(node)]
        before = 0
        while before < len(self._strange):
            before = len(self._strange)
            for value, names in (*ways, *reversed(ways)):  # a long chain of names in either direction is one pass
                if self._shows(value):
                    self._strange.update(names)

    def made(self, node: ast.expr) -> bool:
        """Whether the code has made this object, as far as can be told."""
        root = _root(node)
        return not self._shows(node) and (not root or root in self._bound)

    def _ways(self, node: ast.AST) -> Iterator[tuple[ast.expr, set[str]]]:
        """(expression, where its value may get)."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield node.value, {name for target in targets for name in _places(target)}
            if isinstance(node.value, ast.Lambda):
                yield node.value.body, {f"{name}()" for target in targets for name in _places(target)}
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield node.iter, set(_places(node.target))
        elif isinstance(node, ast.withitem) and node.optional_vars:
            yield node.context_expr, set(_places(node.optional_vars))
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.Assign):
                    yield statement.value, {f".{name}" for target in statement.targets for name in _places(target)}
        elif isinstance(node, ast.Call):
            yield from self._handed_over(node)
        elif isinstance(node, _FUNCTIONS):
            plain = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            named = [argument.arg for argument in node.args.kwonlyargs]
            defaults = node.args.defaults
            yield from ((value, {name}) for value, name in zip(defaults, plain[len(plain) - len(defaults) :]))
            yield from ((value, {name}) for value, name in zip(node.args.kw_defaults, named) if value)
            if not isinstance(node, ast.Lambda):
                given = [part.value for part in ast.walk(node) if isinstance(part, (ast.Return, ast.Yield))]
                yield from ((value, {f"{node.name}()"}) for value in given if value)

    def _handed_over(self, node: ast.Call) -> Iterator[tuple[ast.expr, set[str]]]:
        """A call's arguments, and which of the code's own functions' names, or what container, get them."""
        method = isinstance(node.func, ast.Attribute)
        called = node.func.attr if method else _root(node.func)
        given = [(value, None) for value in node.args] + [(keyword.value, keyword.arg) for keyword in node.keywords]
        takers = self._arguments.get(called, ())
        takers = takers[takers[:1] in (["self"], ["cls"]) :]
        unpacked = any(isinstance(value, ast.Starred) for value in node.args) or None in {k.arg for k in node.keywords}
        for place, (value, name) in enumerate(given):
            yield value, set(takers if unpacked else [name] if name in takers else takers[place : place + 1])
        others = {value.id for value, _ in given if isinstance(value, ast.Name)} & self._arguments.keys()
        places = {argument for name in others for argument in self._arguments[name]} - {"self", "cls"}
        if method and called in self._PASS_ON:
            places.update(_places(node.func.value))
        yield from ((value, places) for value, _ in given)

    def _shows(self, node: ast.expr) -> bool:
        """Whether something strange, or what holds it, may be the value."""
        if isinstance(node, ast.Name):
            return node.id in self._strange
        if isinstance(node, ast.Attribute):
            return f".{node.attr}" in self._strange or self._shows(node.value)
        if isinstance(node, ast.Call):
            return self._gives(node)
        if isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr, ast.Await, ast.DictComp)):
            return self._shows(node.value)
        if isinstance(node, ast.IfExp):
            return self._shows(node.body) or self._shows(node.orelse)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self._shows(node.elt)
        if isinstance(node, (ast.Dict, ast.BoolOp)):
            return any(map(self._shows, node.values))
        return any(map(self._shows, getattr(node, "elts", ())))

    def _gives(self, node: ast.Call) -> bool:
        """Whether what a call gives was there before: what modules' functions and classes give, they make."""
        if isinstance(node.func, ast.Attribute):
            handed_out = node.func.attr in self._HAND_OUT and _root(node.func) not in self._imported
            return f"{node.func.attr}()" in self._strange or (handed_out and self._shows(node.func.value))
        if not isinstance(node.func, ast.Name):
            return isinstance(node.func, ast.Lambda) and self._shows(node.func.body)
        if node.func.id in self._bound | self._strange:
            return f"{node.func.id}()" in self._strange
        return node.func.id == "type" or any(map(self._shows, node.args))  # a built-in, as `zip`


def _places(node: ast.expr) -> Iterator[str]:
    """Where a value gets that is assigned to this."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield f".{node.attr}"
    elif isinstance(node, (ast.Subscript, ast.Starred)):
        yield from _places(node.value)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from _places(element)


def _named(tree: ast.AST) -> set[str]:
    """The names that the code gives to anything but to what it imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif not isinstance(node, ast.alias):
            names.add(getattr(node, "name", None))  # a function, a class, an exception, a part of a pattern
    return names - {None}


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _written(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"….{node.attr}"
