"""What a shell completes after `delink completion SHELL`, asked of the shell.

usage: completion.py SHELL DELINK

Besides a few lines chosen by hand, every option that any --help names must
complete, and nothing else.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


def output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def commands(delink, path=()):
    """Every command with the names that its help lists: (path, words)."""
    text = output(delink, *path, "--help")
    options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.M))
    below = text.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  (\w+)", below, re.M)
    yield path, options, set(names)
    for name in names:
        yield from commands(delink, path + (name,))


class Bash:
    """Calls the completion function as bash would."""

    def __init__(self, script):
        self.script = script

    def complete(self, words, folder):
        text = ('source "$1"; shift; COMP_WORDS=("$@"); '
                "COMP_CWORD=$(($# - 1)); _delink; "
                'printf "%s\\n" "${COMPREPLY[@]}"')
        # bash takes a word apart at equals signs.
        parts = [p for w in words[:-1] + [words[-1]]
                 for p in (re.split("(=)", w) if w else [""])]
        if parts[-1] == "" and len(parts) > 1 and parts[-2] == "=":
            parts.pop()
        found = output("bash", "-c", text, "bash", self.script, *parts,
                       cwd=folder)
        return set(found.split("\n")) - {""}


class Fish:
    def __init__(self, script):
        self.script = script

    def complete(self, words, folder):
        text = 'source $argv[1]; complete --do-complete $argv[2]'
        found = output("fish", "--no-config", "-c", text, self.script,
                       " ".join(words), cwd=folder)
        lines = {line.split("\t")[0] for line in found.splitlines()}
        # fish repeats what comes before the value.
        before = words[-1].partition("=")[0] + "="
        return {line.removeprefix(before).rstrip("/") for line in lines}


class Zsh:
    """Types into a shell of its own, and reads the line that has become."""

    def __init__(self, script):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", PS1="", COLUMNS="1000")
            os.execlp("zsh", "zsh", "-f", "-i", "-o", "no_prompt_sp")
        self.ask("unsetopt zle_bracketed_paste 2>/dev/null; "
                 "autoload -U compinit && compinit -u -D; "
                 "setopt auto_list bash_auto_list; "
                 "zstyle ':completion:*' insert-tab false; "
                 "source " + script + "; echo re''ady", "ready")

    def ask(self, line, answer):
        os.write(self.terminal, line.encode() + b"\n")
        seen = b""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.2)[0]:
                seen += os.read(self.terminal, 65536)
            found = re.findall(answer.encode(), seen)
            if found:
                return found[-1].decode()
        raise AssertionError((line, seen))

    def completed(self, line, folder):
        """The line after a tab: what all candidates have in common."""
        self.ask("cd " + folder + " && echo mo''ved", "moved")
        # To its start (Control-A), where it is made harmless.
        return self.ask(line + "\t\x01echo '<'\x05'>'", r"\n<([^\n]*?) ?>")


def check_all(shell, delink, folder):
    for path, options, names in commands(delink):
        line = ["delink", *path]
        found = shell.complete(line + ["--"], folder)
        assert options <= found, (path, options - found)
        assert found - {"-h"} <= options, (path, found - options)
        if names:
            assert shell.complete(line + [""], folder) == names, path


def check_values(shell, folder):
    cases = [
        (["delink", "tra"], {"train"}),
        (["delink", "data", "b"], {"build"}),
        (["delink", "train", "re"], {"recipe one.toml", "recipes"}),
        (["delink", "data", "info", "re"], {"recipes"}),
        (["delink", "train", "recipe", "--out", "re"], {"recipes"}),
        (["delink", "data", "build", "--format", ""], {"text", "jsonl"}),
        (["delink", "data", "build", "--format=j"], {"jsonl"}),
        (["delink", "delink", "x", "--state", "re"], {"reset"}),
        (["delink", "completion", "z"], {"zsh"}),
        (["delink", "train", "--until-step", ""], set()),
        (["delink", "train", "--resume=reci"], {"recipe one.toml", "recipes"}),
    ]
    for words, expected in cases:
        found = shell.complete(words, folder)
        assert found == expected, (words, found, expected)


def check_zsh(shell, folder):
    cases = {
        "delink tra": "delink train",
        "delink data bui": "delink data build",
        "delink data info re": "delink data info recipes",
        "delink train --over": "delink train --overwrite",
        "delink data build --format js": "delink data build --format jsonl",
        "delink train --resume=recipes/ti":
            "delink train --resume=recipes/tiny.toml",
        "delink delink x --state res": "delink delink x --state reset",
        "delink completion f": "delink completion fish",
    }
    for line, expected in cases.items():
        found = shell.completed(line, folder)
        assert found == expected, (line, found, expected)


def main():
    name, delink = sys.argv[1], os.path.abspath(sys.argv[2])
    if shutil.which(name) is None:
        print("SKIPPED: no", name)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "script")
        with open(script, "w") as file:
            file.write(output(delink, "completion", name))
        work = os.path.join(folder, "work")
        os.makedirs(os.path.join(work, "recipes"))
        for path in ("recipe one.toml", "recipes/tiny.toml", "other"):
            open(os.path.join(work, path), "w").close()
        if name == "zsh":
            check_zsh(Zsh(script), work)
        else:
            shell = Bash(script) if name == "bash" else Fish(script)
            check_all(shell, delink, work)
            check_values(shell, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
