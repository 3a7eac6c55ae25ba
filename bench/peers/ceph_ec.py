#!/usr/bin/env python3
"""1 MiB reads from twelve OSDs of one Ceph cluster on this machine: through the rados driver (twelve plain pools, 10 + 2 coded by
the client, 11 of 12 asked) and through Ceph's own erasure-coded pool 10 + 2 (isa, fast_read, min_size 10). Healthy, then with
one OSD stopped for 11 s. One thread; both in turn, in one run. Needs scripts/install_packages ceph.
Usage: bench/peers/ceph_ec.py PROGRAM [--csv FILE] [--seconds N]"""
import argparse
import ctypes
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OBJECT = 1 << 20
NUM_OBJECTS = 16
TIMEOUT_S = 2  # as the store's


class Pool:
    def __init__(self, conf, name):
        self.lib = ctypes.CDLL("librados.so.2")
        self.cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.rados_create(ctypes.byref(self.cluster), None))
        self.check(self.lib.rados_conf_read_file(self.cluster, conf.encode()))
        self.check(self.lib.rados_conf_set(self.cluster, b"rados_osd_op_timeout", str(TIMEOUT_S).encode()))
        self.check(self.lib.rados_connect(self.cluster))
        self.check(self.lib.rados_ioctx_create(self.cluster, name.encode(), ctypes.byref(self.io)))
        self.buffer = ctypes.create_string_buffer(OBJECT)
        self.lib.rados_write_full.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        self.lib.rados_read.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]

    @staticmethod
    def check(status):
        if status < 0:
            raise OSError(-status, os.strerror(-status))

    def fill(self):
        for i in range(NUM_OBJECTS):
            self.check(self.lib.rados_write_full(self.io, b"o%d" % i, random.Random(i).randbytes(OBJECT), OBJECT))

    def read_for(self, seconds):
        chosen, took, num_failed = random.Random(7), [], 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            got = self.lib.rados_read(self.io, b"o%d" % chosen.randrange(NUM_OBJECTS), self.buffer, OBJECT, 0)
            took.append(1000 * (time.monotonic() - begin))
            num_failed += got != OBJECT
        took.sort()
        at = lambda share: took[min(len(took) - 1, int(share * len(took)))]
        return {"reads": len(took), "failed": num_failed, "p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999)}


def ours(program, conf, seconds):
    command = [program, "store", "bench", "--rados", conf + ":kv", "--block-bytes", str(OBJECT // 32), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        raise RuntimeError(f"store bench ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def stopped(conf, body):
    """Runs `body` with osd.5 stopped for 11 s, from its second second on."""
    pid = int((Path(conf).parent / "osd.5.pid").read_text())
    def stop():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(11)
        os.kill(pid, signal.SIGCONT)
    timer = threading.Timer(2, stop)
    timer.start()
    try:
        return body()
    finally:
        timer.join()
        time.sleep(5)  # until its groups are clean again


def ceph(conf, *words):
    subprocess.run(["ceph", "-c", conf, "--connect-timeout", "20", *words], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_pool(conf):
    ceph(conf, "osd", "erasure-code-profile", "set", "ec", "k=10", "m=2", "plugin=isa", "technique=reed_sol_van",
         "crush-failure-domain=osd", "crush-device-class=")
    ceph(conf, "osd", "pool", "create", "ec", "32", "32", "erasure", "ec")
    for name, value in (("min_size", "10"), ("fast_read", "1")):
        ceph(conf, "osd", "pool", "set", "ec", name, value)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("program")
    options.add_argument("--csv")
    options.add_argument("--seconds", type=int, default=10)
    options.add_argument("--conf", help="of a cluster that scripts/ceph_test_cluster started; it stays")
    a = options.parse_args()
    cluster = str(ROOT / "scripts/ceph_test_cluster")
    folder = tempfile.mkdtemp() + "/ceph"
    rows = []
    try:
        conf = a.conf or subprocess.run([cluster, "start", folder], check=True, capture_output=True, text=True).stdout.split()[-1]
        make_pool(conf)
        pool = Pool(conf, "ec")
        pool.fill()
        for name, run in (("healthy", lambda body: body()), ("one OSD stopped for 11 s", lambda body: stopped(conf, body))):
            seconds = a.seconds if name == "healthy" else 15
            own = run(lambda: ours(a.program, conf, seconds))
            peer = run(lambda: pool.read_for(seconds))
            print(name, "rados driver:", json.dumps(own), "EC pool:", json.dumps(peer), flush=True)
            rows.append((name, own, peer))
    finally:
        if not a.conf:
            subprocess.run([cluster, "stop", folder], check=False)
    if a.csv:
        with open(a.csv, "w") as out:
            out.write("# bench/peers/ceph_ec.py build/release/bin/deepinfer --csv %s | 12 OSDs on this machine | 1 thread\n" % a.csv)
            out.write("bench,case,value,unit,ceiling,ceiling_name,peer,peer_name,note\n")
            for name, own, peer in rows:
                told = ["p99 %.1f ms, p99.9 %.1f ms, %d of %d failed" % (x["p99_ms"], x["p999_ms"], x["failed"], x["reads"])
                        for x in (own, peer)]
                out.write('store_ceph,"1 MiB read, %s",%.2f,ms p50,0,,%.2f,Ceph EC pool 10+2,"%s; EC pool: %s"\n' %
                          (name, own["p50_ms"], peer["p50_ms"], *told))


if __name__ == "__main__":
    main()
