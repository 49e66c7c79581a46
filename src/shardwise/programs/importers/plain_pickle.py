"""Reads a pickle as data, within bounds: numbers, texts, lists, tuples and dicts are made of it, nothing it names is
imported or called. Where objects are wanted too, each becomes a record of the name it would be made by.

Pickle's own loader is not used even with its imports barred: a few hundred bytes make it hash a tuple of 2**60 shared
parts, or reserve a memo of gigabytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pickletools import genops
from struct import error as StructError
from typing import Any

MOST_STEPS = 10_000_000
MOST_EXPANDED = 2**30
"""values and characters, each counted wherever it is referred to"""
DEEPEST = 64
LONGEST_TEXT = 2**20
LONGEST_NUMBER = 128
"""bits"""
_TYPED_LISTS = ("build_intlist", "build_doublelist", "build_boollist")
"""how torch writes lists of one type: (module torch.jit._pickle)"""
_TAGGED = "restore_type_tag"
_FUNCTIONS = {f"torch.jit._pickle {name}": name for name in (*_TYPED_LISTS, _TAGGED)}
_VALUES = frozenset((
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8",
))  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ATOMS = (str, int, float, bytes, type(None))
_EMPTY = {"collections OrderedDict": dict, "collections defaultdict": dict, "builtins set": list, "builtins list": list}
"""collections whose items follow in the pickle"""
_TUPLE_LIKE = ("torch Size", "builtins tuple", "builtins set", "builtins frozenset")
LONGEST_KEY = 16
"""parts of a tuple that is a key"""


class Name(str):
    """A function or class that the pickle names, which is never imported or called."""


@dataclass(eq=False, slots=True)
class MadeObject:
    """An object as the pickle describes it: what would be called, with which arguments, and the state after that."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def load(raw: bytes, *, objects: bool = False) -> Any:
    """A ValueError says which bound is passed, or what the pickle asks for that data does not need. `objects`: any name
    becomes a record; otherwise it is refused."""
    try:
        found = (_ObjectMachine() if objects else _Machine()).run(raw)
    except ValueError as error:  # of pickletools too, which knows no damaged pickle by another name
        raise ValueError(str(error)[:150]) from None
    except (IndexError, KeyError, TypeError, OverflowError, StructError) as error:
        raise ValueError(f"it is damaged: {type(error).__name__} {error}"[:150]) from None
    _check_expanded(found)
    return found


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, raw: bytes) -> Any:
        for step, (opcode, argument, _) in enumerate(genops(raw)):
            if step >= MOST_STEPS:
                raise ValueError(f"more than {MOST_STEPS:,} steps")
            name = opcode.name
            if name in _VALUES:
                self.stack.append(_bounded(argument))
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name == "STOP":
                break
            else:
                self._do(name, argument)
        return self.stack.pop()

    def _do(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name in ("GLOBAL", "STACK_GLOBAL", "REDUCE"):
            self._call(name, argument)
        elif name in ("POP", "POP_MARK"):
            stack.pop() if name == "POP" and self.marks[-1:] != [len(stack)] else self._since_mark()
        elif name not in ("PROTO", "FRAME"):
            self._contain(name)

    def _contain(self, name: str) -> None:
        stack = self.stack
        if name in ("EMPTY_LIST", "LIST"):
            stack.append([] if name == "EMPTY_LIST" else self._since_mark())
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("EMPTY_DICT", "DICT"):
            stack.append({} if name == "EMPTY_DICT" else _dict_of(self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            more = [stack.pop()] if name == "APPEND" else self._since_mark()
            _of_kind(stack[-1], list).extend(more)
        elif name in ("SETITEM", "SETITEMS"):
            more = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self._since_mark()
            _of_kind(stack[-1], dict).update(_dict_of(more))
        else:
            raise ValueError(f"it asks for {name}")

    def _since_mark(self) -> list[Any]:
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def _call(self, name: str, argument: Any) -> None:
        if name == "REDUCE":
            arguments, function = self.stack.pop(), _of_kind(self.stack.pop(), Name)
            value = _of_kind(arguments, tuple)[0]
            self.stack.append(value if function == _TAGGED else list(_of_kind(value, list)))
            return
        asked = argument if name == "GLOBAL" else f"{self.stack.pop(-2)} {self.stack.pop()}"
        if asked not in _FUNCTIONS:
            raise ValueError(f"it asks for {asked.replace(' ', '.')}"[:200])
        self.stack.append(Name(_FUNCTIONS[asked]))


class _ObjectMachine(_Machine):
    def _do(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("GLOBAL", "STACK_GLOBAL"):
            named = argument if name == "GLOBAL" else f"{_of_kind(stack.pop(-2), str)} {_of_kind(stack.pop(), str)}"
            stack.append(Name(_bounded(named)))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = _of_kind(stack.pop(), tuple)
            stack.append(_made(_of_kind(stack.pop(), Name), arguments))
        elif name == "BINPERSID":
            stack.append(MadeObject("persistent", (stack.pop(),)))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], MadeObject):
                stack[-1].state = state
        elif name == "EMPTY_SET":
            stack.append([])
        elif name == "ADDITEMS":
            more = self._since_mark()
            _of_kind(stack[-1], list).extend(more)
        elif name == "FROZENSET":
            stack.append(tuple(self._since_mark()))
        else:
            super()._do(name, argument)


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    if name in _EMPTY and not any(isinstance(one, list | tuple) for one in arguments):
        return _EMPTY[name]()
    if name in _TUPLE_LIKE and len(arguments) == 1 and isinstance(arguments[0], list | tuple):
        return tuple(arguments[0])
    return MadeObject(name, arguments)


def _of_kind(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"it is damaged: {type(value).__name__} where {kind.__name__.strip('_').lower()} is needed")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, str | bytes) and len(value) > LONGEST_TEXT:
        raise ValueError(f"a text of more than {LONGEST_TEXT:,} characters")
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        raise ValueError(f"a number of more than {LONGEST_NUMBER} bits")
    return value


def _dict_of(flat: list[Any]) -> dict[Any, Any]:
    """A key that is a tuple would be hashed part by part, shared ones again and again."""
    for key in flat[::2]:
        if type(key) not in (*_ATOMS, bool, Name, MadeObject) and not _short_tuple(key):
            raise ValueError(f"a key that is a {type(key).__name__}")
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _short_tuple(key: Any) -> bool:
    return type(key) is tuple and len(key) <= LONGEST_KEY and all(type(part) in (*_ATOMS, bool) for part in key)


def _check_expanded(root: Any) -> None:
    """Each container is walked once, however often it is referred to."""
    sizes: dict[int, int] = {}
    path: list[tuple[Any, Iterator[Any]]] = [(root, iter(_inside(root)))]
    open_now, totals = {id(root)}, [1]
    while path:
        node, left = path[-1]
        for child in left:
            if isinstance(child, list | tuple | dict | MadeObject):
                if id(child) in open_now:
                    raise ValueError("a container inside itself")
                if id(child) not in sizes:
                    path.append((child, iter(_inside(child))))
                    open_now.add(id(child))
                    totals.append(1)
                    break
                totals[-1] += sizes[id(child)]
            else:
                totals[-1] += 1 + (len(child) if isinstance(child, str | bytes) else 0)
        else:
            path.pop()
            open_now.discard(id(node))
            sizes[id(node)] = total = totals.pop()
            if total > MOST_EXPANDED:
                raise ValueError(f"more than {MOST_EXPANDED:,} values and characters when it is expanded")
            if totals:
                totals[-1] += total
        if len(path) > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")


def _inside(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield value
    elif isinstance(node, list | tuple):
        yield from node
    elif isinstance(node, MadeObject):
        yield node.arguments
        yield node.state
