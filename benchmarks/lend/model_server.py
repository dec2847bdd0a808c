"""A server as inference has them, in small: seconds of imports and weights, then several requests at once over HTTP.

It listens when the weights are loaded. The first byte of an answer comes after the model has run, `--first` seconds at
least; the rest follows `--rest` seconds later. SIGTERM: no new request, and the end when all are answered.
"""

import argparse
import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

import torch
from torch import nn


def network() -> nn.Module:
    """That the weights are of."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--weights", type=Path, required=True, help="made if they are not there")
    parser.add_argument("--first", type=float, default=0.2, help="seconds until the first byte of an answer, at least")
    parser.add_argument("--rest", type=float, default=0.8, help="seconds from there until its end")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    model = network()
    if flags.weights.exists():
        model.load_state_dict(torch.load(flags.weights))
    else:
        torch.save(model.state_dict(), flags.weights)

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """What a probe asks: the weights are loaded."""
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            began = time.monotonic()
            inputs = torch.tensor(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            with torch.no_grad():
                digit = str(int(model(inputs).argmax())).encode()
            time.sleep(max(0.0, flags.first - (time.monotonic() - began)))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(digit)
            self.wfile.flush()
            time.sleep(flags.rest)
            self.wfile.write(b"\n")

        def log_message(self, *_: object) -> None:
            """Nothing for each request."""

    server = ThreadingHTTPServer((flags.host, flags.port), Answers)
    server.daemon_threads = False

    def leave(_signal: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, leave)
    server.serve_forever(poll_interval=0.05)
    server.server_close()


if __name__ == "__main__":
    main()
