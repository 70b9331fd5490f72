"""A terminal as far as the screens use one: cells with their looks, from the bytes that are sent."""

import re

LARGEST = (250, 80)  # no terminal of a test has more
_PARTS = re.compile(
    r"\x1b\[([0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[\[PO][^A-Za-z]*[A-Za-z]|(\r)|(\n)|(.)", re.S
)

Cell = tuple[str, tuple[str, ...]]


class Cells:
    """Erasing leaves the background that is set, as xterm does, or none where `in_colour` is false."""

    def __init__(self, columns: int, lines: int, *, in_colour: bool = True) -> None:
        self.columns, self.in_colour = columns, in_colour
        self.lines: list[list[Cell]] = [[("?", ())] * columns for _ in range(lines)]
        self._x = self._y = 0
        self._look: dict[str, str] = {}

    def feed(self, sent: str) -> None:
        for parameters, kind, back, down, char in (match.groups() for match in _PARTS.finditer(sent)):
            if kind == "H":
                y, _, x = parameters.partition(";")
                self._y, self._x = int(y or 1) - 1, int(x or 1) - 1
            elif kind == "C":
                self._x += int(parameters or 1)
            elif kind == "J":
                for y in range(len(self.lines)):
                    self._erase(y, 0)
            elif kind == "K":
                self._erase(self._y, self._x)
            elif kind == "m":
                self._wear(parameters.split(";"))
            elif back:
                self._x = 0
            elif down:
                self._y += 1
            elif char:
                self.lines[self._y][self._x] = (char, self._shown(char))
                self._x += 1

    def _erase(self, y: int, x: int) -> None:
        blank = (" ", self._shown(" ") if self.in_colour else ())
        self.lines[y][x:] = [blank] * (self.columns - x)

    def _shown(self, char: str) -> tuple[str, ...]:
        """Colour and boldness of a blank cannot be seen."""
        unseen = ("1", "2", "3", "fore") if char == " " and not {"4", "7"} & set(self._look) else ()
        return tuple(sorted(f"{name}={value}" for name, value in self._look.items() if name not in unseen))

    def _wear(self, codes: list[str]) -> None:
        while codes:
            code = codes.pop(0) or "0"
            if code == "0":
                self._look.clear()
            elif code in ("38", "48"):
                many = 2 if codes[0] == "5" else 4
                self._look["fore" if code == "38" else "back"] = ";".join(codes[:many])
                del codes[:many]
            elif code in ("39", "49"):
                self._look.pop("fore" if code == "39" else "back", None)
            elif len(code) > 1:
                self._look["fore" if code[-2] in "39" else "back"] = code
            else:
                self._look[code] = ""


def shown(sent: bytes) -> list[str]:
    """Lines after all that was sent: of a text that changes, only what changed is sent."""
    cells = Cells(*LARGEST)
    cells.feed(sent.decode(errors="replace"))
    return ["".join(char for char, _ in line).rstrip() for line in cells.lines]


def shows(sent: bytes, text: str) -> bool:
    return any(text in line for line in shown(sent))
