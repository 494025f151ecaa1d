"""lead.py FROM TO PROGRAM ARGUMENT...: runs a program of Python whose connections to port FROM lead to port TO."""

import runpy
import socket
import sys

here, there = int(sys.argv[1]), int(sys.argv[2])


def led(connect):
    def to(self, address):
        if isinstance(address, tuple) and address[1] == here:
            address = (address[0], there, *address[2:])
        return connect(self, address)

    return to


socket.socket.connect = led(socket.socket.connect)
socket.socket.connect_ex = led(socket.socket.connect_ex)
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
