"""A refused connection leaves a line with its address and the reason."""

import datetime
import os
import socket
import ssl
import subprocess
import sys
import time
import warnings

import pytest

from compositefl.deployment import flare_door
from compositefl.deployment.flare_door import MOST, Log, Refusal, sorted_out

TRACE = """I1118 01:43:32.3 26605 handshaker.cc:155] CallNextHandshakerLocked: error=UNKNOWN: Ssl \
handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:100000c0:SSL \
routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid context: OK
=== Source Location Trace: ===
src/core/util/status_helper.cc:68
 shutdown=false index=2, args={endpoint=0x7f, grpc.internal.endpoint_local_address=ipv4:1.2.3.4:80,\
 grpc.internal.endpoint_peer_address=ipv4:10.1.2.3:46536, grpc.internal.security_connector=0x5}
I1118 01:43:32.3 26605 channel_trace.h:396] handshake manager 0x7f: Failed with error: UNKNOWN
"""


def test_the_tracer_becomes_one_line_and_all_others_pass():
    lines = [
        "2026-11-18 - INFO - server up\n",
        *TRACE.splitlines(True),
        "2026-11-18 - INFO - on it goes\n",
    ]
    before, refused, after = sorted_out(lines)
    assert (before, after) == (lines[0], lines[-1])
    assert str(refused) == "connection from 10.1.2.3:46536 refused: no certificate"


def test_a_good_handshake_and_other_lines_of_grpc_leave_nothing():
    good = "I1118 01:43:32.3 7 handshaker.cc:155] CallNextHandshakerLocked: error=OK shutdown=false"
    good += " args={grpc.internal.endpoint_peer_address=ipv4:10.1.2.3:46536}\n"
    assert list(sorted_out([good, "I1118 01:43:32.3 7 a.cc:1] other\n"])) == []
    warning = "W1118 01:43:32.3 7 a.cc:1] told\n"
    assert list(sorted_out([warning])) == [warning]


def test_a_flood_does_not_fill_the_disk(tmp_path):
    log = Log(tmp_path)
    for i in range(1000):
        log.write(Refusal(f"10.0.0.1:{i}", "no TLS"))
    written = (tmp_path / "log.txt").read_text().splitlines()
    assert MOST <= len(written) <= 2 * MOST + 1  # a minute may end meanwhile


SERVER = """import sys, time
from concurrent import futures
import grpc
key, certificate, authority = (open(f"{sys.argv[1]}/{n}", "rb").read() for n in ("k", "c", "a"))
server = grpc.server(futures.ThreadPoolExecutor(2))
how = grpc.ssl_server_credentials([(key, certificate)], authority, True)
print("port", server.add_secure_port("127.0.0.1:0", how), flush=True)
server.start()
time.sleep(60)
"""


def make_certificate(folder, name, issuer=None):
    """Writes key, certificate and authority of `name`; returns what signs others."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, signer_name, root = issuer or (key, subject, None)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    folder.mkdir(exist_ok=True)
    (folder / "k").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption_algorithm=plain)
    )
    (folder / "c").write_bytes(made.public_bytes(pem))
    (folder / "a").write_bytes((root or made).public_bytes(pem))
    return key, subject, root or made


def knock(port, **how):
    """Connect as a stranger would; returns the own port, which the line must name."""
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        mine = plain.getsockname()[1]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if "certificate" in how:
            context.load_cert_chain(how["certificate"] / "c", how["certificate"] / "k")
        if "tls" in how:
            context.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings(action="ignore"):  # it is old, that is the point
                context.minimum_version = context.maximum_version = how["tls"]
        try:
            if "text" in how:
                plain.sendall(how["text"])
                plain.recv(10)
            else:
                with context.wrap_socket(plain) as secure:
                    secure.recv(10)
        except OSError:
            pass
    return mine


def strangers(folder):
    """What a stranger can try: (what the line must say, how to knock)."""
    make_certificate(folder, "localhost")
    return {
        "no certificate": {},
        "certificate of another authority": {"certificate": folder},
        "TLS too old": {"tls": ssl.TLSVersion.TLSv1_1},
        "no TLS": {"text": b"GET / HTTP/1.0\r\n\r\n"},
    }


def wait_for_lines(log, wanted, patience=20):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        text = log.read_text() if log.exists() else ""
        if all(line in text for line in wanted):
            return
        time.sleep(0.1)
    raise AssertionError(f"{[line for line in wanted if line not in text]} not in {text}")


def test_every_kind_of_stranger_is_noted_with_address_and_reason(tmp_path):
    """The attack: a refused connection left no line anywhere. A gRPC server as FLARE's is."""
    pytest.importorskip("grpc")
    pytest.importorskip("cryptography")
    authority = make_certificate(tmp_path / "authority", "authority")
    make_certificate(tmp_path / "own", "localhost", authority)
    door = subprocess.Popen(
        [sys.executable, "-I", flare_door.__file__, str(tmp_path)], stdin=subprocess.PIPE
    )
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path / "own")],
        stdout=door.stdin,
        stderr=subprocess.STDOUT,
        env=os.environ | flare_door.TRACING,
    )
    door.stdin.close()
    try:
        wait_for_lines(tmp_path / "node.log", ["port "])
        port = int((tmp_path / "node.log").read_text().partition("port ")[2].split()[0])
        wanted = [
            f"WARNING - connection from 127.0.0.1:{knock(port, **how)} refused: {reason}"
            for reason, how in strangers(tmp_path / "evil").items()
        ]
        wait_for_lines(tmp_path / "log.txt", wanted)
        assert "handshaker.cc" not in (tmp_path / "node.log").read_text()
    finally:
        server.kill()
        server.wait(10)
        assert door.wait(10) == 0  # it ends with its node
