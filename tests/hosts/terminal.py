"""A program in a terminal of its own, whose screen is read and drawn."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pyte


class Screen(pyte.Screen):
    """A screen that ignores two private sequences of newer terminals; pyte fails on them."""

    def report_device_status(self, mode=0, private=False):
        if not private:
            super().report_device_status(mode)

    def select_graphic_rendition(self, *attributes, private=False):
        if not private:
            super().select_graphic_rendition(*attributes)


class Terminal:
    """A program on a pseudo-terminal. `screens` has each screen that was seen, with its time in seconds."""

    def __init__(self, command, environment, folder, columns=100, rows=30):
        self.screen = Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.began = time.monotonic()
        self.screens = []
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.master = master
        self.over = False

    def read(self, seconds):
        """Reads for up to `seconds`, or until nothing has come for 50 ms; keeps the screen if it has changed."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        while ready:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                self.over = True
                break
            self.answer(data)
            self.stream.feed(data)
            ready, _, _ = select.select([self.master], [], [], 0.05)
        text = "\n".join(self.screen.display)
        if not self.screens or self.screens[-1][1] != text:
            self.screens.append((time.monotonic() - self.began, text))
        return text

    def answer(self, data):
        """What a terminal answers to the questions that programs ask at their start."""
        for question, reply in [(b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62;22c"), (b"\x1b]11;?", b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\"), (b"\x1b]10;?", b"\x1b]10;rgb:d4d4/d4d4/d4d4\x1b\\")]:
            if question in data:
                os.write(self.master, reply)

    def until(self, condition, seconds, seen=lambda text: None):
        """Waits until `condition(text of the screen)`; `seen` gets each screen. Answers whether it came true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.read(0.2)
            seen(text)
            if condition(text):
                return True
            if self.over:
                return False
        return False

    def type(self, text):
        for character in text:
            os.write(self.master, character.encode())
            self.read(0.02)

    def close(self):
        """Ends the program, first as a person would, and all that it has started in its session."""
        for name in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, name)
            except ProcessLookupError:
                break
            try:
                self.process.wait(timeout=5)
                break
            except subprocess.TimeoutExpired:
                continue
        os.close(self.master)
