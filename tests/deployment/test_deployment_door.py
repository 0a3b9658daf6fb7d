"""A refused connection leaves a line with its address and the reason."""

import datetime
import socket
import ssl
import subprocess
import sys
import time
import warnings

import pytest

from compositefl.core.door import MOST, Notes, in_words


def test_a_flood_does_not_fill_the_disk(caplog):
    notes = Notes()
    for i in range(1000):
        notes.refused(f"10.0.0.1:{i}", "no TLS")
    assert MOST <= len(caplog.records) <= 2 * MOST + 1  # a minute may end meanwhile
    notes.minute -= 1
    notes.refused("10.0.0.2:1", "no TLS")
    assert any("more connections refused in a minute" in r.message for r in caplog.records)


def test_what_the_other_side_says_of_the_server_is_in_words():
    """They refuse the server, not the server them: the line had OpenSSL's own text."""
    alerts = "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED"
    for alert in alerts:
        error = ssl.SSLError(1, f"[SSL: SSLV3_ALERT_{alert}] ssl/tls alert (_ssl.c:1016)")
        assert in_words(error).startswith("it ") and "server's" in in_words(error)
    assert in_words(ssl.SSLError(1, "\x1b[2J\nfine")).isprintable()


SERVER = """import asyncio, logging, ssl, sys
from compositefl.core.door import Door
assert not {"jax", "numpy"} & set(sys.modules), "the server's process must stay small"
logging.basicConfig(filename=sys.argv[1] + "/log.txt", format="%(levelname)s - %(message)s")
Door()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # as FLARE makes it
context.verify_mode, context.minimum_version = ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2
context.load_verify_locations(sys.argv[1] + "/own/a")
context.load_cert_chain(sys.argv[1] + "/own/c", sys.argv[1] + "/own/k")

async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
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
        if "knows" in how:  # another authority, and so does not take the server's certificate
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(how["knows"] / "a")
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
        "it does not know this server's authority": {"knows": folder},
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
    """The attack: a refused connection left no line anywhere. A server of asyncio, as FLARE's."""
    pytest.importorskip("cryptography")
    authority = make_certificate(tmp_path / "authority", "authority")
    make_certificate(tmp_path / "own", "localhost", authority)
    make_certificate(tmp_path / "friend", "friend", authority)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(server.stdout.readline())
        friend = knock(port, certificate=tmp_path / "friend")
        wanted = [
            f"WARNING - connection from 127.0.0.1:{knock(port, **how)} refused: {reason}"
            for reason, how in strangers(tmp_path / "evil").items()
        ]
        wait_for_lines(tmp_path / "log.txt", wanted)
        assert f":{friend} " not in (tmp_path / "log.txt").read_text()
    finally:
        server.kill()
        server.wait(10)
