"""How far a host's clock is from its time servers, as chronyc prints it."""

import re

_OFFSET = re.compile(r"^System time\s*:\s*([\d.]{1,24}) seconds (slow|fast) of NTP time", re.MULTILINE)
_LEAP = re.compile(r"^Leap status\s*:\s*(\S[^\n]{0,40})$", re.MULTILINE)


def ntp_offset(text: str) -> float | None:
    """Seconds ahead of the time servers; None where it is not told or the clock follows none."""
    found, leap = _OFFSET.search(text), _LEAP.search(text)
    if not found or (leap and leap[1].strip() == "Not synchronised"):
        return None
    try:
        value = float(found[1])
    except ValueError:
        return None
    return value if found[2] == "fast" else -value
