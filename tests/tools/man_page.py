"""The manual page: groff has nothing to say of it, and all is in it.

usage: man_page.py DELINK
"""

import shutil
import subprocess
import sys

from completion import SKIPPED, commands, output


def main():
    delink = sys.argv[1]
    if shutil.which("groff") is None:
        print("SKIPPED: no groff")
        return SKIPPED
    page = output(delink, "man")
    done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-c"],
                          input=page, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    # Without bold by overstriking, breaks within words and blanks.
    text = done.stdout
    while "\b" in text:
        at = text.index("\b")
        text = text[:at - 1] + text[at + 1:]
    text = " ".join(text.replace("-\n", "-").split())
    for path, options, names in commands(delink):
        if not names:
            assert " ".join(("delink",) + path) in text, path
        for option in options:
            assert option in text, (path, option)
    assert "Exit codes: 0; 2" in text
    return 0


if __name__ == "__main__":
    sys.exit(main())
