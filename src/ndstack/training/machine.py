"""The machine and the code of a run: the processor, its vector instructions, the git commit."""

import platform
import re
from pathlib import Path

WIDEST = ("avx512f", "avx2", "avx", "sse4_2", "asimd")
"""Vector instructions, the widest first."""


def cpu_model() -> str:
    """Return the name of the processor."""
    found = re.search(r"^model name\s*:\s*(.*)$", _cpuinfo(), re.M)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def simd() -> str:
    """Return the widest vector instructions that the processor reports; "" if they are not known."""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _cpuinfo(), re.M)
    flags = set(found.group(1).split()) if found else set()
    return next((name for name in WIDEST if name in flags), "")


def commit(start: Path | None = None) -> str:
    """Return the git commit of the clone with this file or folder, by default with this module, or "".

    It is read from the files of git, because there may be no program of that name.
    """
    here = (start or Path(__file__)).resolve()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    if root is None or not (start or (root / "src" / "ndstack").is_dir()):
        return ""
    try:
        git = root / ".git"
        if git.is_file():  # a worktree
            git = (root / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
        common = git / "commondir"
        shared = (git / common.read_text(encoding="utf-8").strip()).resolve() if common.exists() else git
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head[:12]
        name = head.partition("ref:")[2].strip()
        for folder in (git, shared):
            if (folder / name).exists():
                return (folder / name).read_text(encoding="utf-8").strip()[:12]
        packed = (shared / "packed-refs").read_text(encoding="utf-8")
        found = re.search(rf"^([0-9a-f]+) {re.escape(name)}$", packed, re.M)
        return found.group(1)[:12] if found else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
