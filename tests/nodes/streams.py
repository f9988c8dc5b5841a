#!/usr/bin/env python3
"""Measures the network between two nodes by plain TCP.

usage: streams.py serve
       streams.py ADDRESS BYTES

The second connects to the first, and prints the round-trip time in ms, and the rates in Mbit/s of BYTES one way, and
both ways at a time, each way by itself.
"""
import socket
import sys
import threading
import time

PORT = 7979


def receive(peer, count):
    room = memoryview(bytearray(1 << 16))
    while count > 0:
        read = peer.recv_into(room[:min(count, len(room))])
        if read == 0:
            raise ConnectionError("the other side has closed the connection")
        count -= read


def connect(address):
    peer = socket.create_connection((address, PORT), timeout=60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def serve():
    with socket.create_server(("", PORT)) as door:
        print("ready", flush=True)
        peer, _ = door.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        count = int(peer.recv(64))
        for _ in range(ROUND_TRIPS):
            receive(peer, 1)
            peer.sendall(b"1")
        receive(peer, count)
        peer.sendall(b"1")
        both_ways(peer, count)


ROUND_TRIPS = 11


def both_ways(peer, count):
    """The seconds until all is received and, as the other side says, has arrived."""
    data = bytes(count)
    begin = time.monotonic()
    sender = threading.Thread(target=peer.sendall, args=(data,))
    sender.start()
    receive(peer, count)
    took = time.monotonic() - begin
    sender.join()
    peer.sendall(b"1")
    receive(peer, 1)
    return took


def measure(address, count):
    peer = connect(address)
    peer.sendall(str(count).encode())
    time.sleep(0.05)  # the number is a message by itself
    trips = []
    for _ in range(ROUND_TRIPS):
        begin = time.monotonic()
        peer.sendall(b"1")
        receive(peer, 1)
        trips.append(time.monotonic() - begin)
    begin = time.monotonic()
    peer.sendall(bytes(count))
    receive(peer, 1)
    one_way = time.monotonic() - begin
    both = both_ways(peer, count)
    print(f"{sorted(trips)[ROUND_TRIPS // 2] * 1e3:.3f} {count * 8e-6 / one_way:.2f} {count * 8e-6 / both:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        measure(sys.argv[1], int(sys.argv[2]))
